"""Rewards that arrive later, in any order, while pulling continues."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs.bandits.checking import check_probabilities, numbers
from envs.bandits.wrapping import Wrapped, WrappedParams, WrappedState
from envs.errors import UserValueError

__all__ = ["DelayedBandit", "DelayedParams", "DelayedState"]


@struct.dataclass
class DelayedParams(WrappedParams):
    """The distribution of delays.

    Attributes:
      inner: Parameters of the inner bandit.
      delays: Probabilities that a reward arrives 0, 1, ..., D - 1 pulls after its own pull, float32 `[D]`.
    """

    delays: Any = dataclasses.field(default_factory=lambda: np.ones(1, np.float32))

    def __post_init__(self) -> None:
        check_probabilities("delays", self.delays)


@struct.dataclass
class DelayedState(WrappedState):
    """The inner bandit, and the last D pulls; pull t is at t modulo D.

    Attributes:
      actions: Actions, int32 `[D]`; -1 for empty places.
      rewards: Rewards, float32 `[D]`.
      due: Pulls after which the rewards arrive, int32 `[D]`.
    """

    actions: jax.Array
    rewards: jax.Array
    due: jax.Array


@dataclasses.dataclass(frozen=True)
class DelayedBandit(Wrapped):
    """A bandit whose rewards arrive some pulls later, each after its own delay.

    A reward with a delay of 0 arrives with its own pull. A policy sees only `info["arrivals"]`: (action int32
    `[D]`, reward float32 `[D]`, valid bool `[D]`), for the last D pulls, oldest first, `valid` where a reward
    arrives with this pull. The reward of a step remains that of its pull, so returns and
    regret are those of the inner bandit. The observation `[2 K + 1 + ...]` has the number of rewards
    of each arm that arrived with the last pull, their sums, the elapsed share of the episode, and
    contexts.

    Args:
      num_arms: Number of arms of a Bernoulli bandit; omitted where `inner` is given.
      inner: Bandit whose rewards are delayed; None for a Bernoulli bandit.
      delays: Probabilities of delays of 0, 1, ... pulls, `[D]`.

    Raises:
      ValueError: There are fewer than two arms, `inner` is not a bandit whose actions are single arms, or the
        probabilities of delays are negative or do not sum to 1.

    Source: Joulani, Gyorgy and Szepesvari (2013), "Online learning under delayed feedback".
    """

    delays: tuple[float, ...] = (0.0, 0.2, 0.2, 0.2, 0.2, 0.2)

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.bandit, DelayedBandit):
            raise UserValueError(f"inner must be a bandit without delays, got {self.bandit!r}")
        object.__setattr__(self, "delays", numbers("delays", self.delays))
        _ = self.default_params

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "bandit/delayed"

    @property
    def default_params(self) -> DelayedParams:
        """The given delays."""
        return DelayedParams(inner=self.bandit.default_params, delays=np.asarray(self.delays, np.float32))

    def instance(self, key: jax.Array, params: DelayedParams) -> DelayedState:
        """A new instance of the inner bandit, without pending rewards."""
        if jnp.shape(params.delays) != (len(self.delays),):
            raise UserValueError(f"delays must have the shape ({len(self.delays)},), got {jnp.shape(params.delays)}")
        none = jnp.full(len(self.delays), -1, jnp.int32)
        return DelayedState(**self.within(key, params), actions=none, rewards=jnp.zeros(none.shape), due=none)

    def step_env(
        self, key: jax.Array, state: DelayedState, action: jax.Array, params: DelayedParams
    ) -> tuple[jax.Array, DelayedState, jax.Array, jax.Array, dict[Any, Any]]:
        """One pull, and the rewards that arrive with it."""
        obs, state, reward, terminated, info = super().step_env(key, state, action, params)
        return obs, state, reward, terminated, {**info, "arrivals": self._arrivals(state)}

    def drift(self, key: jax.Array, state: DelayedState, action: jax.Array, params: DelayedParams) -> DelayedState:
        """The drift of the inner bandit, with its last reward pending."""
        state = super().drift(jax.random.fold_in(key, 0), state, action, params)
        uniform = jax.random.uniform(jax.random.fold_in(key, 1))
        # Rounding may leave the last cumulative probability below 1, but never creates a longer delay.
        delay = jnp.sum(uniform >= jnp.cumsum(params.delays)[:-1]).astype(jnp.int32)
        pull = state.time - 1
        here = jnp.arange(len(self.delays)) == pull % len(self.delays)
        return dataclasses.replace(
            state,
            actions=jnp.where(here, action, state.actions),
            rewards=jnp.where(here, state.last_reward, state.rewards),
            due=jnp.where(here, pull + delay, state.due),
        )

    def observe(self, state: DelayedState, params: DelayedParams) -> jax.Array:
        """The observation `[2 K + 1 + ...]`: rewards that have arrived, by arm, without pending ones."""
        actions, rewards, valid = self._arrivals(state)
        of_arm = (jnp.arange(self.num_arms)[:, None] == actions) & valid
        counts = jnp.sum(of_arm, axis=1).astype(jnp.float32)
        sums = jnp.sum(jnp.where(of_arm, rewards, 0.0), axis=1)
        share = state.time / jnp.float32(params.max_steps_in_episode)
        context = self.context(state, params)
        return jnp.concatenate([counts, sums, share[None], *(() if context is None else (jnp.ravel(context),))])

    def _arrivals(self, state: DelayedState) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Actions, rewards and whether they arrive with the last pull, `[D]` each, oldest pull first."""
        order = (state.time + jnp.arange(len(self.delays))) % len(self.delays)
        actions, rewards, due = state.actions[order], state.rewards[order], state.due[order]
        return actions, rewards, (due == state.time - 1) & (actions >= 0)
