"""Changed rewards: any function of them, or a delay."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import struct

from envs import base
from envs.errors import UserTypeError, UserValueError
from envs.pytrees import Action, Params, State
from envs.wrappers.wrapper import Wrapper, WrapperState, agents_of, whole_number

__all__ = ["DelayRewards", "TransformReward", "delay_rewards", "transform_reward"]


def transform_reward(env: base.Environment, function: Callable[[jax.Array], Any]) -> base.Environment:
    """An environment whose rewards are a function of the original ones.

    Args:
      env: Any environment; its parameters, dynamics, observations and metrics are unchanged.
      function: Function, in JAX, from one reward to a number. A named function compiles once;
        every new lambda is another function.

    Returns:
      An environment with these rewards; agents of a crowd that do not take part keep the reward of `env`.

    Raises:
      TypeError: `env` is not an environment, or `function` is not callable.
      ValueError: `function` does not return a number.
    """
    return TransformReward(env, function)


def delay_rewards(env: base.Environment, steps: int) -> base.Environment:
    """An environment that pays each reward some steps after it was earned.

    Args:
      env: Any environment; its parameters, dynamics, observations and metrics are unchanged.
      steps: Number of steps of the delay, at least 1.

    Returns:
      An environment that pays nothing in the first `steps` steps, and all pending rewards when the episode
      ends, by a termination or the time limit, or when the agent of a crowd terminates: the sum over an episode
      is unchanged.

    Raises:
      TypeError: `env` is not an environment.
      ValueError: `steps` is not a whole number of at least 1.
    """
    return DelayRewards(env, steps)


@dataclass(frozen=True)
class TransformReward(Wrapper):
    """The class returned by `transform_reward`.

    Attributes:
      inner: Environment with the rewards that the function takes.
      function: Function of one reward.
    """

    function: Callable[[jax.Array], Any]
    made_by: ClassVar[str] = "transform_reward"
    keeps_observations: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.function):
            raise UserTypeError(f"transform_reward takes a function of a reward, not {self.function!r}.")
        got = jax.eval_shape(self.function, jax.ShapeDtypeStruct((), jnp.float32))
        if not hasattr(got, "shape") or got.shape != ():
            raise UserValueError(f"the function of transform_reward must return a number for a number, got {got}.")

    def step_env(
        self, key: jax.Array, state: State, action: Action, params: Params
    ) -> tuple[Any, Any, jax.Array, jax.Array, dict[Any, Any]]:
        """The inner environment's step, with the function applied to the reward."""
        obs, state, reward, terminated, info = self.inner.step_env(key, state, action, params)
        function = self.function
        for _ in reward.shape:
            function = jax.vmap(function)
        paid = jax.lax.convert_element_type(function(reward), jnp.float32)
        return obs, state, jnp.where(info.get("active", True), paid, reward), terminated, info


@struct.dataclass
class RewardsState(WrapperState):
    """Pending rewards.

    Attributes:
      rewards: Rewards, float32 `[steps, *A]`, oldest first.
    """

    rewards: jax.Array


@dataclass(frozen=True)
class DelayRewards(Wrapper):
    """The class returned by `delay_rewards`.

    Attributes:
      inner: Environment that pays at once.
      steps: Number of steps of the delay.
    """

    steps: int
    made_by: ClassVar[str] = "delay_rewards"
    keeps_returns: ClassVar[bool] = True
    keeps_observations: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number(self.made_by, "steps", self.steps)

    def inner_state(self, state: RewardsState) -> Any:
        """The state of the inner environment."""
        return state.inner

    def reset_env(self, key: jax.Array, params: Params) -> tuple[Any, RewardsState]:
        """The inner environment's reset, without pending rewards."""
        obs, inner = self.inner.reset_env(key, params)
        return obs, RewardsState(inner.time, inner, jnp.zeros((self.steps, *agents_of(self.inner)), jnp.float32))

    def step_env(
        self, key: jax.Array, state: RewardsState, action: Action, params: Params
    ) -> tuple[Any, RewardsState, jax.Array, jax.Array, dict[Any, Any]]:
        """The inner environment's step, with the reward of an earlier one; at an end with all pending rewards."""
        obs, inner, reward, terminated, info = self.inner.step_env(key, state.inner, action, params)
        ends = terminated | self.inner.is_truncated(inner, params) | info.get("agent_terminated", False)
        owed = jnp.concatenate([state.rewards, reward[None]])
        paid = jnp.where(ends, jnp.sum(owed, axis=0), owed[0])
        left = jnp.where(ends, 0.0, owed[1:])
        return obs, RewardsState(inner.time, inner, left), paid, terminated, info
