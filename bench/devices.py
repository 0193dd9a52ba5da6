"""The same runs on one CPU device and on two forced ones: equal bit for bit, and no slower.

    python bench/devices.py [--seeds 64] [--env-steps 100000] [--repeats 5] [--json FILE]

One device runs in a thread for each core, which is the best layout of a single device, and in one thread;
two devices, forced by XLA's flag, run in one thread each. Each variant compiles once in a separate process; then they
run alternately. Each ratio is a ratio of env steps per second, shown with the minimum and maximum of the ratios within
a turn. The exit status is 1 if the results differ in any bit.
"""

import hashlib
import json
import os
import statistics
import sys
from argparse import SUPPRESS
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # a script's folder is first on the path, where envs.py hides `envs`
    sys.path[0] = str(Path(__file__).resolve().parents[1])

os.environ["JAX_PLATFORMS"] = "cpu"  # before JAX starts: only the CPU can have forced devices

from bench.report import Report, benchmark_parser, ratios, spread
from bench.sides import Side, whole

FORCED = "--xla_force_host_platform_device_count=2"
ALONE, TWO = "one device, one thread", "two forced devices"
WAYS = {"one device, a thread for each core": "", ALONE: "", TWO: FORCED}


def worker(way: str, num_seeds: int, env_steps: int) -> None:
    """Print a JSON line when compiled, and one for each line read."""
    import jax

    import jaxrl

    algo = jaxrl.preset("ppo", "cartpole").algo
    devices = jax.devices()[:1] if way == ALONE else None

    def run(env_steps: int) -> Any:
        # the same block size for all, because results are equal bit for bit only at the same width
        options: Any = {"evals": 1, "eval_episodes": 8, "block": 8, "devices": devices, "progress": False}
        return whole(jaxrl.train(algo, seeds=num_seeds, env_steps=env_steps, **options))

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
    parser = benchmark_parser(__doc__)
    parser.add_argument("--seeds", type=int, default=64)
    parser.add_argument("--env-steps", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--worker", help=SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker is not None:
        worker(arguments.worker, arguments.seeds, arguments.env_steps)
        return

    what = "two forced CPU devices compared with one with a thread for each core, "
    what += f"{arguments.seeds} seeds of PPO on CartPole"
    report = Report(parser, arguments, what)
    sides = {}
    for way, flags in WAYS.items():
        command = [sys.executable, __file__, "--worker", way, "--seeds", str(arguments.seeds)]
        all_flags = f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip()
        environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": all_flags}
        sides[way] = Side([*command, "--env-steps", str(arguments.env_steps)], environment)
    for _ in range(arguments.repeats):
        for side in sides.values():
            side.run()
    columns = {"way": "", "devices": "", "threads": "", "s": ".2f", "M steps/s": ".2f"}
    table = report.table(
        f"{arguments.seeds} seeds of PPO on CartPole, {arguments.env_steps:,} env steps each, blocks of 8",
        columns | {"two devices / this (least to most)": ".3f", "return": ".1f", "sha256": ""},
    )
    digests, faster = set(), []
    for way, side in sides.items():
        side.close()
        seconds = side.figures("run_seconds")
        faster.append(ratios(seconds, sides[TWO].figures("run_seconds")))
        digests |= {str(run["sha256"]) for run in side.runs}
        last = side.runs[-1]
        rates = [arguments.seeds * arguments.env_steps / one / 1e6 for one in seconds]
        cells = (last["num_devices"], last["num_threads"], seconds, rates, faster[-1])
        table.add(way, *cells, last["return"], str(last["sha256"])[:8])
    report.require(len(digests) == 1, "The results are not equal.")
    same = "equal bit for bit" if len(digests) == 1 else "not equal"
    one_thread = statistics.median(faster[1])
    report.finish(f"{same}, {spread(faster[0], '.3f')} times as fast; one thread takes {one_thread:.1f} times as long")


if __name__ == "__main__":
    main()
