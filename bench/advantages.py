"""Cost of a discount: Beta-weighted advantages compared with plain GAE and the dense form, their memory, and PPO.

    python bench/advantages.py [--rounds 15] [--seeds 1 16] [--iterations 40] [--json FILE]

At 128 steps of 64 environments, three estimators run alternately, each in a compiled loop of calls: GAE, Beta weights
by the mixture scan, and Beta weights by the dense form, which masks `[T, T]` weights by episode. Ratios are of
neighbouring timings. The values of the two Beta-weighted forms are compared before anything is timed. At 1,024 steps of
1,024 environments, two figures of memory are reported: the compiler's figure for scratch memory, and the highest
resident size minus the size before the call. Last, iterations of PPO on CartPole run alternately with an exponential
discount, with Beta weights, and with Beta weights and normalised observations and rewards. The exit status is 1 if the
values disagree, if scratch memory is not bounded, or if a median misses its target.
"""

import dataclasses
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # a script's folder is first on the path, where envs.py hides `envs`
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import jax
import jax.numpy as jnp
import numpy as np

import jaxrl
from bench.memory import resident_mebibytes
from bench.report import Report, benchmark_parser, ratios
from jaxrl.discounts.parsing import prepare
from jaxrl.runtime.loop import make_loop

DISCOUNT, GAMMA, LAM = "beta:mu=0.98,eta=0.5", 0.98, 0.95
MOST_TIMES_GAE, LEAST_TIMES_BELOW_DENSE, MOST_ADDED_TO_PPO = 4.0, 10.0, 0.03
MOST_ADDED_IN_ALL = 0.05
MEBIBYTE = 2**20


def rollout(num_steps: int, num_envs: int) -> tuple[jax.Array, ...]:
    """Random `reward, value, next_value, terminated, done`, each `[T, B]`."""
    generator = np.random.default_rng(0)
    numbers = generator.normal(size=(3, num_steps, num_envs)).astype(np.float32)
    terminated, done = generator.random((2, num_steps, num_envs)) < 0.01
    return tuple(jnp.asarray(array) for array in (*numbers, terminated, terminated | done))


def dense(curve: jax.Array, lam: Any, *data: jax.Array) -> tuple[jax.Array, jax.Array]:
    """UGAE by weights `[T, T]`, masked for every environment where a lag crosses the end of an episode."""
    reward, value, next_value, terminated, done = data
    num_steps = reward.shape[0]
    last = (terminated | done).at[-1].set(True)
    episode = jnp.cumsum(last, axis=0) - last
    lag = jnp.arange(num_steps)[None, :] - jnp.arange(num_steps)[:, None]
    ahead = jnp.maximum(lag, 0)
    decay = jnp.where(lag >= 0, lam**ahead, 0.0)
    same = (episode[:, None] == episode[None, :]).astype(jnp.float32)
    bootstrap = jnp.where(terminated, 0.0, next_value) * jnp.where(last, 1.0, 1.0 - lam)
    target = jnp.einsum("tj,tjb,jb->tb", decay * curve[ahead], same, reward)
    target = target + jnp.einsum("tj,tjb,jb->tb", decay * curve[ahead + 1], same, bootstrap)
    return target - value, target


def compiled_loop(estimate: Callable[..., Any], data: Sequence[jax.Array], calls: int) -> Callable[[], float]:
    """Return a function that measures the seconds per call in a compiled loop of `calls` dependent calls."""

    def body(_: Any, previous: jax.Array) -> jax.Array:
        advantage, target = estimate(LAM + 1e-9 * previous, *data)
        return (advantage[0, 0] + target[-1, -1]) * 1e-3

    loop = jax.jit(lambda start: jax.lax.fori_loop(0, calls, body, start))
    jax.block_until_ready(loop(jnp.float32(0)))

    def run() -> float:
        start = time.perf_counter()
        jax.block_until_ready(loop(jnp.float32(0)))
        return (time.perf_counter() - start) / calls

    return run


def small(report: Report, rounds: int) -> str:
    """Add the table at 128 steps of 64 environments; returns a summary."""
    data = rollout(128, 64)
    prepared, single = prepare(DISCOUNT, 128), prepare(GAMMA, 128)
    curve = jaxrl.as_discount(DISCOUNT).curve(128)
    mixture, by_weights = (
        jax.jit(form)(LAM, *data)[0]
        for form in (lambda lam, *data: jaxrl.ugae(prepared, lam, *data), lambda lam, *data: dense(curve, lam, *data))
    )
    scale = float(jnp.abs(by_weights).max())
    difference = float(jnp.abs(mixture - by_weights).max()) / scale
    runs = {
        "GAE": compiled_loop(lambda lam, *data: jaxrl.ugae(single, lam, *data), data, 500),
        "Beta-weighted, mixture scan": compiled_loop(lambda lam, *data: jaxrl.ugae(prepared, lam, *data), data, 500),
        "Beta-weighted, dense form": compiled_loop(lambda lam, *data: dense(curve, lam, *data), data, 5),
    }
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            seconds[name].append(run())
    gae, beta, dense_form = seconds.values()
    table = report.table(
        f"T = 128, 64 environments, {len(prepared.rates)} nodes; median of {rounds} rounds (least to most)",
        {"advantages": "", "microseconds": ".1f", "times GAE": ".2f", "target": ""},
    )
    targets = ("", f"at most {MOST_TIMES_GAE:g}", f"at least {LEAST_TIMES_BELOW_DENSE:g} times the scan's")
    for (name, times), target in zip(seconds.items(), targets, strict=True):
        table.add(name, [1e6 * one for one in times], ratios(times, gae), target)
    over_gae, below = statistics.median(ratios(beta, gae)), statistics.median(ratios(dense_form, beta))
    report.note(f"Dense form / mixture scan: {below:.1f}; largest difference: {difference:.1e} of the largest value.")
    # At most 128 additions and 128 decays in float32, and a quadrature accurate to one rounding.
    report.require(difference <= 4 * 128 * 2.0**-24, f"The scan and the dense form differ by {difference:.1e}.")
    report.require(
        over_gae <= MOST_TIMES_GAE,
        f"Beta-weighted advantages take {over_gae:.2f} times as long as GAE, over {MOST_TIMES_GAE:g}.",
    )
    report.require(
        below >= LEAST_TIMES_BELOW_DENSE,
        f"The dense form takes {below:.1f} times as long, under {LEAST_TIMES_BELOW_DENSE:g}.",
    )
    return (
        f"{over_gae:.1f} times GAE's {1e6 * statistics.median(gae):.0f} µs, {below:.0f} times less than the dense form"
    )


def large(report: Report) -> None:
    """Add the table of memory at 1,024 steps of 1,024 environments."""
    data = rollout(1024, 1024)
    prepared = prepare(DISCOUNT, 1024)
    compiled = jax.jit(lambda *data: jaxrl.ugae(prepared, LAM, *data)).lower(*data).compile()
    analysis = compiled.memory_analysis()
    assert analysis is not None
    scratch = analysis.temp_size_in_bytes / MEBIBYTE
    array = data[0].nbytes / MEBIBYTE
    level, highest, running = resident_mebibytes(), [0.0], True

    def watch() -> None:
        while running:
            highest[0] = max(highest[0], resident_mebibytes())
            time.sleep(0.002)

    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.perf_counter()
    output = jax.block_until_ready(compiled(*data))
    seconds = time.perf_counter() - start
    running = False
    watcher.join()
    finite = bool(jnp.isfinite(output[0]).all())
    columns = {"call, s": ".3f", "scratch, MiB": ".1f", "highest resident size above the level before, MiB": ".1f"}
    table = report.table(
        f"T = 1,024, 1,024 environments, {len(prepared.rates)} nodes, an array [T, B] of {array:.0f} MiB",
        columns | {"one mask [T, T, B], MiB": ".0f"},
    )
    table.add(seconds, scratch, highest[0] - level, array * 1024)
    report.require(
        finite and scratch <= 16 * array,
        f"At T = 1,024 scratch memory is {scratch:.0f} MiB, over 16 arrays of the rollout, or numbers are not finite.",
    )


def training(report: Report, all_seeds: Sequence[int], iterations: int, rounds: int) -> str:
    """Add the table of PPO on CartPole: exponential, Beta-weighted, and with normalisation too; returns a summary."""
    plain = jaxrl.preset("ppo", "cartpole").algo
    config = dataclasses.replace(plain.config, normalise_observation=True, normalise_reward=True)
    normalised = jaxrl.ppo(plain.env, config)
    table = report.table(
        f"PPO on CartPole, 4 environments of 128 steps; {rounds} alternating rounds of {iterations} iterations",
        {"seeds": "", "PPO": "", "ms an iteration": ".3f", "added": "+.1%", "target": ""},
    )
    sentences = []
    for num_seeds in all_seeds:
        keys = jax.random.split(jax.random.key(0), num_seeds)
        sides: dict[str, tuple[Callable[[], Any], list[float]]] = {
            name: (compiled_iterations(algo, discount, keys, iterations), [])
            for name, algo, discount in (
                ("exponential", plain, GAMMA),
                ("Beta-weighted", plain, DISCOUNT),
                ("Beta-weighted, observations and rewards normalised", normalised, DISCOUNT),
            )
        }
        for turn in range(rounds):
            for run, seconds in list(sides.values())[:: -1 if turn % 2 else 1]:
                start = time.perf_counter()
                run()
                seconds.append(1e3 * (time.perf_counter() - start) / iterations)
        _, exponential = sides["exponential"]
        for (name, (_, seconds)), most in zip(sides.items(), (None, MOST_ADDED_TO_PPO, MOST_ADDED_IN_ALL), strict=True):
            if most is None:
                table.add(num_seeds, name, seconds, None, None)
                continue
            added = [ratio - 1 for ratio in ratios(seconds, exponential)]
            table.add(num_seeds, name, seconds, added, f"under {most:.0%}")
            median = statistics.median(added)
            report.require(median < most, f"{name}: {median:.1%} more for an iteration of PPO at {num_seeds} seeds.")
            sentences.append(f"{median:+.1%}")
    seeds = " / ".join(map(str, all_seeds))
    return f"{', '.join(sentences)} an iteration of PPO at {seeds} seeds, each without and with both normalisations"


def compiled_iterations(algo: Any, discount: Any, keys: jax.Array, iterations: int) -> Callable[[], Any]:
    """Compiled iterations of PPO for these keys; each call continues the runs and waits for the result."""
    loop, env_params = make_loop(algo, 1), algo.env.default_params
    advance = jax.jit(jax.vmap(loop.advance, (0, 0, None, None, None, None)))
    hparams = algo.prepare(algo.hparams.replace(discount=jaxrl.as_discount(discount)), run_length=500_000)
    hparams = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), hparams)
    state = [jax.jit(jax.vmap(loop.init, (0, None, None)))(keys, hparams, env_params)]

    def run(count: int = iterations) -> None:
        state[0] = jax.block_until_ready(advance(state[0], keys, hparams, env_params, 0, count))

    run(1)
    return run


def main() -> None:
    """Print the tables."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--iterations", type=int, default=40)
    arguments = parser.parse_args()
    report = Report(parser, arguments, "Beta-weighted advantages, 128 steps of 64 environments")
    alone = small(report, arguments.rounds)
    large(report)
    within = training(report, arguments.seeds, arguments.iterations, arguments.rounds)
    report.finish(f"{alone}; {within}")


if __name__ == "__main__":
    main()
