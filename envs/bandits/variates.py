"""Large arrays of Beta and gamma variates: one pass for all, and short passes for the few that are rejected."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from envs.bandits.batched_last import runs_last
from envs.bandits.normal_draws import lanes, seed_words
from envs.threefry import threefry

# Number of variates in a pass over the rejected ones, which draws the first one of each row again.
ROW = 64
# The attempt whose uniform variates shrink the draws for shapes below 1.
SHRINKING = 0xFFFFFFFF

__all__ = ["beta", "gamma"]

Seed = tuple[jax.Array, jax.Array]


def beta(key: jax.Array, alpha: jax.Array, beta: jax.Array) -> jax.Array:
    """Independent Beta variates, exact up to the rounding of float32.

    Differs from `jax.random.beta` in cost alone: rejected variates are drawn again a few at a
    time, where `jax.random.beta` under `vmap` repeats all until the last one is accepted.
    A parameter of 0 gives the limit; two zeros, or a NaN, give NaN.

    Args:
      key: Random key of any implementation.
      alpha, beta: Parameters, float32 `[*S]` or broadcastable to that, at least 0, traced.

    Returns:
      Variates `[*S]` in [0, 1], X / (X + Y) of gamma variates X and Y.

    Source: Marsaglia and Tsang (2000), for the gamma variates.
    """
    shapes = jnp.stack(jnp.broadcast_arrays(jnp.asarray(alpha, jnp.float32), jnp.asarray(beta, jnp.float32)))
    return _beta(*seed_words(key), shapes.reshape(2, -1)).reshape(shapes.shape[1:])


def gamma(key: jax.Array, shape: jax.Array) -> jax.Array:
    """Independent gamma variates of scale 1, exact up to the rounding of float32.

    Args:
      key: Random key of any implementation.
      shape: Shape parameters, float32 `[*S]`, at least 0, traced.

    Returns:
      Variates `[*S]`; 0 where the shape is 0, NaN where it is NaN.

    Source: Marsaglia and Tsang (2000), "A simple method for generating gamma variables".
    """
    shape = jnp.asarray(shape, jnp.float32)
    return _gamma(*seed_words(key), shape.ravel()).reshape(shape.shape)


@runs_last
def _beta(left: jax.Array, right: jax.Array, shapes: jax.Array) -> jax.Array:
    """Beta variates `[n]` from shapes `[2, n]`."""
    shapes = jnp.broadcast_to(shapes, (*shapes.shape[:2], *jnp.broadcast_shapes(left.shape, shapes.shape[2:])))
    flat = shapes.reshape(-1, *shapes.shape[2:])
    draws = _boosted((left, right), flat).reshape(shapes.shape)

    def shrink(draws: jax.Array) -> jax.Array:
        logs = _log_shrink((left, right), flat).reshape(shapes.shape)
        return draws * jnp.exp(logs - jnp.max(logs, axis=0))  # only the ratio counts: the larger stays unchanged

    draws = jax.lax.cond(jnp.any(shapes < 1), shrink, _as_it_is, draws)
    return draws[0] / (draws[0] + draws[1])


@runs_last
def _gamma(left: jax.Array, right: jax.Array, shape: jax.Array) -> jax.Array:
    """Gamma variates `[n]` from shapes `[n]`."""
    shape = jnp.broadcast_to(shape, (shape.shape[0], *jnp.broadcast_shapes(left.shape, shape.shape[1:])))

    def shrink(draws: jax.Array) -> jax.Array:
        return draws * jnp.exp(_log_shrink((left, right), shape))

    return jax.lax.cond(jnp.any(shape < 1), shrink, _as_it_is, _boosted((left, right), shape))


def _as_it_is(draws: jax.Array) -> jax.Array:
    return draws


def _boosted(seed: Seed, shape: jax.Array) -> jax.Array:
    """Variates `[n, *R]` of a shape `[n, *R]`, or of shape + 1 where it is below 1."""
    count, runs = shape.shape[0], shape.shape[1:]
    rows = max(-(-count // ROW), 1)
    row = -(-count // rows)
    third = jnp.where(shape < 1, shape + 1, shape) - 1 / 3
    filling = ((0, rows * row - count), *[(0, 0)] * len(runs))
    third = jnp.pad(third, filling, constant_values=jnp.nan)  # NaN accepts any variate
    draws = _attempt(seed, jnp.uint32(0), lanes(rows * row, seed[0]), third)
    third, draws = (x.reshape(rows, row, *runs) for x in (third, draws))
    column = jnp.arange(row, dtype=jnp.int32).reshape(1, row, *[1] * len(runs))

    def first_rejected(draws: jax.Array) -> jax.Array:
        return jnp.min(jnp.where(draws < 0, column, row), axis=1)

    def again(carry: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        attempt, first, draws = carry
        chosen = jnp.take_along_axis(third, first[:, None], axis=1, mode="clip")[:, 0]
        draw = _attempt(seed, attempt, lanes(rows, seed[0]), chosen)
        draws = jax.lax.optimization_barrier(jnp.where(column == first[:, None], draw[:, None], draws))
        return attempt + 1, first_rejected(draws), draws

    carry = (jnp.uint32(1), first_rejected(draws), draws)
    draws = jax.lax.while_loop(lambda carry: jnp.any(carry[1] < row), again, carry)[2]
    return draws.reshape(rows * row, *runs)[:count]


def _log_shrink(seed: Seed, shape: jax.Array) -> jax.Array:
    """Logarithms `[n, *R]` of the factors that turn variates of shape + 1 into ones of a shape below 1; 0 elsewhere."""
    uniform, _ = _uniforms(seed, jnp.uint32(SHRINKING), lanes(shape.shape[0], seed[0]))
    return jnp.where(shape < 1, jnp.log(uniform) / shape, 0.0)


def _attempt(seed: Seed, attempt: jax.Array, lane: jax.Array, third: jax.Array) -> jax.Array:
    """A variate of the shape `third` + 1/3, at least 1, or -1 if it is rejected; NaN is never rejected.

    The logarithm of the density's ratio to the normal one is d (log v + 1 - v) + x^2 / 2, which
    is computed without the difference 1 - v, because that loses digits where d is large. The
    barriers separate passes that a compiler can each vectorise, and that it does not repeat.
    """
    first, uniform = _uniforms(seed, attempt, lane)
    normal = jax.lax.optimization_barrier(jnp.sqrt(2.0) * jax.lax.erf_inv(2 * first - 1))
    step = jax.lax.rsqrt(9 * third) * normal
    root = 1 + step
    growth = step * (3 + step * (3 + step))
    log_ratio = 0.5 * normal * normal + third * (3 * jnp.log1p(jnp.maximum(step, -0.9999999)) - growth)
    rejected = (root <= 0) | (jnp.log(uniform) >= log_ratio)
    return jax.lax.optimization_barrier(jnp.where(rejected, -1.0, third * root * root * root))


def _uniforms(seed: Seed, attempt: jax.Array, lane: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Two uniform variates in (0, 1) for every lane, odd multiples of 2^-24: never 0, never 1."""
    words = threefry(seed, (lane, jnp.broadcast_to(attempt, lane.shape)))
    first, second = (((word >> 9).astype(jnp.int32).astype(jnp.float32) + 0.5) * 2.0**-23 for word in words)
    # A pass has one result on CPUs, since two results would compute the twenty rounds twice; a complex number holds
    # both.
    pair = jax.lax.optimization_barrier(jax.lax.complex(first, second))
    return jnp.real(pair), jnp.imag(pair)
