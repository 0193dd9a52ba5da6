"""Trees of arrays as one flat buffer: a call with one buffer costs a fraction of one with twenty."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from envs.pytrees import PyTree

__all__ = ["Layout", "pack"]


class Part(NamedTuple):
    """The place of a leaf, words `begin` to `end`, and its original form."""

    begin: int
    end: int
    shape: tuple[int, ...]
    dtype: Any
    is_key: bool


class Layout(NamedTuple):
    """The information needed to unpack a buffer.

    Attributes:
      structure: Structure of the tree.
      parts: Places of the leaves, in order.
    """

    structure: Any
    parts: tuple[Part, ...]

    @classmethod
    def of(cls, tree: PyTree) -> Layout:
        """The layout of a tree of arrays, or of their shapes and types."""
        leaves, structure = jax.tree.flatten(tree)
        parts, begin = [], 0
        for leaf in leaves:
            is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
            if is_key:
                leaf = jax.eval_shape(jax.random.key_data, leaf)
            dtype = np.dtype(leaf.dtype)
            end = begin + -(-math.prod(leaf.shape) * dtype.itemsize // 4)
            parts.append(Part(begin, end, tuple(leaf.shape), dtype, is_key))
            begin = end
        return cls(structure, tuple(parts))

    def unpack(self, buffer: jax.Array) -> Any:
        """The tree of a buffer, traced."""
        return jax.tree.unflatten(self.structure, [_leaf(buffer[p.begin : p.end], p) for p in self.parts])

    def view(self, buffer: np.ndarray) -> Any:
        """The tree of a buffer on the host, without copies; random keys become their raw words."""
        leaves = [np.ndarray(p.shape, p.dtype, buffer, 4 * p.begin) for p in self.parts]
        return jax.tree.unflatten(self.structure, leaves)


def pack(tree: PyTree) -> jax.Array:
    """Concatenate the leaves of a tree in one buffer of 32-bit words, traced.

    A leaf's bits are unchanged; leaves of one or two bytes per number are padded to whole words.

    Args:
      tree: Pytree of arrays of any type, including random keys of the default kind.

    Returns:
      uint32 `[words]`, which `Layout.of(tree)` unpacks.
    """
    # Without the barrier XLA computes the leaves inside the concatenation, number by number.
    words = [_words(leaf) for leaf in jax.lax.optimization_barrier(jax.tree.leaves(tree))]
    return jnp.concatenate(words) if words else jnp.zeros(0, jnp.uint32)


def _words(leaf: jax.Array) -> jax.Array:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    leaf = leaf.astype(jnp.uint8) if leaf.dtype == bool else leaf
    flat, size = jnp.ravel(leaf), leaf.dtype.itemsize
    if size < 4:
        flat = jnp.pad(flat, (0, -flat.shape[0] % (4 // size))).reshape(-1, 4 // size)
    return jnp.ravel(jax.lax.bitcast_convert_type(flat, jnp.uint32))


def _leaf(words: jax.Array, part: Part) -> jax.Array:
    dtype = jnp.dtype(jnp.uint8) if part.dtype == bool else part.dtype
    if dtype.itemsize == 8:
        words = words.reshape(-1, 2)
    flat = jnp.ravel(jax.lax.bitcast_convert_type(words, dtype))[: math.prod(part.shape)]
    leaf = flat.reshape(part.shape)
    if part.is_key:
        return jax.random.wrap_key_data(leaf)
    return leaf != 0 if part.dtype == bool else leaf
