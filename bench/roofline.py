"""How far every workload is from what this machine can do at most, measured in the same process.

    python bench/roofline.py [--rounds 5] [--seeds 1 8 64] [--num-envs 64 1024 8192] [--json FILE]

Ceilings: float32 products of 2,048^3 and of (128, 64) by (64, 64), bandwidth into donated buffers of the memory and of
the caches, threefry words, tanh, and the seconds of a launch, which is one small operation inside a compiled loop (on a
CPU a call by the runtime, on a GPU a small kernel), and of a dispatch, which is one call of a program. Each workload
has so many operations, bytes, random words and transcendentals by the formulas of bench/work.py, and launches counted
from the compiled program's text. Each implies a floor of time: operations at the best rate of any product, though few
of them are products; bytes at the bandwidth of the caches where what is worked on at a time (a block of runs, or all of
a rollout) is no more than 64 MiB, of which nothing has to come from memory, and else at the memory's; launches one
after another on each device, or thread of a CPU. The largest floor binds, and the fraction is that floor by the median
of the measured times: 100 % cannot be passed but for noise.

The work is environments, advantages, PPO, crowds and bandits. What bench/driver.py, compile_time.py, import_time.py
and memory.py measure has no such floor. On a GPU the same runs there: `--seeds 1024 4096 16384`.
"""

import argparse
import functools
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":  # as a script this file lies first on the path, where envs.py hides the package `envs`
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import jax
import numpy as np

import jaxrl
from bench import advantages as bench_advantages
from bench import crowd as bench_crowd
from bench import envs as bench_envs
from bench import work
from bench.ceilings import Ceilings, measure_ceilings, one_device
from bench.launches import launches
from bench.report import Report, benchmark_parser, ratios
from envs.bandits.bernoulli import BernoulliBandit
from jaxrl.bandits.policies.thompson_sampling import thompson
from jaxrl.bandits.policies.ucb import ucb1
from jaxrl.bandits.runner import CPU_BLOCK, bandit_call
from jaxrl.discounts.parsing import prepare
from jaxrl.runtime.layout import CPU_BLOCK as RUNS_OF_BLOCK
from jaxrl.runtime.layout import plan_layout
from jaxrl.runtime.loop import evaluation_points
from jaxrl.runtime.runs import Runs
from jaxrl.runtime.training import training_call

CACHED = 2**26  # bytes that may lie in caches


class Workload(NamedTuple):
    """A row of the table.

    Attributes:
      name: what is done, and how much of it.
      work: by formula.
      launches: one after another on the device, or thread, that has most of them.
      dispatches: calls of a program, likewise.
      seconds: measured.
      short: its name in the table of results.
      footprint: bytes of its work on which it works at a time.
    """

    name: str
    work: work.Work
    launches: float
    dispatches: float
    seconds: Sequence[float]
    short: str
    footprint: float


def floors(workload: Workload, ceilings: Ceilings) -> dict[str, float]:
    """The seconds that each limit implies."""
    return {
        "arithmetic": workload.work.operations / max(ceilings.large_product, ceilings.small_product),
        "bandwidth": workload.work.bytes / (ceilings.cached if workload.footprint <= CACHED else ceilings.bandwidth),
        "random words": workload.work.words / ceilings.words,
        "transcendentals": workload.work.transcendentals / ceilings.tanh,
        "launches": workload.launches * ceilings.launch + workload.dispatches * ceilings.dispatch,
    }


def binding(workload: Workload, ceilings: Ceilings) -> tuple[str, float]:
    """The limit that allows the least, and its seconds."""
    found = floors(workload, ceilings)
    name = max(found, key=lambda limit: found[limit])
    return name, found[name]


def timed(run: Callable[[], Any], rounds: int) -> list[float]:
    """Seconds of calls, after one that is not timed."""
    run()
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    return seconds


def environments(num_envs: int, rounds: int, calls: int) -> Workload:
    """CartPole under random actions, a rollout."""
    once, carry = bench_envs.ours("cartpole", num_envs)
    count = launches(jax.jit(once).lower(jax.random.key(0), carry).compile().as_text())
    seconds = [one / calls for one in timed_calls(bench_envs.in_one_program(once), carry, calls, rounds)]
    name = f"CartPole, {num_envs:,} environments, {bench_envs.NUM_STEPS} steps"
    of_all, short = work.cartpole_rollout(num_envs, bench_envs.NUM_STEPS), f"CartPole, {num_envs:,}"
    return Workload(name, of_all, count, 1 / calls, seconds, short, of_all.bytes)


def timed_calls(run: Callable[..., Any], carry: Any, calls: int, rounds: int) -> list[float]:
    """Seconds of rounds of calls, after a round that is not timed."""
    seconds = []
    for _ in range(rounds + 1):
        taken, carry, _ = bench_envs.measure(run, carry, calls)
        seconds.append(taken)
    return seconds[1:]


def estimates(discount: Any, name: str, rounds: int, calls: int) -> Workload:
    """Advantages at 128 steps of 64 environments, a call within a compiled loop."""
    num_steps, num_envs = 128, 64
    data, prepared = bench_advantages.rollout(num_steps, num_envs), prepare(discount, num_steps)

    def estimate(lam: Any, *data: jax.Array) -> Any:
        return jaxrl.ugae(prepared, lam, *data)

    count = launches(jax.jit(estimate).lower(bench_advantages.LAM, *data).compile().as_text())
    run = bench_advantages.compiled_loop(estimate, data, calls)
    nodes = np.size(prepared.rates)
    title = f"{name}, {num_steps} steps of {num_envs} environments"
    of_all = work.advantages(num_steps, num_envs, nodes)
    return Workload(title, of_all, count, 0, [run() for _ in range(rounds)], name, of_all.bytes)


def launches_of_an_iteration(text: str | None, iterations: int) -> float:
    """Of one block, from the text of its program, whose outer loop goes through iterations.

    The compiler does not know its turns. What a program does beside its iterations is shared among them.
    """
    return launches(text, (iterations,)) / iterations


def of_runs(name: str, short: str, runs: Runs, work_of_all: work.Work, iterations: int, rounds: int) -> Workload:
    """Iterations of runs, as the driver does them; all figures are of one iteration of all runs."""
    count = launches_of_an_iteration(runs.executables["advance"][0].as_text(), iterations)
    seconds = [one / iterations for one in timed(lambda: runs.advance(iterations), rounds)]
    layout = runs.layout
    at_once = work_of_all.bytes * min(layout.block * len(layout.devices) / layout.num_runs, 1)
    return Workload(name, work_of_all, count * layout.num_blocks, 1 / iterations, seconds, short, at_once)


def training(num_seeds: int, rounds: int, share: int) -> Workload:
    """PPO on CartPole, an iteration of all seeds."""
    algo = jaxrl.preset("ppo", "cartpole").algo
    points = evaluation_points(512 * 10**6, 1, algo.env_steps_per_iteration)
    call = training_call(algo, None, seeds=list(range(num_seeds)), points=points, eval_episodes=8)
    runs = Runs(call, call.arguments(), plan_layout(num_seeds, None, one_device(), RUNS_OF_BLOCK))
    of_all = work.ppo_iteration(algo.config).times(num_seeds)
    name, short = f"PPO, {num_seeds:,} seeds, an iteration", f"PPO, {num_seeds:,}"
    return of_runs(name, short, runs, of_all, max(share // num_seeds, 1), rounds)


def crowds(num_worlds: int, num_agents: int, rounds: int) -> Workload:
    """Social forces, ten substeps of everybody."""
    substeps = bench_crowd.SUBSTEPS
    program, arguments = bench_crowd.forces_only(num_worlds, num_agents, 1.5, substeps)
    compiled: Any = program
    executable = compiled.lower(*arguments).compile()
    seconds = timed(lambda: jax.block_until_ready(executable(*arguments)), rounds)
    capacity = bench_crowd.CAPACITY if num_agents >= 200 else num_agents
    of_all = work.crowd_agent_step(capacity, substeps).times(num_worlds * num_agents * substeps)
    name = f"Crowds, {num_worlds * num_agents * substeps:,} agent-steps by social forces"
    return Workload(name, of_all, launches(executable.as_text()), 1, seconds, "crowds", of_all.bytes)


def bandits(policy: str, num_runs: int, num_arms: int, steps: int, rounds: int) -> Workload:
    """A policy on Bernoulli arms, a pull of every run."""
    build = {"ucb1": ucb1, "thompson": thompson}[policy]
    env = BernoulliBandit(num_arms=num_arms)
    call = bandit_call(build(), env, steps=2**30, runs=num_runs, points=1)
    runs = Runs(call, call.arguments(), plan_layout(num_runs, None, one_device(), CPU_BLOCK))
    of_all = work.bandit_pull(policy, num_arms).times(num_runs)
    return of_runs(f"{policy}, {num_runs:,} runs of {num_arms} arms, a pull", policy, runs, of_all, steps, rounds)


def ceilings_table(report: Report, ceilings: Ceilings) -> None:
    """What the machine can do."""
    table = report.table("Ceilings, the best of some measurements", {"limit": "", "at most": ".4g", "unit": ""})
    for limit, value, unit in (
        ("float32 product of 2,048^3", ceilings.large_product / 1e9, "G operations/s"),
        ("(128, 64) by (64, 64)", ceilings.small_product / 1e9, "G operations/s"),
        ("triad into donated buffers, memory", ceilings.bandwidth / 1e9, "GB/s"),
        ("triad within caches", ceilings.cached / 1e9, "GB/s"),
        ("threefry", ceilings.words / 1e6, "M words/s"),
        ("tanh", ceilings.tanh / 1e9, "G/s"),
        ("launch", ceilings.launch * 1e9, "ns"),
        ("dispatch", ceilings.dispatch * 1e9, "ns"),
    ):
        table.add(limit, value, unit)


def usual(arguments: argparse.Namespace) -> list[Callable[[], Workload]]:
    """Every row of the table."""
    rounds = arguments.rounds
    return [
        *(
            functools.partial(environments, num_envs, rounds, max(2**14 // num_envs, bench_envs.LEAST_CALLS))
            for num_envs in arguments.num_envs
        ),
        lambda: estimates(0.98, "GAE", rounds, 500),
        lambda: estimates("beta:mu=0.98,eta=0.5", "Beta-weighted advantages", rounds, 500),
        *(functools.partial(training, num_seeds, rounds, 512) for num_seeds in arguments.seeds),
        lambda: crowds(1, 1_000, rounds),
        lambda: bandits("ucb1", 1_000, 10, 10_000, rounds),
        lambda: bandits("thompson", 1_000, 10, 1_000, rounds),
    ]


def smallest(rounds: int) -> list[Callable[[], Workload]]:
    """A row of each kind that takes the least."""
    return [
        lambda: environments(2, rounds, 1),
        lambda: estimates(0.98, "GAE", rounds, 2),
        lambda: training(1, rounds, 1),
        lambda: crowds(1, 10, rounds),
        lambda: bandits("ucb1", 2, 2, 2, rounds),
    ]


def main() -> None:
    """Print the tables."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 8, 64], help="of PPO")
    parser.add_argument("--num-envs", type=int, nargs="+", default=[64, 1024, 8192], help="of CartPole")
    parser.add_argument("--smallest", action="store_true", help="only see whether it works")
    arguments = parser.parse_args()
    small, rounds = arguments.smallest, arguments.rounds
    report = Report(parser, arguments, "fraction of the floor that operations, bytes, words or launches imply")
    ceilings = measure_ceilings(rounds, 1 / 64 if small else 1.0)
    ceilings_table(report, ceilings)
    columns = {"workload": "", "operations": ".3g", "bytes": ".3g", "random words": ".3g", "transcendentals": ".3g"}
    columns |= {"launches": ",.0f", "floor, us": ",.1f", "binding": "", "measured, us": ",.1f", "fraction": ".1%"}
    table = report.table(f"Floors, and medians of {rounds} timings (least to most)", columns)
    told = []
    for way in smallest(rounds) if small else usual(arguments):
        found = way()
        limit, floor = binding(found, ceilings)
        fractions = ratios([floor] * len(found.seconds), found.seconds)
        microseconds = [1e6 * one for one in found.seconds]
        table.add(found.name, *found.work, found.launches, 1e6 * floor, limit, microseconds, fractions)
        told.append(f"{found.short} {statistics.median(fractions):.0%} ({limit})")
    report.finish("; ".join(told))


if __name__ == "__main__":
    main()
