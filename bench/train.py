"""PPO training compared with rejax and Stable-Baselines3, with PureJaxRL's CartPole settings, in one invocation.

    python bench/train.py [--seeds 1 8 64 256] [--repeats 5] [--env-steps 499712] [--rejax PYTHON] [--sb3 PYTHON]
        [--sb3-env-steps 20480] [--no-peers] [--json FILE]

rejax 0.1.3 needs gymnax 0.0.9 and therefore a separate environment, and Stable-Baselines3 needs torch; `make bench`
creates .venv-rejax and .venv-sb3. Each side compiles once in its own process; then they run alternately. Run time is
measured over a whole call of jaxrl and of rejax's compiled function. Compile time is a separate column: for jaxrl the
time of the first call without the run, for rejax the time of tracing, lowering and compiling. Both evaluate 128 whole
episodes per seed at the end, within the run time: rejax samples all actions, jaxrl runs 64 episodes greedily and 64
with sampled actions. jaxrl runs in the layout that `train` and the command line choose: a thread for every core. Each
ratio is a ratio of medians, shown with the minimum and maximum of the ratios within a turn.

Stable-Baselines3 trains one seed at a time, on a CPU, with torch's threads, for fewer env steps; its time for all env
steps is extrapolated from these, without evaluation, and its return is measured after the shorter run. The exit status
is 1 if jaxrl is less than 1.3 times as fast as rejax, or if, with more than one seed, its sampled return is below
rejax's by over three standard errors of the difference over seeds. On a GPU: `--seeds 1024 4096 16384 --repeats 3`.
"""

import argparse
import json
import math
import statistics
import sys
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # a script's folder is first on the path, where envs.py hides `envs`
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.report import Report, benchmark_parser, ratios, spread
from bench.sides import ROOT, Side, add_peers, find_peer, require_same_device, whole

ENV_STEPS, LEAST_TIMES_REJAX, STANDARD_ERRORS = 499_712, 1.3, 3.0


def worker(num_seeds: int, env_steps: int) -> None:
    """Train by jaxrl; print a JSON line when compiled, and one for each line read."""
    import jax

    import jaxrl

    algo = jaxrl.preset("ppo", "cartpole").algo

    def train(env_steps: int) -> tuple[Any, float]:
        started = time.perf_counter()
        options: Any = {"evals": 1, "eval_episodes": 64, "progress": False}
        result = whole(jaxrl.train(algo, seeds=num_seeds, env_steps=env_steps, **options))
        return result.metrics, time.perf_counter() - started

    first, seconds = train(512)
    device = f"{jax.default_backend()} {jax.devices()[0].device_kind}"
    figures = {"compile_seconds": seconds - first.attrs["run_seconds"], "jax": jax.__version__, "device": device}
    print(json.dumps(figures), flush=True)
    for _ in sys.stdin:
        metrics, seconds = train(env_steps)
        sampled = metrics["return_sampled"][:, -1]
        figures = {"run_seconds": seconds, "return": float(metrics["return"][:, -1].mean())}
        figures |= {"sampled": float(sampled.mean()), "deviation": float(sampled.std())}
        print(json.dumps(figures), flush=True)


def our_command(num_seeds: int, env_steps: int) -> list[str]:
    """Command of our `Side`."""
    return [sys.executable, str(ROOT / "bench/train.py"), "--worker", str(num_seeds), "--env-steps", str(env_steps)]


def rejax_command(python: str, num_seeds: int, env_steps: int, name: str = "PPO") -> list[str]:
    """Command of rejax's `Side`, for its algorithm `name`."""
    return [python, str(ROOT / "bench/peers/rejax_train.py"), name, str(num_seeds), str(env_steps)]


def below(ours: Side, theirs: Side, num_seeds: int, of: str = "sampled") -> float:
    """Standard errors over seeds by which a return of jaxrl is below the peer's; nan for a single seed."""
    if num_seeds == 1:
        return math.nan
    error = math.hypot(ours.runs[-1]["deviation"], theirs.runs[-1]["deviation"]) / math.sqrt(num_seeds - 1)
    difference = theirs.median("return") - ours.median(of)
    return difference / error if error else math.copysign(math.inf, difference) if difference else 0.0


def beside_rejax(report: Report, arguments: argparse.Namespace) -> list[str]:
    """Add the table of many seeds; returns its summaries."""
    columns = {"seeds": ",d"}
    for side in ("ours", "rejax"):
        columns |= {f"{side}: compile s": ".1f", f"{side}: run s": ".2f", f"{side}: M steps/s": ".2f"}
        columns |= {"ours: return greedy": ".1f"} if side == "ours" else {}
        columns |= {f"{side}: return sampled": ".1f"}
    table = report.table(
        f"PPO on CartPole, {arguments.env_steps:,} env steps per seed; {arguments.repeats} alternating runs: "
        "median (least to most)",
        columns | {"rejax / ours, run": ".2f"},
    )
    sentences, versions = [], set()
    for num_seeds in arguments.seeds:
        ours = Side(our_command(num_seeds, arguments.env_steps))
        peer = None if arguments.rejax is None else Side(rejax_command(arguments.rejax, num_seeds, arguments.env_steps))
        sides = [ours] if peer is None else [ours, peer]
        if peer is not None:
            require_same_device(ours, peer)
        for _ in range(arguments.repeats):
            for side in sides:
                side.run()
        for side in sides:
            side.close()
        cells: list[Any] = []
        for side in sides:
            seconds = side.figures("run_seconds")
            rates = [num_seeds * arguments.env_steps / 1e6 / one for one in seconds]
            cells += [side.compiled["compile_seconds"], seconds, rates, side.median("return")]
            cells += [side.median("sampled")] if side is ours else []
        if peer is None:
            table.add(num_seeds, *cells, *[None] * 5)
            sentences.append(f"{ours.median('run_seconds'):.2f} s at {num_seeds:,}")
            continue
        faster = ratios(peer.figures("run_seconds"), ours.figures("run_seconds"))
        table.add(num_seeds, *cells, faster)
        median = statistics.median(faster)
        report.require(
            median >= LEAST_TIMES_REJAX,
            f"At {num_seeds:,} seeds ours is {median:.2f} times as fast as rejax, under {LEAST_TIMES_REJAX:g}.",
        )
        errors = below(ours, peer, num_seeds)
        report.require(
            not errors > STANDARD_ERRORS,
            f"At {num_seeds:,} seeds the sampled return of ours is {ours.median('sampled'):.1f}, {errors:.1f} standard "
            f"errors below rejax's {peer.median('return'):.1f}.",
        )
        seeds = "seed" if num_seeds == 1 else "seeds"
        returns = f"return {ours.median('sampled'):.0f} against {peer.median('return'):.0f}"
        sentences.append(f"{spread(faster, '.2f')} times as fast as rejax for {num_seeds:,} {seeds} ({returns})")
        versions.add(str(peer.compiled["jax"]))
    if versions:
        report.note(f"rejax ran on jax {', '.join(sorted(versions))}.")
    return sentences


def beside_stable_baselines(report: Report, arguments: argparse.Namespace) -> str:
    """Add the table of one seed; returns its summary."""
    ours = Side(our_command(1, arguments.env_steps))
    theirs = Side([arguments.sb3, str(ROOT / "bench/peers/sb3_ppo.py"), str(arguments.sb3_env_steps)])
    for _ in range(arguments.repeats):
        ours.run()
        theirs.run()
    for side in (ours, theirs):
        side.close()
    versions = f"Stable-Baselines3 {theirs.compiled['stable_baselines3']} on torch {theirs.compiled['torch']}"
    our_seconds = ours.figures("run_seconds")
    extrapolated = [one * arguments.env_steps / arguments.sb3_env_steps for one in theirs.figures("run_seconds")]
    table = report.table(
        f"One seed compared with {versions}, {theirs.compiled['threads']} thread(s), whose time is extrapolated from "
        f"{arguments.sb3_env_steps:,} env steps",
        {"side": "", "env steps run": ",d", f"s for {arguments.env_steps:,}": ".2f", "return": ".1f"}
        | {"times as long as ours": ".1f"},
    )
    table.add("ours", arguments.env_steps, our_seconds, ours.median("sampled"), None)
    longer = ratios(extrapolated, our_seconds)
    table.add("Stable-Baselines3", arguments.sb3_env_steps, extrapolated, theirs.median("return"), longer)
    steps = f"extrapolated from {arguments.sb3_env_steps:,} steps"
    return f"{spread(longer, '.0f')} times as fast as Stable-Baselines3 for 1 seed, {steps}"


def main() -> None:
    """Print the tables."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 8, 64, 256])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--env-steps", type=int, default=ENV_STEPS)
    add_peers(parser, "rejax", "sb3")
    parser.add_argument("--sb3-env-steps", type=int, default=20_480, help="env steps of a run of Stable-Baselines3")
    parser.add_argument("--no-peers", action="store_true", help="measure ours alone")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker is not None:
        worker(arguments.worker, arguments.env_steps)
        return
    for name in ("rejax", "sb3"):
        path = None if arguments.no_peers else find_peer(parser, name, vars(arguments)[name])
        setattr(arguments, name, path)
    what = f"PPO on CartPole, {arguments.env_steps:,} env steps per seed, evaluated at the end"
    report = Report(parser, arguments, what if arguments.rejax is None else f"{what}; compared with rejax 0.1.3")
    sentences = beside_rejax(report, arguments)
    if arguments.sb3 is not None:
        sentences.append(beside_stable_baselines(report, arguments))
    report.finish("; ".join(sentences))


if __name__ == "__main__":
    main()
