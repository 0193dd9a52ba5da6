"""The same runs on one CPU device and on two forced ones: equal bit for bit, and no slower.

    python bench/devices.py [--seeds 64] [--env-steps 100000] [--repeats 5]

One device works in a thread for each core, which is the best layout of a single device, and in one thread;
two devices, forced by XLA's flag, work in a thread each. Each way compiles once in a process of its own,
then they run by turns. A ratio is of env steps a second, with the least and the most of the ratios within
the turns. The exit status is 1 where results differ in a bit.
"""

import argparse
import hashlib
import json
import os
import statistics
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[0] = str(ROOT)  # as a script this file lies first on the path, where envs.py hides the package `envs`

FORCED = "--xla_force_host_platform_device_count=2"
WAYS = {"one device, a thread for each core": "", "one device, one thread": "", "two forced devices": FORCED}
ALONE = "one device, one thread"


def worker(way: str, num_seeds: int, env_steps: int) -> None:
    """A JSON line when compiled, and one for each line read."""
    import jax

    import jaxrl

    algo = jaxrl.preset("ppo", "cartpole").algo
    devices = jax.devices()[:1] if way == ALONE else None

    def run(env_steps: int) -> Any:
        # The same block for all: results are equal bit for bit at one width only.
        return jaxrl.train(
            algo,
            seeds=num_seeds,
            env_steps=env_steps,
            evals=1,
            eval_episodes=8,
            block=8,
            devices=devices,
            progress=False,
        )

    run(512)
    print(json.dumps({"devices": len(jax.devices())}), flush=True)
    for _ in sys.stdin:
        result = run(env_steps)
        numbers = hashlib.sha256()
        for leaf in (*jax.tree.leaves(result.policies), result.values("return"), result.values("policy_loss")):
            numbers.update(leaf.tobytes())
        attrs = result.metrics.attrs
        figures = {name: attrs[name] for name in ("run_seconds", "num_devices", "num_threads")}
        figures |= {"return": float(result.values("return")[..., -1].mean()), "sha256": numbers.hexdigest()}
        print(json.dumps(figures), flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=64)
    parser.add_argument("--env-steps", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker is not None:
        worker(arguments.worker, arguments.seeds, arguments.env_steps)
        return

    from bench.machine import print_header
    from bench.train import Side

    print_header()
    sides = {}
    for way, flags in WAYS.items():
        command = [sys.executable, __file__, "--worker", way, "--seeds", str(arguments.seeds)]
        environment = {**os.environ, "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip()}
        sides[way] = Side([*command, "--env-steps", str(arguments.env_steps)], environment)
    for _ in range(arguments.repeats):
        for side in sides.values():
            side.run()
    print(f"\n{arguments.seeds} seeds of PPO on CartPole, {arguments.env_steps:,} env steps each, blocks of 8\n")
    print("| way | devices | threads | s | M steps/s | two devices / this (least to most) | return | sha256 |")
    print("|---|---|---|---|---|---|---|---|")
    digests = set()
    for way, side in sides.items():
        side.close()
        both = zip(side.runs, sides["two forced devices"].runs, strict=True)
        ratios = sorted(mine["run_seconds"] / two["run_seconds"] for mine, two in both)
        seconds = side.median("run_seconds")
        digests |= {str(run["sha256"]) for run in side.runs}
        last = side.runs[-1]
        cells = [way, f"{last['num_devices']}", f"{last['num_threads']}", f"{seconds:.2f}"]
        cells += [f"{arguments.seeds * arguments.env_steps / seconds / 1e6:.2f}"]
        cells += [f"{statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})"]
        cells += [f"{last['return']:.1f}", str(last["sha256"])[:8]]
        print("| " + " | ".join(cells) + " |", flush=True)
    if len(digests) > 1:
        sys.exit("The ways gave different numbers.")


if __name__ == "__main__":
    main()
