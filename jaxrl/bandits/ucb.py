"""Upper confidence bounds."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl.bandits.base import BanditAlgorithm, Task, View, argmax


class ArmSums(NamedTuple):
    """What was received of each arm.

    Attributes:
      pulls: float32 `[K]`.
      sums: float32 `[K]`, of rewards.
    """

    pulls: jax.Array
    sums: jax.Array


@struct.dataclass
class UCB1HParams:
    """Attributes:
    exploration: c of mean + sqrt(c ln t / pulls), 2 in the paper.
    """

    exploration: float = 2.0


@functools.cache
def ucb1() -> BanditAlgorithm:
    """UCB1: each arm once, then the one with the highest mean + sqrt(c ln t / pulls).

    For rewards in [0, 1]; t counts the pulls so far.

    Source: Auer, Cesa-Bianchi and Fischer (2002), figure 1.
    """

    def init(key: jax.Array, task: Task, params: Any, hparams: UCB1HParams) -> ArmSums:
        del key, params, hparams
        return ArmSums(jnp.zeros(task.num_arms), jnp.zeros(task.num_arms))

    def choose(key: jax.Array, state: ArmSums, view: View, hparams: UCB1HParams) -> jax.Array:
        del key
        log_time = jnp.log(jnp.maximum(view.time, 1).astype(jnp.float32))
        inverse = 1 / jnp.maximum(state.pulls, 1.0)
        index = state.sums * inverse + jnp.sqrt(hparams.exploration * log_time * inverse)
        return argmax(jnp.where(state.pulls > 0, index, jnp.inf), view.mask)

    def update(state: ArmSums, view: View, action: jax.Array, reward: jax.Array, hparams: UCB1HParams) -> ArmSums:
        del view, hparams
        pulled = (jnp.arange(state.pulls.shape[0]) == action).astype(jnp.float32)
        return ArmSums(state.pulls + pulled, state.sums + pulled * reward)

    def recommend(state: ArmSums, hparams: UCB1HParams) -> jax.Array:
        del hparams
        return argmax(state.pulls)

    return BanditAlgorithm("ucb1", UCB1HParams(), init, choose, update, recommend, lambda task: None)
