"""A process for each run, as a job array or a launcher starts them, compared with one call for all runs.

    python bench/job_arrays.py [--processes 50] [--cached 10] [--runs 1000] [--env-steps 20480] [--at-once 2]
        [--json FILE]

A process is `jaxrl train ppo cartpole` with one seed: it starts, imports, compiles, trains, evaluates twice with 8 + 8
episodes and writes its result. Its costs for all runs are extrapolated from `--processes`, and from `--cached` of them
where compiled programs are cached (JAXRL_COMPILATION_CACHE, filled by one more process first). The one call with all
runs is measured. Times are processor seconds of each process, which other processes on the machine affect less than its
seconds, and peaks of resident memory. The time that a scheduler or a launcher takes itself is not included.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":  # a script's folder is first on the path, where envs.py hides `envs`
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.report import Report, benchmark_parser
from jaxrl.runtime.machine.compilation_cache import VARIABLE

ROOT = Path(__file__).resolve().parents[1]
EVALUATIONS = "--evals 2 --eval-episodes 8"
TRAIN = "import sys; from jaxrl.cli.console import main; sys.exit(main())"


class Cost(NamedTuple):
    """Costs of processes.

    Attributes:
      processor: Processor time of all of them, in seconds.
      seconds: Time from the first start to the last end.
      peak: Largest resident memory of one of them, in MiB.
    """

    processor: float
    seconds: float
    peak: float


def one_process(seeds: str, env_steps: int, out: Path, cache: Path | None) -> tuple[float, float]:
    """Processor seconds and peak memory in MiB of one `jaxrl train`."""
    words = (
        f"train ppo cartpole --seeds {seeds} --env-steps {env_steps} {EVALUATIONS} --no-progress --out {out}".split()
    )
    variables = {name: value for name, value in os.environ.items() if name != VARIABLE}
    variables |= {} if cache is None else {VARIABLE: str(cache)}
    command = [sys.executable, "-c", TRAIN, *words]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=ROOT, env=variables)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"jaxrl {' '.join(words)} ended with exit status {process.returncode}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def cost(seeds: Sequence[str], env_steps: int, at_once: int, cache: Path | None = None) -> Cost:
    """Costs of a process for each of several options `--seeds`."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(at_once) as pool:
        started = time.perf_counter()
        outs = [Path(folder, str(number)) for number in range(len(seeds))]
        used = [*pool.map(lambda each, out: one_process(each, env_steps, out, cache), seeds, outs)]
        seconds = time.perf_counter() - started
    return Cost(sum(processor for processor, _ in used), seconds, max(peak for _, peak in used))


def main() -> None:
    """Print the table."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--processes", type=int, default=50, help="number of processes that are measured")
    parser.add_argument("--cached", type=int, default=10, help="number of processes with cached programs")
    parser.add_argument("--runs", type=int, default=1000, help="number of runs that costs are compared for")
    parser.add_argument("--env-steps", type=int, default=20_480, help="environment steps of each run")
    parser.add_argument("--at-once", type=int, default=2, help="number of processes at the same time")
    arguments = parser.parse_args()
    runs, steps = arguments.runs, arguments.env_steps
    report = Report(parser, arguments, f"{runs:,} runs of PPO on CartPole, {steps:,} env steps each")
    table = report.table(
        f"{arguments.at_once} processes at a time; costs of {runs:,} runs, extrapolated where fewer were measured",
        {
            "runs are": "",
            "measured": ",.0f",
            "processor s a run": ".3f",
            f"processor min, {runs:,} runs": ".1f",
            f"min here, {runs:,} runs": ".1f",
            "peak MiB of a process": ",.0f",
        },
    )
    totals = {}

    def add(name: str, measured: int, spent: Cost) -> None:
        totals[name] = spent.processor / measured * runs
        minutes = spent.seconds / measured * runs / 60
        table.add(name, measured, spent.processor / measured, totals[name] / 60, minutes, spent.peak)

    one = [f"{seed}:{seed + 1}" for seed in range(max(arguments.processes, arguments.cached))]
    add("one call", runs, cost([str(runs)], steps, 1))
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        cost(one[:1], steps, 1, cache)
        cached = cost(one[: arguments.cached], steps, arguments.at_once, cache)
        add("processes, programs cached", arguments.cached, cached)
    add("processes", arguments.processes, cost(one[: arguments.processes], steps, arguments.at_once))
    ratios = {name: total / totals["one call"] for name, total in totals.items()}
    report.finish(
        f"a process for each run {ratios['processes']:.0f} times the processor time of one call, "
        f"{ratios['processes, programs cached']:.0f} times with cached programs"
    )


if __name__ == "__main__":
    main()
