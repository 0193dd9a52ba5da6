"""The random numbers of `jax.random`, bit for bit, at a fraction of the cost on CPUs.

`jax.random` compiles the twenty rounds of Threefry to a loop on CPUs, which passes over memory five times and takes
some forty operations to start; written out they are one pass. A barrier keeps the compiler from computing the words
again for every use. Code that draws many numbers unrolls a key for its own draws; keys passed between components, such
as to an environment or an algorithm, are of the usual kind.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.random import define_prng_impl, threefry_prng_impl

from envs.loops import traced_platform

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
KEY_SHAPE = (2,)
WORDS = {8: jnp.uint8, 16: jnp.uint16, 32: jnp.uint32}

__all__ = ["KEY_SHAPE", "rolled", "threefry", "unrolled"]


def unrolled(key: jax.Array) -> jax.Array:
    """A key from which `jax.random` draws the same numbers, with the rounds of Threefry written out.

    It has another type, which cannot be stored with usual keys in one array and which `jax.random.poisson`
    does not accept; `rolled` converts it back.

    Args:
      key: Keys `[*S]`; a key of an implementation other than JAX's default is returned unchanged, and so are the raw
        words of `jax.random.PRNGKey`. All keys are returned unchanged if JAX's default backend, or the platform of
        `traced_for`, is not a CPU, because the rounds are written out there anyway, and if
        `jax_threefry_partitionable` is switched off, because the numbers would differ.

    Returns:
      Keys `[*S]`.
    """
    usual = jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and jax.random.key_impl(key) == "threefry2x32"
    on_cpu = traced_platform() == "cpu"
    if not usual or not jax.config.values["jax_threefry_partitionable"] or not on_cpu:
        return key
    return jax.random.wrap_key_data(jax.random.key_data(key), impl=UNROLLED)


def rolled(key: jax.Array) -> jax.Array:
    """The usual key from which `unrolled` made this one; any other key unchanged."""
    if key.dtype != UNROLLED_DTYPE:
        return key
    return jax.random.wrap_key_data(jax.random.key_data(key), impl="threefry2x32")


@jax.jit
def threefry(key: tuple[jax.Array, jax.Array], counter: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    """Two random words for each pair of counters: the twenty rounds of Threefry-2x32, written out.

    Args:
      key: Two uint32 of equal or broadcasting shapes.
      counter: Two uint32 of equal or broadcasting shapes.

    Returns:
      Two uint32.

    Source: Salmon, Moraes, Dror and Shaw (2011), "Parallel random numbers: as easy as 1, 2, 3".
    """
    keys = (*key, key[0] ^ key[1] ^ jnp.uint32(0x1BD11BDA))
    left, right = jnp.broadcast_arrays(counter[0] + keys[0], counter[1] + keys[1])
    for group in range(5):
        for rotation in ROTATIONS[group % 2]:  # sixty operations, which lax traces in a third of jnp's time
            left = lax.add(left, right)
            high = lax.shift_left(right, np.uint32(rotation))
            low = lax.shift_right_logical(right, np.uint32(32 - rotation))
            right = lax.bitwise_xor(lax.bitwise_or(high, low), left)
        left = left + keys[(group + 1) % 3]
        right = right + keys[(group + 2) % 3] + jnp.uint32(group + 1)
    return left, right


def _words(key: jax.Array, shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    count = jnp.arange(math.prod(shape), dtype=jnp.uint32).reshape(shape)
    return threefry((key[0], key[1]), (jnp.zeros_like(count), count))


def _random_bits(key: jax.Array, bit_width: int, shape: tuple[int, ...]) -> jax.Array:
    if bit_width not in WORDS or math.prod(shape) >= 2**32:
        return threefry_prng_impl.random_bits(key, bit_width, shape)
    first, second = _words(key, shape)
    return lax.optimization_barrier((first ^ second).astype(WORDS[bit_width]))


def _split(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    return lax.optimization_barrier(jnp.stack(_words(key, tuple(shape)), axis=-1))


def _fold_in(key: jax.Array, data: Any) -> jax.Array:
    seed = threefry_prng_impl.seed(data)
    return lax.optimization_barrier(jnp.stack(threefry((key[0], key[1]), (seed[0], seed[1]))))


UNROLLED = define_prng_impl(
    key_shape=KEY_SHAPE,
    seed=threefry_prng_impl.seed,
    split=_split,
    random_bits=_random_bits,
    fold_in=_fold_in,
    name="threefry_unrolled",
    tag="tfu",
)
UNROLLED_DTYPE = jax.eval_shape(lambda: jax.random.key(0, impl=UNROLLED)).dtype
