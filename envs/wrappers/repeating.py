"""Decisions that last several steps."""

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import struct

from envs import base
from envs.arguments import check_time_limit
from envs.errors import UserValueError
from envs.pytrees import Action, Number
from envs.wrappers.wrapper import Wrapper, WrapperState, has_masks, limit, whole_number

__all__ = ["ActionRepeat", "ActionRepeatParams", "action_repeat"]


def action_repeat(env: base.Environment, times: int) -> base.Environment:
    """An environment whose step takes every action several times.

    Args:
      env: Environment without action masks, because an action may be forbidden in the next of its steps.
      times: Number of steps of `env` per step, at least 1.

    Returns:
      An environment whose step ends early where `env` terminates or reaches its time limit. It
      shows the last observation and sums the rewards, for an agent of a crowd as long as that
      agent took part and had not terminated; an agent is active where it took part in any of the steps.
      Metrics are reduced by their rules, other entries of `info` are those of the last step. There are
      two time limits, of which the earlier holds: `env.inner.max_steps_in_episode` in steps of `env`, and
      `env.max_steps_in_episode` in decisions, by default as many as fit into the other limit.

    Raises:
      TypeError: `env` is not an environment.
      ValueError: `times` is not a whole number of at least 1, or `env` has action masks.
    """
    return ActionRepeat(env, times)


@struct.dataclass
class ActionRepeatParams(base.EnvParams):
    """The parameters of an environment that repeats actions.

    Attributes:
      inner: Parameters of the inner environment, whose time limit counts its own steps and applies.
      max_steps_in_episode: Time limit in decisions.
    """

    inner: Any = dataclasses.field(default_factory=base.EnvParams)


@dataclass(frozen=True)
class ActionRepeat(Wrapper):
    """The class returned by `action_repeat`.

    Attributes:
      inner: Environment with the shorter steps.
      times: Number of its steps in one step.
    """

    times: int
    made_by: ClassVar[str] = "action_repeat"
    keeps_returns: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number(self.made_by, "times", self.times)
        if has_masks(self.inner):
            raise UserValueError(
                f"action_repeat takes an environment in which every action is allowed at every step; {self.inner.name} "
                "has action masks."
            )

    @property
    def default_params(self) -> ActionRepeatParams:
        """The inner environment's parameters, and as many decisions as fit into its time limit."""
        inner = self.inner.default_params
        decisions = -(-int(inner.max_steps_in_episode) // self.times)
        return ActionRepeatParams(inner=inner, max_steps_in_episode=decisions)

    def inner_params(self, params: ActionRepeatParams) -> Any:
        """The inner parameters, with a time limit that leaves no room for more decisions than there are."""
        inner, decisions = params.inner.max_steps_in_episode, params.max_steps_in_episode
        whole = inner // self.times
        room = jnp.where(decisions > whole, inner, jnp.minimum(decisions, whole) * self.times)
        return params.inner.replace(max_steps_in_episode=room)

    def check_params(self, params: ActionRepeatParams) -> None:
        """Reject inner time limits below 1 or between whole numbers, and parameters that `inner` rejects."""
        check_time_limit(params.inner, f"inner.max_steps_in_episode of {self.name}")
        super().check_params(params)

    def limit(self, params: ActionRepeatParams) -> Any:
        """The number of decisions until either limit."""
        return -(-limit(self.inner, self.inner_params(params)) // self.times)

    def inner_state(self, state: WrapperState) -> Any:
        """The state of the inner environment."""
        return state.inner

    def params_at(self, params: ActionRepeatParams, env_steps: Number) -> ActionRepeatParams:
        """The inner environment's curriculum, by the number of decisions."""
        return dataclasses.replace(params, inner=self.inner.params_at(params.inner, env_steps))

    def is_truncated(self, state: WrapperState, params: ActionRepeatParams) -> jax.Array:
        """Either time limit."""
        return (state.time >= params.max_steps_in_episode) | super().is_truncated(state, params)

    def reset_env(self, key: jax.Array, params: ActionRepeatParams) -> tuple[Any, WrapperState]:
        """The inner environment's reset."""
        obs, inner = self.inner.reset_env(key, self.inner_params(params))
        return obs, WrapperState(jnp.zeros((), jnp.int32), inner)

    def step_env(
        self, key: jax.Array, state: WrapperState, action: Action, params: ActionRepeatParams
    ) -> tuple[Any, WrapperState, jax.Array, jax.Array, dict[Any, Any]]:
        """Several steps of the inner environment; those after its end change nothing and are not counted."""
        inner_params = self.episode_params(state, params)

        def body(carry: tuple[Any, jax.Array], key: jax.Array) -> tuple[Any, Any]:
            before, over = carry
            obs, after, reward, terminated, info = self.inner.step_env(key, before, action, inner_params)
            ends = terminated | self.inner.is_truncated(after, inner_params)
            kept = jax.tree.map(lambda old, new: jnp.where(over, old, new), before, after)
            return (kept, over | ends), (~over, obs, reward, terminated, info)

        start = (state.inner, jnp.zeros((), bool))
        (inner, _), steps = jax.lax.scan(body, start, jax.random.split(key, self.times))
        taken, obs, reward, terminated, info = steps
        last = jnp.sum(taken) - 1
        gain = jnp.sum(jnp.where(self._counted(taken, reward, info), reward, 0.0), axis=0)
        state = WrapperState(state.time + 1, inner)
        obs = jax.tree.map(lambda leaf: leaf[last], obs)
        return obs, state, gain, jnp.any(taken & terminated), self._summary(taken, info)

    def _counted(self, taken: jax.Array, reward: jax.Array, info: dict[Any, Any]) -> jax.Array:
        """A mask `[times, *A]` of the rewards that are added up."""
        counted = _along(taken, reward)
        if "active" in info:
            counted &= info["active"]
        if "agent_terminated" in info:
            ended = jnp.cumsum(info["agent_terminated"], axis=0) > 0
            counted &= jnp.concatenate([jnp.ones_like(ended[:1]), ~ended[:-1]])
        return counted

    def _summary(self, taken: jax.Array, info: dict[Any, Any]) -> dict[Any, Any]:
        """The info of one step, from the infos `[times, ...]` of the inner steps."""
        last = jnp.sum(taken) - 1
        summary = {name: jax.tree.map(lambda leaf: leaf[last], part) for name, part in info.items()}
        for name in ("active", "agent_terminated"):
            if name in info:
                summary[name] = jnp.any(info[name] & _along(taken, info[name]), axis=0)
        for name, rule in self.metric_rules.items():
            values = info["metrics"][name]
            if rule != "last":
                total = jnp.sum(jnp.where(_along(taken, values), values, jnp.zeros_like(values)), axis=0)
                summary["metrics"][name] = total if rule == "sum" else total / jnp.sum(taken)
        return summary


def _along(taken: jax.Array, leaf: jax.Array) -> jax.Array:
    """`taken` `[times]` with the axes of a leaf `[times, *A]`."""
    return jnp.broadcast_to(taken.reshape(-1, *[1] * (leaf.ndim - 1)), leaf.shape)
