"""Types that a scan can carry: equal shapes and strong dtypes after a reset and after a step."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from envs.pytrees import PyTree


def strong(leaf: PyTree) -> jax.ShapeDtypeStruct:
    """The shape and dtype of an array or of its abstract value."""
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)


def held_types(first: PyTree, step: Callable[[Any], Any]) -> Any:
    """The types of a loop's carry, wide enough for a first value and for every value that `step` returns.

    Args:
      first: Pytree of arrays or of their types.
      step: Function from one value to the next, of the same structure; it is traced, not run.

    Returns:
      Pytree of `jax.ShapeDtypeStruct`.
    """
    held = jax.tree.map(strong, first)
    while True:
        wider = jax.tree.map(_wider, held, jax.tree.map(strong, jax.eval_shape(step, held)))
        if jax.tree.leaves(wider) == jax.tree.leaves(held):  # a class of a suite may define == otherwise
            return held
        held = wider


def cast(tree: PyTree, types: Any) -> Any:
    """Cast leaves to the strong dtypes of `types`, `jax.ShapeDtypeStruct` each, and broadcast them to wider shapes."""
    return jax.tree.map(_cast, tree, types)


def _wider(a: jax.ShapeDtypeStruct, b: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
    if a == b:
        return a
    return jax.ShapeDtypeStruct(np.broadcast_shapes(a.shape, b.shape), jnp.promote_types(a.dtype, b.dtype))


def _cast(leaf: PyTree, target: jax.ShapeDtypeStruct) -> jax.Array:
    array = jnp.asarray(leaf)
    if not jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.lax.convert_element_type(array, target.dtype)
    return jnp.broadcast_to(array, target.shape)
