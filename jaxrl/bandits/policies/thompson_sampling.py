"""Thompson sampling: each arm is pulled with the posterior probability that it is the best."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from envs.bandits.batched_last import runs_last
from jaxrl.bandits.arms import POSITIVE, ArmSums, add, no_sums, one_hot
from jaxrl.bandits.base import BanditAlgorithm, Task, View, argmax
from jaxrl.bandits.beta import beta
from jaxrl.bandits.checks import check_arms, check_unit_rewards
from jaxrl.checks import Range, Settings, ranged
from jaxrl.pytrees import EnvParams, Number

NEWTON_STEPS = 16
ANY = Range(-float("inf"), float("inf"), "()")

__all__ = [
    "GaussianThompsonHParams",
    "LaplaceThompsonHParams",
    "ThompsonHParams",
    "log_odds_mode",
    "thompson",
    "thompson_gaussian",
    "thompson_laplace",
]


class Modes(NamedTuple):
    """Pulls and rewards of each arm, and the mode of the posterior of its log-odds.

    Attributes:
      arms: Pulls and sums of rewards.
      mode: Modes, float32 `[K]`.
    """

    arms: ArmSums
    mode: jax.Array


@struct.dataclass
class ThompsonHParams(Settings):
    """Hyper-parameters of `thompson`.

    Attributes:
      alpha, beta: Parameters of the Beta prior of every mean, each above 0; 1 and 1 is uniform.
    """

    alpha: float = ranged(1.0, POSITIVE)
    beta: float = ranged(1.0, POSITIVE)


@struct.dataclass
class GaussianThompsonHParams(Settings):
    """Hyper-parameters of `thompson_gaussian`.

    Attributes:
      mean, scale: Mean and standard deviation of the normal prior of every mean, the latter above 0.
      sigma: Standard deviation of a reward, assumed to be known; above 0.
    """

    mean: float = ranged(0.0, ANY)
    scale: float = ranged(1.0, POSITIVE)
    sigma: float = ranged(1.0, POSITIVE)


@struct.dataclass
class LaplaceThompsonHParams(Settings):
    """Hyper-parameters of `thompson_laplace`.

    Attributes:
      mean, scale: Mean and standard deviation of the normal prior of every arm's log-odds, the latter above 0.
    """

    mean: float = ranged(0.0, ANY)
    scale: float = ranged(1.5, POSITIVE)


@functools.cache
def thompson() -> BanditAlgorithm:
    """Thompson sampling with a Beta prior: the arm whose draw from its posterior is the highest.

    For rewards in [0, 1]; a reward r in between counts as r successes and 1 - r failures.

    Source: Thompson (1933); Agrawal and Goyal (2012), algorithm 1.
    """

    def choose(key: jax.Array, state: ArmSums, view: View, hparams: ThompsonHParams) -> jax.Array:
        return argmax(beta(key, *_posterior(state, hparams.alpha, hparams.beta)), view.mask)

    def recommend(state: ArmSums, hparams: ThompsonHParams) -> jax.Array:
        wins, losses = _posterior(state, hparams.alpha, hparams.beta)
        return argmax(wins / (wins + losses))

    check = functools.partial(check_unit_rewards, "thompson")
    return BanditAlgorithm("thompson", ThompsonHParams(), no_sums, choose, add, recommend, check)


@functools.cache
def thompson_gaussian() -> BanditAlgorithm:
    """Thompson sampling for normal rewards of a known standard deviation, with a normal prior of each mean.

    Source: Russo, Van Roy, Kazerouni, Osband and Wen (2018), section 4.
    """

    def posterior(state: ArmSums, hparams: GaussianThompsonHParams) -> tuple[jax.Array, jax.Array]:
        prior, noise = hparams.scale**-2, hparams.sigma**-2
        precision = prior + noise * state.pulls
        return (prior * hparams.mean + noise * state.sums) / precision, jax.lax.rsqrt(precision)

    def choose(key: jax.Array, state: ArmSums, view: View, hparams: GaussianThompsonHParams) -> jax.Array:
        mean, deviation = posterior(state, hparams)
        return argmax(mean + deviation * jax.random.normal(key, mean.shape), view.mask)

    def recommend(state: ArmSums, hparams: GaussianThompsonHParams) -> jax.Array:
        return argmax(posterior(state, hparams)[0])

    check = functools.partial(check_arms, "thompson-gaussian")
    return BanditAlgorithm("thompson-gaussian", GaussianThompsonHParams(), no_sums, choose, add, recommend, check)


@functools.cache
def thompson_laplace() -> BanditAlgorithm:
    """Thompson sampling with a normal prior of each arm's log-odds, to which rewards are not conjugate.

    The posterior is replaced by the normal distribution with the same mode and the same curvature
    there, Laplace's approximation. For rewards in [0, 1], as in `thompson`.

    Source: Russo, Van Roy, Kazerouni, Osband and Wen (2018), section 5.2.
    """

    def init(key: jax.Array, task: Task, params: EnvParams, hparams: LaplaceThompsonHParams) -> Modes:
        mode = jnp.full(task.num_arms, hparams.mean, jnp.float32)
        return Modes(no_sums(key, task, params, hparams), mode)

    def choose(key: jax.Array, state: Modes, view: View, hparams: LaplaceThompsonHParams) -> jax.Array:
        chance = jax.nn.sigmoid(state.mode)
        precision = hparams.scale**-2 + state.arms.pulls * chance * (1 - chance)
        return argmax(state.mode + jax.lax.rsqrt(precision) * jax.random.normal(key, state.mode.shape), view.mask)

    def update(
        state: Modes, view: View, action: jax.Array, reward: jax.Array, hparams: LaplaceThompsonHParams
    ) -> Modes:
        arms = add(state.arms, view, action, reward, hparams)
        pulled = one_hot(arms.pulls, action)
        mode = log_odds_mode(jnp.sum(pulled * arms.pulls), jnp.sum(pulled * arms.sums), hparams.mean, hparams.scale)
        return Modes(arms, jnp.where(pulled > 0, mode, state.mode))

    def recommend(state: Modes, hparams: LaplaceThompsonHParams) -> jax.Array:
        del hparams
        return argmax(state.mode)

    check = functools.partial(check_unit_rewards, "thompson-laplace")
    return BanditAlgorithm("thompson-laplace", LaplaceThompsonHParams(), init, choose, update, recommend, check)


def log_odds_mode(pulls: jax.Array, sums: jax.Array, mean: Number, scale: Number) -> jax.Array:
    """The most probable log-odds after a number of rewards of 0 and 1, under a normal prior.

    The root of pulls sigmoid(x) + (x - mean) / scale^2 = sums, by Newton's method from the inflection
    point of the left side, x = 0: from there each step approaches the root and never passes it.

    Args:
      pulls, sums: Number of rewards and their sum, float32 `[]`.
      mean, scale: Mean and standard deviation of the prior, traced.

    Returns:
      `[]`; 16 steps reach roots up to log-odds of about 12, and stop short of more extreme ones.
    """
    precision = jnp.float32(scale) ** -2
    mode = jnp.zeros_like(pulls)
    for _ in range(NEWTON_STEPS):
        chance = jax.nn.sigmoid(mode)
        error = pulls * chance + (mode - mean) * precision - sums
        mode = mode - error / (pulls * chance * (1 - chance) + precision)
    return mode


@runs_last
def _posterior(state: ArmSums, alpha: jax.Array | float, beta: jax.Array | float) -> tuple[jax.Array, jax.Array]:
    return alpha + state.sums, beta + jnp.maximum(state.pulls - state.sums, 0.0)
