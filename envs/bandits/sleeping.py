"""Arms that sleep now and then: which may be pulled is drawn before each pull."""

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
    """How often arms are awake.

    Attributes:
      inner: of the bandit inside.
      awake: probability that an arm is awake at a pull, in [0, 1], one number or float32 `[K]`.
    """

    awake: float | jax.Array = 0.5

    def __post_init__(self) -> None:
        check_number("awake", self.awake, 0.0, 1.0, "[]")


@struct.dataclass
class SleepingState(WrappedState):
    """The bandit inside, and who is awake.

    Attributes:
      awake: bool `[K]`, the arms that may be pulled next.
    """

    awake: jax.Array


@dataclasses.dataclass(frozen=True)
class SleepingBandit(Wrapped):
    """A bandit whose arms are awake at random, each on its own; regret is against the best arm that is awake.

    Where all would sleep, the one that was nearest to being awake is woken.

    Args:
      num_arms: of a Bernoulli bandit; left out where `inner` is given.
      inner: the bandit whose arms sleep; None for a Bernoulli bandit.

    Raises:
      ValueError: fewer than two arms, or `inner` is no bandit whose actions are single arms.

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
        """A new instance of the bandit inside, and who is awake at first."""
        fields = self.within(jax.random.fold_in(key, 0), params)
        return SleepingState(**fields, awake=self._wake(jax.random.fold_in(key, 1), params))

    def drift(self, key: jax.Array, state: SleepingState, action: jax.Array, params: SleepingParams) -> SleepingState:
        """The drift of the bandit inside, and who is awake next."""
        state = super().drift(jax.random.fold_in(key, 0), state, action, params)
        return dataclasses.replace(state, awake=self._wake(jax.random.fold_in(key, 1), params))

    def action_mask(self, state: SleepingState, params: SleepingParams) -> jax.Array:
        """The arms that are awake."""
        del params
        return state.awake

    def _wake(self, key: jax.Array, params: SleepingParams) -> jax.Array:
        """Who is awake, bool `[K]`, at least one."""
        excess = jax.random.uniform(key, (self.num_arms,)) - params.awake
        return (excess < 0) | (jnp.arange(self.num_arms) == jnp.argmin(excess))
