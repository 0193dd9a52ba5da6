"""Bandits in pulls per second, compared with SMPyBandits, MABWiser and a vectorised NumPy loop, in one invocation.

    python bench/bandits.py [--peers PYTHON | --no-peers] [--rounds 5] [--quick] [--json FILE]
    python bench/bandits.py --memory [--runs 100000] [--steps 10000]
    python bench/bandits.py --beta
    python bench/bandits.py --regret [--peer-runs 200]

Speed: UCB1 and Thompson sampling on Bernoulli arms, LinUCB on linear arms with 5 features resampled for every pull,
each in 10^2 to 10^5 runs. jaxrl is timed over a whole call of `run_bandit`, already compiled, on all cores available to
this process; the NumPy loop processes all runs at once, on one core; SMPyBandits (UCB1, Thompson) and MABWiser (LinUCB,
with coefficients for each arm) process one run in one process, for which the last column assumes one process per core
and perfect scaling. The sides run alternately; figures are medians of `--rounds`, with minimum and maximum.

Memory: the highest resident size of a process whose only work is 10^5 runs of UCB1 with 10^4 steps each on 10 arms. The
exit status is 1 if it exceeds 4 GB. Beta: the cost of a variate by `jax.random.beta`, jaxrl and NumPy. Regret: mean
regrets on three instances, compared with the same policies of SMPyBandits; the exit status is 1 if the largest
difference exceeds the largest that 95 % of such tables show by chance. `make bench` creates the environment of the
peers, .venv-peers.
"""

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # a script's folder is first on the path, where envs.py hides `envs`
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats

from bench.machine import num_cores
from bench.memory import highest_ever
from bench.report import Report, benchmark_parser, ratios
from bench.sides import add_peers, find_peer, whole
from envs.bandits.base import Bandit
from envs.bandits.bernoulli import BernoulliBandit
from envs.bandits.contextual import LinearBandit
from jaxrl.bandits.base import BanditAlgorithm
from jaxrl.bandits.beta import beta
from jaxrl.bandits.policies.divergence import kl_ucb
from jaxrl.bandits.policies.linear import lin_ucb
from jaxrl.bandits.policies.thompson_sampling import thompson
from jaxrl.bandits.policies.ucb import moss, ucb1, ucb_v
from jaxrl.bandits.runner import run_bandit

ROOT = Path(__file__).resolve().parents[1]
RUNS = (100, 1_000, 10_000, 100_000)
ARMS = (10, 100)
# Policy: builder, peer, pulls times arms of our measurement, pulls of the peer's measurement.
SPEED: dict[str, tuple[Callable[[], BanditAlgorithm], str, float, int]] = {
    "ucb1": (ucb1, "smpybandits", 2e8, 10_000),
    "thompson": (thompson, "smpybandits", 2e7, 2_000),
    "lin-ucb": (lin_ucb, "mabwiser", 2e7, 300),
}
NUMPY_WORK = 5e6
INSTANCES = ((0.9, 0.8), (0.5, 0.45, 0.45, 0.4, 0.3), (0.1, 0.05, 0.05, 0.02, 0.02, 0.01, 0.01))
# Policies that SMPyBandits also has, with hyper-parameters for which both agree.
SHARED: dict[str, tuple[Callable[[], BanditAlgorithm], dict[str, float]]] = {
    "ucb1": (ucb1, {}),
    "ucb-v": (ucb_v, {"exploration": 1.0}),
    "kl-ucb": (kl_ucb, {}),
    "moss": (moss, {}),
    "thompson": (thompson, {}),
}
GIGABYTE = 1e9

Ask = Callable[..., dict[str, Any]]


@contextlib.contextmanager
def peers(python: str) -> Iterator[Ask]:
    """Return a function that sends requests to a process in the environment of the peers."""
    command = [python, str(ROOT / "bench/peers/bandits.py")]
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=tempfile.gettempdir()
        )
        assert process.stdin is not None and process.stdout is not None
        requests, answers = process.stdin, process.stdout

        def ask(**request: Any) -> dict[str, Any]:
            requests.write(json.dumps(request) + "\n")
            requests.flush()
            answer = answers.readline()
            if not answer:
                errors.seek(0)
                raise SystemExit(f"the peers failed in {python}:\n{errors.read()}")
            return json.loads(answer)

        try:
            yield ask
        finally:
            requests.close()
            process.wait()


def ours(policy: BanditAlgorithm, env: Bandit, num_runs: int, steps: int) -> float:
    """Seconds of one call of jaxrl."""
    started = time.perf_counter()
    whole(run_bandit(policy, env, steps=steps, runs=num_runs, points=5, progress=False))
    return time.perf_counter() - started


def speed(
    report: Report, ask: Ask | None, rounds: int, sizes: tuple[int, ...], arms: tuple[int, ...], share: float
) -> str:
    """Add the table of pulls per second; returns a summary of the second size."""
    cores = num_cores()
    columns = {"policy": "", "arms": "", "runs": ",d", "steps": ",d", "ours": ".3f", "compile s": ".1f"}
    columns |= {"NumPy": ".3f", "ours / NumPy": ".1f", "peer": ".5f", "ours / peer": ",.0f", "all cores": ",.0f"}
    table = report.table(f"Millions of pulls per second, median of {rounds} (least to most), {cores} cores", columns)
    sentences = []
    for name, (build, library, work, peer_steps) in SPEED.items():
        work, peer_steps = work * share, max(int(peer_steps * share), 10)
        for num_arms in arms:
            env = LinearBandit(num_arms=num_arms) if name == "lin-ucb" else BernoulliBandit(num_arms=num_arms)
            for num_runs in sizes:
                steps = int(np.clip(work / (num_runs * num_arms), 20, 10_000))
                loop_steps = int(np.clip(NUMPY_WORK * share / (num_runs * num_arms), 5, 2_000))
                request = {"do": "rate", "policy": name, "num_arms": num_arms, "num_runs": num_runs}
                first = ours(build(), env, num_runs, steps)
                rates, loops, peers = [], [], []
                for _ in range(rounds):
                    rates.append(num_runs * steps / ours(build(), env, num_runs, steps) / 1e6)
                    if ask is not None:
                        loops.append(ask(**request, library="numpy", steps=loop_steps)["pulls_per_second"] / 1e6)
                        peers.append(ask(**request, library=library, steps=peer_steps)["pulls_per_second"] / 1e6)
                compiling = first - num_runs * steps / statistics.median(rates) / 1e6
                cells = (name, num_arms, num_runs, steps, rates, compiling)
                if ask is None:
                    table.add(*cells, *[None] * 5)
                    continue
                over_loop, over_peer = ratios(rates, loops), ratios(rates, peers)
                table.add(*cells, loops, over_loop, peers, over_peer, [one / cores for one in over_peer])
                if num_runs == 1_000:
                    medians = statistics.median(over_loop), statistics.median(over_peer)
                    sentences.append(f"{name} of {num_arms} arms {medians[0]:.1f} and {medians[1]:,.0f}")
    return f"times as fast: {', '.join(sentences)}" if sentences else "no peer was measured"


def memory(report: Report, num_runs: int, steps: int) -> str:
    """Add the table of the highest resident size of a separate process; returns a summary."""
    command = [sys.executable, str(ROOT / "bench/bandits.py"), "--worker"]
    command += ["--runs", str(num_runs), "--steps", str(steps)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        raise SystemExit(f"the run failed:\n{process.stderr}")
    figures = json.loads(process.stdout.splitlines()[-1])
    columns = {"runs": ",d", "steps": ",d", "highest resident, GB": ".2f", "before the call, GB": ".2f"}
    table = report.table(
        "Memory of UCB1 on 10 arms", columns | {"s": ".1f", "million pulls per second": ".1f", "regret": ".1f"}
    )
    highest, seconds = figures["highest"] / GIGABYTE, figures["seconds"]
    pulls = num_runs * steps / seconds / 1e6
    table.add(num_runs, steps, highest, figures["before"] / GIGABYTE, seconds, pulls, figures["regret"])
    report.require(highest < 4, f"{num_runs:,} runs of {steps:,} steps take {highest:.2f} GB, over 4.")
    return f"{num_runs:,} runs of UCB1 of {steps:,} steps on 10 arms take {highest:.1f} GB and {seconds:.0f} s"


def memory_worker(num_runs: int, steps: int) -> None:
    """Run one call and print the highest resident size of this process."""

    def highest() -> float:
        return highest_ever() * 2**20

    jax.block_until_ready(jnp.zeros(()))
    before, started = highest(), time.perf_counter()
    result = whole(run_bandit(ucb1(), BernoulliBandit(num_arms=10), steps=steps, runs=num_runs, progress=False))
    seconds, regret = time.perf_counter() - started, float(result.metrics["regret"][:, -1].mean())
    print(json.dumps({"before": before, "highest": highest(), "seconds": seconds, "regret": regret}), flush=True)


def variates(report: Report, ask: Ask | None, rounds: int) -> str:
    """Add the table of the cost of a Beta variate, ten for each of a thousand runs, on one core; returns a summary."""
    shape, times = (1_000, 10), 20
    table = report.table(
        f"Nanoseconds per Beta variate, {shape[1]} for each of {shape[0]:,} runs, median of {rounds} (least to most)",
        {"parameters": "", "jax.random.beta": ".0f", "ours": ".1f", "theirs / ours": ".1f", "NumPy": ".0f"},
    )
    costs, faster = [], []

    def repeated(draw: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
        def one(key: jax.Array, alpha: jax.Array, beta: jax.Array) -> jax.Array:
            def body(i: Any, total: jax.Array) -> jax.Array:
                return total + draw(jax.random.fold_in(key, i), alpha, beta)

            return jax.lax.fori_loop(0, times, body, jnp.zeros(shape[1]))

        return jax.jit(jax.vmap(one))

    sides = {"theirs": repeated(jax.random.beta), "ours": repeated(beta)}
    keys = jax.random.split(jax.random.key(0), shape[0])
    for alpha, other in ((1.0, 1.0), (0.5, 0.5), (3.0, 2.0), (200.0, 40.0)):
        parameters = jnp.full(shape, alpha), jnp.full(shape, other)
        cost: dict[str, list[float]] = {name: [] for name in sides}
        loop = []
        for turn in range(rounds + 1):  # the first compiles
            for name, draw in sides.items():
                started = time.perf_counter()
                jax.block_until_ready(draw(keys, *parameters))
                if turn:
                    cost[name].append(1e9 * (time.perf_counter() - started) / (times * shape[0] * shape[1]))
            if ask is not None:
                answer = ask(do="beta", shape=shape, alpha=alpha, beta=other, times=times)
                loop.append(1e9 / answer["variates_per_second"])
        times_faster = ratios(cost["theirs"], cost["ours"])
        table.add(f"Beta({alpha:g}, {other:g})", cost["theirs"], cost["ours"], times_faster, loop or None)
        costs.append(statistics.median(cost["ours"]))
        faster.append(statistics.median(times_faster))
    return (
        f"a Beta variate {min(costs):.0f} to {max(costs):.0f} ns, `jax.random.beta` {min(faster):.0f} to "
        f"{max(faster):.0f} times that"
    )


def regret(report: Report, ask: Ask, peer_runs: int, runs: int, steps: int) -> str:
    """Add the table of mean regrets of jaxrl and of SMPyBandits; returns a summary."""
    comparisons = len(SHARED) * len(INSTANCES)
    level = scipy.stats.norm.ppf(1 - 0.025 / comparisons)
    table = report.table(
        f"Mean regret after {steps:,} pulls, {runs:,} runs of ours and {peer_runs:,} of SMPyBandits",
        {"policy": "", "means": "", "ours": "", "SMPyBandits": "", "standard errors apart": ".2f"},
    )
    apart = []
    for name, (build, changes) in SHARED.items():
        policy = build()
        for means in INSTANCES:
            result = run_bandit(
                policy,
                BernoulliBandit(means=means),
                policy.hparams.replace(**changes),
                steps=steps,
                runs=runs,
                points=1,
                progress=False,
            )
            our_regrets = result.metrics["regret"].values[:, -1].astype(np.float64)
            theirs = np.asarray(ask(do="regrets", policy=name, means=means, num_runs=peer_runs, steps=steps)["regret"])
            errors = [values.std(ddof=1) / np.sqrt(len(values)) for values in (our_regrets, theirs)]
            apart.append((our_regrets.mean() - theirs.mean()) / np.hypot(*errors))
            listed = " ".join(f"{mean:g}" for mean in means)
            both = zip((our_regrets, theirs), errors, strict=True)
            cells = [f"{values.mean():.2f} +- {1.96 * e:.2f}" for values, e in both]
            table.add(name, listed, *cells, apart[-1])
    worst = max(map(abs, apart))
    report.require(worst <= level, f"Regrets differ by {worst:.2f} standard errors, over the {level:.2f} of chance.")
    return f"{comparisons} comparisons, at most {worst:.2f} standard errors apart; chance allows {level:.2f}"


def main() -> None:
    """Print the tables."""
    parser = benchmark_parser(__doc__)
    add_peers(parser, "peers")
    parser.add_argument("--no-peers", action="store_true", help="measure ours alone")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work", type=float, default=1.0, help="share of the usual pulls of a timing")
    parser.add_argument("--quick", action="store_true", help="1,000 runs and 10 arms only")
    parser.add_argument("--memory", action="store_true", help="only the memory of many runs")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--beta", action="store_true", help="only the cost of Beta variates")
    parser.add_argument("--regret", action="store_true", help="only the regrets, compared with SMPyBandits")
    parser.add_argument("--runs", type=int, help="number of runs (default: --memory 100,000, ours in --regret 10,000)")
    parser.add_argument("--steps", type=int, help="number of steps (default: --memory 10,000, --regret 1,000)")
    parser.add_argument("--peer-runs", type=int, default=200, help="number of runs of SMPyBandits in --regret")
    options = parser.parse_args()
    if options.worker:
        memory_worker(options.runs, options.steps)
        return
    if options.memory:
        report = Report(parser, options, "memory of many bandits")
        report.finish(memory(report, options.runs or 100_000, options.steps or 10_000))
        return
    options.peers = None if options.no_peers else find_peer(parser, "peers", options.peers)
    if options.regret and options.peers is None:
        parser.error("--regret compares with peers, which are not installed")
    with contextlib.nullcontext() if options.peers is None else peers(options.peers) as ask:
        what = "pulls per second of 1,000 runs"
        if ask is not None:
            names = {name: f"{name} {version}" for name, version in ask(do="versions").items()}
            what += (
                f", compared with a NumPy loop over all runs, and with one run in one process of {names['SMPyBandits']}"
            )
            what += f" or {names['mabwiser']}"
        if options.regret:
            assert ask is not None
            report = Report(parser, options, "regrets compared with SMPyBandits")
            report.finish(regret(report, ask, options.peer_runs, options.runs or 10_000, options.steps or 1_000))
            return
        if options.beta:
            report = Report(parser, options, "Beta variates")
            report.finish(variates(report, ask, options.rounds))
            return
        report = Report(parser, options, what)
        sizes, arms = ((1_000,), (10,)) if options.quick else (RUNS, ARMS)
        sentences = [speed(report, ask, options.rounds, sizes, arms, options.work)]
        sentences.append(variates(report, ask, options.rounds))
    if not options.quick:
        sentences.append(memory(report, 100_000, 10_000))
    report.finish("; ".join(sentences))


if __name__ == "__main__":
    main()
