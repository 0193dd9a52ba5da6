"""KL-UCB, and the inverse of the binary relative entropy that it uses."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl.bandits.arms import NOT_NEGATIVE, ArmSums, add, log_time, means, most_pulled, no_sums, untried_first
from jaxrl.bandits.base import BanditAlgorithm, View
from jaxrl.bandits.checks import check_unit_rewards
from jaxrl.checks import Settings, ranged

TINY = 1e-30
NEWTON_STEPS = 3

__all__ = ["KLUCBHParams", "kl_ucb", "kl_upper"]


@struct.dataclass
class KLUCBHParams(Settings):
    """Hyper-parameters of `kl_ucb`.

    Attributes:
      log_log: Factor c in the level ln t + c ln ln t, 3 in the analysis and 0 in the experiments; at least 0.
    """

    log_log: float = ranged(0.0, NOT_NEGATIVE)


@functools.cache
def kl_ucb() -> BanditAlgorithm:
    """KL-UCB: each arm once, then the one with the highest q for which pulls kl(mean, q) <= ln t + c ln ln t.

    For rewards in [0, 1]; kl is the relative entropy of Bernoulli distributions, t counts the
    pulls so far, and ln ln t is 0 up to t = e.

    Source: Garivier and Cappe (2011), algorithm 1.
    """

    def choose(key: jax.Array, state: ArmSums, view: View, hparams: KLUCBHParams) -> jax.Array:
        del key
        log = log_time(view)
        level = log + hparams.log_log * jnp.log(jnp.maximum(log, 1.0))
        return untried_first(state, kl_upper(means(state), level / jnp.maximum(state.pulls, 1.0)), view)

    check = functools.partial(check_unit_rewards, "kl-ucb")
    return BanditAlgorithm("kl-ucb", KLUCBHParams(), no_sums, choose, add, most_pulled, check)


def kl_upper(mean: jax.Array, level: jax.Array) -> jax.Array:
    """The largest q in [mean, 1] for which kl(mean, q), of Bernoulli distributions, is at most a level.

    Newton's method on y = ln((1 - mean) / (1 - q)), in which kl is convex with the slope
    1 - mean at infinity, so it converges from above from any start, without
    bounds. It starts where the expansions at both ends add up, which is above the root and close to it.

    Args:
      mean: Means, float32 `[*S]` in [0, 1].
      level: Levels, float32 `[*S]`, at least 0.

    Returns:
      `[*S]`, within 3e-7 of the root.
    """
    ratio = (1 - mean) / jnp.maximum(mean, TINY)
    rest = jnp.maximum(1 - mean, TINY)
    shift = level / rest + jnp.sqrt(2 * level / jnp.maximum(ratio, TINY))

    def step(_: int, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        shift, gain = carry
        error = rest * shift - mean * jnp.log1p(ratio * gain) - level
        slope = rest * gain / jnp.maximum(mean + rest * gain, TINY)  # (q - mean) / q
        shift = jnp.maximum(shift - error / jnp.maximum(slope, TINY), 0.0)
        return shift, -jnp.expm1(-shift)

    # A loop, because XLA on CPUs would compute unrolled steps arm by arm, inside the search for the best.
    _, gain = jax.lax.fori_loop(0, NEWTON_STEPS, step, (shift, -jnp.expm1(-shift)))
    return mean + (1 - mean) * gain
