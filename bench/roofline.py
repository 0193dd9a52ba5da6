"""Distance of every workload from the limits of this machine, measured in the same process.

    python bench/roofline.py [--rounds 5] [--seeds 1 8 64] [--num-envs 64 1024 8192] [--only floors memories]
        [--returns 200000] [--json FILE]

Ceilings: float32 products of 2,048^3 and of (128, 64) by (64, 64), bandwidth into donated buffers of the memory and of
the caches, threefry words, tanh, and the seconds of a launch, which is one small operation inside a compiled loop (on a
CPU a call by the runtime, on a GPU a small kernel), and of a dispatch, which is one call of a program. The operations,
bytes, random words and transcendentals of a workload follow from the formulas of bench/work.py; its launches are
counted from the compiled program's text. Each count implies a floor of time: operations at the best rate of any
product, though few of them are products; bytes at the bandwidth of the caches if the working set (a block of runs, or a
whole rollout) is no more than 64 MiB, because it need not come from memory, otherwise at the memory's; launches one
after another on each device, or thread of a CPU. The largest floor binds, and the fraction is that floor divided by the
median of the measured times: only noise can raise it above 100 %.

The workloads are environments, advantages, PPO, A2C, SAC, crowds and bandits. The measurements of bench/driver.py,
compile_time.py, import_time.py and memory.py have no such floor. On a GPU: `--seeds 1024 4096 16384`.

Memories: an iteration of PPO on memory/repeat-first with each memory as a multiple of one without, at equal width and
with rollouts of 128 steps of 4 environments, measured in turns; the seconds in which its programs were compiled; and
the return of the same PPO after `--returns` environment steps, the IQM over the seeds. With a memory, actor and critic
share one hidden layer and the memory, of 64 units each; without, each has two layers of 64. The exit status is 1 if
"lru" takes more than 2 times, or "gru" more than 3 times the processor time.
"""

import argparse
import dataclasses
import functools
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":  # a script's folder is first on the path, where envs.py hides `envs`
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import jax
import numpy as np

import jaxrl
from bench import advantages as bench_advantages
from bench import crowd as bench_crowd
from bench import envs as bench_envs
from bench import work
from bench.ceilings import Ceilings, measure_ceilings, one_device
from bench.report import Report, benchmark_parser, ratios
from envs.bandits.bernoulli import BernoulliBandit
from jaxrl.bandits.policies.thompson_sampling import thompson
from jaxrl.bandits.policies.ucb import ucb1
from jaxrl.bandits.runner import CPU_BLOCK, bandit_call
from jaxrl.discounts.parsing import prepare
from jaxrl.learning.cells import CELLS
from jaxrl.runtime.accelerators.figures import launches
from jaxrl.runtime.layout import CPU_BLOCK as RUNS_OF_BLOCK
from jaxrl.runtime.layout import plan_layout
from jaxrl.runtime.loop import evaluation_points
from jaxrl.runtime.runs import Runs
from jaxrl.runtime.training import training_call

PARTS = ("floors", "memories")
WITH_MEMORY: dict[str, Any] = {"hidden": (64,), "memory_size": 64}
# Fields of the configuration by row of the table.
MEMORIES: dict[str, dict[str, Any]] = {"none": {}, **{name: WITH_MEMORY | {"memory": name} for name in CELLS}}
MOST_TIMES = {"lru": 2.0, "gru": 3.0}
# Environment and work of an iteration, by algorithm.
ITERATIONS: dict[str, tuple[str, Callable[[Any], work.Work]]] = {
    "ppo": ("cartpole", work.ppo_iteration),
    "a2c": ("cartpole", work.a2c_iteration),
    "sac": ("pendulum", work.sac_iteration),
}
CACHED = 2**26  # largest working set in bytes that may fit in caches


class Workload(NamedTuple):
    """A row of the table.

    Attributes:
      name: Kind and amount of work.
      work: Work by formula.
      launches: Number of successive launches on the device, or thread, that has the most.
      dispatches: Number of calls of a program on the same device or thread.
      seconds: Measured seconds of each round.
      short: Name in the table of results.
      footprint: Working set in bytes.
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
    """The limit with the largest floor, and its seconds."""
    limits = floors(workload, ceilings)
    name = max(limits, key=lambda limit: limits[limit])
    return name, limits[name]


def timed(run: Callable[[], Any], rounds: int) -> list[float]:
    """Seconds of each call, after one call that is not timed."""
    run()
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    return seconds


def environments(num_envs: int, rounds: int, calls: int) -> Workload:
    """A rollout of CartPole under random actions."""
    once, carry = bench_envs.ours("cartpole", num_envs)
    count = launches(jax.jit(once).lower(jax.random.key(0), carry).compile().as_text())
    seconds = [one / calls for one in timed_calls(bench_envs.in_one_program(once), carry, calls, rounds)]
    name = f"CartPole, {num_envs:,} environments, {bench_envs.NUM_STEPS} steps"
    of_all, short = work.cartpole_rollout(num_envs, bench_envs.NUM_STEPS), f"CartPole, {num_envs:,}"
    return Workload(name, of_all, count, 1 / calls, seconds, short, of_all.bytes)


def timed_calls(run: Callable[..., Any], carry: Any, calls: int, rounds: int) -> list[float]:
    """Seconds of each round of calls, after a round that is not timed."""
    seconds = []
    for _ in range(rounds + 1):
        taken, carry, _ = bench_envs.measure(run, carry, calls)
        seconds.append(taken)
    return seconds[1:]


def estimates(discount: Any, name: str, rounds: int, calls: int) -> Workload:
    """Advantages at 128 steps of 64 environments, a call within a compiled loop."""
    num_steps, num_envs = 128, 64
    data, prepared = bench_advantages.rollout(num_steps, num_envs), prepare(discount, num_steps)

    def estimate(lam: Any, *data: Any) -> Any:
        return jaxrl.ugae(prepared, lam, *data)

    count = launches(jax.jit(estimate).lower(bench_advantages.LAM, *data).compile().as_text())
    run = bench_advantages.compiled_loop(estimate, data, calls)
    nodes = np.size(prepared.rates)
    title = f"{name}, {num_steps} steps of {num_envs} environments"
    of_all = work.advantages(num_steps, num_envs, nodes)
    return Workload(title, of_all, count, 0, [run() for _ in range(rounds)], name, of_all.bytes)


def launches_of_an_iteration(text: str | None, iterations: int) -> float:
    """Number of launches of one block, from the text of its program, whose outer loop runs over iterations.

    The compiler does not know its trip count. Launches outside the loop are divided among the iterations.
    """
    return launches(text, (iterations,)) / iterations


def of_runs(name: str, short: str, runs: Runs, work_of_all: work.Work, iterations: int, rounds: int) -> Workload:
    """Iterations of runs, as in the driver; all figures are of one iteration of all runs."""
    count = launches_of_an_iteration(runs.executables["advance"][0].as_text(), iterations)
    seconds = [one / iterations for one in timed(lambda: runs.advance(iterations), rounds)]
    layout = runs.layout
    at_once = work_of_all.bytes * min(layout.block * len(layout.devices) / layout.num_runs, 1)
    return Workload(name, work_of_all, count * layout.num_blocks, 1 / iterations, seconds, short, at_once)


def runs_of(algo: jaxrl.Algorithm, num_seeds: int) -> Runs:
    """Runs of an algorithm, compiled as the driver does."""
    points = evaluation_points(10**6 * algo.env_steps_per_iteration, 1, algo.env_steps_per_iteration)
    call = training_call(algo, None, seeds=list(range(num_seeds)), points=points, eval_episodes=8)
    return Runs(call, call.arguments(), plan_layout(num_seeds, None, one_device(), RUNS_OF_BLOCK))


def training(num_seeds: int, rounds: int, share: int, name: str = "ppo") -> Workload:
    """An iteration of a preset for all seeds, on the environment of `ITERATIONS`."""
    env, iteration = ITERATIONS[name]
    algo = jaxrl.preset(name, env).algo
    of_all, upper = iteration(algo.config).times(num_seeds), name.upper()
    steps = f" of {algo.config.num_updates} gradient steps" if name == "sac" else ""
    title, short = f"{upper}, {num_seeds:,} seeds, an iteration{steps}", f"{upper}, {num_seeds:,}"
    return of_runs(title, short, runs_of(algo, num_seeds), of_all, max(share // num_seeds, 1), rounds)


def ppo_with(memory: str, **fields: Any) -> jaxrl.Algorithm:
    """PPO on memory/repeat-first with a memory of `MEMORIES`, and the fields of the preset on CartPole."""
    config = dataclasses.replace(jaxrl.preset("ppo", "cartpole").config, **MEMORIES[memory] | fields)
    return jaxrl.preset("ppo", "memory/repeat-first")._replace(config=config).algo


def memories(report: Report, num_seeds: int, rounds: int, iterations: int, env_steps: int) -> str:
    """Add the table of PPO with each memory; returns its summary."""
    algos = {memory: ppo_with(memory) for memory in MEMORIES}
    config = algos["none"].config
    sides: dict[str, Runs] = {}
    compilation: dict[str, float] = {}
    wall: dict[str, list[float]] = {memory: [] for memory in algos}
    processor: dict[str, list[float]] = {memory: [] for memory in algos}
    for memory, algo in algos.items():
        started = time.perf_counter()
        sides[memory] = runs_of(algo, num_seeds)
        compilation[memory] = time.perf_counter() - started
    for turn in range(rounds + 1):  # the first is not timed
        for memory, runs in sides.items():
            started, of_processor = time.perf_counter(), time.process_time()
            runs.advance(iterations)
            if turn:
                wall[memory].append((time.perf_counter() - started) / iterations)
                processor[memory].append((time.process_time() - of_processor) / iterations)
    columns = {"memory": "", "ms": ",.2f", "times as long": ".2f", "processor ms": ",.2f", "times as much": ".2f"}
    table = report.table(
        f"PPO with a memory on memory/repeat-first, an iteration of {num_seeds} seeds with {config.num_envs} "
        f"environments and {config.num_steps} steps each; medians of {rounds} turns (least to most); return after "
        f"{env_steps:,} environment steps",
        columns | {"compiled in s": ".1f", "return": ".2f"},
    )
    summary = []
    for memory, algo in algos.items():
        longer, more = (ratios(seconds[memory], seconds["none"]) for seconds in (wall, processor))
        reached = None
        if env_steps:
            trained = jaxrl.train(algo, seeds=num_seeds, env_steps=env_steps, evals=1, progress=False)
            reached = float(jaxrl.statistics.iqm(trained.values("return").ravel()))
        table.add(
            memory,
            *([1e3 * one for one in wall[memory]], longer),
            *([1e3 * one for one in processor[memory]], more),
            compilation[memory],
            reached,
        )
        if memory != "none":
            median = statistics.median(more)
            most = MOST_TIMES.get(memory, math.inf)
            report.require(median <= most, f"With {memory} an iteration takes {median:.2f} times, over {most:g}.")
            summary.append(f"{memory} {median:.2f}")
    return f"processor time with a memory over without: {', '.join(summary)}"


def crowds(num_worlds: int, num_agents: int, rounds: int) -> Workload:
    """Ten substeps of all agents by social forces."""
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
    """A pull of every run of a policy on Bernoulli arms."""
    build = {"ucb1": ucb1, "thompson": thompson}[policy]
    env = BernoulliBandit(num_arms=num_arms)
    call = bandit_call(build(), env, steps=2**30, runs=num_runs, points=1)
    runs = Runs(call, call.arguments(), plan_layout(num_runs, None, one_device(), CPU_BLOCK))
    of_all = work.bandit_pull(policy, num_arms).times(num_runs)
    return of_runs(f"{policy}, {num_runs:,} runs of {num_arms} arms, a pull", policy, runs, of_all, steps, rounds)


def ceilings_table(report: Report, ceilings: Ceilings) -> None:
    """Add the table of the machine's ceilings."""
    table = report.table("Ceilings, each the best of several measurements", {"limit": "", "at most": ".4g", "unit": ""})
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
    """All rows of the table, as functions that measure them."""
    rounds = arguments.rounds
    return [
        *(
            functools.partial(environments, num_envs, rounds, max(2**14 // num_envs, bench_envs.LEAST_CALLS))
            for num_envs in arguments.num_envs
        ),
        lambda: estimates(0.98, "GAE", rounds, 500),
        lambda: estimates("beta:mu=0.98,eta=0.5", "Beta-weighted advantages", rounds, 500),
        *(functools.partial(training, num_seeds, rounds, 512) for num_seeds in arguments.seeds),
        *(functools.partial(training, num_seeds, rounds, 2048, "a2c") for num_seeds in arguments.seeds),
        *(functools.partial(training, num_seeds, rounds, 256, "sac") for num_seeds in arguments.seeds),
        lambda: crowds(1, 1_000, rounds),
        lambda: bandits("ucb1", 1_000, 10, 10_000, rounds),
        lambda: bandits("thompson", 1_000, 10, 1_000, rounds),
    ]


def smallest(rounds: int) -> list[Callable[[], Workload]]:
    """The cheapest row of each kind."""
    return [
        lambda: environments(2, rounds, 1),
        lambda: estimates(0.98, "GAE", rounds, 2),
        lambda: training(1, rounds, 1),
        lambda: training(1, rounds, 1, "a2c"),
        lambda: training(1, rounds, 1, "sac"),
        lambda: crowds(1, 10, rounds),
        lambda: bandits("ucb1", 2, 2, 2, rounds),
    ]


def floors_of_all(report: Report, arguments: argparse.Namespace) -> list[str]:
    """Add the tables of the ceilings and of the workloads' floors; returns the summaries."""
    small, rounds = arguments.smallest, arguments.rounds
    ceilings = measure_ceilings(rounds, 1 / 64 if small else 1.0)
    ceilings_table(report, ceilings)
    columns = {"workload": "", "operations": ".3g", "bytes": ".3g", "random words": ".3g", "transcendentals": ".3g"}
    columns |= {"launches": ",.0f", "floor, us": ",.1f", "binding": "", "measured, us": ",.1f", "fraction": ".1%"}
    table = report.table(f"Floors, and medians of {rounds} timings (least to most)", columns)
    sentences = []
    for way in smallest(rounds) if small else usual(arguments):
        workload = way()
        limit, floor = binding(workload, ceilings)
        fractions = ratios([floor] * len(workload.seconds), workload.seconds)
        microseconds = [1e6 * one for one in workload.seconds]
        table.add(workload.name, *workload.work, workload.launches, 1e6 * floor, limit, microseconds, fractions)
        sentences.append(f"{workload.short} {statistics.median(fractions):.0%} ({limit})")
    return sentences


def main() -> None:
    """Print the tables."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 8, 64], help="numbers of seeds of training")
    parser.add_argument("--num-envs", type=int, nargs="+", default=[64, 1024, 8192], help="numbers of CartPoles")
    parser.add_argument("--only", choices=PARTS, nargs="+", default=PARTS, help="parts to measure")
    parser.add_argument(
        "--returns", type=int, default=200_000, metavar="STEPS", help="environment steps, 0 for no training"
    )
    parser.add_argument("--smallest", action="store_true", help="smallest sizes, to check that it works")
    arguments = parser.parse_args()
    small, rounds = arguments.smallest, arguments.rounds
    report = Report(parser, arguments, "fraction of the floor that operations, bytes, words or launches imply")
    sentences = floors_of_all(report, arguments) if "floors" in arguments.only else []
    if "memories" in arguments.only:
        sentences.append(
            memories(report, 1 if small else 8, rounds, 1 if small else 16, 0 if small else arguments.returns)
        )
    report.finish("; ".join(sentences))


if __name__ == "__main__":
    main()
