"""Upper confidence bounds in closed form."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from envs.bandits.batched_last import runs_last
from jaxrl.bandits.arms import (
    NOT_NEGATIVE,
    POSITIVE,
    ArmSums,
    Tally,
    add,
    log_time,
    means,
    most_pulled,
    no_sums,
    one_hot,
    untried_first,
)
from jaxrl.bandits.base import BanditAlgorithm, Task, View, argmax
from jaxrl.bandits.checks import check_arms
from jaxrl.checks import Settings, ranged
from jaxrl.pytrees import EnvParams

__all__ = ["MOSSHParams", "UCB1HParams", "UCBVHParams", "moss", "ucb1", "ucb_v"]


class ArmSquares(NamedTuple):
    """Pulls, rewards and squared rewards of each arm.

    Attributes:
      arms: Pulls and sums of rewards.
      squares: Sums of squared rewards, `[K]`.
    """

    arms: ArmSums
    squares: Tally


@struct.dataclass
class UCB1HParams(Settings):
    """Hyper-parameters of `ucb1`.

    Attributes:
      exploration: Factor c in mean + sqrt(c ln t / pulls), 2 in the paper; at least 0.
    """

    exploration: float = ranged(2.0, NOT_NEGATIVE)


@struct.dataclass
class UCBVHParams(Settings):
    """Hyper-parameters of `ucb_v`.

    Attributes:
      exploration: Factor zeta in the bound, above 1 in the analysis; at least 0.
      correction: Factor c of the term for few pulls, 1 in the analysis; at least 0.
      range: Largest reward b of a pull, where rewards are at least 0; above 0.
    """

    exploration: float = ranged(1.2, NOT_NEGATIVE)
    correction: float = ranged(1.0, NOT_NEGATIVE)
    range: float = ranged(1.0, POSITIVE)


@struct.dataclass
class MOSSHParams(Settings):
    """Hyper-parameters of `moss`.

    Attributes:
      exploration: Factor of the bonus, 1 in the paper; at least 0.
    """

    exploration: float = ranged(1.0, NOT_NEGATIVE)


@functools.cache
def ucb1() -> BanditAlgorithm:
    """UCB1: each arm once, then the one with the highest mean + sqrt(c ln t / pulls).

    For rewards in [0, 1]; t counts the pulls so far.

    Source: Auer, Cesa-Bianchi and Fischer (2002), figure 1.
    """

    def choose(key: jax.Array, state: ArmSums, view: View, hparams: UCB1HParams) -> jax.Array:
        del key
        return argmax(_ucb1_index(state.pulls, state.sums, hparams.exploration * log_time(view)), view.mask)

    check = functools.partial(check_arms, "ucb1")
    return BanditAlgorithm("ucb1", UCB1HParams(), no_sums, choose, add, most_pulled, check)


@functools.cache
def ucb_v() -> BanditAlgorithm:
    """UCB-V: each arm once, then the one with the highest mean + sqrt(2 V E / pulls) + 3 b c E / pulls.

    For rewards in [0, b]. V is the variance of an arm's rewards, over its pulls, and E is
    zeta ln t; t counts the pulls so far.

    Source: Audibert, Munos and Szepesvari (2009), equation 1.
    """

    def init(key: jax.Array, task: Task, params: EnvParams, hparams: UCBVHParams) -> ArmSquares:
        return ArmSquares(no_sums(key, task, params, hparams), Tally.zeros(task.num_arms))

    def choose(key: jax.Array, state: ArmSquares, view: View, hparams: UCBVHParams) -> jax.Array:
        del key
        inverse = 1 / jnp.maximum(state.arms.pulls, 1.0)
        mean = state.arms.sums * inverse
        variance = jnp.maximum(state.squares.value * inverse - mean * mean, 0.0)
        level = hparams.exploration * log_time(view) * inverse
        index = mean + jnp.sqrt(2 * variance * level) + 3 * hparams.range * hparams.correction * level
        return untried_first(state.arms, index, view)

    def update(state: ArmSquares, view: View, action: jax.Array, reward: jax.Array, hparams: UCBVHParams) -> ArmSquares:
        pulled = one_hot(state.squares.low, action)
        return ArmSquares(add(state.arms, view, action, reward, hparams), state.squares.add(pulled * reward * reward))

    def recommend(state: ArmSquares, hparams: UCBVHParams) -> jax.Array:
        return most_pulled(state.arms, hparams)

    check = functools.partial(check_arms, "ucb-v")
    return BanditAlgorithm("ucb-v", UCBVHParams(), init, choose, update, recommend, check)


@functools.cache
def moss() -> BanditAlgorithm:
    """MOSS: each arm once, then the one with the highest mean + sqrt(max(ln(T / (K pulls)), 0) / pulls).

    For rewards in [0, 1]; T is the run's horizon.

    Source: Audibert and Bubeck (2009), section 2.
    """

    def choose(key: jax.Array, state: ArmSums, view: View, hparams: MOSSHParams) -> jax.Array:
        del key
        pulls = jnp.maximum(state.pulls, 1.0)
        share = view.horizon.astype(jnp.float32) / (pulls.shape[0] * pulls)
        bonus = hparams.exploration * jnp.sqrt(jnp.maximum(jnp.log(share), 0.0) / pulls)
        return untried_first(state, means(state) + bonus, view)

    check = functools.partial(check_arms, "moss")
    return BanditAlgorithm("moss", MOSSHParams(), no_sums, choose, add, most_pulled, check)


@runs_last
def _ucb1_index(pulls: jax.Array, sums: jax.Array, level: jax.Array) -> jax.Array:
    """mean + sqrt(level / pulls) of each arm `[K]`, infinite for an arm that was not pulled."""
    inverse = 1 / jnp.maximum(pulls, 1.0)
    return jnp.where(pulls > 0, sums * inverse + jnp.sqrt(level * inverse), jnp.inf)
