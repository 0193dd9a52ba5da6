"""Changes of the time limit, and its observation."""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from envs import base
from envs.base import agent_axes, spaces
from envs.choices import MultiDiscrete
from envs.errors import UserValueError
from envs.gymnax_environment import GymnaxEnvironment, gymnax_environment
from envs.pytrees import Action, Observation, Params, State
from envs.wrappers.repeating import ActionRepeat
from envs.wrappers.wrapper import Wrapper, limit, whole_number

REMAINING, REST = "remaining_time", "observation"

__all__ = ["REMAINING", "REST", "TimeFeature", "TimeLimit", "time_feature", "time_limit"]


def time_limit(env: base.Environment, max_steps: int) -> base.Environment:
    """An environment with another time limit, which replaces its own.

    Args:
      env: Any environment.
      max_steps: Number of steps after which an episode is truncated, at least 1; fewer or more than before.

    Returns:
      An environment whose `default_params` have this limit. It remains a parameter, which can be swept as
      `env.max_steps_in_episode` without a further compilation, and never terminates an episode. The limit of an inner
      `action_repeat` on the steps that it repeats still applies.

    Raises:
      TypeError: `env` is not an environment.
      ValueError: `max_steps` is not a whole number of at least 1.
    """
    return TimeLimit(env, max_steps)


@dataclass(frozen=True)
class TimeLimit(Wrapper):
    """The class returned by `time_limit`.

    Attributes:
      inner: Environment with its own limit.
      max_steps: Default of `max_steps_in_episode`.
    """

    max_steps: int
    made_by: ClassVar[str] = "time_limit"
    keeps_returns: ClassVar[bool] = True
    keeps_optimum: ClassVar[tuple[base.OptimumKind, ...]] = base.OPTIMUM_KINDS
    keeps_observations: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number(self.made_by, "max_steps", self.max_steps)

    @property
    def default_params(self) -> Any:
        """The inner environment's parameters, with this limit."""
        return self.inner.default_params.replace(max_steps_in_episode=self.max_steps)


def time_feature(env: base.Environment) -> base.Environment:
    """An environment whose observations include the remaining time 1 - t / T, where T is its time limit.

    This lets a value depend on the distance to the time limit, which a learner needs if it treats the limit as a
    termination.

    Args:
      env: Any environment; its parameters, dynamics, actions and metrics are unchanged.

    Returns:
      An environment whose observations are float32 vectors with one more component where those of `env` are vectors;
      dictionaries with the key "remaining_time", `[*A, 1]`, where they are dictionaries; and dictionaries of
      "observation" and "remaining_time" where they are anything else (a number, an image). The time is 1 after a reset,
      0 at the limit, and the same for all agents. Equal environments give equal ones, which share a compilation.

    Raises:
      TypeError: `env` is not an environment.
      ValueError: It shows the remaining time already.
    """
    return TimeFeature(env)


@dataclass(frozen=True)
class TimeFeature(Wrapper):
    """The class returned by `time_feature`.

    Attributes:
      inner: Environment without the remaining time.

    Source: Pardo et al. (2018), "Time limits in reinforcement learning".
    """

    made_by: ClassVar[str] = "time_feature"
    keeps_returns: ClassVar[bool] = True
    keeps_optimum: ClassVar[tuple[base.OptimumKind, ...]] = ("precommitted", "sophisticated")

    def __post_init__(self) -> None:
        super().__post_init__()
        env = self.inner
        if isinstance(env, TimeFeature):
            raise UserValueError(f"time_feature takes an environment without the remaining time, got {env.name}.")
        space = env.observation_space(env.default_params)
        if isinstance(space, spaces.Dict) and REMAINING in space.spaces:
            raise UserValueError(
                f"time_feature adds the key {REMAINING!r}, which observations of {env.name} have already."
            )

    def reset_env(self, key: jax.Array, params: Params) -> tuple[Any, Any]:
        """The inner environment's reset, with all of the time remaining."""
        obs, state = self.inner.reset_env(key, params)
        return self._with_time(obs, state, params), state

    def step_env(
        self, key: jax.Array, state: State, action: Action, params: Params
    ) -> tuple[Any, Any, jax.Array, jax.Array, dict[Any, Any]]:
        """The inner environment's step."""
        obs, state, reward, terminated, info = self.inner.step_env(key, state, action, params)
        return self._with_time(obs, state, params), state, reward, terminated, info

    def observation_space(self, params: Params) -> spaces.Space:
        """The inner environment's space, with the remaining time in [0, 1]."""
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

    def _with_time(self, obs: Observation, state: State, params: Params) -> Any:
        space = self.inner.observation_space(params)
        steps = limit(self.inner, params)
        share = jnp.float32(jnp.maximum(steps - state.time, 0)) / jnp.float32(steps)
        remaining = jnp.broadcast_to(share, (*agent_axes(space, obs), 1))
        if isinstance(space, spaces.Dict):
            return {**obs, REMAINING: remaining}
        if not _is_vector(space):
            return {REST: obs, REMAINING: remaining}
        return jnp.concatenate([obs.astype(jnp.float32), remaining], axis=-1)


def truncates_at_limit(env: base.Environment) -> bool:
    """Whether the time limit alone truncates episodes, so that two truncations are at least so many steps apart."""
    rule: Any = type(env).is_truncated
    if isinstance(env, Wrapper):
        return rule in (Wrapper.is_truncated, ActionRepeat.is_truncated) and truncates_at_limit(env.inner)
    if isinstance(env, GymnaxEnvironment) and rule is GymnaxEnvironment.is_truncated:
        rule = type(env.inner).is_truncated
    return rule is gymnax_environment.Environment.is_truncated


def _is_vector(space: Any) -> bool:
    return isinstance(space, spaces.Box) and not isinstance(space, MultiDiscrete) and len(space.shape) == 1
