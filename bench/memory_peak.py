"""Planned and measured peaks of memory: `jaxrl plan` and `jaxrl train`, a fresh process each.

    python bench/memory_peak.py [--only 1 4] [--repeats 1] [--json FILE]

Both commands get the same arguments, and nothing is kept from one to the other: programs are compiled in both. The
highest resident size of the process that trains is measured from the end of compilation: training, evaluations,
checkpoints and the result. The exit status is 1 if it exceeds the plan, if the plan exceeds it by over a quarter, or if
it exceeds `--memory`.
"""

import argparse
import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # a script's folder is first on the path, where envs.py hides `envs`
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.report import Report, benchmark_parser
from bench.sides import ROOT
from jaxrl.runtime.machine.memory import KIB, MIB, parse_size

MOST_ABOVE = 0.25
OUT = "OUT"  # placeholder in arguments for a directory that is deleted afterwards
# Buffers that are full at the end, so that all of their memory is resident.
REPLAY = (
    "--env-steps 81920 --evals 2 --config.buffer-size 65536 --config.prefill 1024 --config.num-envs 64 "
    "--config.num-steps 8 --config.num-updates 1"
)
CONFIGURATIONS = (
    "ppo cartpole --env-steps 5120 --evals 2",
    "ppo cartpole --seeds 64 --env-steps 2048 --evals 2 --out OUT",
    "ppo cartpole --seeds 1000 --env-steps 1024 --evals 2 --out OUT",
    "ppo crowd/circle --static num_agents=8 --seeds 4 --env-steps 2048 --evals 1",
    "ppo pendulum --seeds 16 --env-steps 4096 --evals 2",
    "ppo cartpole --seeds 1000 --env-steps 1024 --evals 2 --memory 1GiB --out OUT",
    f"dqn cartpole --seeds 256 {REPLAY}",
    f"dqn cartpole --seeds 512 {REPLAY}",
)
NO_CACHE = {"JAXRL_COMPILATION_CACHE": "", "JAX_COMPILATION_CACHE_DIR": "", "JAX_ENABLE_COMPILATION_CACHE": "false"}


def highest_ever(status: Path = Path("/proc/self/status")) -> int:
    """Highest resident size in the life of this process, in bytes; 0 where the system does not report it."""
    peak = re.search(r"^VmHWM:\s*(\d+) kB$", status.read_text(), re.M) if status.exists() else None
    return int(peak[1]) * KIB if peak else 0


def worker(command: str, args: Sequence[str]) -> None:
    """Do the same as the command line, and print a JSON line."""
    from jaxrl.cli import plan as plan_command
    from jaxrl.cli.main import main as jaxrl_main
    from jaxrl.runtime.plan.planner import Planner

    figures: dict[str, Any] = {}
    plan, fit = plan_command.plan, Planner.fit

    def plan_and_note(*args: Any, **options: Any) -> Any:
        planned = plan(*args, **options)
        figures.update(planned=planned.memory, parts=planned.num_parts, block=planned.block)
        return planned

    def fit_and_measure_from_here(self: Planner, precision: str = "default") -> Any:
        planned = fit(self, precision)
        Path("/proc/self/clear_refs").write_text("5")  # resets the highest resident size
        return planned

    plan_command.plan, Planner.fit = plan_and_note, fit_and_measure_from_here
    with contextlib.redirect_stdout(sys.stderr):
        status = jaxrl_main([command, *args])
    print(json.dumps(figures | {"status": status, "highest": highest_ever()}), flush=True)


def measured(command: str, args: Sequence[str]) -> dict[str, Any]:
    """The figures of one fresh process without a compilation cache, or the error message of a refused call."""
    with tempfile.TemporaryDirectory() as folder:
        placed = [str(Path(folder, "run")) if arg == OUT else arg for arg in args]
        done = subprocess.run(
            [sys.executable, __file__, "--worker", json.dumps([command, placed])],
            env={**os.environ, **NO_CACHE, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
    if done.returncode:
        raise SystemExit(f"jaxrl {command} {shlex.join(args)} ended with {done.returncode}:\n{done.stderr}")
    said = [line for line in done.stderr.splitlines() if line.startswith("jaxrl: ")]
    return json.loads(done.stdout.splitlines()[-1]) | {"said": said[-1] if said else ""}


def main() -> None:
    """Print the table."""
    parser = benchmark_parser(__doc__)
    every = list(range(1, len(CONFIGURATIONS) + 1))
    parser.add_argument("--only", type=int, nargs="+", default=every, choices=every, help="numbers of configurations")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--worker", type=json.loads, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker is not None:
        worker(*arguments.worker)
        return

    title = "planned memory compared with the highest resident size of the process that trains"
    report = Report(parser, arguments, title)
    columns = {"jaxrl train": "", "planned, MiB": ",.0f", "highest, MiB": ",.0f"}
    table = report.table("Plans and peaks", columns | {"planned to highest": ".2f", "parts": ""})
    worst: list[float] = []
    for number in arguments.only:
        text = CONFIGURATIONS[number - 1]
        args = text.split()
        plans = [measured("plan", args) for _ in range(arguments.repeats)]
        runs = [measured("train", args) for _ in range(arguments.repeats)]
        refused = [side["said"] for side in (*plans, *runs) if side["status"]]
        if refused:
            table.add(text, None, [run["highest"] / MIB for run in runs], None, "refused")
            report.note(f"`{text}`: {refused[0]}")
            continue
        planned = [plan["planned"] / MIB for plan in plans]
        highest = [run["highest"] / MIB for run in runs]
        within = sorted([min(planned) / max(highest), max(planned) / min(highest)])
        table.add(text, planned, highest, within if len(plans) > 1 else within[:1], str(plans[0]["parts"]))
        worst += within
        report.require(within[0] >= 1, f"{text}: the highest resident size exceeds the plan.")
        report.require(within[1] <= 1 + MOST_ABOVE, f"{text}: the plan is over {MOST_ABOVE:.0%} above the highest.")
        if "--memory" in args:
            limit = parse_size(args[args.index("--memory") + 1]) / MIB
            report.require(max(highest) <= limit, f"{text}: the highest resident size exceeds --memory.")
    report.finish(f"planned: {min(worst):.2f} to {max(worst):.2f} times the highest" if worst else "all were refused")


if __name__ == "__main__":
    main()
