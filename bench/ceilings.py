"""Peak rates of this machine, measured in this process: products, memory, random words, tanh, launches."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from envs.threefry import unrolled
from jaxrl.runtime.accelerators.figures import launches
from jaxrl.runtime.layout import default_devices, run_on_devices


class Ceilings(NamedTuple):
    """Peak rates on JAX's first device, each the best of several measurements; a CPU uses one thread per core.

    Attributes:
      large_product: Operations per second of a float32 product of 2,048^3, at JAX's default precision.
      small_product: Operations per second of successive float32 products of (128, 64) by (64, 64).
      bandwidth: Bytes per second that a x + b reads and writes, into a donated buffer of 128 MiB.
      cached: Bytes per second of the same operation repeated on 1 or 16 MiB per thread, which stay in caches, or
        `bandwidth` if that is higher.
      words: Random words of 32 bits per second by threefry, the higher of two rates: for many words at a time, and for
        few that stay in a cache.
      tanh: Evaluations of tanh per second, the higher of two rates: for few numbers that stay in a cache, and for many.
      launch: Seconds of one operation on two numbers inside a compiled loop.
      dispatch: Seconds of one call of a small program.
    """

    large_product: float
    small_product: float
    bandwidth: float
    cached: float
    words: float
    tanh: float
    launch: float
    dispatch: float


def one_device() -> tuple[Any, ...]:
    """JAX's first device; a CPU is repeated once per core, one thread each, as in `train`."""
    first = jax.devices()[0]
    return tuple(device for device in default_devices() if device == first)


def measure_ceilings(rounds: int = 5, share: float = 1.0) -> Ceilings:
    """Measure the ceilings.

    Args:
      rounds: Number of measurements, of which the best counts.
      share: Fraction of the usual sizes; below 1 only to check that it works.
    """

    def best(run: Callable[[], Any]) -> float:
        run()
        return min(_seconds(run) for _ in range(rounds))

    def rate(amount: float, program: Callable[[jax.Array], Any], start: jax.Array) -> float:
        """The highest rate of `amount` units of work per second, by one call at a time or by one in every thread."""
        compiled: Any = jax.jit(program).lower(start).compile()
        threads = len(one_device())
        together = best(lambda: run_on_devices([compiled] * threads, [start] * threads))
        return max(threads * amount / together, amount / best(lambda: jax.block_until_ready(compiled(start))))

    big, many = max(int(2048 * share), 16), max(int(2**25 * share), 2**10)
    few_words = 2**14
    more_words = max(many // 8, few_words)
    values = max(many // 32, 2**10)
    step = jax.jit(lambda x, y: 0.5 * x + y, donate_argnums=0)
    held = [jnp.ones(many), jnp.ones(many)]

    def stream() -> None:
        for _ in range(10):
            held[0] = step(held[0], held[1])
        jax.block_until_ready(held[0])

    def products(count: int, rows: int, width: int) -> float:
        weights = jnp.eye(width)
        amount = 2.0 * count * rows * width * width
        return rate(amount, lambda x: _looped(count, lambda x: x @ weights, x), jnp.ones((rows, width)))

    def words(turns: int, count: int) -> float:
        def again(words: jax.Array) -> jax.Array:
            return jax.random.bits(unrolled(jax.random.wrap_key_data(words[:2], impl="threefry2x32")), (count,))

        return rate(turns * count, lambda words: _looped(turns, again, words), jnp.ones(count, jnp.uint32))

    def tanh(count: int, turns: int, at_once: int) -> float:
        amount = float(count * turns * at_once)
        return rate(amount, lambda x: _looped(turns, lambda x: _repeated(jnp.tanh, x, at_once), x), jnp.ones(count))

    def again_and_again(size: int) -> float:
        count, turns = size // 8, max(int(2**31 * share) // size, 2)  # two arrays, one of which is also written

        def turn(pair: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            return 0.5 * pair[0] + pair[1], pair[1]

        def again(x: jax.Array) -> jax.Array:
            return jax.lax.fori_loop(0, turns, lambda _, pair: turn(pair), (x, x + 1))[0]

        return rate(turns * 3.0 * 4 * count, again, jnp.ones(count))

    from_memory = 10 * 3 * 4 * many / best(stream)
    one, tiny = jnp.ones(()), jax.jit(lambda x: x + 1)

    def dispatch() -> None:
        x = one
        for _ in range(1000):
            x = tiny(x)
        jax.block_until_ready(x)

    return Ceilings(
        large_product=products(4, big, big),
        small_product=products(max(int(2000 * share), 2), 128, 64),
        bandwidth=from_memory,
        cached=max(from_memory, again_and_again(2**20), again_and_again(2**24)),
        words=max(words(1, more_words), words(more_words // few_words, few_words)),
        tanh=max(tanh(2**13, max(values // 2**7, 1), 1), tanh(values, 8, 16)),  # suited to a CPU and to a GPU
        launch=_launch_seconds(best),
        dispatch=best(dispatch) / 1000,
    )


def _looped(turns: int, function: Callable[[jax.Array], jax.Array], x: jax.Array) -> jax.Array:
    return jax.lax.fori_loop(0, turns, lambda _, x: function(x), x)


def _launch_seconds(best: Callable[[Callable[[], Any]], float]) -> float:
    """Seconds of a launch, from loops of many small operations, of those kinds that the compiler did not fuse."""
    turns, length, times = 1000, 100, []
    for small in SMALL:
        start = jnp.ones((1, 2)), jnp.ones((64, 64))
        compiled: Any = (
            jax.jit(small_operations, static_argnums=(0, 1, 2)).lower(small, turns, length, *start).compile()
        )
        count = launches(compiled.as_text())
        if count >= turns * length:
            seconds = best(lambda compiled=compiled, start=start: jax.block_until_ready(compiled(*start)))
            times.append(seconds / count)
    return min(times)


def _barrier(numbers: jax.Array, others: jax.Array) -> jax.Array:
    del others
    return jax.lax.optimization_barrier(numbers * 0.5 + 1)


def _product(numbers: jax.Array, others: jax.Array) -> jax.Array:
    return numbers @ others[:2, :2]


SMALL = (_barrier, _product)  # jax 0.10 fuses successive calls of the first


def small_operations(
    small: Callable[..., jax.Array], turns: int, length: int, numbers: jax.Array, others: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """A loop of `length` small operations on `[1, 2]` and a larger one, which the compiler cannot fuse into one."""

    def turn(_: Any, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        numbers, others = carry
        return _repeated(lambda x: small(x, others), numbers, length), others * 0.5

    return jax.lax.fori_loop(0, turns, turn, (numbers, others))


def _repeated(function: Callable[[jax.Array], jax.Array], x: jax.Array, times: int) -> jax.Array:
    for _ in range(times):
        x = function(x)
    return x


def _seconds(run: Callable[[], Any]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started
