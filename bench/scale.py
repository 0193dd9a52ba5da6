"""Memory of a call of many seeds: what is planned, and what the process then has.

    python bench/scale.py [--seeds 10000] [--env-steps 200000] [--minutes 6] [--smaller 3000]

PPO on CartPole in a fresh process each time: the call is planned, trains for some minutes, is
interrupted by SIGUSR1 as a batch system would, and evaluates all its policies; the time of the whole is
extrapolated from the environment steps that were done. Then as many seeds as `--smaller` says, over two
iterations, in a third of the memory that was planned for the first. The resident size is read from
/proc twenty times a second from the end of compiling on; its highest in the whole life of the process,
compiling included, stands beside it. The exit status is 1 where the highest lies more than a quarter
off the plan, or above the memory that was given.
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

ROOT = Path(__file__).resolve().parents[1]
sys.path[0] = str(ROOT)  # as a script this file lies first on the path, where envs.py hides the package `envs`
MIB = 2**20


def worker(seeds: int, env_steps: int, minutes: float, memory: int | None) -> None:
    """Plans and trains once, and prints a JSON line."""
    import jaxrl
    from bench.memory import highest_resident

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
    peak = next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line)
    attrs = result.metrics.attrs
    figures = {
        "planned": plan.memory / MIB,
        "highest": highest[0],
        "ever": peak / 1024,
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


def row(asked: int, limit: float | None, figures: dict[str, Any]) -> str:
    """A line of the table."""
    given = "-" if limit is None else f"{limit:,.0f}"
    return (
        f"| {asked:,} | {given} | {figures['planned']:,.0f} | {figures['highest']:,.0f} | "
        f"{figures['highest'] / figures['planned']:.2f} | {figures['ever']:,.0f} | {figures['block']} | "
        f"{figures['parts']} | {figures['seeds']:,} to {figures['env_steps']:,} env steps | "
        f"{figures['seconds']:.0f} | {figures['rate'] / 1e3:,.0f} k |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10_000)
    parser.add_argument("--env-steps", type=int, default=200_000)
    parser.add_argument("--minutes", type=float, default=6.0)
    parser.add_argument("--smaller", type=int, default=3000)
    parser.add_argument("--worker", type=json.loads, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker is not None:
        worker(*arguments.worker)
        return

    from bench.machine import print_header

    print_header()
    print(
        "| seeds | memory given, MiB | planned, MiB | highest, MiB | of the plan | with compiling, MiB | block | "
        "parts | done | s | env steps/s |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|", flush=True)
    whole = measured(arguments.seeds, arguments.env_steps, arguments.minutes, None)
    print(row(arguments.seeds, None, whole), flush=True)
    third = int(whole["planned"] / 3 * MIB)
    smaller = measured(arguments.smaller, 2 * 512, 60.0, third)
    print(row(arguments.smaller, third / MIB, smaller), flush=True)
    every = arguments.seeds * arguments.env_steps / whole["rate"]
    print(
        f"\nExtrapolated from what was done, {arguments.seeds:,} seeds of {arguments.env_steps:,} env steps take "
        f"{every / 3600:.1f} h here; the plan expected {whole['expected'] / 3600:.1f} h."
    )
    wrong = []
    if not 0.75 <= whole["highest"] / whole["planned"] <= 1.25:
        wrong.append("The highest resident size lies more than a quarter off the plan.")
    if smaller["highest"] > third / MIB:
        wrong.append("The highest resident size lies above the memory that was given.")
    if smaller["interrupted"] or smaller["seeds"] < arguments.smaller:
        wrong.append("The smaller call did not complete.")
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
