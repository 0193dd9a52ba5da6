"""Beta and gamma variates by the thousand: one pass for all, and short ones for the few that are rejected."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

# Variates that share a pass over the rejected: it draws the first of each row again.
ROW = 64
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))

__all__ = ["beta", "gamma", "once_if", "threefry"]


def beta(key: jax.Array, alpha: jax.Array, beta: jax.Array) -> jax.Array:
    """Independent Beta variates, exact up to the rounding of float32.

    Differs from `jax.random.beta` in cost alone: rejected variates are drawn again a few at a
    time, where `jax.random.beta` under `vmap` repeats all until the unluckiest is accepted.
    A parameter that is 0 gives the limit, two of them or one that is NaN give NaN.

    Args:
      key: of random numbers, of any implementation.
      alpha, beta: float32 `[*S]`, at least 0, or what broadcasts to that; traced.

    Returns:
      `[*S]` in [0, 1], X / (X + Y) of gamma variates X and Y.

    Source: Marsaglia and Tsang (2000), for the gamma variates.
    """
    shapes = jnp.stack(jnp.broadcast_arrays(jnp.asarray(alpha, jnp.float32), jnp.asarray(beta, jnp.float32)))
    draws, log_shrink = _gamma(key, shapes)

    def shrink(draws: jax.Array, turn: jax.Array) -> jax.Array:
        logs = log_shrink(turn)
        return draws * jnp.exp(logs - jnp.max(logs, axis=0))  # the ratio alone counts: one of both stays as it is

    draws = once_if(jnp.any(shapes < 1), shrink, draws)
    return draws[0] / (draws[0] + draws[1])


def gamma(key: jax.Array, shape: jax.Array) -> jax.Array:
    """Independent gamma variates of scale 1, exact up to the rounding of float32.

    Args:
      key: of random numbers, of any implementation.
      shape: float32 `[*S]`, the shape parameters, at least 0; traced.

    Returns:
      `[*S]`; 0 where the shape is 0, NaN where it is NaN.

    Source: Marsaglia and Tsang (2000), "A simple method for generating gamma variables".
    """
    shape = jnp.asarray(shape, jnp.float32)
    draws, log_shrink = _gamma(key, shape)
    return once_if(jnp.any(shape < 1), lambda draws, turn: draws * jnp.exp(log_shrink(turn)), draws)


def threefry(key: tuple[jax.Array, jax.Array], counter: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    """Two random words for each pair of counters: the twenty rounds of Threefry-2x32, written out.

    `jax.random` rolls them into a loop on CPUs; written out they fuse with what the words are for.

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


def _gamma(key: jax.Array, shape: jax.Array) -> tuple[jax.Array, Callable[[jax.Array], jax.Array]]:
    """Variates of shape + 1 where the shape is below 1, and a function of the logarithms of what they shrink by."""
    words = jax.random.bits(key, (2,))
    seed = (words[0], words[1])
    count = shape.size
    row = min(count, ROW)
    rows = -(-count // row)
    lanes = jnp.arange(rows * row, dtype=jnp.uint32).reshape(rows, row)
    padded = jnp.pad(shape.ravel(), (0, rows * row - count), constant_values=1.0).reshape(rows, row)
    third = jnp.where(padded < 1, padded + 1, padded) - 1 / 3
    draws, accepted = _attempt(seed, jnp.uint32(0), lanes, third)
    accepted |= lanes >= count
    column = jnp.arange(row)

    def again(carry: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        attempt, draws, accepted = carry
        first = jnp.min(jnp.where(accepted, row, column), axis=1, keepdims=True)
        mine = column == first
        draw, good = _attempt(seed, attempt, lanes[:, :1], jnp.sum(jnp.where(mine, third, 0.0), axis=1, keepdims=True))
        mine &= good
        return attempt + 1, jnp.where(mine, draw, draws), accepted | mine

    carry = (jnp.uint32(1), draws, accepted)
    _, draws, _ = jax.lax.while_loop(lambda carry: ~jnp.all(carry[2]), again, carry)

    def log_shrink(turn: jax.Array) -> jax.Array:
        uniform, _ = _uniforms(seed, ~turn, lanes)
        log = jnp.where(padded < 1, jnp.log(uniform) / padded, 0.0)
        return log.ravel()[:count].reshape(shape.shape)

    return draws.ravel()[:count].reshape(shape.shape), log_shrink


def _attempt(
    seed: tuple[jax.Array, jax.Array], attempt: jax.Array, lanes: jax.Array, third: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """A variate of the shape `third` + 1/3, at least 1, and whether it is accepted; NaN is.

    The logarithm of the density's ratio to the normal one is d (log v + 1 - v) + x^2 / 2, which
    is computed without the difference 1 - v, as that loses its digits where d is large.
    """
    first, uniform = _uniforms(seed, attempt, lanes)
    normal = jnp.sqrt(2.0) * jax.lax.erf_inv(2 * first - 1)
    step = jax.lax.rsqrt(9 * third) * normal
    root = 1 + step
    growth = step * (3 + step * (3 + step))
    log_ratio = 0.5 * normal * normal + third * (3 * jnp.log1p(jnp.maximum(step, -0.9999999)) - growth)
    rejected = (root <= 0) | (jnp.log(uniform) >= log_ratio)
    return third * root * root * root, ~rejected


def _uniforms(seed: tuple[jax.Array, jax.Array], attempt: jax.Array, lanes: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Two uniform variates in (0, 1) for every lane, odd multiples of 2^-24: never 0, never 1."""
    words = threefry(seed, (lanes, jnp.broadcast_to(attempt, lanes.shape)))
    first, second = (((word >> 9).astype(jnp.int32).astype(jnp.float32) + 0.5) * 2.0**-23 for word in words)
    return first, second


def once_if(needed: jax.Array, body: Callable[[jax.Array, jax.Array], jax.Array], value: jax.Array) -> jax.Array:
    """What the body makes of a value if needed, else the value.

    A loop of one turn or none, which under `vmap` takes none if no lane needs one, where a
    condition would always take both branches. The body is given the turn, uint32 0, and what it
    computes must follow from that, or it would be computed ahead of the loop.
    """
    carry = (jnp.zeros((), jnp.uint32), value)
    return jax.lax.while_loop(
        lambda carry: needed & (carry[0] == 0), lambda carry: (carry[0] + 1, body(carry[1], carry[0])), carry
    )[1]
