"""Sleeping arms: the arms that may be pulled are drawn before each pull."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from flax import struct

from envs.bandits.checking import check_number
from envs.bandits.wrapping import Wrapped, WrappedParams, WrappedState

__all__ = ["SleepingBandit", "SleepingParams", "SleepingState"]


@struct.dataclass
class SleepingParams(WrappedParams):
    """The probability that arms are awake.

    Attributes:
      inner: Parameters of the inner bandit.
      awake: Probability that an arm is awake at a pull, in [0, 1], one number or float32 `[K]`.
    """

    awake: float | jax.Array = 0.5

    def __post_init__(self) -> None:
        check_number("awake", self.awake, 0.0, 1.0, "[]")


@struct.dataclass
class SleepingState(WrappedState):
    """The inner bandit, and the arms that are awake.

    Attributes:
      awake: Arms that may be pulled next, bool `[K]`.
    """

    awake: jax.Array


@dataclasses.dataclass(frozen=True)
class SleepingBandit(Wrapped):
    """A bandit whose arms are awake at random, independently; regret is against the best arm that is awake.

    If all arms would sleep, the one whose draw was nearest to its threshold is awake.

    Args:
      num_arms: Number of arms of a Bernoulli bandit; omitted where `inner` is given.
      inner: Bandit whose arms sleep; None for a Bernoulli bandit.

    Raises:
      ValueError: There are fewer than two arms, or `inner` is not a bandit whose actions are single arms.

    Source: Kleinberg, Niculescu-Mizil and Sharma (2010), "Regret bounds for sleeping experts and
    bandits".
    """

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "bandit/sleeping"

    @property
    def default_params(self) -> SleepingParams:
        """Every arm is awake half of the time."""
        return SleepingParams(inner=self.bandit.default_params)

    def instance(self, key: jax.Array, params: SleepingParams) -> SleepingState:
        """A new instance of the inner bandit, and the arms awake at the start."""
        fields = self.within(jax.random.fold_in(key, 0), params)
        return SleepingState(**fields, awake=self._wake(jax.random.fold_in(key, 1), params))

    def drift(self, key: jax.Array, state: SleepingState, action: jax.Array, params: SleepingParams) -> SleepingState:
        """The drift of the inner bandit, and the arms awake next."""
        state = super().drift(jax.random.fold_in(key, 0), state, action, params)
        return dataclasses.replace(state, awake=self._wake(jax.random.fold_in(key, 1), params))

    def action_mask(self, state: SleepingState, params: SleepingParams) -> jax.Array:
        """The arms that are awake."""
        del params
        return state.awake

    def _wake(self, key: jax.Array, params: SleepingParams) -> jax.Array:
        """The arms that are awake, bool `[K]`, at least one."""
        excess = jax.random.uniform(key, (self.num_arms,)) - params.awake
        return (excess < 0) | (jnp.arange(self.num_arms) == jnp.argmin(excess))
