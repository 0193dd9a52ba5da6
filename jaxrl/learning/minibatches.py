"""Passes over the samples of an iteration in minibatches: of rows, or of whole sequences of environments."""

from collections.abc import Callable
from typing import Any

import chex
import jax

from envs.loops import scan
from jaxrl.learning.shards import EnvShards, own_key
from jaxrl.pytrees import PyTree

Samples = Any

__all__ = ["over_epochs", "row_minibatches", "sequence_minibatches"]


def row_minibatches(key: jax.Array, samples: Samples, num_minibatches: int) -> Samples:
    """Minibatches of rows: every row once, in random order.

    Args:
      key: Random key.
      samples: Pytree of leaves `[rows, ...]`.
      num_minibatches: Number of minibatches, which divides the number of rows.

    Returns:
      Leaves `[num_minibatches, rows / num_minibatches, ...]`.
    """
    chex.assert_equal_shape_prefix(jax.tree.leaves(samples), 1, custom_message="samples")
    rows = jax.tree.leaves(samples)[0].shape[0]
    order = jax.random.permutation(key, rows)
    shape = (num_minibatches, rows // num_minibatches)
    return jax.tree.map(lambda leaf: leaf[order].reshape(*shape, *leaf.shape[1:]), samples)


def sequence_minibatches(key: jax.Array, samples: Samples, num_minibatches: int) -> Samples:
    """Minibatches of environments: each whole sequence once, in random order, for policies with memory.

    Args:
      key: Random key.
      samples: Pytree of leaves `[T, num_envs, ...]`.
      num_minibatches: Number of minibatches, which divides the number of environments.

    Returns:
      Leaves `[num_minibatches, T, num_envs / num_minibatches, ...]`.
    """
    chex.assert_equal_shape_prefix(jax.tree.leaves(samples), 2, custom_message="samples")
    by_env = jax.tree.map(lambda leaf: leaf.swapaxes(0, 1), samples)
    return jax.tree.map(lambda leaf: leaf.swapaxes(1, 2), row_minibatches(key, by_env, num_minibatches))


def over_epochs(
    key: jax.Array,
    num_epochs: int,
    minibatches: Callable[[jax.Array], Samples],
    one_epoch: Callable[[Any, Samples], tuple[Any, Any]],
    start: PyTree,
    shards: EnvShards | None = None,
) -> tuple[Any, Any]:
    """Scan over epochs, each with its own minibatches.

    Args:
      key: Random key.
      num_epochs: Number of passes over the samples.
      minibatches: Function `(key) -> minibatches`, leaves `[num_minibatches, ...]`.
      one_epoch: Function `(carry, minibatches) -> (carry, metrics)`, such as a scan over them.
      start: Initial carry.
      shards: Shards of the environments, each of which shuffles its own samples, if any.

    Returns:
      Final carry, and metrics `[num_epochs, ...]`.
    """
    chex.assert_rank(key, {0, 1}, custom_message="key")

    def epoch(carry: PyTree, key: jax.Array) -> tuple[Any, Any]:
        return one_epoch(carry, minibatches(own_key(key, shards)))

    return scan(epoch, start, jax.random.split(key, num_epochs), steps_of_turn=1)
