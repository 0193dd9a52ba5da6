"""Memory of a call of many seeds: the plan, and the size of the process.

    python bench/scale.py [--seeds 10000] [--env-steps 200000] [--minutes 6] [--smaller 3000]
        [--share 0.333] [--json FILE]

PPO on CartPole in a fresh process each time: the call is planned, trains for `--minutes`, is
interrupted by SIGUSR1 as by a batch system, and evaluates all its policies; the time of the complete call
is extrapolated from the environment steps done. Then `--smaller` seeds run for two iterations in a share
of the memory planned for the first call. The resident size is read from /proc twenty times a second after
compilation; the highest size since the start of the process, compilation included, has a separate column.
The exit status is 1 if the highest size differs from the plan by more than a quarter, or exceeds the
memory limit.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # a script's folder is first on the path, where envs.py hides `envs`
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import jax

from bench.report import Report, Table, benchmark_parser

MIB = 2**20


def worker(seeds: int, env_steps: int, minutes: float, memory: int | None) -> None:
    """Plan and train once, and print a JSON line."""
    import jaxrl
    from bench.memory import highest_ever, highest_resident

    algo = jaxrl.preset("ppo", "cartpole").algo
    plan = jaxrl.plan(algo, seeds=seeds, env_steps=env_steps, memory=memory)
    print(plan, file=sys.stderr, flush=True)
    with highest_resident() as highest:
        timer = threading.Timer(60 * minutes, lambda: os.kill(os.getpid(), signal.SIGUSR1))
        timer.start()
        started = time.perf_counter()
        result = jaxrl.train(algo, seeds=seeds, env_steps=env_steps, memory=memory, progress=True)
        seconds = time.perf_counter() - started
        timer.cancel()
    attrs = result.metrics.attrs
    if attrs["stopped_by_signal"] not in (0, signal.SIGUSR1):
        raise KeyboardInterrupt("a signal ended the call early, so that its figures are not a measurement")
    figures = {
        "planned": plan.memory / MIB,
        "highest": highest[0],
        "ever": highest_ever(),
        "process": plan.process / MIB,
        "block": int(attrs["block"]),
        "parts": int(attrs.get("num_parts", 1)),
        "expected": plan.seconds,
        "seconds": seconds,
        "seeds": len(result.seeds),
        "env_steps": int(result.metrics["env_step"][-1]),
        "rate": float(attrs["env_steps_per_second"]),
        "return": float(result.metrics["return"][:, -1].mean()),
        "interrupted": int(attrs["interrupted"]),
    }
    print(json.dumps(figures), flush=True)


def measured(seeds: int, env_steps: int, minutes: float, memory: int | None) -> dict[str, Any]:
    """The figures of one fresh process."""
    command = [sys.executable, __file__, "--worker", json.dumps([seeds, env_steps, minutes, memory])]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(out.splitlines()[-1])


def add_row(table: Table, asked: int, limit: float | None, figures: dict[str, Any]) -> None:
    """Add a row to the table."""
    of_plan = figures["highest"] / figures["planned"]
    table.add(
        asked,
        limit,
        figures["planned"],
        figures["highest"],
        of_plan,
        figures["ever"],
        figures["block"],
        figures["parts"],
        figures["seeds"],
        figures["env_steps"],
        figures["seconds"],
        figures["rate"] / 1e3,
    )


def main() -> None:
    """Print the table."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--seeds", type=int, default=10_000)
    parser.add_argument("--env-steps", type=int, default=200_000)
    parser.add_argument("--minutes", type=float, default=6.0)
    parser.add_argument("--smaller", type=int, default=3000)
    parser.add_argument("--share", type=float, default=1 / 3, help="share of the planned memory for the smaller call")
    parser.add_argument("--worker", type=json.loads, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker is not None:
        worker(*arguments.worker)
        return

    if jax.default_backend() != "cpu":
        parser.error(f"this benchmark runs on a CPU only, got {jax.default_backend()}: set JAX_PLATFORMS=cpu")
    what = f"memory of {arguments.seeds:,} seeds of PPO on CartPole, {arguments.env_steps:,} steps each, for "
    what += f"{arguments.minutes:g} minutes; {arguments.smaller:,} seeds in {arguments.share:.2g} of that"
    report = Report(parser, arguments, what)
    columns = {"seeds": ",d", "memory limit, MiB": ",.0f", "planned, MiB": ",.0f", "highest, MiB": ",.0f"}
    columns |= {"of the plan": ".2f", "with compiling, MiB": ",.0f", "block": "", "parts": "", "seeds done": ",d"}
    table = report.table(
        "Plans and measurements", columns | {"env steps of each": ",d", "s": ".0f", "thousand env steps/s": ",.0f"}
    )
    whole = measured(arguments.seeds, arguments.env_steps, arguments.minutes, None)
    add_row(table, arguments.seeds, None, whole)
    limit = int(whole["planned"] * arguments.share * MIB)
    smaller = measured(arguments.smaller, 2 * 512, 60.0, limit)
    add_row(table, arguments.smaller, limit / MIB, smaller)
    every = arguments.seeds * arguments.env_steps / whole["rate"]
    report.note(
        f"Extrapolated from the steps done, {arguments.seeds:,} seeds of {arguments.env_steps:,} env steps take "
        f"{every / 3600:.1f} h here; the plan expected {whole['expected'] / 3600:.1f} h."
    )
    report.require(
        0.75 <= whole["highest"] / whole["planned"] <= 1.25,
        "The highest resident size differs from the plan by more than a quarter.",
    )
    report.require(smaller["highest"] <= limit / MIB, "The highest resident size exceeds the memory limit.")
    complete = not smaller["interrupted"] and smaller["seeds"] == arguments.smaller
    report.require(complete, "The smaller call did not complete.")
    report.finish(
        f"{whole['planned']:,.0f} MiB planned, {whole['highest']:,.0f} the highest "
        f"({whole['highest'] / whole['planned']:.2f}); {limit / MIB:,.0f} MiB allowed, {smaller['highest']:,.0f} the "
        f"highest, in {smaller['parts']} parts"
    )


if __name__ == "__main__":
    main()
