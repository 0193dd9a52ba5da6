"""Cost of the driver: chunks, checkpoints, and the compilation that a persistent cache saves.

    python bench/driver.py [--seeds 64] [--env-steps 200000] [--repeats 5]
        [--only chunks checkpoints cache] [--json FILE]

Chunks: `jaxrl.train` is compared with one compiled call, `make_train` from the first key to the last evaluation as one
program per thread, with the same blocks on the same threads. It is also compared with the driver's programs without the
driver, both with one chunk from each evaluation to the next and with chunks of one iteration. All are compiled first
and run alternately. Each ratio is a ratio of medians, shown with the minimum and maximum of the ratios within a turn.
On a shared machine, rely on the processor time and on the cost of the end of a chunk, which is computed from the two
variants without the driver. The driver sizes a chunk by time (`SECONDS_PER_CHUNK`), so that a chunk has fewer
iterations on a busy machine.

Checkpoints: the work of `train` at each checkpoint, after ten evaluations, as a share of the minute
between two. The first checkpoint also loads the library that writes them and has a separate column.

Cache: fresh processes are timed from their start to the end of the first iteration of 64 runs, alternately without a
persistent cache, with an empty one, and with the cache that the previous process filled. A digest shows whether the
results are equal bit for bit.
"""

import argparse
import functools
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # a script's folder is first on the path, where envs.py hides `envs`
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.report import Report, benchmark_parser
from bench.report import ratios as paired_ratios
from bench.sides import whole

PARTS = ("chunks", "checkpoints", "cache")
EVALS, EVAL_EPISODES = 10, 8  # few episodes: evaluations are the same in every way and would hide the cost of chunks


def measured(function: Callable[[], Any]) -> tuple[Any, float, float]:
    """The value of a function, its wall time and its processor time in all threads, in seconds."""
    wall, processor = time.perf_counter(), time.process_time()
    value = function()
    return value, time.perf_counter() - wall, time.process_time() - processor


def chunks(report: Report, num_seeds: int, env_steps: int, repeats: int) -> str:
    """Add the table of the chunked driver; returns a summary."""
    from jaxrl.runtime.drive.driver import SECONDS_PER_CHUNK
    from jaxrl.runtime.layout import plan_layout

    ways = {
        "one compiled call": one_compiled_call(num_seeds, env_steps),
        "chunks from evaluation to evaluation": in_chunks(num_seeds, env_steps, None),
        "chunks of one iteration": in_chunks(num_seeds, env_steps, 1),
        "jaxrl.train": chunked(num_seeds, env_steps),
    }
    for way in ways.values():
        way()  # compiles
    timings: dict[str, list[tuple[float, float, float]]] = {name: [] for name in ways}
    for turn in range(repeats):
        names = list(ways)
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            timings[name].append(measured(ways[name]))
    columns = {"way": "", "wall s": ".2f", "processor s": ".2f", "return": ".1f"}
    table = report.table(
        f"{num_seeds} seeds of PPO on CartPole, {env_steps:,} env steps each, {EVALS} evaluations",
        columns | {"jaxrl.train takes, wall": ".3f", "processor": ".3f"},
    )
    ratios = {}
    for name, runs in timings.items():
        times = [[run[i] for run in runs] for i in (1, 2)]
        ratios[name] = [paired_ratios([run[i] for run in timings["jaxrl.train"]], times[i - 1]) for i in (1, 2)]
        table.add(name, *times, runs[-1][0], *ratios[name])
    long, short = (statistics.median(run[2] for run in timings[name]) for name in list(ways)[1:3])
    call = call_of(num_seeds, env_steps)
    more = max(int(call.points[-1]) - len(call.points), 1)  # additional chunks, where each is one iteration
    milliseconds = 1000 * (short - long) / more
    threads = len(plan_layout(num_seeds, None, None).devices)
    share = milliseconds / 1000 / SECONDS_PER_CHUNK / threads
    report.note(
        f"The end of a chunk costs {milliseconds:.1f} ms of processor time: {share:.2%} "
        f"of a chunk that keeps {threads} threads busy for {SECONDS_PER_CHUNK} s."
    )
    longer = [statistics.median(each) - 1 for each in ratios["one compiled call"]]
    return f"chunks {longer[0]:+.1%} compared with one compiled call ({longer[1]:+.1%} of processor time)"


def chunked(num_seeds: int, env_steps: int) -> Callable[[], float]:
    """A function that calls `jaxrl.train` and returns the final return."""
    import jaxrl

    algo = jaxrl.preset("ppo", "cartpole").algo

    def run() -> float:
        options: Any = {"evals": EVALS, "eval_episodes": EVAL_EPISODES, "progress": False}
        result = whole(jaxrl.train(algo, seeds=num_seeds, env_steps=env_steps, **options))
        return float(result.metrics["return"][:, -1].mean())

    return run


def call_of(num_seeds: int, env_steps: int) -> Any:
    """The training call of `train` for these arguments."""
    import jaxrl
    from jaxrl.runtime.loop import evaluation_points
    from jaxrl.runtime.training import training_call

    algo = jaxrl.preset("ppo", "cartpole").algo
    points = evaluation_points(env_steps, EVALS, algo.env_steps_per_iteration)
    return training_call(algo, None, seeds=list(range(num_seeds)), points=points, eval_episodes=EVAL_EPISODES)


def in_chunks(num_seeds: int, env_steps: int, iterations: int | None) -> Callable[[], float]:
    """The driver's programs without the driver, in chunks of `iterations`; None for one chunk per evaluation."""
    from jaxrl.runtime.layout import plan_layout
    from jaxrl.runtime.runs import Runs

    call = call_of(num_seeds, env_steps)
    layout = plan_layout(num_seeds, None, None)

    def run() -> float:
        runs, metrics = Runs(call, call.arguments(), layout), {}
        for point in call.points.tolist():
            while runs.iteration < point:
                runs.advance(min(point - runs.iteration, iterations or point))
            metrics, _ = runs.evaluate()
        return float(metrics["return"].mean())

    return run


def one_compiled_call(num_seeds: int, env_steps: int) -> Callable[[], float]:
    """`make_train` in the blocks and threads of `train`, one program from beginning to end."""
    import jax
    import numpy as np

    import jaxrl
    from jaxrl.runtime.layout import compile_programs, plan_layout, run_on_devices

    algo = jaxrl.preset("ppo", "cartpole").algo
    whole = jaxrl.make_train(algo, env_steps=env_steps, evals=EVALS, eval_episodes=EVAL_EPISODES)
    layout = plan_layout(num_seeds, None, None)

    def one(seed: Any) -> Any:
        output = whole(jax.random.key(seed))
        return output.metrics, output.policy

    program = jax.jit(lambda seeds: jax.lax.map(jax.vmap(one), seeds))
    parts = [np.stack(part) for part in layout.spread(np.arange(num_seeds, dtype=np.int32))]
    (executables,) = compile_programs([lambda device: program.lower(jax.device_put(parts[0], device))], layout.devices)
    inputs = [jax.device_put(part, device) for part, device in zip(parts, layout.devices, strict=True)]

    def run() -> float:
        outputs = jax.device_get(run_on_devices(executables, inputs))
        returns = [metrics["return"][..., -1].ravel() for metrics, _ in outputs]
        return float(np.concatenate(returns)[:num_seeds].mean())

    return run


def checkpoints(report: Report, nums_runs: list[int], repeats: int) -> str:
    """Add the table of checkpoints; returns a summary."""
    import numpy as np

    from jaxrl.runtime.checkpoints.store import Checkpoints
    from jaxrl.runtime.layout import plan_layout
    from jaxrl.runtime.runs import Runs

    columns = {"runs": ",d", "MB on disk": ".1f", "the first, s": ".2f", "then, wall s": ".2f", "of a minute": ".1%"}
    table = report.table(
        f"One checkpoint after {EVALS} evaluations, written to {tempfile.gettempdir()}",
        columns | {"processor s": ".2f", "return": ".1f"},
    )
    sentences = []
    for num_runs in nums_runs:
        call = call_of(num_runs, 512 * EVALS)
        runs = Runs(call, call.arguments(), plan_layout(num_runs, None, None))
        runs.advance(1)
        metrics, _ = runs.evaluate()
        stacked = {name: np.stack([values] * EVALS, axis=1) for name, values in metrics.items()}
        with tempfile.TemporaryDirectory() as folder:
            keeper = Checkpoints(Path(folder))

            save = functools.partial(write_checkpoint, keeper, runs, stacked)
            first = measured(save)[1]
            later = [measured(save)[1:] for _ in range(repeats)]
            size = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file()) / 1e6
            keeper.close()
        walls, processor = ([turn[i] for turn in later] for i in (0, 1))
        shares = [wall / 60 for wall in walls]
        table.add(num_runs, size, first, walls, shares, processor, float(metrics["return"].mean()))
        sentences.append(f"{statistics.median(shares):.1%} of {num_runs:,} runs")
    return f"a checkpoint takes {', '.join(sentences)} of the minute between two"


def write_checkpoint(keeper: Any, runs: Any, metrics: dict[str, Any]) -> None:
    """The work of `train` at a checkpoint: copy the states to the host and write everything."""
    from jaxrl.runtime.checkpoints.store import Checkpoint

    keeper.write(Checkpoint(runs.iteration, runs.states(), list(range(1, EVALS + 1)), metrics))


def first_step() -> None:
    """In a separate process: run one iteration of 64 runs and print its figures as a JSON line."""
    import jax

    import jaxrl

    algo = jaxrl.preset("ppo", "cartpole").algo
    imported = time.process_time()
    options: Any = {"evals": 1, "eval_episodes": EVAL_EPISODES, "progress": False}
    result = whole(jaxrl.train(algo, seeds=64, env_steps=2048, **options))
    numbers = hashlib.sha256()
    for leaf in (*jax.tree.leaves(result.policies), *(result.values(str(name)) for name in result.metrics.data_vars)):
        numbers.update(leaf.tobytes())
    figures = {name: result.metrics.attrs[name] for name in ("compile_seconds", "run_seconds")}
    figures |= {"processor_seconds": time.process_time(), "import_seconds": imported}
    print(json.dumps({**figures, "sha256": numbers.hexdigest(), "return": float(result.metrics["return"].mean())}))


def cache(report: Report, repeats: int) -> str:
    """Add the table of the persistent compilation cache; returns a summary."""
    command = [sys.executable, __file__, "--worker"]
    processes: dict[str, list[dict[str, Any]]] = {"none": [], "empty": [], "filled": []}
    complaints, size = set(), 0.0
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            for name, runs in processes.items():
                environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": "" if name == "none" else folder}
                start = functools.partial(subprocess.run, command, env=environment, capture_output=True, text=True)
                done, wall, _ = measured(start)
                if done.returncode:
                    sys.exit(done.stderr)
                runs.append(json.loads(done.stdout.splitlines()[-1]) | {"seconds": wall})
                complaints |= {line for line in done.stderr.splitlines() if "machine" in line.lower()}
            size = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file()) / 1e6
    columns = {"cache": "", "seconds": ".1f", "of these compiling": ".1f", "processor s": ".1f"}
    table = report.table(
        f"A fresh process until the first iteration of 64 runs is done and evaluated; the cache takes {size:.1f} MB",
        columns | {"of the time without": ".3f", "return": ".1f", "sha256": ""},
    )
    processor = {}
    for name, runs in processes.items():
        seconds, compiling, processor[name] = (
            [run[of] for run in runs] for of in ("seconds", "compile_seconds", "processor_seconds")
        )
        of_all = paired_ratios(seconds, [run["seconds"] for run in processes["none"]])
        digests = ", ".join(sorted({run["sha256"][:8] for run in runs}))
        table.add(name, seconds, compiling, processor[name], of_all, runs[-1]["return"], digests)
    report.note(f"XLA's messages on the machine: {'; '.join(sorted(complaints))[:600] or 'none'}.")
    filled, none = (statistics.median(processor[name]) for name in ("filled", "none"))
    return f"a fresh process takes {filled:.1f} s of processor time with a filled cache, {none:.1f} without"


def main() -> None:
    """Print the tables."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--seeds", type=int, default=64)
    parser.add_argument("--env-steps", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--runs", type=int, nargs="+", default=[64, 1000], help="numbers of runs in a checkpoint")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        first_step()
        return

    report = Report(parser, arguments, f"the driver of `train`, {arguments.seeds} seeds of PPO on CartPole")
    sentences = []
    if "chunks" in arguments.only:
        sentences.append(chunks(report, arguments.seeds, arguments.env_steps, arguments.repeats))
    if "checkpoints" in arguments.only:
        sentences.append(checkpoints(report, arguments.runs, arguments.repeats))
    if "cache" in arguments.only:
        sentences.append(cache(report, arguments.repeats))
    report.finish("; ".join(sentences))


if __name__ == "__main__":
    main()
