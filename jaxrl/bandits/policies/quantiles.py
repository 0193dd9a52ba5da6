"""Bayes-UCB, and the upper quantiles of Beta distributions that it uses."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl.bandits.arms import NOT_NEGATIVE, POSITIVE, ArmSums, add, most_pulled, no_sums
from jaxrl.bandits.base import BanditAlgorithm, View, argmax
from jaxrl.bandits.beta import once_if
from jaxrl.bandits.checks import check_unit_rewards
from jaxrl.checks import Settings, ranged

TINY = 1e-30
NEWTON_STEPS = 3
FRACTION_TERMS = 12
LARGE = 8.0
HALF_LOG_2_PI = 0.5 * math.log(2 * math.pi)

__all__ = ["BayesUCBHParams", "bayes_ucb", "beta_upper_quantile"]


@struct.dataclass
class BayesUCBHParams(Settings):
    """Hyper-parameters of `bayes_ucb`.

    Attributes:
      log_power: Exponent c of the level 1 / (t (ln T)^c), 5 in the analysis and 0 in the experiments; at least 0.
      alpha, beta: Parameters of the Beta prior of every mean, each above 0; 1 and 1 is uniform.
    """

    log_power: float = ranged(0.0, NOT_NEGATIVE)
    alpha: float = ranged(1.0, POSITIVE)
    beta: float = ranged(1.0, POSITIVE)


@functools.cache
def bayes_ucb() -> BanditAlgorithm:
    """Bayes-UCB: the arm whose posterior has the highest quantile 1 - 1 / (t (ln T)^c) at the pull number t.

    For rewards in [0, 1], with a Beta prior; a reward r between 0 and 1 counts as r successes and 1 - r failures. T is
    the run's horizon; the level is at least the median.

    Source: Kaufmann, Cappe and Garivier (2012), algorithm 1.
    """

    def choose(key: jax.Array, state: ArmSums, view: View, hparams: BayesUCBHParams) -> jax.Array:
        del key
        wins, losses = state.sums, jnp.maximum(state.pulls - state.sums, 0.0)
        log_horizon = jnp.maximum(jnp.log(view.horizon.astype(jnp.float32)), 1.0)
        tail = 1 / ((view.time + 1).astype(jnp.float32) * log_horizon**hparams.log_power)
        return argmax(beta_upper_quantile(tail, hparams.alpha + wins, hparams.beta + losses), view.mask)

    check = functools.partial(check_unit_rewards, "bayes-ucb")
    return BanditAlgorithm("bayes-ucb", BayesUCBHParams(), no_sums, choose, add, most_pulled, check)


def beta_upper_quantile(tail: jax.Array, alpha: jax.Array, beta: jax.Array) -> jax.Array:
    """The number that a Beta variate exceeds with a small probability, by arithmetic operations alone.

    The modified signed root of the log-likelihood, normal to third order, is inverted by
    Newton's method, which yields the probability within 6 %; one more step, on the
    logarithm of the probability by its continued fraction, corrects the rest.

    Args:
      tail: Probability, float32; one above 1/2 counts as 1/2.
      alpha, beta: Parameters, float32 `[*S]`, at least 0.5, with alpha + beta at most about 2 / tail, as for a Bayesian
        index; beyond that the fraction is truncated, with errors of up to 1e-3 standard deviations.

    Returns:
      `[*S]`, within 7e-5 of the quantile where alpha or beta is below 1, otherwise mostly within 1e-6: the largest
      error measured is 6.8e-5.

    Source: Barndorff-Nielsen (1991) for the root; Abramowitz and Stegun (1964), 26.5.8, for the fraction.
    """
    tail = jnp.minimum(tail, 0.5)
    normal = -jax.scipy.special.ndtri(tail)
    total = alpha + beta
    mean, rest, ratio = alpha / total, beta / total, beta / alpha
    deviation = jnp.sqrt(mean * rest / total)
    least = -0.99 * jnp.log1p(alpha / beta)  # least value of the shift ln((1 - mean) / (1 - x)), short of x = 0

    def quantile(shift: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        gain = -jnp.expm1(-shift)
        above = rest * gain
        divergence = beta * shift - alpha * jnp.log1p(ratio * gain)
        return mean + above, above, jnp.maximum(divergence, 0.0)

    level = 0.5 * normal * normal
    shift = level / beta + jnp.sqrt(2 * level * mean / beta)

    def step(_: int, shift: jax.Array) -> jax.Array:
        x, above, divergence = quantile(shift)
        root = jnp.sign(above) * jnp.sqrt(2 * divergence)
        near = jnp.abs(root) < 0.1
        scale = jnp.where(near, deviation, above / jnp.where(near, 1.0, root))
        correction = jnp.log(scale / deviation) / jnp.where(near, 1.0, root)
        correction = jnp.where(near, (rest - mean) / (3 * jnp.sqrt(alpha * rest)), correction)
        return jnp.maximum(shift - (root + correction - normal) * x / (total * scale), least)

    def last_step(shift: jax.Array, turn: jax.Array) -> jax.Array:
        del turn
        x, _, divergence = quantile(shift)
        fraction = _fraction(beta, alpha, 1 - x)
        front = 0.5 * jnp.log(alpha / (beta * total)) - HALF_LOG_2_PI
        front += _stirling(total) - _stirling(alpha) - _stirling(beta)
        excess = front - divergence + jnp.log(fraction) - jnp.log(tail)
        last = jnp.where(jnp.abs(excess) < 0.3, excess, 0.0) * x * fraction / beta
        return quantile(shift + last)[0]

    # Loops, because XLA on CPUs would compute unrolled steps arm by arm, inside the search for the best.
    shift = jax.lax.fori_loop(0, NEWTON_STEPS, step, shift)
    return once_if(jnp.any(shift == shift), last_step, shift)


def _fraction(a: jax.Array, b: jax.Array, x: jax.Array) -> jax.Array:
    """I_x(a, b) a B(a, b) / (x^a (1 - x)^b), of the incomplete Beta function, by its continued fraction."""
    value = jnp.ones_like(x)
    for term in range(FRACTION_TERMS, 0, -1):
        m = term // 2
        if term % 2:
            coefficient = -(a + m) * (a + b + m) / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            coefficient = m * (b - m) / ((a + 2 * m - 1) * (a + 2 * m))
        value = 1 + coefficient * x / value
    return 1 / value


def _stirling(x: jax.Array) -> jax.Array:
    """The remainder of Stirling's formula for the logarithm of the gamma function, from a short series at x + 4."""
    small = jnp.minimum(x, LARGE)
    up = small + 4
    steps = jnp.log(small * (small + 1) * (small + 2) * (small + 3))
    shifted = (up - 0.5) * jnp.log(up) - 4 - steps - (small - 0.5) * jnp.log(small) + _series(up)
    return jnp.where(x < LARGE, shifted, _series(x))


def _series(x: jax.Array) -> jax.Array:
    inverse = 1 / x
    square = inverse * inverse
    return inverse * (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square / 1680)))
