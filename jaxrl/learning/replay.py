"""Ring buffer of one run's transitions: writing, uniform and prioritised sampling, and windows of several steps.

The end and the fill level of the buffer are functions of the iteration, shared by the runs of a block and never
batched: all runs write to the same slots, by one slice.
"""

from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from envs.errors import UserValueError
from envs.threefry import unrolled
from jaxrl.learning.rollout import Transition, episode_ends, over_agents
from jaxrl.pytrees import PyTree

__all__ = [
    "Ring",
    "Rows",
    "Window",
    "init_buffer",
    "last_slots",
    "uniform_rows",
    "window",
    "write",
    "write_slice",
]


class Ring(NamedTuple):
    """Position of a ring buffer, shared by the runs of a block.

    Attributes:
      end: Slot after the newest one, int32 `[]`.
      filled: Number of slots filled, int32 `[]`.
    """

    end: jax.Array
    filled: jax.Array

    @staticmethod
    def at(iteration: jax.Array, prefill: int, num_steps: int, capacity: int) -> "Ring":
        """Ring before an iteration writes.

        Args:
          iteration: Number of the iteration, int32 `[]`, not batched.
          prefill: Number of slots filled before the first iteration, static, at most `capacity`.
          num_steps: Number of slots that an iteration fills, static; divides `capacity` and `prefill`.
          capacity: Number of slots, static.
        """
        chex.assert_rank(iteration, 0, custom_message="iteration")
        chex.assert_is_divisible(capacity, num_steps, custom_message="capacity, num_steps")
        chex.assert_is_divisible(prefill, num_steps, custom_message="prefill, num_steps")
        laps = capacity // num_steps  # the remainder is taken before the product, which could overflow
        end = (jax.lax.rem(iteration, jnp.int32(laps)) * num_steps + prefill) % capacity
        filled = jnp.minimum(jnp.minimum(iteration, laps) * num_steps + prefill, capacity)
        return Ring(end.astype(jnp.int32), filled.astype(jnp.int32))

    def after(self, num_steps: int, capacity: int) -> "Ring":
        """Ring after `num_steps` more slots."""
        return Ring((self.end + num_steps) % capacity, jnp.minimum(self.filled + num_steps, capacity))


class Rows(NamedTuple):
    """Places of a batch of transitions in the buffer, with their importance weights.

    Attributes:
      slot: Slots, int32 `[B]`.
      env: Environments, int32 `[B]`.
      weight: Importance weights, float32 `[B]`, scaled so that the largest in the batch is 1.
    """

    slot: jax.Array
    env: jax.Array
    weight: jax.Array


class Window(NamedTuple):
    """Sequences of up to n consecutive steps; leaves `[B, ...]`.

    Attributes:
      obs: Observation before the first step, `[B, *A, ...]`.
      raw_action: Action of the first step, `[B, *A, ...]`.
      mask: Action mask of the first step, or None.
      active: Whether the agent took part in the first step, bool `[B, *A]`.
      reward: Rewards of the steps, `[B, n, *A]`.
      counts: Whether a step belongs to the window, bool `[B, n, *A]`; the first one always does.
      next_obs: Observation after the last step, before any reset, `[B, *A, ...]`; with `FrameRing`, another one after
        an end whose value does not count.
      next_mask: Action mask there, or None.
      terminated: Whether the agent's last step terminated its episode, bool `[B, *A]`.
      truncated: Whether a time limit ended its episode there, bool `[B, *A]`.
      critic_obs, next_critic_obs: What the critic sees before the first step and after the last one, in place of or in
        addition to observations, leaves `[B, *A, ...]`; None if it sees the observations.
    """

    obs: Any
    raw_action: Any
    mask: Any
    active: jax.Array
    reward: jax.Array
    counts: jax.Array
    next_obs: Any
    next_mask: Any
    terminated: jax.Array
    truncated: jax.Array
    critic_obs: Any = None
    next_critic_obs: Any = None


def init_buffer(steps: PyTree, capacity: int) -> Any:
    """Empty buffer.

    Args:
      steps: Transitions or their shapes, leaves `[T, N, ...]`, of the dtypes of the buffer.
      capacity: Number of slots, static.

    Returns:
      Zeros, leaves `[capacity, N, ...]`.
    """
    return jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape[1:]), leaf.dtype), steps)


def write(buffer: PyTree, steps: PyTree, start: jax.Array) -> Any:
    """Buffer with transitions in the slots from `start` on.

    Args:
      buffer: Transitions, leaves `[capacity, N, ...]`.
      steps: New transitions, leaves `[T, N, ...]`.
      start: First slot, int32 `[]`, shared by the runs; no slot is beyond the end of the buffer.
    """
    chex.assert_rank(start, 0, custom_message="start")

    def leaf(old: jax.Array, new: jax.Array) -> jax.Array:
        chex.assert_equal_shape_suffix([old, new], old.ndim - 1, custom_message="buffer, steps")
        chex.assert_equal(old.dtype, new.dtype)
        return write_slice(old, new, start)

    return jax.tree.map(leaf, buffer, steps)


def write_slice(buffer: jax.Array, new: jax.Array, start: jax.Array, axis: int = 0) -> jax.Array:
    """Array with one slice overwritten; under `vmap`, still one slice instead of JAX's scatter.

    Args:
      buffer: Array to write to.
      new: New slice, of the same shape as `buffer` except along `axis`.
      start: Start of the slice along `axis`, int32 `[]`, not batched.
      axis: Axis, static.
    """
    chex.assert_equal_rank([buffer, new], custom_message="buffer, new")

    @custom_vmap
    def slice_of(buffer: jax.Array, new: jax.Array, start: jax.Array) -> jax.Array:
        return jax.lax.dynamic_update_slice_in_dim(buffer, new, start, axis)

    @slice_of.def_vmap
    def of_runs(size: int, batched: PyTree, buffer: jax.Array, new: jax.Array, start: jax.Array) -> Any:
        of_buffer, of_new, of_start = batched
        if of_start:
            raise UserValueError("start is shared by the runs of a block and must not be batched")
        buffer, new = (
            leaf if is_batched else jnp.broadcast_to(leaf, (size, *leaf.shape))
            for leaf, is_batched in ((buffer, of_buffer), (new, of_new))
        )
        return write_slice(buffer, new, start, axis + 1), True

    return slice_of(buffer, new, start)


def uniform_rows(key: jax.Array, filled: jax.Array, num_envs: int, batch_size: int) -> Rows:
    """Transitions drawn uniformly and with replacement from the buffer.

    Args:
      key: Random key.
      filled: Number of slots filled, int32 `[]`.
      num_envs: Number of environments, static.
      batch_size: Number of transitions to draw, static.
    """
    chex.assert_rank(filled, 0, custom_message="filled")
    row = jax.random.randint(unrolled(key), (batch_size,), 0, filled * num_envs)
    return Rows(row // num_envs, row % num_envs, jnp.ones(batch_size))


def window(buffer: Transition, rows: Rows, newest: jax.Array, num_steps: int) -> Window:
    """Sequences of up to `num_steps` consecutive steps of one environment each.

    A sequence is shorter where the episode terminates or is truncated earlier, and at the newest transition. For an
    agent of a crowd that terminates before the others, it is shorter than theirs.

    Args:
      buffer: Transitions, leaves `[capacity, N, ...]`.
      rows: Slots and environments of the first steps, `[B]`.
      newest: Slot of the newest transition, int32 `[]`.
      num_steps: Largest number of steps of a sequence, n, static.
    """
    chex.assert_rank([rows.slot, rows.env], 1, custom_message="rows")
    chex.assert_rank(newest, 0, custom_message="newest")
    capacity = buffer.reward.shape[0]
    ahead = jnp.arange(num_steps)
    slots, envs = (rows.slot[:, None] + ahead) % capacity, rows.env[:, None]

    def of_all(leaf: jax.Array) -> jax.Array:
        return leaf[slots, envs]

    reward, agent_terminated = of_all(buffer.reward), of_all(buffer.agent_terminated)
    terminated, truncated = of_all(buffer.terminated), of_all(buffer.truncated)
    begun = _begun(rows, newest, capacity, ahead, terminated, truncated)
    last = jnp.sum(begun, axis=1) - 1  # the environment's last step, where every window that bootstraps ends
    over = episode_ends(buffer._replace(**{name: of_all(getattr(buffer, name)) for name in _FLAGS}))
    counts = over_agents(begun, reward) & ~_any_before(over)

    def first_of(leaf: jax.Array) -> jax.Array:
        return leaf[rows.slot, rows.env]

    def last_of(leaf: jax.Array) -> jax.Array:
        return leaf[(rows.slot + last) % capacity, rows.env]

    return Window(
        obs=jax.tree.map(first_of, buffer.obs),
        raw_action=jax.tree.map(first_of, buffer.raw_action),
        mask=jax.tree.map(first_of, buffer.mask),
        active=first_of(buffer.active),
        reward=reward,
        counts=counts,
        next_obs=jax.tree.map(last_of, buffer.next_obs),
        next_mask=jax.tree.map(last_of, buffer.next_mask),
        terminated=jnp.any(counts & agent_terminated, axis=1),
        truncated=jnp.any(counts & over_agents(truncated, reward) & ~agent_terminated, axis=1),
        critic_obs=jax.tree.map(first_of, buffer.critic_obs),
        next_critic_obs=jax.tree.map(last_of, buffer.next_critic_obs),
    )


def last_slots(buffer: Transition, rows: Rows, newest: jax.Array, num_steps: int) -> jax.Array:
    """Slots of the last steps of the sequences of `window`, which takes the same arguments, int32 `[B]`."""
    chex.assert_rank([rows.slot, rows.env], 1, custom_message="rows")
    chex.assert_rank(newest, 0, custom_message="newest")
    capacity, ahead = len(buffer.truncated), jnp.arange(num_steps)
    places = (rows.slot[:, None] + ahead) % capacity, rows.env[:, None]
    begun = _begun(rows, newest, capacity, ahead, buffer.terminated[places], buffer.truncated[places])
    return (rows.slot + jnp.sum(begun, axis=1) - 1) % capacity


def _begun(
    rows: Rows, newest: jax.Array, capacity: int, ahead: jax.Array, terminated: jax.Array, truncated: jax.Array
) -> jax.Array:
    """Whether each of the next steps is known and of the same episode, bool `[B, n]`."""
    known = ahead <= ((newest - rows.slot) % capacity)[:, None]
    return known & ~_any_before(terminated | truncated)


_FLAGS = ("reward", "terminated", "truncated", "agent_terminated")


def _any_before(flags: jax.Array) -> jax.Array:
    """Whether an earlier entry along axis 1 is true, bool `[B, n, ...]`."""
    seen = jax.lax.cummax(flags.astype(jnp.int8), axis=1) > 0
    return jnp.concatenate([jnp.zeros_like(seen[:, :1]), seen[:, :-1]], axis=1)
