"""Changes of actions: repeated at random, or delayed."""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs import base
from envs.base import spaces
from envs.choices import parts_of
from envs.errors import UserValueError
from envs.pytrees import Action, Mask, Params, PyTree
from envs.wrappers.wrapper import (
    ParamsWrapper,
    Wrapper,
    WrapperParams,
    WrapperState,
    agents_of,
    has_masks,
    number,
    whole_number,
)

__all__ = ["DelayActions", "StickyActions", "StickyActionsParams", "delay_actions", "sticky_actions"]


def sticky_actions(env: base.Environment, probability: float) -> base.Environment:
    """An environment that sometimes repeats its previous action instead of taking the new one.

    Args:
      env: Any environment.
      probability: Probability of a repetition, in [0, 1]; each agent of a crowd draws independently.

    Returns:
      An environment whose probability is traced and can be swept as `env.probability`; the parameters of
      `env` itself are `env.inner.gravity` and the like. The first action of an episode is always taken, as is an action
      whose predecessor is now forbidden.

    Raises:
      TypeError: `env` is not an environment.
      ValueError: `probability` is not a number in [0, 1].

    Source: Machado et al. (2018), "Revisiting the Arcade Learning Environment", section 4.
    """
    return StickyActions(env, number("sticky_actions", "probability", probability))


def delay_actions(env: base.Environment, steps: int) -> base.Environment:
    """An environment that takes an action some steps after receiving it.

    Args:
      env: Environment without action masks, because an action may be forbidden by the time it is taken.
      steps: Number of steps of the delay, at least 1.

    Returns:
      An environment that takes action 0, or the numbers nearest to 0 within their bounds, in the first
      `steps` steps of an episode. It does not show the pending actions.

    Raises:
      TypeError: `env` is not an environment.
      ValueError: `steps` is not a whole number of at least 1, or `env` has action masks.
    """
    return DelayActions(env, steps)


@struct.dataclass
class StickyActionsParams(WrapperParams):
    """The parameters of `sticky_actions`.

    Attributes:
      inner: Parameters of the inner environment, whose time limit does not apply.
      probability: Probability that the previous action is taken again.
      max_steps_in_episode: Time limit.
    """

    probability: jax.Array | float = 0.25


@struct.dataclass
class ActionsState(WrapperState):
    """Past actions.

    Attributes:
      actions: Last action, leaves `[*A, ...]`, or pending actions, oldest first, `[steps, *A, ...]`.
    """

    actions: Any


@dataclass(frozen=True)
class StickyActions(ParamsWrapper):
    """The class returned by `sticky_actions`.

    Attributes:
      inner: Environment that takes every action as received.
      probability: Default of the parameter.
    """

    probability: float
    made_by: ClassVar[str] = "sticky_actions"
    keeps_returns: ClassVar[bool] = True
    keeps_observations: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_probability(self.probability)

    @property
    def default_params(self) -> StickyActionsParams:
        """The inner environment's parameters, with the probability."""
        inner = self.inner.default_params
        return StickyActionsParams(
            inner=inner, probability=self.probability, max_steps_in_episode=inner.max_steps_in_episode
        )

    def check_params(self, params: StickyActionsParams) -> None:
        """Reject an invalid probability, and parameters that the inner environment rejects."""
        super().check_params(params)
        _require_probability(params.probability)

    def inner_state(self, state: ActionsState) -> Any:
        """The state of the inner environment."""
        return state.inner

    def reset_env(self, key: jax.Array, params: StickyActionsParams) -> tuple[Any, ActionsState]:
        """The inner environment's reset."""
        inner_params = self.inner_params(params)
        obs, inner = self.inner.reset_env(key, inner_params)
        return obs, ActionsState(inner.time, inner, _idle(self.inner, inner_params))

    def step_env(
        self, key: jax.Array, state: ActionsState, action: Action, params: StickyActionsParams
    ) -> tuple[Any, ActionsState, jax.Array, jax.Array, dict[Any, Any]]:
        """The inner environment's step with this action, or with the previous one."""
        inner_params = self.episode_params(state, params)
        draw_key, step_key = jax.random.split(key)
        stays = jax.random.bernoulli(draw_key, params.probability, agents_of(self.inner)) & (state.time > 0)
        mask = self.inner.action_mask(state.inner, inner_params)
        if mask is not None:
            stays &= _allowed(self.inner.action_space(inner_params), mask, state.actions)

        def choose(old: jax.Array, new: PyTree) -> jax.Array:
            each = stays.reshape(*stays.shape, *[1] * (old.ndim - stays.ndim))
            return jnp.where(each, old, jnp.asarray(new, old.dtype))

        taken = jax.tree.map(choose, state.actions, action)
        obs, inner, reward, terminated, info = self.inner.step_env(step_key, state.inner, taken, inner_params)
        return obs, ActionsState(inner.time, inner, taken), reward, terminated, info


@dataclass(frozen=True)
class DelayActions(Wrapper):
    """The class returned by `delay_actions`.

    Attributes:
      inner: Environment that takes an action at once.
      steps: Number of steps of the delay.
    """

    steps: int
    made_by: ClassVar[str] = "delay_actions"
    keeps_returns: ClassVar[bool] = True
    keeps_observations: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number(self.made_by, "steps", self.steps)
        if has_masks(self.inner):
            raise UserValueError(
                f"delay_actions takes an environment in which every action is allowed at every step; {self.inner.name} "
                "has action masks."
            )

    def inner_state(self, state: ActionsState) -> Any:
        """The state of the inner environment."""
        return state.inner

    def reset_env(self, key: jax.Array, params: Params) -> tuple[Any, ActionsState]:
        """The inner environment's reset, with idle actions pending."""
        obs, inner = self.inner.reset_env(key, params)
        idle = jax.tree.map(lambda leaf: jnp.stack([leaf] * self.steps), _idle(self.inner, params))
        return obs, ActionsState(inner.time, inner, idle)

    def step_env(
        self, key: jax.Array, state: ActionsState, action: Action, params: Params
    ) -> tuple[Any, ActionsState, jax.Array, jax.Array, dict[Any, Any]]:
        """The inner environment's step with the oldest pending action."""
        due = jax.tree.map(lambda leaf: leaf[0], state.actions)
        later = jax.tree.map(
            lambda leaf, new: jnp.concatenate([leaf[1:], jnp.asarray(new, leaf.dtype)[None]]), state.actions, action
        )
        obs, inner, reward, terminated, info = self.inner.step_env(key, state.inner, due, params)
        return obs, ActionsState(inner.time, inner, later), reward, terminated, info


def _require_probability(value: object) -> None:
    values = np.asarray(value)
    if values.dtype.kind not in "iuf" or not np.all((values >= 0) & (values <= 1)):
        wrong = value if values.dtype.kind not in "iuf" else values[~((values >= 0) & (values <= 1))].flat[0]
        raise UserValueError(f"probability of sticky_actions is {wrong}; it takes a number from 0 to 1.")


def _idle(env: base.Environment, params: Params) -> Any:
    """Action 0 for every agent, or the numbers nearest to 0 within bounds: leaves `[*A, ...]`."""

    def one(space: Any) -> Any:
        if isinstance(space, spaces.Tuple):
            return tuple(map(one, space.spaces))
        if isinstance(space, spaces.Dict):
            return {name: one(part) for name, part in space.spaces.items()}
        zeros = jnp.zeros((*agents_of(env), *space.shape), space.dtype)
        return zeros if isinstance(space, spaces.Discrete) else jnp.clip(zeros, space.low, space.high)

    return one(env.action_space(params))


def _allowed(space: Any, mask: Mask, action: Action) -> jax.Array:
    """Whether the mask allows all parts of an action, bool `[*A]`."""
    parts = zip(jax.tree.leaves(mask), parts_of(space, action), strict=True)
    fits = [jnp.take_along_axis(allowed, choice[..., None], axis=-1)[..., 0] for allowed, choice in parts]
    return jnp.all(jnp.stack(fits), axis=0)
