"""The random numbers of `jax.random`, bit for bit, at a fraction of the cost in loops over many runs on CPUs.

`jax.random` rolls the twenty rounds of Threefry into a loop on CPUs, which passes over memory five times; written out
they are one pass. A barrier keeps the compiler from computing the words anew in everything that they are used for.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import define_prng_impl, threefry_prng_impl

from envs.bandits.lanes import runs_last

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
KEY_SHAPE = (2,)

__all__ = ["lanes", "normal", "seed_words", "threefry", "unrolled"]


def unrolled(key: jax.Array) -> jax.Array:
    """A key of which `jax.random` draws the same numbers with the rounds of Threefry written out.

    Args:
      key: `[*S]`; one of an implementation other than JAX's default stays as it is.
    """
    if jax.random.key_impl(key) != "threefry2x32":
        return key
    return jax.random.wrap_key_data(jax.random.key_data(key), impl=UNROLLED)


def normal(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Standard normal variates, those of `jax.random.normal`, laid out with the runs last under `vmap`.

    Args:
      key: of random numbers, of any implementation, whose words seed Threefry.
      shape: S, static.

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
        # The barrier: without it each use of a variate computes it anew.
        variates = jax.lax.optimization_barrier(np.float32(np.sqrt(2)) * jax.lax.erf_inv(uniform))
        return variates.reshape(*shape, *left.shape)

    return runs_last(draw)(*seed_words(key))


def seed_words(key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Two uint32 `[]` that seed Threefry: a key's own, or two that it draws if it has another number."""
    words = jax.random.key_data(key)
    if words.shape != KEY_SHAPE:
        words = jax.random.bits(key, KEY_SHAPE)
    return words[0], words[1]


def lanes(count: int, like: jax.Array) -> jax.Array:
    """0, 1, ... along a first axis, and behind it the axes `[*R]` of another array: uint32 `[count, *R]`."""
    return jax.lax.broadcasted_iota(jnp.uint32, (count, *like.shape), 0)


def threefry(key: tuple[jax.Array, jax.Array], counter: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    """Two random words for each pair of counters: the twenty rounds of Threefry-2x32, written out.

    Args:
      key: two uint32 of equal or broadcasting shapes.
      counter: two uint32 likewise.

    Returns:
      Two uint32.

    Source: Salmon, Moraes, Dror and Shaw (2011), "Parallel random numbers: as easy as 1, 2, 3".
    """
    keys = (*key, key[0] ^ key[1] ^ jnp.uint32(0x1BD11BDA))
    left, right = counter[0] + keys[0], counter[1] + keys[1]
    for group in range(5):
        for rotation in ROTATIONS[group % 2]:
            left = left + right
            right = ((right << rotation) | (right >> (32 - rotation))) ^ left
        left = left + keys[(group + 1) % 3]
        right = right + keys[(group + 2) % 3] + jnp.uint32(group + 1)
    return left, right


def _blocks(key: jax.Array, shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    count = jnp.arange(math.prod(shape), dtype=jnp.uint32).reshape(shape)
    return threefry((key[0], key[1]), (jnp.zeros_like(count), count))


def _random_bits(key: jax.Array, bit_width: int, shape: tuple[int, ...]) -> jax.Array:
    if bit_width != 32 or math.prod(shape) >= 2**32:
        return threefry_prng_impl.random_bits(key, bit_width, shape)
    first, second = _blocks(key, shape)
    return jax.lax.optimization_barrier(first ^ second)


def _split(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    return jax.lax.optimization_barrier(jnp.stack(_blocks(key, tuple(shape)), axis=-1))


def _fold_in(key: jax.Array, data: Any) -> jax.Array:
    seed = threefry_prng_impl.seed(data)
    return jax.lax.optimization_barrier(jnp.stack(threefry((key[0], key[1]), (seed[0], seed[1]))))


UNROLLED = define_prng_impl(
    key_shape=KEY_SHAPE,
    seed=threefry_prng_impl.seed,
    split=_split,
    random_bits=_random_bits,
    fold_in=_fold_in,
    name="threefry_unrolled",
    tag="tfu",
)
