"""Proportional priorities of the transitions in a ring buffer, in two levels.

The sums of blocks of about sqrt(size) leaves are recomputed wherever leaves change, so rounding errors do not
accumulate, and a draw costs two short searches.
"""

import math
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from envs.threefry import unrolled
from jaxrl.learning.replay import Rows, write_slice

__all__ = [
    "Priorities",
    "init_priorities",
    "open_priorities",
    "prioritised_rows",
    "update_priorities",
    "write_priorities",
]

_BELOW_ONE = np.float32(1 - 2.0**-24)  # the largest float32 below 1


class Priorities(NamedTuple):
    """Priorities of the transitions of one run, p^alpha, ordered by slot.

    Attributes:
      leaves: Priorities, `[num_blocks, block]`, 0 where there is no transition.
      sums: Sums of the blocks, `[num_blocks]`.
      largest: Largest priority so far, `[]`, the priority of new transitions.
    """

    leaves: jax.Array
    sums: jax.Array
    largest: jax.Array


def init_priorities(size: int) -> Priorities:
    """Priorities of an empty buffer of `size` transitions."""
    block = max(1, math.isqrt(size))
    num_blocks = -(-size // block)
    return Priorities(jnp.zeros((num_blocks, block)), jnp.zeros(num_blocks), jnp.ones(()))


def write_priorities(priorities: Priorities, start: jax.Array, count: int) -> Priorities:
    """Priorities after `count` new transitions, which get the largest priority so far.

    Args:
      priorities: Priorities before the update.
      start: Index of the first new transition, int32 `[]`, shared by the runs.
      count: Number of new transitions, static.
    """
    chex.assert_rank(start, 0, custom_message="start")
    num_blocks, block = priorities.leaves.shape
    new = jnp.broadcast_to(priorities.largest, (count,))
    leaves = write_slice(priorities.leaves.reshape(-1), new, start).reshape(num_blocks, block)
    touched = min(num_blocks, (count - 1) // block + 2)
    first = jnp.minimum(start // block, num_blocks - touched)
    sums = jnp.sum(jax.lax.dynamic_slice_in_dim(leaves, first, touched), axis=1)
    return priorities._replace(leaves=leaves, sums=write_slice(priorities.sums, sums, first))


def open_priorities(priorities: Priorities, keep: jax.Array, opened: jax.Array) -> Priorities:
    """Priorities of starts of sequences after new transitions, which close some starts and open others.

    Args:
      priorities: Priorities before the update.
      keep: Whether the start has its priority still, bool `[size]`.
      opened: Whether the start is new, and gets the largest priority so far, bool `[size]`; others have priority 0.
    """
    chex.assert_equal_shape([keep, opened], custom_message="keep, opened")
    more = priorities.leaves.size - keep.size
    keep, opened = (jnp.pad(flag, (0, more)).reshape(priorities.leaves.shape) for flag in (keep, opened))
    leaves = jnp.where(opened, priorities.largest, jnp.where(keep, priorities.leaves, 0.0))
    return priorities._replace(leaves=leaves, sums=jnp.sum(leaves, axis=1))


def update_priorities(priorities: Priorities, row: jax.Array, priority: jax.Array) -> Priorities:
    """Priorities with those of some transitions replaced.

    Args:
      priorities: Priorities before the update.
      row: Indices of the transitions, int32 `[B]`; where an index is repeated, the largest of its priorities is used,
        in whatever order a device writes them.
      priority: New priorities p^alpha, `[B]`, above 0.
    """
    chex.assert_equal_shape([row, priority], custom_message="row, priority")
    block = priorities.leaves.shape[1]
    places = priorities.leaves.at[row // block, row % block]
    leaves = places.set(0.0).at[row // block, row % block].max(priority)
    sums = priorities.sums.at[row // block].set(jnp.sum(leaves[row // block], axis=1))
    return Priorities(leaves, sums, jnp.maximum(priorities.largest, jnp.max(priority)))


def prioritised_rows(
    key: jax.Array, priorities: Priorities, filled: jax.Array, num_envs: int, batch_size: int, beta: jax.Array
) -> tuple[Rows, jax.Array]:
    """Transitions drawn in proportion to their priorities, one from each of `batch_size` strata of equal mass.

    Args:
      key: Random key.
      priorities: Priorities of the transitions, index `slot * num_envs + env`.
      filled: Number of slots with priorities, int32 `[]`.
      num_envs: Number of environments, static.
      batch_size: Number of transitions to draw, static.
      beta: Exponent of the importance weights, `[]`, traced.

    Returns:
      The rows, and their indices `[B]`.

    Source: Schaul et al. (2016), "Prioritized experience replay".
    """
    chex.assert_rank([filled, beta], 0, custom_message="filled, beta")
    upto = jnp.cumsum(priorities.sums)
    place = (jnp.arange(batch_size) + jax.random.uniform(unrolled(key), (batch_size,))) / batch_size
    target = jnp.minimum(place, _BELOW_ONE) * upto[-1]
    # Rounded sums need not increase, so entries without priority are excluded explicitly.
    block = jnp.argmax((upto > target[:, None]) & (priorities.sums > 0), axis=1)
    before = jnp.where(block > 0, upto[block - 1], 0.0)
    # The remainder as a share of the block, so that it is below the sum of its leaves in spite of rounding.
    share = jnp.clip((target - before) / priorities.sums[block], 0.0, _BELOW_ONE)
    leaves = priorities.leaves[block]
    within = jnp.cumsum(leaves, axis=1)
    leaf = jnp.argmax((within > (share * within[:, -1])[:, None]) & (leaves > 0), axis=1)
    row = block * priorities.leaves.shape[1] + leaf
    probability = priorities.leaves[block, leaf] / upto[-1]
    weight = (probability * (filled * num_envs).astype(jnp.float32)) ** -beta
    return Rows(row // num_envs, row % num_envs, weight / jnp.max(weight)), row
