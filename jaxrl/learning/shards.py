"""Environments of one run in equal parts, a part for each device, and what their devices tell each other.

Where `shards` is None, there is one part, and every function here gives back what it is given.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

__all__ = ["EnvShards", "averaged", "own", "own_key", "summed"]


class EnvShards(NamedTuple):
    """How many parts there are, along which axis of a mesh; a `shard_map` over it must be under way.

    Attributes:
      axis_name: of the mesh.
      count: of the parts.
    """

    axis_name: str
    count: int

    def part_of(self, num_envs: int) -> int:
        """The environments of one part.

        Raises:
          ValueError: they do not divide.
        """
        if num_envs % self.count:
            raise ValueError(
                f"num_envs must be a multiple of the {self.count} devices that share the environments, got {num_envs}"
            )
        return num_envs // self.count


def own(tree: Any, shards: EnvShards | None, axis: int = 0) -> Any:
    """Of leaves with one entry for each environment of the run along an axis, the entries of this part.

    What is drawn for the whole run and then cut is the same however many parts there are.
    """
    if shards is None:
        return tree
    index = jax.lax.axis_index(shards.axis_name)

    def cut(leaf: jax.Array) -> jax.Array:
        size = leaf.shape[axis] // shards.count
        return jax.lax.dynamic_slice_in_dim(leaf, index * size, size, axis)

    return jax.tree.map(cut, tree)


def own_key(key: jax.Array, shards: EnvShards | None) -> jax.Array:
    """A key for what each part draws for itself."""
    return key if shards is None else jax.random.fold_in(key, jax.lax.axis_index(shards.axis_name))


def summed(tree: Any, shards: EnvShards | None) -> Any:
    """Sums over all parts."""
    return tree if shards is None else jax.lax.psum(tree, shards.axis_name)


def averaged(tree: Any, weight: jax.Array, shards: EnvShards | None) -> Any:
    """What the samples of all parts have for a weighted mean, from the weighted means over those of each.

    Args:
      tree: weighted means over the samples of this part, or what is linear in them, such as gradients.
      weight: `[*B]` of these samples.
      shards: the parts, all with as many samples.
    """
    if shards is None:
        return tree
    mine = jnp.mean(weight)
    mean = jax.lax.pmean(mine, shards.axis_name)
    share = mine / jnp.where(mean > 0, mean, 1.0)
    return jax.lax.pmean(jax.tree.map(lambda leaf: leaf * share, tree), shards.axis_name)
