"""Environments made from other environments: plain functions on the contract."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from envs import base
from envs.base import spaces

REMAINING, REST = "remaining_time", "observation"

__all__ = ["REMAINING", "REST", "TimeFeature", "time_feature"]


def time_feature(env: base.Environment) -> base.Environment:
    """The environment with the remaining time 1 - t / T in its observations, where T is its time limit.

    With it a value can depend on how far the time limit is, which a learner needs that takes
    the limit for a termination.

    Args:
      env: any environment; its parameters, dynamics, actions and metrics stay what they are.

    Returns:
      An environment whose observations are float32 vectors with one number more where those of
      `env` are vectors; dictionaries with the key "remaining_time", `[*A, 1]`, where they are
      dictionaries; and dictionaries of "observation" and "remaining_time" where they are anything
      else (a number, an image). The time is 1 after a reset, 0 at the limit, and the same for
      all agents. Equal environments give equal ones, which share a compilation.

    Raises:
      TypeError: `env` is no environment.
      ValueError: it shows the remaining time already.
    """
    return TimeFeature(env)


@dataclass(frozen=True)
class TimeFeature(base.Environment):
    """What `time_feature` returns.

    Attributes:
      inner: the environment without the remaining time.

    Source: Pardo et al. (2018), "Time limits in reinforcement learning".
    """

    inner: base.Environment

    def __post_init__(self) -> None:
        env = self.inner
        if not isinstance(env, base.Environment):
            raise TypeError(f"time_feature takes an environment, such as envs.make('cartpole'), not {env!r}.")
        if isinstance(env, TimeFeature):
            raise ValueError(f"time_feature takes an environment without the remaining time, got {env.name}.")
        space = env.observation_space(env.default_params)
        if isinstance(space, spaces.Dict) and REMAINING in space.spaces:
            raise ValueError(f"time_feature adds the key {REMAINING!r}, which observations of {env.name} have already.")

    @property
    def name(self) -> str:
        """The inner environment's name, marked."""
        return f"time_feature({self.inner.name})"

    @property
    def default_params(self) -> Any:
        """The inner environment's."""
        return self.inner.default_params

    @property
    def metric_rules(self) -> Mapping[str, base.MetricRule]:
        """The inner environment's."""
        return self.inner.metric_rules

    @property
    def num_actions(self) -> int:
        """The inner environment's."""
        return self.inner.num_actions

    def params_at(self, params: Any, env_steps: Any) -> Any:
        """Of the environment inside."""
        return self.inner.params_at(params, env_steps)

    def check_params(self, params: Any) -> None:
        """The inner environment's."""
        self.inner.check_params(params)

    def action_mask(self, state: Any, params: Any) -> Any:
        """The inner environment's."""
        return self.inner.action_mask(state, params)

    def is_truncated(self, state: Any, params: Any) -> jax.Array:
        """The inner environment's."""
        return self.inner.is_truncated(state, params)

    def action_space(self, params: Any = None) -> spaces.Space:
        """The inner environment's."""
        return self.inner.action_space(self.default_params if params is None else params)

    def reset_env(self, key: jax.Array, params: Any) -> tuple[Any, Any]:
        """The inner environment's reset, with all of the time remaining."""
        obs, state = self.inner.reset_env(key, params)
        return self._with_time(obs, state, params), state

    def step_env(
        self, key: jax.Array, state: Any, action: Any, params: Any
    ) -> tuple[Any, Any, jax.Array, jax.Array, dict[Any, Any]]:
        """The inner environment's step."""
        obs, state, reward, terminated, info = self.inner.step_env(key, state, action, params)
        return self._with_time(obs, state, params), state, reward, terminated, info

    def observation_space(self, params: Any) -> spaces.Space:
        """The inner environment's, with the remaining time, in [0, 1]."""
        space = self.inner.observation_space(params)
        remaining = spaces.Box(0.0, 1.0, (1,), jnp.float32)
        if isinstance(space, spaces.Dict):
            return spaces.Dict({**space.spaces, REMAINING: remaining})
        if not _is_vector(space):
            return spaces.Dict({REST: space, REMAINING: remaining})
        bounds = [
            jnp.append(jnp.broadcast_to(jnp.asarray(bound, jnp.float32), space.shape), end)
            for bound, end in ((space.low, 0.0), (space.high, 1.0))
        ]
        return spaces.Box(bounds[0], bounds[1], (space.shape[0] + 1,), jnp.float32)

    def _with_time(self, obs: Any, state: Any, params: Any) -> Any:
        space = self.inner.observation_space(params)
        share = jnp.float32(1) - jnp.float32(state.time) / jnp.float32(params.max_steps_in_episode)
        remaining = jnp.broadcast_to(jnp.maximum(share, 0), (*_agents(space, obs), 1))
        if isinstance(space, spaces.Dict):
            return {**obs, REMAINING: remaining}
        if not _is_vector(space):
            return {REST: obs, REMAINING: remaining}
        return jnp.concatenate([obs.astype(jnp.float32), remaining], axis=-1)


def _is_vector(space: Any) -> bool:
    return isinstance(space, spaces.Box) and len(space.shape) == 1


def _agents(space: Any, obs: Any) -> tuple[int, ...]:
    """The axes in front of an observation, whose space describes one agent."""
    if isinstance(space, spaces.Dict):
        name = next(iter(space.spaces))
        return _agents(space.spaces[name], obs[name])
    if isinstance(space, spaces.Tuple):
        return _agents(space.spaces[0], obs[0])
    return obs.shape[: obs.ndim - len(space.shape)]
