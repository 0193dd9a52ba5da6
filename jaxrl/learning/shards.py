"""Environments of one run in equal parts, one for each device, and reductions over the devices.

If `shards` is None, there is one part, and every function here returns its input.
"""

from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from envs.errors import UserValueError
from jaxrl.pytrees import PyTree

__all__ = ["EnvShards", "averaged", "greatest", "own", "own_key", "summed"]


class EnvShards(NamedTuple):
    """Number of parts, and axis of the mesh that they lie along; for use inside a `shard_map` over it.

    Attributes:
      axis_name: Name of the axis of the mesh.
      count: Number of parts.
    """

    axis_name: str
    count: int  # pyright: ignore[reportIncompatibleMethodOverride]

    def part_of(self, num_envs: int) -> int:
        """Number of environments of one part.

        Raises:
          ValueError: The parts do not divide the environments evenly.
        """
        if num_envs % self.count:
            raise UserValueError(
                f"num_envs must be a multiple of the {self.count} devices that share the environments, got {num_envs}"
            )
        return num_envs // self.count


def own(tree: PyTree, shards: EnvShards | None, axis: int = 0) -> Any:
    """Slice leaves with one entry for each environment of the run to the entries of this part.

    Random numbers drawn for the whole run and then sliced do not depend on the number of parts.

    Args:
      tree: Pytree of arrays with one entry for each environment along `axis`.
      shards: Parts of the run, None for one.
      axis: Axis of the environments, static.
    """
    if shards is None:
        return tree
    for leaf in jax.tree.leaves(tree):
        chex.assert_axis_dimension_gt(leaf, axis, 0, custom_message="tree, axis")
        chex.assert_is_divisible(leaf.shape[axis], shards.count, custom_message="tree, shards.count")
    index = jax.lax.axis_index(shards.axis_name)

    def cut(leaf: jax.Array) -> jax.Array:
        size = leaf.shape[axis] // shards.count
        return jax.lax.dynamic_slice_in_dim(leaf, index * size, size, axis)

    return jax.tree.map(cut, tree)


def own_key(key: jax.Array, shards: EnvShards | None) -> jax.Array:
    """Random key of this part."""
    chex.assert_rank(key, {0, 1}, custom_message="key")  # an untyped key has an axis of two words
    return key if shards is None else jax.random.fold_in(key, jax.lax.axis_index(shards.axis_name))


def summed(tree: PyTree, shards: EnvShards | None) -> Any:
    """Sums over all parts."""
    return tree if shards is None else jax.lax.psum(tree, shards.axis_name)


def greatest(tree: PyTree, shards: EnvShards | None) -> Any:
    """Maxima over all parts."""
    return tree if shards is None else jax.lax.pmax(tree, shards.axis_name)


def averaged(tree: PyTree, weight: jax.Array, shards: EnvShards | None) -> Any:
    """Weighted mean over the samples of all parts, from the weighted means of each part.

    Args:
      tree: Weighted means over the samples of this part, or gradients of them, of any shapes.
      weight: Weights of these samples, `[*B]`.
      shards: Parts of the run, all with the same number of samples; None for one.
    """
    if shards is None:
        return tree
    local = jnp.mean(weight)
    mean = jax.lax.pmean(local, shards.axis_name)
    share = local / jnp.where(mean > 0, mean, 1.0)
    return jax.lax.pmean(jax.tree.map(lambda leaf: leaf * share, tree), shards.axis_name)
