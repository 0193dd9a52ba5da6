"""Crowds in agent-steps per second, and social forces compared with PySocialForce and JuPedSim, in one invocation.

    python bench/crowd.py [--peers PYTHON | --no-peers] [--cores 1] [--spacing 1.5] [--rounds 5] [--quick] [--json FILE]

An agent-step is one integration substep of one agent. Agents start on a grid with `--spacing` m between neighbours,
every second one heading right and the others left. All sides run on the same cores, alternately; figures are medians of
`--rounds`, after compilation, with minimum and maximum, and a ratio is of medians. `make bench` creates the environment
of the peers, .venv-peers.

jaxrl is measured in three ways: "forces", social forces evaluated and integrated every substep of 0.01 s with bodies
that pass through each other, as in the peers (neighbour lists are rebuilt every ten substeps); "env", the environment's
step with hard contacts, ten substeps of 1/120 s per decision, steered by social forces evaluated once per decision;
"env, every substep", the same with forces evaluated every substep. Metrics are computed; observations are not, because
there is no network.
"""

import argparse
import dataclasses
import functools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # a script's folder is first on the path, where envs.py hides `envs`
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import jax
import jax.numpy as jnp

from bench.machine import ROOT
from bench.memory import highest_ever
from bench.peers.crowd import DT, SPEED, grid
from bench.report import Report, benchmark_parser, ratios, spread
from bench.sides import Side, add_peers, find_peer
from envs.crowd import Crowd, Forces, Recorded, SocialForce, pairs
from envs.crowd.social_force import social_forces
from jaxrl.results.format import counted

PEERS = ("pysocialforce", "jupedsim")
SUBSTEPS = 10
SIZES = (
    (1, 10),
    (16, 10),
    (128, 10),
    (1024, 10),
    (1, 100),
    (16, 100),
    (128, 100),
    (1, 1_000),
    (16, 1_000),
    (1, 10_000),
)
SKIN = 0.35  # range of the neighbour lists beyond that of the forces, in m: two people in ten substeps
CAPACITY = 32


def forces_only(num_worlds: int, num_agents: int, spacing: float, steps: int) -> tuple[Callable[..., Any], Any]:
    """Social forces, explicit Euler, no bodies: a program that returns the overflow of the lists, and its arguments."""
    place, way = grid(num_agents, spacing)
    preferred = jnp.asarray(SPEED * way[:, None] * [1.0, 0.0], jnp.float32)
    everybody, forces = jnp.ones(num_agents, bool), Forces()

    def block(carry: Any, _: None) -> Any:
        position, velocity = carry
        near = pairs.candidates(position, everybody, jnp.float32(forces.cut_off + SKIN), capacity=CAPACITY)

        def substep(carry: Any, _: None) -> Any:
            position, velocity = carry
            apart = position[near.index] - position[:, None]
            close = near.valid & (jnp.sum(apart * apart, axis=-1) < forces.cut_off**2)
            pull = (preferred - velocity) / forces.relaxation
            push = social_forces(position, velocity, pairs.Candidates(near.index, close, near.overflow), forces)
            velocity = velocity + DT * (pull + push)
            return (position + DT * velocity, velocity), None

        return jax.lax.scan(substep, (position, velocity), None, length=SUBSTEPS)[0], near.overflow

    @jax.jit
    def run(position: jax.Array, velocity: jax.Array) -> Any:
        def one(start: tuple[jax.Array, jax.Array]) -> Any:
            end, overflow = jax.lax.scan(block, start, None, length=steps // SUBSTEPS)
            return overflow, end

        return jax.lax.map(one, (position, velocity))

    starts = jnp.broadcast_to(jnp.asarray(place, jnp.float32), (num_worlds, num_agents, 2))
    moving = jnp.broadcast_to(preferred, starts.shape)
    return run, (starts, moving)


def environment(
    num_worlds: int, num_agents: int, spacing: float, steps: int, substeps: int
) -> tuple[Callable[..., Any], Any]:
    """The environment's step with hard contacts, vmapped over worlds: a program and arguments, as in `forces_only`."""
    place, way = grid(num_agents, spacing)
    goals = place + 100.0 * way[:, None] * [1.0, 0.0]
    table = jnp.concatenate([jnp.asarray(place), jnp.asarray(goals)], axis=1)
    env = Crowd(Recorded(table), num_agents=num_agents, substeps=substeps)
    params = dataclasses.replace(env.default_params, max_steps_in_episode=1_000_000)
    policy = SocialForce(env, capacity=CAPACITY)

    def decide(state: Any, unused: Any) -> Any:
        del unused
        action = policy(jax.random.key(0), None, state)
        step: Any = env.step_env(jax.random.key(0), state, action, params)
        after, info = step[1], step[4]
        return after, (info["metrics"]["overflow"] + policy.overflow(state), jnp.sum(info["metrics"]["contacts"]))

    run = jax.jit(jax.vmap(lambda state: jax.lax.scan(decide, state, None, length=steps // substeps)[1]))
    state = jax.jit(lambda key: env.reset_env(key, params)[1])(jax.random.key(0))
    states = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num_worlds, *leaf.shape)), state)
    return run, (states,)


WAYS: dict[str, Callable[..., tuple[Callable[..., Any], Any]]] = {
    "forces": forces_only,
    "env": functools.partial(environment, substeps=SUBSTEPS),
    "env, every substep": functools.partial(environment, substeps=1),
}


def ready(way: str, num_worlds: int, num_agents: int, spacing: float, steps: int) -> tuple[Callable[[], float], Any]:
    """Return a function that measures agent-steps per second, the first call's seconds, and the lists' overflow."""
    run, arguments = WAYS[way](num_worlds, num_agents, spacing, steps)

    def rate() -> float:
        start = time.perf_counter()
        jax.block_until_ready(run(*arguments))
        return num_worlds * num_agents * steps / (time.perf_counter() - start)

    start = time.perf_counter()
    overflow = float(jnp.sum(jax.block_until_ready(run(*arguments))[0]))
    return rate, (time.perf_counter() - start, overflow)


def peer(python: str, library: str, options: argparse.Namespace) -> Side:
    """The process of a peer library, in its own environment."""
    steps = 10 if library == "pysocialforce" else 100
    command = [python, str(ROOT / "bench/peers/crowd.py"), library, "--num-agents", str(options.agents)]
    command += ["--spacing", str(options.spacing), "--steps", str(steps)]
    return Side(command, folder=tempfile.gettempdir())  # PySocialForce writes a log where it runs


def main() -> None:
    """Print the tables."""
    parser = benchmark_parser(__doc__)
    add_peers(parser, "peers")
    parser.add_argument("--no-peers", action="store_true", help="measure ours alone")
    parser.add_argument("--agents", type=int, default=1_000, help="number of agents in the comparison with the peers")
    parser.add_argument("--cores", type=int, default=1, help="number of cores for every side")
    parser.add_argument("--spacing", type=float, default=1.5, help="initial distance between neighbours, in m")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="only the comparison with the peers")
    options = parser.parse_args()
    options.peers = None if options.no_peers else find_peer(parser, "peers", options.peers)
    cores = counted(options.cores, "core") if options.cores else "all cores"
    what = f"agent-steps per second at {options.agents:,} agents, {cores}"
    compared = "" if options.peers is None else "; compared with PySocialForce and JuPedSim"
    report = Report(parser, options, what + compared)
    table = report.table(
        f"{options.agents:,} agents, {options.spacing} m apart; median of {options.rounds} (least to most)",
        {
            "side": "",
            "worlds": "",
            "agent-steps/s": ",.0f",
            **dict.fromkeys((f"times {name}" for name in PEERS), ",.1f"),
        }
        | {"compile s": ".0f", "overflow": ".0f"},
    )
    rivals = {} if options.peers is None else {name: peer(options.peers, name, options) for name in PEERS}
    ours = {
        (way, num_worlds): ready(way, num_worlds, options.agents, options.spacing, 100)
        for way in WAYS
        for num_worlds in (1, 16)
    }
    rates: dict[Any, list[float]] = {which: [] for which in ours}
    for _ in range(options.rounds):
        for side in rivals.values():
            side.run()
        for which, (rate, _) in ours.items():
            rates[which].append(rate())
    theirs = {}
    for library, side in rivals.items():
        side.close()
        theirs[library] = side.figures("agent_steps_per_second")
        table.add(f"{library} {side.compiled['version']}", 1, theirs[library], *[None] * 4)
    sentences = []
    for (way, num_worlds), our_rates in rates.items():
        first, overflow = ours[way, num_worlds][1]
        ratios_of = [ratios(our_rates, theirs[name]) if name in theirs else None for name in PEERS]
        median = statistics.median(our_rates)
        compiling = first - num_worlds * options.agents * 100 / median
        table.add(way, num_worlds, our_rates, *ratios_of, compiling, overflow)
        times = " and ".join(spread(one, ",.1f") for one in ratios_of if one is not None)
        sentences.append(
            f"{way}, {counted(num_worlds, 'world')} {median / 1e6:.2f} M" + (f", {times} times" if times else "")
        )
    if not options.quick:
        sizes(report, options)
    report.finish("; ".join(sentences))


def sizes(report: Report, options: argparse.Namespace) -> None:
    """Add the table of crowds of all sizes."""
    columns = {"worlds": ",d", "agents": ",d", "agent-steps/s": ",.0f", "us an agent-step": ".3f"}
    table = report.table(
        f"The environment with hard contacts, steered by social forces; median of {options.rounds} (least to most)",
        columns | {"compile s": ".1f", "overflow": ".0f", "peak MiB so far": ",.0f"},
    )
    for num_worlds, num_agents in SIZES:
        rate, (first, overflow) = ready("env", num_worlds, num_agents, options.spacing, 100)
        rates = [rate() for _ in range(options.rounds)]
        compiling = first - num_worlds * num_agents * 100 / statistics.median(rates)
        cells = (compiling, overflow, highest_ever())
        table.add(num_worlds, num_agents, rates, [1e6 / each for each in rates], *cells)


def pin() -> None:
    """Restart this process on the first cores available to it, before JAX counts them."""
    cores = next((argument for flag, argument in zip(sys.argv, sys.argv[1:], strict=False) if flag == "--cores"), "1")
    if cores.isdigit() and int(cores) and hasattr(os, "sched_setaffinity") and "JAXRL_BENCH_PINNED" not in os.environ:
        os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[: int(cores)]))
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | {"JAXRL_BENCH_PINNED": cores})


if __name__ == "__main__":
    pin()
    main()
