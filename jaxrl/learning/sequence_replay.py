"""Sequences in a replay buffer: the memories from which they begin, and starts drawn uniformly or by priority."""

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from envs.threefry import unrolled
from jaxrl.learning.priorities import Priorities, init_priorities, open_priorities, prioritised_rows
from jaxrl.learning.replay import Ring, Rows, init_buffer, write
from jaxrl.learning.rollout import Transition, episode_ends, remembered
from jaxrl.learning.sequences import Sequences, in_order
from jaxrl.pytrees import Memory, PyTree

__all__ = ["Memories", "Recall", "SequenceReplay", "start_stride"]

Recall = Callable[[Sequences], tuple[Memory, Memory]]


class Memories(NamedTuple):
    """Memories of a policy and of its critics, reset where an episode begins.

    Attributes:
      policy: Memories of the policy at the starts of sequences, leaves `[starts, num_envs, *A, ...]`.
      critics: Memories of the C critics there, leaves `[starts, num_envs, *A, C, ...]`; () for critics without one.
      now: Memories of the critics before the next step, leaves `[num_envs, *A, C, ...]`, or ().
    """

    policy: Memory
    critics: Memory = ()
    now: Memory = ()


class Starts(NamedTuple):
    """Drawn starts of sequences.

    Attributes:
      rows: Slots and environments of the first steps, `[W]`, and their weights.
      place: Indices of the memories, int32 `[W]`.
      index: Places among the priorities, int32 `[W]`, None without priorities.
    """

    rows: Rows
    place: jax.Array
    index: jax.Array | None  # pyright: ignore[reportIncompatibleMethodOverride]


class SequenceReplay(NamedTuple):
    """Sequences of consecutive steps of one environment in a ring buffer, which end at its newest slot at the latest.

    Attributes:
      length: Number of steps of a sequence.
      burn_in: Number of its first steps that are not learned from.
      stride: Number of slots between two starts.
      count: Number of sequences of a batch, W.
      num_envs: Number of environments.
      capacity: Number of slots of the buffer.
      num_agent_axes: Number of axes of the agents.
      critic_memory: Memory of the critics of one agent at the start of an episode, leaves `[C, ...]`; () for critics
        without a memory.
    """

    length: int
    burn_in: int
    stride: int
    count: int  # pyright: ignore[reportIncompatibleMethodOverride]
    num_envs: int
    capacity: int
    num_agent_axes: int
    critic_memory: Memory = ()

    @property
    def critics_remember(self) -> bool:
        """Whether the critics have a memory."""
        return bool(jax.tree.leaves(self.critic_memory))

    # Priorities of starts.

    def first_priorities(self, num_steps: int) -> Priorities:
        """Priorities of a buffer with `num_steps` slots filled."""
        empty = jnp.zeros((), jnp.int32)
        size = self.capacity // self.stride * self.num_envs
        return self.opened(init_priorities(size), Ring(empty, empty), num_steps)

    def opened(self, priorities: Priorities, before: Ring, num_steps: int) -> Priorities:
        """Priorities after `num_steps` more steps, which open some starts and overwrite others."""
        chex.assert_rank(list(before), 0, custom_message="before")
        ring = before.after(num_steps, self.capacity)
        slot = jnp.arange(self.capacity // self.stride) * self.stride
        written = (slot - before.end) % self.capacity < num_steps
        complete = self.complete(ring)
        keep = complete & self.complete(before) & ~written
        keep, opened = (jnp.repeat(flag, self.num_envs) for flag in (keep, complete & ~keep))
        return open_priorities(priorities, keep, opened)

    def complete(self, ring: Ring) -> jax.Array:
        """Whether all steps of the sequence from a start are in the buffer, bool `[capacity / stride]`."""
        chex.assert_rank(list(ring), 0, custom_message="ring")
        slot = jnp.arange(self.capacity // self.stride) * self.stride
        age = (slot - (ring.end - ring.filled)) % self.capacity  # from the oldest slot on
        return age + self.length <= ring.filled

    def draw(self, key: jax.Array, ring: Ring, priorities: Priorities | None, beta: jax.Array | None) -> Starts:
        """Starts drawn uniformly and with replacement, or by their priorities.

        Args:
          key: Random key.
          ring: Position of the ring, of which `length` slots or more are filled.
          priorities: Priorities of the starts, None to draw uniformly.
          beta: Exponent of the importance weights, `[]`, with priorities.
        """
        chex.assert_rank(list(ring), 0, custom_message="ring")
        number = (ring.filled - self.length) // self.stride + 1
        if priorities is not None:
            assert beta is not None  # a hyper-parameter of prioritised replay
            rows, index = prioritised_rows(key, priorities, number, self.num_envs, self.count, beta)
            return Starts(rows._replace(slot=rows.slot * self.stride), rows.slot, index)
        which = jax.random.randint(unrolled(key), (self.count,), 0, number * self.num_envs)
        slot = (ring.end - ring.filled + which // self.num_envs * self.stride) % self.capacity
        return Starts(Rows(slot, which % self.num_envs, jnp.ones(self.count)), slot // self.stride, None)

    def steps(self, buffer: PyTree, rows: Rows) -> Any:
        """Steps of sequences, across the ends of episodes, leaves `[length, W, ...]`.

        Args:
          buffer: Transitions, leaves `[capacity, num_envs, ...]`.
          rows: Slots and environments of the first steps, `[W]`.
        """
        chex.assert_rank([rows.slot, rows.env], 1, custom_message="rows")
        ahead = jnp.arange(self.length)[:, None]
        return jax.tree.map(lambda leaf: leaf[(rows.slot + ahead) % self.capacity, rows.env], buffer)

    def learned(self, rows: Rows) -> Rows:
        """Rows of the steps that are learned from, in order of time, in a buffer of the steps of `rows`, `[T * W]`."""
        chex.assert_rank(list(rows), 1, custom_message="rows")
        steps, count = jnp.arange(self.burn_in, self.length), len(rows.env)
        weight = jnp.tile(rows.weight, len(steps))
        return Rows(jnp.repeat(steps, count), jnp.tile(jnp.arange(count), len(steps)), weight)

    # Memories from which sequences begin.

    def of_rollout(
        self, steps: Transition, before: Memories | None, seen: PyTree = None, recall: Recall | None = None
    ) -> Memories:
        """Memories at the starts within a rollout, and those of the critics after it.

        Args:
          steps: Steps, with the memories of the policy, leaves `[T, N, *A, ...]`.
          before: Memories before the rollout; None for the first one, which begins with new episodes.
          seen: What the critics see, leaves `[T, N, *A, ...]`.
          recall: Function of `Sequences` of it that returns the memories of the critics before and after each row,
            leaves `[C, T * N, *A, ...]`; None for critics without a memory.
        """
        done = episode_ends(steps)
        policy = jax.tree.map(lambda leaf: leaf[:: self.stride], steps.memory)
        if recall is None:
            return Memories(policy)
        shape, axis = done.shape[1:], 1 + self.num_agent_axes
        if before is None:
            now = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (*shape, *leaf.shape)), self.critic_memory)
        else:
            now = before.now
        earlier, after = jax.tree.map(
            lambda leaf: jnp.moveaxis(leaf.reshape(len(leaf), *done.shape, *leaf.shape[axis + 1 :]), 0, axis + 1),
            recall(in_order(seen, done, self.of_critics(now), steps.raw_action)),
        )
        last = remembered(jax.tree.map(lambda leaf: leaf[-1], after), self.critic_memory, done[-1])
        return Memories(policy, jax.tree.map(lambda leaf: leaf[:: self.stride], earlier), last)

    def begun(self, memories: Memories, first: Memory) -> Memories:
        """Memories at the start of an episode, `first` for the policy, in place of all `memories`."""
        starts = Memories(first, self.critic_memory, self.critic_memory)
        return jax.tree.map(lambda old, new: jnp.broadcast_to(new, old.shape), memories, starts)

    def of_critics(self, memory: Memory) -> Memory:
        """Memories of critics `[C, N, *A, ...]`, from `[N, *A, C, ...]`."""
        return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 1 + self.num_agent_axes, 0), memory)

    def written(self, memories: Memories | None, recorded: Memories, end: jax.Array) -> Memories:
        """Memories of the buffer with those of a rollout.

        Args:
          memories: Memories of the buffer; None if it is empty.
          recorded: Memories of the rollout.
          end: Slot of its first step, int32 `[]`.
        """
        chex.assert_rank(end, 0, custom_message="end")
        starts = recorded._replace(now=())
        before = init_buffer(starts, self.capacity // self.stride) if memories is None else memories._replace(now=())
        return write(before, starts, end // self.stride)._replace(now=recorded.now)


def start_stride(num_steps: int, learned: int) -> int:
    """Number of steps between two starts of sequences: the largest divisor of `num_steps` up to half of `learned`.

    A dependency over at most half a sequence is then within the learned steps of some sequence.

    Args:
      num_steps: Number of steps of each environment in one iteration.
      learned: Number of steps of a sequence after its burn-in.
    """
    return next(each for each in range(max(1, min(num_steps, learned // 2)), 0, -1) if num_steps % each == 0)
