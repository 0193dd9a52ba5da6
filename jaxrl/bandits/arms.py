"""Pulls and rewards of each arm, and operations on them that many policies share."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from envs.bandits.batched_last import runs_last
from jaxrl.bandits.base import Task, View, argmax
from jaxrl.checks import Range
from jaxrl.pytrees import EnvParams, HParams

POSITIVE = Range(0, float("inf"), "()")
MOVED_FROM = 2.0**20
NOT_NEGATIVE = Range(0, float("inf"), "[)")

__all__ = [
    "NOT_NEGATIVE",
    "POSITIVE",
    "ArmSums",
    "ArmWeights",
    "Tally",
    "add",
    "best_mean",
    "log_time",
    "means",
    "most_pulled",
    "no_sums",
    "one_hot",
    "untried_first",
]


class Tally(NamedTuple):
    """A float32 sum of terms of about 1 that remains exact beyond 2^24, where one float32 cannot take another term.

    Attributes:
      low: Sum of the terms since the last move to `high`, which happens once this sum reaches `MOVED_FROM`.
      high: Sum of the terms moved so far.
    """

    low: jax.Array
    high: jax.Array

    @classmethod
    def zeros(cls, *shape: int) -> Tally:
        """Sums of no terms."""
        return cls(jnp.zeros(shape), jnp.zeros(shape))

    @property
    def value(self) -> jax.Array:
        """The sum, equal bit for bit to that of a single float32 until the first move."""
        return self.low + self.high

    def add(self, term: jax.Array) -> Tally:
        """The tally with one more term."""
        low = self.low + term
        moved = jnp.where(jnp.abs(low) >= MOVED_FROM, low, 0.0)
        return Tally(low - moved, self.high + moved)


class ArmWeights(NamedTuple):
    """Pulls and rewards of each arm with decreasing weights of old rewards.

    Attributes:
      pulls: Weights of pulls, float32 `[K]`.
      sums: Sums of rewards, float32 `[K]`.
    """

    pulls: jax.Array
    sums: jax.Array


class ArmSums(NamedTuple):
    """Pulls and rewards of each arm.

    Attributes:
      counted: Numbers of pulls, `[K]`.
      received: Sums of rewards, `[K]`.
    """

    counted: Tally
    received: Tally

    @property
    def pulls(self) -> jax.Array:
        """The number of pulls of each arm, float32 `[K]`."""
        return self.counted.value

    @property
    def sums(self) -> jax.Array:
        """The sum of rewards of each arm, float32 `[K]`."""
        return self.received.value


def no_sums(key: jax.Array, task: Task, params: EnvParams, hparams: HParams) -> ArmSums:
    """The state before the first pull, a policy's `init`."""
    del key, params, hparams
    return ArmSums(Tally.zeros(task.num_arms), Tally.zeros(task.num_arms))


def add(state: ArmSums, view: View, action: jax.Array, reward: jax.Array, hparams: HParams) -> ArmSums:
    """The state after one more reward, a policy's `update`."""
    del view, hparams
    return _added(state, action, reward)


@runs_last
def _added(state: ArmSums, action: jax.Array, reward: jax.Array) -> ArmSums:
    counts = state.counted.low
    arms = jnp.arange(counts.shape[0]).reshape(-1, *[1] * (counts.ndim - 1))
    pulled = (arms == action).astype(jnp.float32)
    return ArmSums(state.counted.add(pulled), state.received.add(pulled * reward))


def one_hot(like: jax.Array, action: jax.Array) -> jax.Array:
    """1 for the arm of the action and 0 for others, float32 in the shape `[K]` of another array."""
    return (jnp.arange(like.shape[0]) == action).astype(jnp.float32)


def means(state: ArmSums | ArmWeights) -> jax.Array:
    """The mean reward of each arm, `[K]`; 0 for an arm that was not pulled."""
    return state.sums / jnp.maximum(state.pulls, 1.0)


def untried_first(state: ArmSums | ArmWeights, index: jax.Array, view: View) -> jax.Array:
    """The first arm that was not pulled, or else the first of the highest index, int32 `[]`."""
    return argmax(jnp.where(state.pulls > 0, index, jnp.inf), view.mask)


def log_time(view: View) -> jax.Array:
    """The logarithm of the number of pulls so far, at least 0."""
    return jnp.log(jnp.maximum(view.time, 1).astype(jnp.float32))


def most_pulled(state: ArmSums | ArmWeights, hparams: HParams) -> jax.Array:
    """The arm that was pulled most, a policy's `recommend`."""
    del hparams
    return argmax(state.pulls)


def best_mean(state: ArmSums, hparams: HParams) -> jax.Array:
    """The arm of the highest mean reward among those that were pulled, a policy's `recommend`."""
    del hparams
    return argmax(jnp.where(state.pulls > 0, means(state), -jnp.inf))
