"""Loops whose form depends on the platform that a program is traced for."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

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
    carry: Any,
    inputs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    steps_of_turn: int = STEPS_OF_TURN,
) -> tuple[Any, Any]:
    """`jax.lax.scan` with the same arguments and results, bit for bit, in the form that suits the platform.

    On a CPU it is that function. An accelerator starts a kernel for every array that a step writes, and some for every
    turn of a loop: there a turn has several steps, and the results of a step are written as one array.

    Args:
      step, carry, inputs, length, reverse: Arguments of `jax.lax.scan`.
      steps_of_turn: Number of steps of a turn on an accelerator, 1 for long steps, which take long to compile.
    """
    if traced_platform() == "cpu":
        return jax.lax.scan(step, carry, inputs, length=length, reverse=reverse)
    packing: list[_Packing] = []

    def packed_step(carry: Any, now: Any) -> tuple[Any, Any]:
        carry, results = step(carry, now)
        packing.append(_Packing(results))
        return carry, packing[-1].pack(results)

    carry, packed = jax.lax.scan(packed_step, carry, inputs, length=length, reverse=reverse, unroll=steps_of_turn)
    return carry, packing[-1].unpack(packed)


def in_parts(function: Callable[[Any], Any], arrays: Any, most: int, recompute: bool = False) -> Any:
    """Results of a function of the entries of a leading axis, on an accelerator for a part of them at a time.

    On a CPU, and where one part has all entries, the function is called once. Otherwise its temporary memory is that of
    one part.

    Args:
      function: Function of arrays `[n, ...]` that treats each of the n entries alone, with results `[n, ...]`.
      arrays: Pytree of arrays `[N, ...]`.
      most: Largest number of entries of a part; their number is a divisor of N.
      recompute: Whether gradients compute the results of a part again instead of keeping what leads to them.
    """
    length = jax.tree.leaves(arrays)[0].shape[0]
    size = next(size for size in range(max(min(most, length), 1), 0, -1) if length % size == 0)
    if traced_platform() == "cpu" or size == length:
        return function(arrays)
    parts = jax.tree.map(lambda leaf: leaf.reshape(length // size, size, *leaf.shape[1:]), arrays)
    results = jax.lax.map(jax.checkpoint(function) if recompute else function, parts)
    return jax.tree.map(lambda leaf: leaf.reshape(length, *leaf.shape[2:]), results)


class _Packing:
    """Division of the results of a step into those that are packed into one array, and the others.

    Args:
      results: Pytree of arrays.
    """

    def __init__(self, results: Any):
        leaves, self._structure = jax.tree.flatten(results)
        self._shapes = [jax.ShapeDtypeStruct(np.shape(leaf), jnp.result_type(leaf)) for leaf in leaves]
        packed = [_is_packed(shape) for shape in self._shapes]
        self._packed = packed if sum(packed) > 1 else [False] * len(packed)
        types = {shape.dtype for shape, packed in zip(self._shapes, self._packed, strict=True) if packed}
        # Without a detour by bits, gradients pass.
        self._plain = len(types) == 1

    def pack(self, results: Any) -> tuple[list[jax.Array], jax.Array | None]:
        """Results that stay as they are, and one array `[K]` of all others."""
        leaves = list(zip(jax.tree.leaves(results), self._packed, strict=True))
        parts = [jnp.ravel(leaf if self._plain else _words(leaf)) for leaf, packed in leaves if packed]
        return [leaf for leaf, packed in leaves if not packed], jnp.concatenate(parts) if parts else None

    def unpack(self, stacked: tuple[list[jax.Array], jax.Array | None]) -> Any:
        """Results of all steps, leaves `[T, ...]`."""
        others, words = iter(stacked[0]), stacked[1]
        leaves, at = [], 0
        for shape, packed in zip(self._shapes, self._packed, strict=True):
            if not packed:
                leaves.append(next(others))
                continue
            assert words is not None
            part = words[:, at : at + shape.size].reshape(-1, *shape.shape)
            leaves.append(part if self._plain else _from_words(part, shape.dtype))
            at += shape.size
        return jax.tree.unflatten(self._structure, leaves)


def _is_packed(shape: jax.ShapeDtypeStruct) -> bool:
    if jnp.issubdtype(shape.dtype, jax.dtypes.extended):
        return False
    return 0 < shape.size <= {4: PACKED, 1: NARROW}.get(shape.dtype.itemsize, 0)


def _words(leaf: jax.Array) -> jax.Array:
    """A value as words of 32 bits."""
    leaf = jnp.asarray(leaf)
    return leaf.astype(jnp.uint32) if leaf.dtype.itemsize == 1 else jax.lax.bitcast_convert_type(leaf, jnp.uint32)


def _from_words(words: jax.Array, dtype: Any) -> jax.Array:
    return words.astype(dtype) if np.dtype(dtype).itemsize == 1 else jax.lax.bitcast_convert_type(words, dtype)
