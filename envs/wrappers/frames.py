"""Past observations: several at once, or a delayed one."""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs import base
from envs.base import spaces
from envs.choices import MultiDiscrete
from envs.pytrees import Action, Params, PyTree
from envs.wrappers.wrapper import Wrapper, WrapperState, agents_of, map_space, whole_number

__all__ = ["DelayObservations", "FrameStack", "delay_observations", "frame_stack"]


def frame_stack(env: base.Environment, num_frames: int) -> base.Environment:
    """An environment whose observations contain the last observations.

    Args:
      env: Any environment; its parameters, dynamics, actions and metrics are unchanged.
      num_frames: Number of observations, at least 1.

    Returns:
      An environment whose observation leaves are `[*A, num_frames, ...]`, oldest first; the last
      frame is the observation of `env`. At the start of an episode, its first observation is repeated. A
      `Discrete` observation becomes whole numbers `[num_frames]`.

    Raises:
      TypeError: `env` is not an environment.
      ValueError: `num_frames` is not a whole number of at least 1.
    """
    return FrameStack(env, num_frames)


def num_stacked(env: base.Environment) -> int:
    """Number of frames of an observation, each of which is the newest one of an earlier observation.

    It is that of `frame_stack`, to which later wrappers may add anything that leaves observations alone; 1 elsewhere.
    """
    while isinstance(env, Wrapper) and vars(type(env)).get("keeps_observations", False):
        env = env.inner
    return env.num_frames if type(env) is FrameStack else 1


def delay_observations(env: base.Environment, steps: int) -> base.Environment:
    """An environment whose observations are some steps old.

    Rewards, terminations and action masks are not delayed.

    Args:
      env: Any environment; its parameters, dynamics, actions and metrics are unchanged.
      steps: Number of steps of the delay, at least 1.

    Returns:
      An environment that shows the observation of `steps` steps ago, or the first one of the episode during its first
      `steps` steps.

    Raises:
      TypeError: `env` is not an environment.
      ValueError: `steps` is not a whole number of at least 1.
    """
    return DelayObservations(env, steps)


@struct.dataclass
class FramesState(WrapperState):
    """The last observations.

    Attributes:
      frames: Observations, leaves `[*A, F, ...]`, oldest first.
    """

    frames: Any


@dataclass(frozen=True)
class _Remembering(Wrapper):
    """An environment that keeps its last observations, from the first one of the episode on."""

    @property
    def _num_kept(self) -> int:
        raise NotImplementedError

    def _shown(self, frames: PyTree) -> Any:
        raise NotImplementedError

    def inner_state(self, state: FramesState) -> Any:
        """The state of the inner environment."""
        return state.inner

    def reset_env(self, key: jax.Array, params: Params) -> tuple[Any, FramesState]:
        """The first observation, repeated in all frames."""
        obs, inner = self.inner.reset_env(key, params)
        axis = len(agents_of(self.inner))
        frames = jax.tree.map(lambda leaf: jnp.stack([leaf] * self._num_kept, axis), obs)
        return self._shown(frames), FramesState(inner.time, inner, frames)

    def step_env(
        self, key: jax.Array, state: FramesState, action: Action, params: Params
    ) -> tuple[Any, FramesState, jax.Array, jax.Array, dict[Any, Any]]:
        """The inner environment's step; its observation replaces the oldest."""
        obs, inner, reward, terminated, info = self.inner.step_env(key, state.inner, action, params)
        axis = len(agents_of(self.inner))

        def add(old: jax.Array, new: jax.Array) -> jax.Array:
            later = jax.lax.slice_in_dim(old, 1, None, axis=axis)
            return jnp.concatenate([later, jnp.expand_dims(new, axis)], axis)

        frames = jax.tree.map(add, state.frames, obs)
        return self._shown(frames), FramesState(inner.time, inner, frames), reward, terminated, info


@dataclass(frozen=True)
class FrameStack(_Remembering):
    """The class returned by `frame_stack`.

    Attributes:
      inner: Environment that shows one observation.
      num_frames: Number of observations shown.
    """

    num_frames: int
    made_by: ClassVar[str] = "frame_stack"
    keeps_returns: ClassVar[bool] = True
    keeps_optimum: ClassVar[tuple[base.OptimumKind, ...]] = ("precommitted", "sophisticated")

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number(self.made_by, "num_frames", self.num_frames)

    def observation_space(self, params: Params) -> spaces.Space:
        """The inner environment's space, repeated `num_frames` times."""
        return map_space(self._stacked, self.inner.observation_space(params))

    def _stacked(self, space: Any) -> spaces.Space:
        shape = (self.num_frames, *space.shape)
        if isinstance(space, spaces.Discrete):
            return MultiDiscrete(np.full(shape, space.n), dtype=space.dtype)
        if isinstance(space, MultiDiscrete):
            return MultiDiscrete(np.broadcast_to(space.counts, shape), space.low, space.dtype)
        low, high = (
            bound if np.ndim(bound) == 0 else jnp.broadcast_to(jnp.asarray(bound, space.dtype), shape)
            for bound in (space.low, space.high)
        )
        return spaces.Box(low, high, shape, space.dtype)

    @property
    def _num_kept(self) -> int:
        return self.num_frames

    def _shown(self, frames: PyTree) -> Any:
        return frames


@dataclass(frozen=True)
class DelayObservations(_Remembering):
    """The class returned by `delay_observations`.

    Attributes:
      inner: Environment that shows its present observation.
      steps: Number of steps of the delay.
    """

    steps: int
    made_by: ClassVar[str] = "delay_observations"
    keeps_returns: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number(self.made_by, "steps", self.steps)

    @property
    def _num_kept(self) -> int:
        return self.steps + 1

    def _shown(self, frames: PyTree) -> Any:
        axis = len(agents_of(self.inner))
        return jax.tree.map(lambda leaf: jax.lax.index_in_dim(leaf, 0, axis, keepdims=False), frames)
