"""Bandits in pulls a second, beside SMPyBandits, MABWiser and a vectorised NumPy loop, in one invocation.

    python bench/bandits.py [--peers PYTHON] [--rounds 3] [--quick]
    python bench/bandits.py --memory [--runs 100000] [--steps 10000]
    python bench/bandits.py --beta
    python bench/bandits.py --regret [--peer-runs 200]

Speed: UCB1 and Thompson sampling on Bernoulli arms, LinUCB on linear ones with 5 features drawn anew for every pull,
each in 10^2 to 10^5 runs. Ours is a whole call of `run_bandit` once it is compiled, on all cores that this process may
use; the NumPy loop works on all runs at a time, on one core as NumPy does; SMPyBandits (UCB1, Thompson) and MABWiser
(LinUCB, with coefficients for each arm) work on one run in one process; the last column gives them a process on each
core that scales perfectly. The sides take turns, the best of `--rounds` counts.

Memory: the highest resident size of a process that does nothing but 10^5 runs of UCB1 of 10^4 steps on 10 arms. The
exit status is 1 above 4 GB. Beta: what a variate costs by `jax.random.beta`, by ours and by NumPy. Regret: mean regrets
on three instances beside those of the same policies of SMPyBandits; the exit status is 1 where one differs by more than
95 % of such tables would show by chance. `make bench` makes the environment of the peers, .venv-peers.
"""

import argparse
import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # as a script this file lies first on the path, where envs.py hides the package `envs`
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats

from bench.machine import print_header
from envs.bandits.base import Bandit
from envs.bandits.bernoulli import BernoulliBandit
from envs.bandits.contextual import LinearBandit
from jaxrl.bandits.base import BanditAlgorithm
from jaxrl.bandits.beta import beta
from jaxrl.bandits.divergence import kl_ucb
from jaxrl.bandits.linear import lin_ucb
from jaxrl.bandits.running import run_bandit
from jaxrl.bandits.thompson_sampling import thompson
from jaxrl.bandits.ucb import moss, ucb1, ucb_v

ROOT = Path(__file__).resolve().parents[1]
RUNS = (100, 1_000, 10_000, 100_000)
ARMS = (10, 100)
# Policy: builder, peer, pulls times arms of a measurement of ours, pulls of one of the peer.
SPEED: dict[str, tuple[Callable[[], BanditAlgorithm], str, float, int]] = {
    "ucb1": (ucb1, "smpybandits", 2e8, 10_000),
    "thompson": (thompson, "smpybandits", 2e7, 2_000),
    "lin-ucb": (lin_ucb, "mabwiser", 2e7, 300),
}
NUMPY_WORK = 5e6
INSTANCES = ((0.9, 0.8), (0.5, 0.45, 0.45, 0.4, 0.3), (0.1, 0.05, 0.05, 0.02, 0.02, 0.01, 0.01))
# Policies that SMPyBandits has too, with hyper-parameters that make them the same.
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
    """A process that answers requests in the environment of the peers."""
    command = [str(Path(python).absolute()), str(ROOT / "bench/peers/bandits.py")]
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


def num_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def ours(policy: BanditAlgorithm, env: Bandit, num_runs: int, steps: int) -> float:
    """Seconds of a call."""
    started = time.perf_counter()
    run_bandit(policy, env, steps=steps, runs=num_runs, points=5, progress=False)
    return time.perf_counter() - started


def speed(ask: Ask, rounds: int, sizes: tuple[int, ...], arms: tuple[int, ...]) -> None:
    """The table of pulls a second."""
    cores = num_cores()
    print(f"\nMillions of pulls a second, best of {rounds}, {cores} cores:")
    print(
        "  policy     arms      runs   steps      ours  compile s     NumPy  ours/NumPy      peer  ours/peer  all cores"
    )
    for name, (build, library, work, peer_steps) in SPEED.items():
        for num_arms in arms:
            env = LinearBandit(num_arms=num_arms) if name == "lin-ucb" else BernoulliBandit(num_arms=num_arms)
            for num_runs in sizes:
                steps = int(np.clip(work / (num_runs * num_arms), 20, 10_000))
                loop_steps = int(np.clip(NUMPY_WORK / (num_runs * num_arms), 5, 2_000))
                request = {"do": "rate", "policy": name, "num_arms": num_arms, "num_runs": num_runs}
                first = ours(build(), env, num_runs, steps)
                best, loop, peer = np.inf, 0.0, 0.0
                for _ in range(rounds):
                    best = min(best, ours(build(), env, num_runs, steps))
                    loop = max(loop, ask(**request, library="numpy", steps=loop_steps)["pulls_per_second"])
                    peer = max(peer, ask(**request, library=library, steps=peer_steps)["pulls_per_second"])
                rate = num_runs * steps / best
                print(
                    f"  {name:9s} {num_arms:5d} {num_runs:9,d} {steps:7,d} {rate / 1e6:9.3f} {first - best:10.1f} "
                    f"{loop / 1e6:9.3f} {rate / loop:11.1f} {peer / 1e6:9.5f} {rate / peer:10,.0f} "
                    f"{rate / peer / cores:10,.0f}",
                    flush=True,
                )


def memory(num_runs: int, steps: int) -> int:
    """The highest resident size of a process of its own; the exit status."""
    command = [sys.executable, str(ROOT / "bench/bandits.py"), "--memory-worker"]
    command += ["--runs", str(num_runs), "--steps", str(steps)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    if found.returncode:
        raise SystemExit(f"the run failed:\n{found.stderr}")
    figures = json.loads(found.stdout.splitlines()[-1])
    fits = figures["highest"] < 4 * GIGABYTE
    print(
        f"\n{num_runs:,} runs x {steps:,} steps of UCB1 on 10 arms: at most {figures['highest'] / GIGABYTE:.2f} GB "
        f"resident ({figures['before'] / GIGABYTE:.2f} GB before the call), {figures['seconds']:.0f} s, "
        f"{num_runs * steps / figures['seconds'] / 1e6:.1f} million pulls a second, regret {figures['regret']:.1f}; "
        f"{'below' if fits else 'above'} 4 GB"
    )
    return 0 if fits else 1


def memory_worker(num_runs: int, steps: int) -> None:
    """One call, and the highest resident size of this process."""

    def highest() -> float:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0

    jax.block_until_ready(jnp.zeros(()))
    before, started = highest(), time.perf_counter()
    result = run_bandit(ucb1(), BernoulliBandit(num_arms=10), steps=steps, runs=num_runs, progress=False)
    seconds, regret = time.perf_counter() - started, float(result.metrics["regret"][:, -1].mean())
    print(json.dumps({"before": before, "highest": highest(), "seconds": seconds, "regret": regret}), flush=True)


def variates(ask: Ask, rounds: int) -> None:
    """What a Beta variate costs, ten for each of a thousand runs at a time, on one core."""
    shape, times = (1_000, 10), 20
    print(f"\nNanoseconds of a Beta variate, {shape[1]} for each of {shape[0]:,} runs, best of {rounds}, one core:")
    print("  parameters       jax.random.beta      ours  times faster     NumPy")

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
        best = dict.fromkeys(sides, np.inf)
        loop = 0.0
        for turn in range(rounds + 1):  # the first compiles
            for name, draw in sides.items():
                started = time.perf_counter()
                jax.block_until_ready(draw(keys, *parameters))
                best[name] = min(best[name], time.perf_counter() - started) if turn else np.inf
            answer = ask(do="beta", shape=shape, alpha=alpha, beta=other, times=times)
            loop = max(loop, answer["variates_per_second"])
        cost = {name: 1e9 * seconds / (times * shape[0] * shape[1]) for name, seconds in best.items()}
        print(
            f"  Beta({alpha:g}, {other:g})".ljust(18) + f"{cost['theirs']:16.0f} {cost['ours']:9.0f} "
            f"{cost['theirs'] / cost['ours']:13.1f} {1e9 / loop:9.0f}",
            flush=True,
        )


def regret(ask: Ask, peer_runs: int, runs: int, steps: int) -> int:
    """Mean regrets beside those of SMPyBandits; the exit status."""
    comparisons = len(SHARED) * len(INSTANCES)
    level = scipy.stats.norm.ppf(1 - 0.025 / comparisons)
    print(f"\nMean regret after {steps:,} pulls, {runs:,} runs of ours and {peer_runs:,} of SMPyBandits:")
    print(
        "  policy     means                                          ours          SMPyBandits  standard errors apart"
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
            mine = result.metrics["regret"].values[:, -1].astype(np.float64)
            theirs = np.asarray(ask(do="regrets", policy=name, means=means, num_runs=peer_runs, steps=steps)["regret"])
            errors = [values.std(ddof=1) / np.sqrt(len(values)) for values in (mine, theirs)]
            apart.append((mine.mean() - theirs.mean()) / np.hypot(*errors))
            listed = " ".join(f"{mean:g}" for mean in means)
            cells = [
                f"{values.mean():7.2f} +- {1.96 * e:5.2f}" for values, e in zip((mine, theirs), errors, strict=True)
            ]
            print(f"  {name:9s}  {listed:36s}  {cells[0]}  {cells[1]}  {apart[-1]:21.2f}", flush=True)
    worst = max(map(abs, apart))
    verdict = "within" if worst <= level else "beyond"
    print(f"{comparisons} comparisons, at most {worst:.2f} standard errors apart: {verdict} the {level:.2f} of chance")
    return 0 if worst <= level else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", default=str(ROOT / ".venv-peers/bin/python"), help="their interpreter")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="1,000 runs and 10 arms only")
    parser.add_argument("--memory", action="store_true", help="only the memory of many runs")
    parser.add_argument("--memory-worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--beta", action="store_true", help="only the cost of Beta variates")
    parser.add_argument("--regret", action="store_true", help="only the regrets beside SMPyBandits")
    parser.add_argument("--runs", type=int, help="of --memory (100,000) and of ours in --regret (10,000)")
    parser.add_argument("--steps", type=int, help="of --memory (10,000) and --regret (1,000)")
    parser.add_argument("--peer-runs", type=int, default=200, help="of SMPyBandits in --regret")
    options = parser.parse_args()
    if options.memory_worker:
        memory_worker(options.runs, options.steps)
        return 0
    print_header()
    if options.memory:
        return memory(options.runs or 100_000, options.steps or 10_000)
    if not Path(options.peers).exists():
        parser.error(f"--peers: there is no {options.peers}; make bench makes it, or name another interpreter")
    with peers(options.peers) as ask:
        print("peers: " + ", ".join(f"{name} {version}" for name, version in ask(do="versions").items()))
        if options.regret:
            return regret(ask, options.peer_runs, options.runs or 10_000, options.steps or 1_000)
        if not options.beta:
            speed(ask, options.rounds, (1_000,) if options.quick else RUNS, (10,) if options.quick else ARMS)
        variates(ask, options.rounds)
    return 0 if options.beta or options.quick else memory(100_000, 10_000)


if __name__ == "__main__":
    sys.exit(main())
