"""Functions of one run that under `vmap` have the runs along the last axis of every array, for speed.

Wherever arrays of different ranks meet, `vmap` puts the batch along the first axis, with the arms and features behind
it. Arms and features are few, which leaves little work for a processor's vector instructions. With the runs last, each
instruction works on the same arm of many runs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp

from envs.pytrees import PyTree

__all__ = ["added", "first_highest", "highest", "runs_last"]


def runs_last(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that under `vmap` is called once, with the runs along the last axis of its arguments.

    Args:
      function: Function of arrays alone, without closed-over arrays. It indexes axes from the front and accepts
        any number of them behind: `x[:, i] * y[i]`, `jnp.max(x, axis=0)`. An argument that is the
        same for all runs has a last axis of 1.

    Returns:
      The same function, which cannot be differentiated in reverse.
    """
    call = jax.custom_batching.custom_vmap(function)

    @call.def_vmap
    def batch(axis_size: int, batched: PyTree, *arguments: Any) -> tuple[Any, Any]:
        def last(leaf: PyTree, on: bool) -> Any:
            return jnp.moveaxis(leaf, 0, -1) if on else jnp.asarray(leaf)[..., None]

        def first(leaf: jax.Array) -> jax.Array:
            return jnp.moveaxis(jnp.broadcast_to(leaf, (*leaf.shape[:-1], axis_size)), -1, 0)

        out = jax.tree.map(first, call(*jax.tree.map(last, arguments, tuple(batched))))
        return out, jax.tree.map(lambda _: True, out)

    return call


def added(terms: Iterable[jax.Array]) -> jax.Array:
    """A sum as explicit additions: for few terms it costs less than a reduction, and it is never a matrix product.

    The precision of a matrix product would depend on the device.
    """
    return functools.reduce(jnp.add, terms)


@runs_last
def highest(values: jax.Array) -> jax.Array:
    """The largest of float32 `[K]`: `[]`."""
    return _fold(jnp.maximum, values)


@runs_last
def first_highest(values: jax.Array) -> jax.Array:
    """The first index of the largest of float32 `[K]`, the last index where one is NaN: int32 `[]`."""
    places = jnp.arange(values.shape[0], dtype=jnp.int32).reshape(-1, *[1] * (values.ndim - 1))
    return _fold(jnp.minimum, jnp.where(values == _fold(jnp.maximum, values), places, values.shape[0] - 1))


def _fold(function: Callable[..., jax.Array], values: jax.Array) -> jax.Array:
    """A maximum or minimum along the first axis by halves, where an element may count twice.

    Without the barrier the result would be computed again for every arm that is compared with it.
    """
    while (size := values.shape[0]) > 1:
        half = (size + 1) // 2
        values = function(values[:half], values[size - half :])
    return jax.lax.optimization_barrier(values[0])
