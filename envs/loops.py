"""The platform that a program is traced for, and loops whose form depends on it."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from envs.pytrees import PyTree

# Steps of one turn of a loop on an accelerator, where the loop itself starts kernels in every turn.
STEPS_OF_TURN = 8
# Most elements of a result that is packed: of 32 bits, and of 8 bits, which take four times the memory when packed.
PACKED, NARROW = 512, 64

_PLATFORM: contextvars.ContextVar[str | None] = contextvars.ContextVar("platform", default=None)

__all__ = ["in_parts", "scan", "traced_for", "traced_platform"]


@contextlib.contextmanager
def traced_for(platform: str) -> Iterator[None]:
    """Context in which programs are traced for devices other than those of JAX's default backend.

    Args:
      platform: Platform of the devices, such as "cpu" or "gpu".
    """
    token = _PLATFORM.set(platform)
    try:
        yield
    finally:
        _PLATFORM.reset(token)


def traced_platform() -> str:
    """Platform of the devices that programs are traced for: that of `traced_for`, or JAX's default backend."""
    return _PLATFORM.get() or jax.default_backend()


def scan(
    step: Callable[[Any, Any], tuple[Any, Any]],
    carry: PyTree,
    inputs: PyTree = None,
    length: int | None = None,
    reverse: bool = False,
    steps_of_turn: int = STEPS_OF_TURN,
) -> tuple[Any, Any]:
    """`jax.lax.scan` with the same arguments and results, bit for bit, in the form that suits the platform.

    On a CPU it is that function. An accelerator starts a kernel for every array that a step writes, and some for every
    turn of a loop: there a turn has several steps, and the results of a step are written as one array, or two.

    Args:
      step, carry, inputs, length, reverse: Arguments of `jax.lax.scan`.
      steps_of_turn: Number of steps of a turn on an accelerator, 1 for long steps, which take long to compile.
    """
    if traced_platform() == "cpu":
        return jax.lax.scan(step, carry, inputs, length=length, reverse=reverse)
    packing: list[_Packing] = []

    def packed_step(carry: PyTree, now: PyTree) -> tuple[Any, Any]:
        carry, results = step(carry, now)
        packing.append(_Packing(results))
        return carry, packing[-1].pack(results)

    carry, packed = jax.lax.scan(packed_step, carry, inputs, length=length, reverse=reverse, unroll=steps_of_turn)
    return carry, packing[-1].unpack(packed)


def in_parts(function: Callable[[Any], Any], arrays: PyTree, most: int, recompute: bool = False) -> Any:
    """Results of a function of the entries of a leading axis, on an accelerator for a part of them at a time.

    On a CPU, and where one part has all entries, the function is called once. Otherwise its temporary memory is that of
    one part.

    Args:
      function: Function of arrays `[n, ...]` that treats each of the n entries alone, with results `[n, ...]`.
      arrays: Pytree of arrays `[N, ...]`.
      most: Largest number of entries of a part; at least 1 is taken.
      recompute: Whether gradients compute the results of a part again instead of keeping what leads to them.
    """
    length = jax.tree.leaves(arrays)[0].shape[0]
    if traced_platform() == "cpu" or length <= most:
        return function(arrays)
    size = -(-length // -(-length // max(most, 1)))  # parts of about equal sizes
    whole = length // size * size
    own = jax.checkpoint(function) if recompute else function
    parts = jax.tree.map(lambda leaf: leaf[:whole].reshape(-1, size, *leaf.shape[1:]), arrays)
    results = jax.tree.map(lambda leaf: leaf.reshape(whole, *leaf.shape[2:]), jax.lax.map(own, parts))
    if whole == length:
        return results
    rest = own(jax.tree.map(lambda leaf: leaf[whole:], arrays))
    return jax.tree.map(lambda one, other: jnp.concatenate([one, other]), results, rest)


class _Packing:
    """Division of the results of a step into those that are packed, float32 into one array and others into another.

    Args:
      results: Pytree of arrays.
    """

    def __init__(self, results: PyTree) -> None:
        leaves, self._structure = jax.tree.flatten(results)
        self._shapes = [jax.ShapeDtypeStruct(np.shape(leaf), jnp.result_type(leaf)) for leaf in leaves]
        # Floats are not packed as bits, through which no gradient passes.
        groups = [_group(shape) for shape in self._shapes]
        self._groups = [group if groups.count(group) > 1 else None for group in groups]

    def pack(self, results: PyTree) -> tuple[list[jax.Array], dict[str, jax.Array]]:
        """Results that stay as they are, and arrays `[K]` of the others."""
        leaves = list(zip(jax.tree.leaves(results), self._groups, strict=True))
        packed = {
            group: jnp.concatenate([_packed(leaf, group) for leaf, own in leaves if own == group])
            for group in dict.fromkeys(filter(None, self._groups))
        }
        return [leaf for leaf, group in leaves if group is None], packed

    def unpack(self, stacked: tuple[list[jax.Array], dict[str, jax.Array]]) -> Any:
        """Results of all steps, leaves `[T, ...]`."""
        others, at, leaves = iter(stacked[0]), dict.fromkeys(stacked[1], 0), []
        for shape, group in zip(self._shapes, self._groups, strict=True):
            if group is None:
                leaves.append(next(others))
                continue
            part = stacked[1][group][:, at[group] : at[group] + shape.size].reshape(-1, *shape.shape)
            leaves.append(part if group == "floats" else _from_words(part, shape.dtype))
            at[group] += shape.size
        return jax.tree.unflatten(self._structure, leaves)


def _group(shape: jax.ShapeDtypeStruct) -> str | None:
    """Kind of array that a result is packed into; None for one that is not packed."""
    if shape.size == 0 or jnp.issubdtype(shape.dtype, jax.dtypes.extended):
        return None
    if shape.dtype == np.float32:
        return "floats" if shape.size <= PACKED else None
    whole = jnp.issubdtype(shape.dtype, jnp.integer) or shape.dtype == np.bool_
    return "words" if whole and shape.size <= {4: PACKED, 1: NARROW}.get(shape.dtype.itemsize, 0) else None


def _packed(leaf: jax.Array, group: str) -> jax.Array:
    leaf = jnp.ravel(leaf)
    if group == "floats":
        return leaf
    return leaf.astype(jnp.uint32) if leaf.dtype.itemsize == 1 else jax.lax.bitcast_convert_type(leaf, jnp.uint32)


def _from_words(words: jax.Array, dtype: DTypeLike) -> jax.Array:
    return words.astype(dtype) if np.dtype(dtype).itemsize == 1 else jax.lax.bitcast_convert_type(words, dtype)
