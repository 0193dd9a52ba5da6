"""Cost of one seed as the number of seeds grows: time per iteration, and memory relative to the runs' states.

    python bench/seeds.py [--seeds 64 256 1024 4096] [--block 256 1024] [--work 24576] [--repeats 5] [--json FILE]

PPO on CartPole with PureJaxRL's settings. Each number of seeds compiles once in a separate process, or once for each
block width of `--block` that is no larger; then they run alternately, the same number of iterations times seeds each,
in chunks as long as those of `train`. Each ratio is a ratio of medians to the fewest seeds, shown with the minimum and
maximum of the ratios within a turn. Memory is the highest resident size during training minus the size before the runs
exist. Its limit is 1.5 times the bytes of the runs' states, plus the figure of `jaxrl plan` for a block in every
thread: its temporaries, by the compiler's figure, and the memory that its steps hold until a chunk ends. The exit
status is 1 if a seed costs over 10 % more than with the fewest seeds, or if memory exceeds the limit.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # a script's folder is first on the path, where envs.py hides `envs`
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.report import Report, benchmark_parser, ratios, spread
from bench.sides import Side

MEBIBYTE, MOST_ADDED, MOST_TIMES_STATES = 2**20, 0.10, 1.5


def worker(num_seeds: int, block: int | None, work: int) -> None:
    """Print a JSON line when compiled, and one for each line read."""
    import jax

    import jaxrl
    from bench.memory import highest_resident, resident_mebibytes
    from jaxrl.runtime.drive.chunk_length import Pace
    from jaxrl.runtime.drive.driver import SECONDS_PER_CHUNK, advance
    from jaxrl.runtime.drive.progress import StopRequest
    from jaxrl.runtime.layout import plan_layout
    from jaxrl.runtime.loop import evaluation_points
    from jaxrl.runtime.plan.planner import ROOM_PER_THREAD
    from jaxrl.runtime.runs import Runs
    from jaxrl.runtime.training import training_call

    algo = jaxrl.preset("ppo", "cartpole").algo
    iterations = max(work // num_seeds, 1)
    points = evaluation_points(512 * 10**6, 1, algo.env_steps_per_iteration)
    call = training_call(algo, None, seeds=list(range(num_seeds)), points=points, eval_episodes=8)
    runs = Runs(call, call.arguments(), plan_layout(num_seeds, block, None))
    pace = Pace(SECONDS_PER_CHUNK, runs.layout.num_blocks)

    def further(iterations: int) -> None:
        for _ in advance(runs, runs.iteration + iterations, pace, StopRequest()):
            pass

    before = resident_mebibytes()
    with highest_resident() as highest:
        further(iterations)  # warm-up
        print(json.dumps({"compile_seconds": runs.compile_seconds}), flush=True)
        for _ in sys.stdin:
            started = time.perf_counter()
            further(iterations)
            seconds = (time.perf_counter() - started) / (iterations * num_seeds)
            print(json.dumps({"microseconds": 1e6 * seconds, "highest": highest[0] - before}), flush=True)
    states: Any = jax.tree.leaves(runs.states())
    metrics, _ = runs.evaluate()
    figures = {"states": sum(leaf.nbytes for leaf in states) / MEBIBYTE, "return": float(metrics["return"].mean())}
    blocks = runs.executables["advance"]
    temporaries = sum(program.memory_analysis().temp_size_in_bytes for program in blocks)
    figures["blocks"] = (temporaries + len(blocks) * ROOM_PER_THREAD) / MEBIBYTE
    print(json.dumps(figures | {"iterations": runs.iteration}), flush=True)


def main() -> None:
    """Print the table."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[64, 256, 1024, 4096])
    parser.add_argument("--block", type=int, nargs="+", help="widths of a block (default: that of train)")
    parser.add_argument("--work", type=int, default=24_576, help="product of seeds and iterations in one timing")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--worker", type=int, nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker is not None:
        num_seeds, block = arguments.worker
        worker(num_seeds, block or None, arguments.work)
        return

    report = Report(parser, arguments, f"cost of a seed of PPO on CartPole relative to {min(arguments.seeds):,} seeds")
    command = [sys.executable, __file__, "--work", str(arguments.work), "--worker"]
    widths = arguments.block or [0]
    if min(widths) > min(arguments.seeds):
        parser.error(f"--block must contain a width of at most {min(arguments.seeds)}, the fewest seeds, got {widths}")
    pairs = [(num_seeds, block) for num_seeds in arguments.seeds for block in widths if block <= num_seeds]
    sides = {pair: Side([*command, *map(str, pair)]) for pair in pairs}
    for _ in range(arguments.repeats):
        for side in sides.values():
            side.run()
    columns = {
        "seeds": ",d",
        "block": "",
        "compile s": ".1f",
        "us per iteration and seed": ".0f",
        "to the fewest seeds": ".3f",
    }
    columns |= {"MiB above before": ",.0f", "MiB of states": ",.0f", "MiB allowed": ",.0f", "return": ".1f"}
    columns |= {"after iterations": ""}
    table = report.table(f"{arguments.repeats} alternating timings: median (least to most)", columns)
    fewest = sides[min(pairs)].figures("microseconds")
    sentences = []
    for (num_seeds, block), side in sides.items():
        cost, highest, end = side.figures("microseconds"), max(side.figures("highest")), side.finish()
        to_fewest = ratios(cost, fewest)
        most = end["blocks"] + MOST_TIMES_STATES * end["states"]
        cells = (highest, end["states"], most, end["return"], end["iterations"])
        table.add(num_seeds, str(block or "default"), side.compiled["compile_seconds"], cost, to_fewest, *cells)
        more = statistics.median(to_fewest) - 1
        report.require(more <= MOST_ADDED, f"A seed of {num_seeds:,} costs {more:.0%} more than with the fewest.")
        report.require(
            highest <= most,
            f"{num_seeds:,} seeds take {highest:,.0f} MiB, over the {most:,.0f} of a block in every thread and states.",
        )
        sentences.append(
            f"{spread(to_fewest, '.2f')} at {num_seeds:,}{f' in blocks of {block:,}' if block else ''}, "
            f"{highest:,.0f} MiB for {end['states']:,.0f} of states"
        )
    report.finish("; ".join(sentences[1:] or sentences))


if __name__ == "__main__":
    main()
