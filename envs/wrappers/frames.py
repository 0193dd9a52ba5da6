"""Observations of the past: several at once, or the one of some steps ago."""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import struct

from envs import base
from envs.base import spaces
from envs.wrappers.wrapper import Wrapper, WrapperState, agents_of, map_space, whole_number

__all__ = ["DelayObservations", "FrameStack", "delay_observations", "frame_stack"]


def frame_stack(env: base.Environment, num_frames: int) -> base.Environment:
    """The environment with its last observations in each observation.

    Args:
      env: any environment; its parameters, dynamics, actions and metrics stay what they are.
      num_frames: how many observations, 1 or more.

    Returns:
      An environment whose observation leaves are `[*A, num_frames, ...]`, oldest first; the last
      frame is the observation of `env`. What lies before the episode is its first observation. A
      `Discrete` observation becomes whole numbers `[num_frames]`.

    Raises:
      TypeError: `env` is no environment.
      ValueError: `num_frames` is no whole number of at least 1.
    """
    return FrameStack(env, num_frames)


def delay_observations(env: base.Environment, steps: int) -> base.Environment:
    """The environment as it was some steps ago, to look at.

    Rewards, terminations and action masks are those of the present.

    Args:
      env: any environment; its parameters, dynamics, actions and metrics stay what they are.
      steps: by how many, 1 or more.

    Returns:
      An environment that shows the observation of `steps` steps ago, or an episode's first one
      where the episode is not that old.

    Raises:
      TypeError: `env` is no environment.
      ValueError: `steps` is no whole number of at least 1.
    """
    return DelayObservations(env, steps)


@struct.dataclass
class FramesState(WrapperState):
    """The last observations.

    Attributes:
      frames: leaves `[*A, F, ...]`, oldest first.
    """

    frames: Any


@dataclass(frozen=True)
class _Remembering(Wrapper):
    """What keeps its last observations, from the first of the episode on."""

    @property
    def _num_kept(self) -> int:
        raise NotImplementedError

    def _shown(self, frames: Any) -> Any:
        raise NotImplementedError

    def inner_state(self, state: FramesState) -> Any:
        """The state inside."""
        return state.inner

    def reset_env(self, key: jax.Array, params: Any) -> tuple[Any, FramesState]:
        """The first observation, in every place."""
        obs, inner = self.inner.reset_env(key, params)
        axis = len(agents_of(self.inner))
        frames = jax.tree.map(lambda leaf: jnp.stack([leaf] * self._num_kept, axis), obs)
        return self._shown(frames), FramesState(inner.time, inner, frames)

    def step_env(
        self, key: jax.Array, state: FramesState, action: Any, params: Any
    ) -> tuple[Any, FramesState, jax.Array, jax.Array, dict[Any, Any]]:
        """The inner environment's step; its observation takes the place of the oldest."""
        obs, inner, reward, terminated, info = self.inner.step_env(key, state.inner, action, params)
        axis = len(agents_of(self.inner))

        def add(old: jax.Array, new: jax.Array) -> jax.Array:
            later = jax.lax.slice_in_dim(old, 1, None, axis=axis)
            return jnp.concatenate([later, jnp.expand_dims(new, axis)], axis)

        frames = jax.tree.map(add, state.frames, obs)
        return self._shown(frames), FramesState(inner.time, inner, frames), reward, terminated, info


@dataclass(frozen=True)
class FrameStack(_Remembering):
    """What `frame_stack` returns.

    Attributes:
      inner: the environment that shows one observation.
      num_frames: how many this one shows.
    """

    num_frames: int
    made_by: ClassVar[str] = "frame_stack"

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number(self.made_by, "num_frames", self.num_frames)

    def observation_space(self, params: Any) -> spaces.Space:
        """The inner environment's, so many times."""
        return map_space(self._stacked, self.inner.observation_space(params))

    def _stacked(self, space: Any) -> spaces.Space:
        low, high = (0, space.n - 1) if isinstance(space, spaces.Discrete) else (space.low, space.high)
        shape = (self.num_frames, *space.shape)
        low, high = (jnp.broadcast_to(jnp.asarray(bound, space.dtype), shape) for bound in (low, high))
        return spaces.Box(low, high, shape, space.dtype)

    @property
    def _num_kept(self) -> int:
        return self.num_frames

    def _shown(self, frames: Any) -> Any:
        return frames


@dataclass(frozen=True)
class DelayObservations(_Remembering):
    """What `delay_observations` returns.

    Attributes:
      inner: the environment that shows the present.
      steps: how long ago is what this one shows.
    """

    steps: int
    made_by: ClassVar[str] = "delay_observations"

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number(self.made_by, "steps", self.steps)

    @property
    def _num_kept(self) -> int:
        return self.steps + 1

    def _shown(self, frames: Any) -> Any:
        axis = len(agents_of(self.inner))
        return jax.tree.map(lambda leaf: jax.lax.index_in_dim(leaf, 0, axis, keepdims=False), frames)
