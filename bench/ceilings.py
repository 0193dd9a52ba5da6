"""What this machine can do at most, measured in this process: products, memory, random words, tanh, launches."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bench.launches import launches


class Ceilings(NamedTuple):
    """The best of some measurements each, on JAX's first device and all the threads that it takes.

    Attributes:
      large_product: operations a second of a float32 product, 2,048 each way, at JAX's default precision.
      small_product: of (128, 64) by (64, 64), one after another.
      bandwidth: bytes a second that a x + b reads and writes, into a buffer that is given.
      words: random words of 32 bits a second, by threefry.
      tanh: a second.
      launch: seconds of one small operation inside a compiled loop.
      dispatch: seconds of one call of a small program.
    """

    large_product: float
    small_product: float
    bandwidth: float
    words: float
    tanh: float
    launch: float
    dispatch: float


def measure_ceilings(rounds: int = 5, share: float = 1.0) -> Ceilings:
    """The ceilings.

    Args:
      rounds: of which the best counts.
      share: of the usual sizes, less than 1 only to see that it works.
    """

    def best(run: Callable[[], Any]) -> float:
        run()
        return min(_seconds(run) for _ in range(rounds))

    big = max(int(2048 * share), 16)
    many = max(int(2**25 * share), 2**10)
    large = _products((big, big), 4)
    small = _products((128, 64), max(int(2000 * share), 2))
    step = jax.jit(lambda x, y: 0.5 * x + y, donate_argnums=0)
    held = [jnp.ones(many), jnp.ones(many)]

    def stream() -> None:
        for _ in range(10):
            held[0] = step(held[0], held[1])
        jax.block_until_ready(held[0])

    num_words = max(many // 8, 2**10)
    draw = jax.jit(lambda key: jax.random.bits(key, (num_words,)))
    key = jax.random.key(0)
    values = jnp.ones(max(many // 32, 2**10))
    squash = jax.jit(lambda x: jax.lax.fori_loop(0, 8, lambda _, x: _repeated(jnp.tanh, x, 16), x))
    one, tiny = jnp.ones(()), jax.jit(lambda x: x + 1)

    def dispatch() -> None:
        x = one
        for _ in range(1000):
            x = tiny(x)
        jax.block_until_ready(x)

    return Ceilings(
        large_product=large.operations / best(large.run),
        small_product=small.operations / best(small.run),
        bandwidth=10 * 3 * 4 * many / best(stream),
        words=num_words / best(lambda: jax.block_until_ready(draw(key))),
        tanh=8 * 16 * values.size / best(lambda: jax.block_until_ready(squash(values))),
        launch=_launch_seconds(best),
        dispatch=best(dispatch) / 1000,
    )


class _Timed(NamedTuple):
    run: Callable[[], Any]
    operations: float


def _products(shape: tuple[int, int], count: int) -> _Timed:
    """Products of `[m, n]` and `[n, n]`, each with what the one before gave."""
    rows, width = shape
    weights = jnp.eye(width)
    program = jax.jit(lambda x: jax.lax.fori_loop(0, count, lambda _, x: x @ weights, x))
    start = jnp.ones(shape)
    return _Timed(lambda: jax.block_until_ready(program(start)), 2.0 * rows * width * width * count)


def _launch_seconds(best: Callable[[Callable[[], Any]], float]) -> float:
    """From two loops that differ only in how many small operations a turn has, which no fusion joins."""
    turns, size = 1000, 512
    told = []
    for length in (4, 36):
        program = jax.jit(
            lambda x, length=length: jax.lax.fori_loop(0, turns, lambda _, x: _repeated(_kept_apart, x, length), x)
        )
        compiled = program.lower(jnp.ones(size)).compile()
        start = jnp.ones(size)
        seconds = best(lambda compiled=compiled, start=start: jax.block_until_ready(compiled(start)))
        told.append((seconds, launches(compiled.as_text())))
    (short, few), (long, many) = told
    return (long - short) / (many - few)


def _kept_apart(x: jax.Array) -> jax.Array:
    return jax.lax.optimization_barrier(x * 0.5 + 1)


def _repeated(function: Callable[[jax.Array], jax.Array], x: jax.Array, times: int) -> jax.Array:
    for _ in range(times):
        x = function(x)
    return x


def _seconds(run: Callable[[], Any]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started
