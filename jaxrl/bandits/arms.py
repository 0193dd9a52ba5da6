"""What was received of each arm, and what many policies do with it."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from envs.bandits.lanes import runs_last
from jaxrl.bandits.base import Task, View, argmax
from jaxrl.checks import Range

POSITIVE = Range(0, float("inf"), "()")
NOT_NEGATIVE = Range(0, float("inf"), "[)")

__all__ = [
    "NOT_NEGATIVE",
    "POSITIVE",
    "ArmSums",
    "add",
    "best_mean",
    "log_time",
    "means",
    "most_pulled",
    "no_sums",
    "one_hot",
    "untried_first",
]


class ArmSums(NamedTuple):
    """What was received of each arm.

    Attributes:
      pulls: float32 `[K]`.
      sums: float32 `[K]`, of rewards.
    """

    pulls: jax.Array
    sums: jax.Array


def no_sums(key: jax.Array, task: Task, params: Any, hparams: Any) -> ArmSums:
    """Before the first pull, a policy's `init`."""
    del key, params, hparams
    return ArmSums(jnp.zeros(task.num_arms), jnp.zeros(task.num_arms))


def add(state: ArmSums, view: View, action: jax.Array, reward: jax.Array, hparams: Any) -> ArmSums:
    """One more reward, a policy's `update`."""
    del view, hparams
    return ArmSums(*_added(state.pulls, state.sums, action, reward))


@runs_last
def _added(pulls: jax.Array, sums: jax.Array, action: jax.Array, reward: jax.Array) -> tuple[jax.Array, jax.Array]:
    arms = jnp.arange(pulls.shape[0]).reshape(-1, *[1] * (pulls.ndim - 1))
    pulled = (arms == action).astype(jnp.float32)
    return pulls + pulled, sums + pulled * reward


def one_hot(like: jax.Array, action: jax.Array) -> jax.Array:
    """1 for the arm of the action and 0 for others, float32 in the shape `[K]` of another array."""
    return (jnp.arange(like.shape[0]) == action).astype(jnp.float32)


def means(state: ArmSums) -> jax.Array:
    """The mean reward of each arm, `[K]`; 0 of one that was not pulled."""
    return state.sums / jnp.maximum(state.pulls, 1.0)


def untried_first(state: ArmSums, index: jax.Array, view: View) -> jax.Array:
    """The first arm that was not pulled, or else the first of the highest index, int32 `[]`."""
    return argmax(jnp.where(state.pulls > 0, index, jnp.inf), view.mask)


def log_time(view: View) -> jax.Array:
    """The logarithm of the pulls so far, at least 0."""
    return jnp.log(jnp.maximum(view.time, 1).astype(jnp.float32))


def most_pulled(state: ArmSums, hparams: Any) -> jax.Array:
    """The arm that was pulled most, a policy's `recommend`."""
    del hparams
    return argmax(state.pulls)


def best_mean(state: ArmSums, hparams: Any) -> jax.Array:
    """The arm of the highest mean reward among those that were pulled, a policy's `recommend`."""
    del hparams
    return argmax(jnp.where(state.pulls > 0, means(state), -jnp.inf))
