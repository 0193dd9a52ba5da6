"""Observations of a replay buffer, each stored once, and stacks of frames by index.

The observation after a step is that before the next one, and a stack shares all frames but the newest with the stack
before it. So a ring has the newest frame of the observation with which an environment goes on after a step, after any
reset. It is longer than the ring of transitions by the frames before the oldest transition. It lacks the last
observation of an episode whose end is not a termination, from which a target bootstraps and with which no later step
begins: a second, short ring has one for each block of slots, in which an environment has at most one such end.
Both rings are parts of one array, from which a batch of observations is one gather: a CPU computes a batch that is put
together from two arrays element by element.
"""

import math
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from envs.abstract_checking import sample
from envs.base import Environment
from envs.wrappers.frames import num_stacked
from envs.wrappers.time import truncates_at_limit
from jaxrl.learning.replay import Rows, write_slice
from jaxrl.learning.rollout import Transition, longest_episode
from jaxrl.pytrees import Observation, PyTree

_IMAGE_AXES = 3  # height, width and channels

__all__ = ["FrameRing", "Frames", "frame_ring"]


class Frames(NamedTuple):
    """Frames of one run.

    Attributes:
      newest: Newest frames of the observations after each step and any reset, and behind them those of the last
        observations of episodes, as vectors, leaves `[size + size / block, N, L]`, which a CPU reads an order of
        magnitude faster than images; `[size, N, L]` without last observations.
      earlier: Number of frames of the same episode before each, at most that of a stack, uint8 or uint16 `[size, N]`;
        None where observations are not stacks.
      place: Slot within its block of the step that each last observation follows, -1 for none, int32
        `[size / block, N]`; or None.
    """

    newest: Any
    earlier: jax.Array | None
    place: jax.Array | None


class FrameRing(NamedTuple):
    """Static sizes of the rings of frames, with the functions that write and read them; every function is pure.

    Attributes:
      num_frames: Number of frames of an observation; 1 for an observation that is stored as it is.
      axis: Axis of the frames in an observation of one environment.
      num_steps: Number of slots that an iteration fills.
      capacity: Number of slots of the ring of transitions.
      size: Number of slots of the ring of frames, a multiple of `num_steps` and of `block`.
      block: Number of slots that share one last observation of an episode; 0 where none is stored.
      shapes: Shapes of the leaves of a frame of one environment.
    """

    num_frames: int
    axis: int
    num_steps: int
    capacity: int
    size: int
    block: int
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(
        cls,
        num_frames: int,
        axis: int,
        num_steps: int,
        capacity: int,
        apart: int,
        shapes: tuple[tuple[int, ...], ...] = (),
    ) -> "FrameRing":
        """Rings of the fewest frames among those whose blocks divide an iteration or consist of whole ones.

        Args:
          num_frames, axis, num_steps, capacity: Attributes.
          apart: Smallest number of steps between two ends of episodes of one environment whose last observations have
            a value, at least 1; 0 without such ends.
          shapes: Attribute.
        """

        def ring(block: int) -> "FrameRing":
            # A block that is being overwritten has ends of its own, and none of the transitions that are left.
            needed = capacity + max(num_frames, block - 1)
            multiple = max(num_steps, block)
            return cls(num_frames, axis, num_steps, capacity, -(-needed // multiple) * multiple, block, shapes)

        if apart == 0:
            return ring(0)
        if apart < num_steps:
            return ring(max(each for each in range(1, apart + 1) if num_steps % each == 0))
        # About sqrt(capacity) has the fewest frames, because a longer block makes the first ring longer.
        most = min(apart, 2 * math.isqrt(capacity) + num_steps) // num_steps
        return min((ring(each * num_steps) for each in range(1, most + 1)), key=lambda each: each.num_stored)

    @property
    def num_stored(self) -> int:
        """Number of frames in memory for each environment."""
        return self.size + (self.size // self.block if self.block else 0)

    def newest(self, obs: Observation, axes: int = 1) -> Any:
        """Newest frames of observations with `axes` leading axes before those of one environment."""
        if self.num_frames == 1:
            return obs
        return jax.tree.map(lambda leaf: jax.lax.index_in_dim(leaf, -1, axes + self.axis, keepdims=False), obs)

    def init(self, obs: Observation) -> Frames:
        """Rings that have the observations of environments after a reset, `[N, *A, ...]`, and nothing else."""
        chex.assert_equal_shape_prefix(jax.tree.leaves(obs), 1, custom_message="obs")
        frames, num_envs = _vectors(self.newest(obs), 1), jax.tree.leaves(obs)[0].shape[0]

        def ring(frame: jax.Array) -> jax.Array:
            empty = jnp.zeros((self.num_stored, *frame.shape), frame.dtype)
            return empty.at[self.size - 1].set(frame)  # the slot before the first one

        dtype = jnp.uint8 if self.num_frames <= 256 else jnp.uint16
        earlier = None if self.num_frames == 1 else jnp.zeros((self.size, num_envs), dtype)
        place = jnp.full((self.size // self.block, num_envs), -1, jnp.int32) if self.block else None
        return Frames(jax.tree.map(ring, frames), earlier, place)

    def write(self, frames: Frames, steps: Transition, obs: Observation, start: jax.Array) -> tuple[Frames, jax.Array]:
        """Rings with the frames of an iteration.

        Args:
          frames: Rings.
          steps: Transitions, leaves `[num_steps, N, ...]`, with newest frames in place of observations.
          obs: Observations after the last step and any reset, leaves `[N, ...]`.
          start: First slot, int32 `[]`, a multiple of `num_steps`, shared by the runs.

        Returns:
          The rings, and the number of last observations that were overwritten too early, int32 `[]`: 0 if ends are as
          far apart as stated.
        """
        chex.assert_equal_shape([steps.terminated, steps.truncated], custom_message="steps.terminated, steps.truncated")
        chex.assert_rank(start, 0, custom_message="start")
        return self._write(frames, steps, self.newest(obs), start)

    def _write(self, frames: Frames, steps: Transition, after: Any, start: jax.Array) -> tuple[Frames, jax.Array]:
        """As `write`, with the newest frames after the last step."""
        new = jax.tree.map(lambda now, last: jnp.concatenate([now[1:], last[None]]), steps.obs, after)
        newest = jax.tree.map(lambda ring, new: write_slice(ring, new, start), frames.newest, _vectors(new, 2))
        earlier = frames.earlier
        if earlier is not None:
            before = jax.lax.dynamic_index_in_dim(earlier, (start - 1) % self.size, keepdims=False)
            numbers = self._earlier(before, steps.terminated | steps.truncated)
            earlier = write_slice(earlier, numbers, start)
        if frames.place is None:
            return Frames(newest, earlier, None), jnp.zeros((), jnp.int32)
        newest, place, lost = self._write_last(newest, frames.place, steps, start)
        return Frames(newest, earlier, place), lost

    def prefilled(self, frames: Frames, steps: Transition, obs: Observation) -> Frames:
        """Rings with the frames of several iterations from the first slot on; the arguments are those of `write`."""
        chex.assert_is_divisible(len(steps.truncated), self.num_steps, custom_message="steps, num_steps")
        parts = jax.tree.map(lambda leaf: leaf.reshape(-1, self.num_steps, *leaf.shape[1:]), steps)
        after = jax.tree.map(
            lambda leaf, last: jnp.append(leaf[1:, 0], last[None], axis=0), parts.obs, self.newest(obs)
        )

        def write(frames: Frames, part: tuple[Transition, Any, jax.Array]) -> tuple[Frames, None]:
            return self._write(frames, *part)[0], None

        starts = jnp.arange(len(parts.truncated)) * self.num_steps
        return jax.lax.scan(write, frames, (parts, after, starts))[0]

    def _earlier(self, before: jax.Array, ended: jax.Array) -> jax.Array:
        """Numbers of frames of the same episode before each new one, `[T, N]`, from that before them `[N]`."""
        step = jnp.arange(len(ended))[:, None]
        since = jax.lax.cummax(jnp.where(ended, step, -1))  # the last end until each step, -1 for none
        number = jnp.where(since >= 0, step - since, before.astype(jnp.int32) + step + 1)
        return jnp.minimum(number, self.num_frames - 1).astype(before.dtype)

    def _write_last(
        self, newest: Any, place: jax.Array, steps: Transition, start: jax.Array
    ) -> tuple[Any, jax.Array, jax.Array]:
        """Frames and places with those of last observations, and the number of those overwritten too early."""
        width = min(self.block, self.num_steps)  # steps of one block
        cut = _cut(steps.terminated, steps.truncated, steps.agent_terminated)
        cut = cut.reshape(-1, width, *cut.shape[1:])
        counted, blocks = jnp.sum(cut, axis=1, dtype=jnp.int32), len(cut)
        step = width - 1 - jnp.argmax(cut[:, ::-1], axis=1).astype(jnp.int32)  # the last one, [blocks, N]
        first, offset = start // self.block, start % self.block
        held = jax.lax.dynamic_slice_in_dim(place, first, blocks)
        held = jnp.where(offset == 0, -1, held)  # those of the last lap
        new_place = jnp.where(counted > 0, offset + step, held)
        lost = jnp.sum(jnp.maximum(counted + (held >= 0) - 1, 0))
        rows, envs = jnp.arange(blocks)[:, None] * width + step, jnp.arange(cut.shape[2])

        def leaf(ring: jax.Array, after: jax.Array) -> jax.Array:
            old = jax.lax.dynamic_slice_in_dim(ring, self.size + first, blocks)
            is_new = (counted > 0).reshape(*counted.shape, *[1] * (after.ndim - 2))
            return write_slice(ring, jnp.where(is_new, after[rows, envs], old), self.size + first)

        newest = jax.tree.map(leaf, newest, _vectors(steps.next_obs, 2))
        return newest, write_slice(place, new_place, first), lost

    def read(
        self,
        frames: Frames,
        rows: Rows,
        last: jax.Array | None,
        steps: Transition,
        newest: jax.Array,
        end: jax.Array,
    ) -> tuple[Any, Any, jax.Array]:
        """Observations before the first and after the last step of windows.

        Args:
          frames: Rings.
          rows: Slots, in the ring of transitions, and environments of the first steps, `[B]`.
          last: Slots of the last steps in the ring of transitions, `[B]`; None for those of the first steps.
          steps: Ring of transitions, of which the ends are used, leaves `[capacity, N, ...]`.
          newest: Slot of the newest transition in that ring, int32 `[]`.
          end: Slot of the newest frame in the ring of frames, int32 `[]`.

        Returns:
          The observations `[B, *A, ...]` before and after, and whether the one after is known, bool `[B]`. That after
          an end whose value does not count, a termination or a time limit that is treated as one, has a frame of the
          next episode behind those of the old one.
        """
        chex.assert_rank([rows.slot, rows.env], 1, custom_message="rows")
        chex.assert_rank([newest, end], 0, custom_message="newest, end")

        def slot_of(slot: jax.Array) -> jax.Array:
            return (end - (newest - slot) % self.capacity) % self.size

        first = slot_of(rows.slot)
        places = self._places(frames, first - 1, rows.env)
        final, before = first, places
        if last is None:
            last = rows.slot
        else:
            final = slot_of(last)
            before = self._places(frames, final - 1, rows.env)
        following, known = final, jnp.ones(len(final), bool)
        if frames.place is not None:
            ends = (steps.terminated, steps.truncated, steps.agent_terminated)
            cut = _cut(*(leaf[last, rows.env] for leaf in ends))
            block = final // self.block
            known = ~cut | (frames.place[block, rows.env] == final % self.block)
            following = jnp.where(cut, self.size + block, final)
        after = jnp.concatenate([before[:, 1:], following[:, None]], axis=1)
        return self._stacks(frames, places, rows.env), self._stacks(frames, after, rows.env), known

    def _places(self, frames: Frames, slot: jax.Array, env: jax.Array) -> jax.Array:
        """Places of the frames of observations whose newest frames are in given slots, `[B, num_frames]`."""
        slot %= self.size
        if frames.earlier is None:
            return slot[:, None]
        # The first frame of an episode is repeated, as by the environment.
        back = jnp.minimum(jnp.arange(self.num_frames)[::-1], frames.earlier[slot, env][:, None])
        return (slot[:, None] - back) % self.size

    def _stacks(self, frames: Frames, places: jax.Array, env: jax.Array) -> Any:
        """Observations of the frames in given places `[B, num_frames]`, leaves `[B, *A, ...]`."""
        leaves, (rings, structure) = [], jax.tree.flatten(frames.newest)
        for ring, shape in zip(rings, self.shapes, strict=True):
            frames_of = ring[places, env[:, None]].reshape(len(places), self.num_frames, *shape)
            leaves.append(frames_of[:, 0] if self.num_frames == 1 else jnp.moveaxis(frames_of, 1, 1 + self.axis))
        return structure.unflatten(leaves)


def _vectors(frames: PyTree, axes: int) -> Any:
    """Frames with the axes after the first ones as one."""
    return jax.tree.map(lambda leaf: leaf.reshape(*leaf.shape[:axes], math.prod(leaf.shape[axes:])), frames)


def _cut(terminated: jax.Array, truncated: jax.Array, agent_terminated: jax.Array) -> jax.Array:
    """Whether an episode ends by more than terminations of all agents, bool `[*B]`, from flags of that shape."""
    agents = tuple(range(terminated.ndim, agent_terminated.ndim))
    return (terminated | truncated) & ~jnp.all(agent_terminated, axis=agents)


def frame_ring(
    env: Environment,
    agents: tuple[int, ...],
    shapes: PyTree,
    num_steps: int,
    capacity: int,
    time_limits: str,
    storage: str,
) -> FrameRing | None:
    """Rings of the observations of an environment, or None where both of every transition are stored.

    Args:
      env: Environment of one agent or a crowd.
      agents: Axes of the agents.
      shapes: Shapes of one observation.
      num_steps, capacity: Attributes of the rings.
      time_limits: Treatment of time limits, as in `RolloutConfig`.
      storage: "frames", "transitions", or "auto", frames for images and stacks where they take less memory.
    """
    if storage == "transitions":
        return None
    num_frames = num_stacked(env)
    obs_shapes = [leaf.shape for leaf in jax.tree.leaves(shapes)]
    frame_shapes = tuple((*agents, *(shape if num_frames == 1 else shape[1:])) for shape in obs_shapes)
    if _ends_agents(env, agents):
        apart = 1
    elif time_limits == "terminal":
        apart = 0
    else:
        apart = longest_episode(env) if truncates_at_limit(env) else 1
    ring = FrameRing.of(num_frames, len(agents), num_steps, capacity, apart, frame_shapes)
    if storage == "frames":
        return ring
    is_image = any(len(shape) >= _IMAGE_AXES for shape in obs_shapes)
    bytes_of_frame = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes)) / num_frames
    bytes_of_frame *= math.prod(agents)
    numbers = ring.size * (num_frames > 1) + 4 * (ring.num_stored - ring.size)  # `earlier` and `place`
    saves = ring.num_stored * bytes_of_frame + numbers < 2 * num_frames * capacity * bytes_of_frame
    return ring if (is_image or num_frames > 1) and saves else None


def _ends_agents(env: Environment, agents: tuple[int, ...]) -> bool:
    """Whether single agents terminate, so that one may go on as the episode terminates."""
    params, key = env.default_params, jax.eval_shape(lambda: jax.random.key(0))
    state = jax.eval_shape(env.reset_env, key, params)[1]
    action = jax.eval_shape(lambda key: sample(env.action_space(params), key, agents), key)
    return "agent_terminated" in jax.eval_shape(env.step_env, key, state, action, params)[4]
