"""What a GPU takes beside what was predicted: one call of at most nine minutes.

    python bench/gpu.py [--minutes 9] [--only ppo-1024 bits] [--rejax PYTHON | --no-peers] [--json FILE]
    python bench/gpu.py --rehearse                     # small sizes, on any machine

Every workload trains a preset, or runs a bandit policy, in a process of its own, without a compilation cache. Policies
of a preset are evaluated at the end over 64 whole episodes of each run, so that a time stands beside the return that it
bought. Beside presets are the lower bound on the time of the iterations and the estimate for starting their kernels,
from the program that was compiled (`jaxrl plan` with `--for` has the same without the device), and the memory of
`jaxrl.plan` beside the peak of the device, which should be no more. "bits" checks that a run that is resumed, and runs
among more runs at one block width, are equal bit for bit, and how far two widths are apart after one iteration. With
rejax installed, 1,024 seeds of PPO are compared, alternately.

What has not ended when no time is left is missing, the comparison with rejax as well. On a machine without a GPU the
bound is that of an H100, and on a GPU that jaxrl does not know there is none.
The exit status is 1 if a check of bits fails, if a peak exceeds its plan, if a time is below its bound, or if a
workload, the check of bits or the comparison is missing.
"""

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":  # a script's folder is first on the path, where envs.py hides `envs`
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.report import Report, benchmark_parser
from bench.sides import ROOT, Side, add_peers, find_peer
from bench.train import our_command, rejax_command


class Workload(NamedTuple):
    """Preset to train.

    Attributes:
      preset: Algorithm and environment; one word for a bandit policy.
      runs: Number of seeds.
      env_steps: Number of environment steps of each; pulls of a bandit.
      smallest: The same two numbers for a rehearsal.
    """

    preset: str
    runs: int
    env_steps: int
    smallest: tuple[int, int]


WORKLOADS = {
    "ppo-1024": Workload("ppo cartpole", 1024, 499_712, (4, 5_120)),
    "ppo-64": Workload("ppo cartpole", 64, 499_712, (2, 5_120)),
    "ppo-1": Workload("ppo cartpole", 1, 499_712, (1, 5_120)),
    "dqn-256": Workload("dqn cartpole", 256, 100_032, (2, 3_200)),
    "sac-256": Workload("sac pendulum", 256, 20_000, (2, 1_600)),
    "crowd-64": Workload("ppo crowd/circle", 64, 20_000, (1, 200)),
    "ucb-4096": Workload("ucb1", 4096, 10_000, (16, 100)),
    "thompson-4096": Workload("thompson", 4096, 10_000, (16, 100)),
    "ppo-10000": Workload("ppo cartpole", 10_000, 499_712, (8, 5_120)),
}
BITS, REJAX = "bits", "rejax"
# No cache of programs, and memory taken in one piece: an allocator that adds pieces as they are needed gives out larger
# ones than those asked for, and counts them in full.
ALONE = {
    "JAX_COMPILATION_CACHE_DIR": "",
    "JAX_ENABLE_COMPILATION_CACHE": "false",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "true",
}
# Both sides of a comparison have the device at a time.
SHARED = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
FAILED_LINES = 3  # of the error of a process
NO_TIME = "no time was left"

__all__ = ["WORKLOADS", "Workload"]


def target_of(kind: str) -> Any:
    """The accelerator of a kind of device, such as "NVIDIA H100 80GB HBM3"; on a CPU an H100, None for any other."""
    from jaxrl.runtime.accelerators.targets import TARGETS

    words = kind.upper().replace("-", " ").split()
    if "CPU" in words:
        return TARGETS["h100"]
    if "NVL" in words or ("A100" in words and "80GB" in words):  # faster memories than those of H100 SXM and of 40 GB
        return None
    return next((each for each in TARGETS.values() if each.name.upper() in words), None)


def blocks_in_turn(planned: Any) -> int:
    """Number of blocks that the device with the most of them computes one after another, at least."""
    return -(-planned.num_runs // (planned.block * planned.num_devices))


def train_once(workload: Workload, runs: int, env_steps: int) -> dict[str, Any]:
    """Train, and return the figures."""
    import jax

    import jaxrl
    from bench.sides import whole
    from envs.bandits.bernoulli import BernoulliBandit
    from jaxrl.runtime.accelerators.bounds import bound_of
    from jaxrl.runtime.layout import plan_layout
    from jaxrl.runtime.plan.planner import programs_of
    from jaxrl.runtime.training import points_of, training_call

    device = jax.local_devices()[0]
    figures: dict[str, Any] = {"device": device.device_kind}
    started = time.perf_counter()
    if " " not in workload.preset:
        policy = getattr(jaxrl.bandits, workload.preset)()
        options: Any = {"steps": env_steps, "runs": runs, "points": 1, "progress": False}
        result = whole(jaxrl.run_bandit(policy, BernoulliBandit(), **options))
        figures |= {"return": float(result.metrics["regret"].values[..., -1].mean()), "of": "regret"}
    else:
        algorithm, environment = workload.preset.split(" ")
        algo = jaxrl.preset(algorithm, environment).algo
        planned = jaxrl.plan(algo, seeds=runs, env_steps=env_steps, evals=1, measure=False)
        figures["planning_seconds"] = time.perf_counter() - started  # compiles
        options = {"evals": 1, "eval_episodes": 64, "progress": False}
        result = whole(jaxrl.train(algo, seeds=runs, env_steps=env_steps, **options))
        figures |= {"return": float(result.values("return")[..., -1].mean()), "of": "return"}
        layout = plan_layout(runs, planned.block, None)
        points = points_of(algo, env_steps, 1, 64)
        call = training_call(algo, None, seeds=list(range(runs)), points=points, eval_episodes=64)
        programs, _ = programs_of(call, layout)
        text = programs.executables["advance"][layout.devices[0]].as_text()
        figures["planned"] = planned.memory
        if (target := target_of(device.device_kind)) is not None:
            bound = bound_of(text, target, int(call.points[-1]), blocks_in_turn(planned))
            figures |= {"bound": bound.seconds, "kernels": bound.iteration.kernels, "estimate": bound.kernel_seconds}
    attrs = result.metrics.attrs
    compile_seconds = figures.pop("planning_seconds", 0.0) + attrs["compile_seconds"]
    figures |= {"seconds": attrs["run_seconds"], "compile_seconds": compile_seconds}
    figures |= {"whole": time.perf_counter() - started, "env_steps": runs * env_steps / attrs["run_seconds"]}
    peak = (device.memory_stats() or {}).get("peak_bytes_in_use") if device.platform != "cpu" else None
    return figures | {"peak": peak}


def check_bits(runs: int, env_steps: int) -> dict[str, Any]:
    """Compare runs that must be equal bit for bit, and two block widths."""
    import jax
    import numpy as np

    import jaxrl

    algo = jaxrl.preset("ppo", "cartpole").algo
    # A step size that does not fall over the whole run, which is made longer.
    algo = algo._replace(hparams=dataclasses.replace(algo.hparams, lr_end=1.0))
    step = algo.env_steps_per_iteration

    def policies(seeds: int, env_steps: int, **options: Any) -> list[np.ndarray]:
        arguments: Any = {"evals": 2, "eval_episodes": 8, "block": runs, "progress": False, **options}
        result = jaxrl.train(algo, seeds=seeds, env_steps=env_steps, **arguments)
        return [np.asarray(leaf)[:, :runs] for leaf in jax.tree.leaves(result.policies)]

    def equal(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
        return all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in zip(one, other, strict=True))

    whole_run = policies(runs, env_steps)
    with tempfile.TemporaryDirectory() as folder:
        half = env_steps // step // 2 * step
        policies(runs, half, out=f"{folder}/run")
        resumed = policies(runs, env_steps, out=f"{folder}/run", resume=True)
    among_more = policies(2 * runs, env_steps)
    one, other = policies(runs, step), policies(runs, step, block=max(runs // 2, 1))
    apart = max(float(np.max(np.abs(a - b))) for a, b in zip(one, other, strict=True) if a.dtype.kind == "f")
    return {
        "device": jax.local_devices()[0].device_kind,
        "resumed": equal(whole_run, resumed),
        "among more": equal(whole_run, among_more),
        "apart": apart,
    }


def worked(name: str, rehearse: bool, seconds: float) -> tuple[dict[str, Any] | None, str]:
    """Figures of a workload from a process of its own, or None and the reason."""
    if seconds <= 0:
        return None, NO_TIME
    command = [sys.executable, str(ROOT / "bench/gpu.py"), "--worker", name, *["--rehearse"] * rehearse]
    options: Any = {"capture_output": True, "text": True, "cwd": ROOT, "check": False, "timeout": seconds}
    try:
        done = subprocess.run(command, env={**os.environ, **ALONE}, **options)
    except subprocess.TimeoutExpired:
        return None, "it did not end in the time that was left"
    if done.returncode:
        return None, " ".join(done.stderr.splitlines()[-FAILED_LINES:])
    return json.loads(done.stdout.splitlines()[-1]), ""


def main() -> None:
    """Print the tables."""
    parser = benchmark_parser(__doc__)
    names = (*WORKLOADS, BITS, REJAX)
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--rehearse", action="store_true", help="small sizes, on any machine")
    add_peers(parser, "rejax")
    parser.add_argument("--no-peers", action="store_true", help="measure ours alone")
    parser.add_argument("--worker", choices=names, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker is not None:
        print(json.dumps(_work(arguments.worker, arguments.rehearse)))
        return

    deadline = time.monotonic() + 60 * arguments.minutes
    rejax = None if arguments.no_peers or REJAX not in arguments.only else find_peer(parser, "rejax", arguments.rejax)
    report = Report(parser, arguments, "presets on a GPU beside their bounds and plans")
    columns = {"workload": "", "runs": ",d", "env steps": ",d", "compile s": ".1f", "run s": ".2f", "bound s": ".2f"}
    columns |= {"kernels": ",.0f", "kernels' s": ".2f", "M steps/s": ".2f", "planned MiB": ",.0f", "peak MiB": ",.0f"}
    columns |= {"result": ".1f", "of": ""}
    table = report.table("One call each, in a fresh process", columns)
    sentences = []
    for name in [each for each in WORKLOADS if each in arguments.only]:
        figures, error = worked(name, arguments.rehearse, deadline - time.monotonic())
        if figures is None:
            report.note(f"{name} is missing: {error}")
            report.require(False, f"{name} is missing: {error}")
            continue
        runs, env_steps = _size(name, arguments.rehearse)
        planned, peak, bound = figures.get("planned"), figures["peak"], figures.get("bound")
        mib = [None if each is None else each / 2**20 for each in (planned, peak)]
        cells = (figures["compile_seconds"], figures["seconds"], bound, figures.get("kernels"), figures.get("estimate"))
        table.add(name, runs, env_steps, *cells, figures["env_steps"] / 1e6, *mib, figures["return"], figures["of"])
        if planned is not None and peak is not None:
            report.require(peak <= planned, f"{name} takes {peak:,} bytes of memory, over the {planned:,} of its plan.")
        if bound is not None and figures["device"] != "cpu":
            report.require(figures["seconds"] >= bound, f"{name} takes less than its bound of {bound:.2f} s.")
        sentences.append(f"`{name}` {figures['seconds']:.1f} s ({figures['of']} {figures['return']:.1f})")
    if BITS in arguments.only:
        figures, error = worked(BITS, arguments.rehearse, deadline - time.monotonic())
        if figures is None:
            report.note(f"{BITS} is missing: {error}")
        else:
            checks = report.table("Equal bit for bit", {"check": "", "holds": ""})
            for check in ("resumed", "among more"):
                checks.add(check, "yes" if figures[check] else "no")
                report.require(figures[check], f"Runs are not equal bit for bit: {check}.")
            apart = figures["apart"]
            report.note(f"Weights of two block widths differ by at most {apart:.2g} after one iteration.")
        report.require(figures is not None, f"{BITS} is missing: {error}")
    if rejax is not None and (sentence := compared(report, rejax, arguments.rehearse, deadline)):
        sentences.append(sentence)
    report.finish("; ".join(sentences))


def _size(name: str, rehearse: bool) -> tuple[int, int]:
    workload = WORKLOADS["ppo-64" if name == BITS else name]
    return workload.smallest if rehearse else (workload.runs, workload.env_steps)


def _work(name: str, rehearse: bool) -> dict[str, Any]:
    runs, env_steps = _size(name, rehearse)
    return check_bits(runs, env_steps) if name == BITS else train_once(WORKLOADS[name], runs, env_steps)


def compared(report: Report, rejax: str, rehearse: bool, deadline: float) -> str:
    """Compare PPO with rejax while time is left; return a sentence, an empty one where not even a turn ended."""
    runs, env_steps = _size("ppo-1024", rehearse)
    sides: list[Side] = []
    turns, turn, failure = 0, 0.0, ""
    try:
        for command in (our_command(runs, env_steps), rejax_command(rejax, runs, env_steps)):
            if (left := deadline - time.monotonic()) > 0:
                sides.append(Side(command, {**os.environ, **SHARED}, seconds=left))
        while len(sides) == 2 and time.monotonic() + turn < deadline:
            started = time.monotonic()
            for side in sides:
                side.run()
            turn, turns = time.monotonic() - started, turns + 1
    except SystemExit as ended:
        failure = str(ended) if time.monotonic() < deadline else ""  # else the side was stopped
    for side in sides:
        side.close()
    if failure or not turns:
        report.note(f"{REJAX} is missing: {failure or NO_TIME}")
        report.require(False, f"{REJAX} is missing: {failure or NO_TIME}")
        return ""
    ours, theirs = sides
    for side in sides:
        del side.runs[turns:]  # of a turn that did not end
    table = report.table(
        "PPO on CartPole compared with rejax, alternately",
        {"side": "", "run s": ".2f", "compile s": ".1f", "return": ".1f"},
    )
    for name, side, of in (("jaxrl", ours, "sampled"), ("rejax", theirs, "return")):
        table.add(name, side.figures("run_seconds"), side.compiled["compile_seconds"], side.median(of))
    return f"{theirs.median('run_seconds') / ours.median('run_seconds'):.2f} times as fast as rejax at {runs:,} seeds"


if __name__ == "__main__":
    main()
