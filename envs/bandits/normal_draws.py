"""Random numbers of many runs, laid out with the runs last."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from envs.bandits.batched_last import runs_last
from envs.threefry import KEY_SHAPE, threefry

__all__ = ["lanes", "normal", "seed_words"]


def normal(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Standard normal variates equal to those of `jax.random.normal`, laid out with the runs last under `vmap`.

    Args:
      key: Random key of any implementation, whose words seed Threefry.
      shape: Shape, S, static.

    Returns:
      float32 `[*S]`.
    """

    def draw(left: jax.Array, right: jax.Array) -> jax.Array:
        count = lanes(math.prod(shape), left)
        first, second = threefry((left, right), (jnp.zeros_like(count), count))
        words = jax.lax.optimization_barrier(first ^ second)
        # As jax.random.normal: uniform from the first float32 above -1 to 1, through the inverse of erf.
        low = np.nextafter(np.float32(-1), np.float32(0), dtype=np.float32)
        mantissa = jax.lax.bitcast_convert_type((words >> 9) | jnp.uint32(0x3F800000), jnp.float32) - 1
        uniform = jnp.maximum(low, mantissa * (np.float32(1) - low) + low)
        # Without the barrier each use of a variate computes it again.
        variates = jax.lax.optimization_barrier(np.float32(np.sqrt(2)) * jax.lax.erf_inv(uniform))
        return variates.reshape(*shape, *left.shape)

    words = seed_words(key)
    if not jax.config.values["jax_threefry_partitionable"]:  # jax.random then counts in another order
        return jax.random.normal(jax.random.wrap_key_data(jnp.stack(words), impl="threefry2x32"), shape)
    return runs_last(draw)(*words)


def seed_words(key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Two uint32 `[]` that seed Threefry: a key's own words, or two words drawn from it if it has another number."""
    words = jax.random.key_data(key)
    if words.shape != KEY_SHAPE:
        words = jax.random.bits(key, KEY_SHAPE)
    return words[0], words[1]


def lanes(count: int, like: jax.Array) -> jax.Array:
    """0, 1, ... along a first axis, followed by the axes `[*R]` of another array: uint32 `[count, *R]`."""
    return jax.lax.broadcasted_iota(jnp.uint32, (count, *like.shape), 0)
