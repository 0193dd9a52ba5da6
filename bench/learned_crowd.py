"""One learned policy among 1,000 and 10,000 people in agent-steps per second, beside JuPedSim in one invocation.

    python bench/learned_crowd.py [--agents 1000 10000] [--env-steps 50000] [--peers PYTHON | --no-peers]
                                  [--rounds 5] [--json FILE]

PPO first trains one policy of 100 people, on a grid with `--spacing` m between neighbours; every second one walks 12 m
to the right and the others to the left. The policy does not observe its own position. It then walks among more people
on larger grids, for at most 400 decisions, 33 s. An agent-step is one integration substep of one agent: 1/120 s
here, 0.01 s in JuPedSim, so that in simulated time the ratio is 1.2 times smaller. `jaxrl.walk` includes the reset, the
network, observations, hard contacts, metrics and the recording of paths; JuPedSim integrates social forces and records
nothing. Both sides run on the same core, alternately: ten decisions of ten substeps from rest, in which everybody
walks, after compilation. The last five columns are those of one whole episode; the exit status is 1 if a share of less
than 0.9 arrives, or if somebody has more neighbours than the search for contacts holds.
"""

import argparse
import sys
import time
from pathlib import Path

if __name__ == "__main__":  # a script's folder is first on the path, where envs.py hides `envs`
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import jax
import numpy as np

import jaxrl
from bench.crowd import peer, pin
from bench.peers.crowd import grid
from bench.report import Report, benchmark_parser, ratios, spread
from bench.sides import add_peers, find_peer
from envs.crowd import Crowd, Recorded
from envs.crowd.trajectories import Trajectory
from jaxrl.results.policy import TrainedPolicy

TRAINED, WAY = 100, 12.0  # number of people in training, and m to each goal
DECISIONS, EPISODE = 10, 400  # of a measurement, and at most in an episode; one is 1/12 s
LEAST = 0.9  # share that must arrive


def plaza(num_agents: int, spacing: float) -> Recorded:
    """People on a grid, every second one with a goal to the right and the others to the left."""
    place, way = grid(num_agents, spacing)
    place = place - place.mean(axis=0)
    return Recorded(np.concatenate([place, place + WAY * way[:, None] * [1.0, 0.0]], axis=1))


def trained(spacing: float, env_steps: int) -> TrainedPolicy:
    """A policy of `TRAINED` people, with the settings of the preset for corridors."""
    env = Crowd(plaza(TRAINED, spacing), num_agents=TRAINED, remove_globals=True, reward="straight")
    algo = jaxrl.preset("ppo", "crowd/corridor").on(env)
    result = jaxrl.train(algo, seeds=1, env_steps=env_steps, evals=1, eval_episodes=1, block=1, progress=False)
    return result.policy(seed=0)


def main() -> None:
    """Print the table."""
    parser = benchmark_parser(__doc__)
    add_peers(parser, "peers")
    parser.add_argument("--no-peers", action="store_true", help="measure ours alone")
    parser.add_argument("--agents", type=int, nargs="+", default=[1_000, 10_000], help="numbers of people")
    parser.add_argument("--env-steps", type=int, default=50_000, help="number of environment steps of training")
    parser.add_argument("--spacing", type=float, default=2.0, help="initial distance between neighbours, in m")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    options.peers = None if options.no_peers else find_peer(parser, "peers", options.peers)
    what = "agent-steps per second of one learned policy among many people, one core"
    report = Report(parser, options, what + ("" if options.peers is None else "; compared with JuPedSim"))
    table = report.table(
        f"People {options.spacing} m apart; median of {options.rounds} (least to most)",
        {
            "people": ",d",
            "agent-steps/s": ",.0f",
            "JuPedSim": ",.0f",
            "times": ".2f",
            "s of an episode, compilation included": ".1f",
            "arrived": ".3f",
            "energy over optimum": ".3f",
            "contacts": ".0f",
            "overflow": ".0f",
        },
    )
    policy = trained(options.spacing, options.env_steps)
    sentences = []
    for num_agents in options.agents:
        scene = plaza(num_agents, options.spacing)
        whole, seconds = walked(policy, scene, num_agents, EPISODE)
        metrics = {name: float(values) for name, values in whole.metrics.items()}
        ours, theirs, version = rates(policy, scene, num_agents, options)
        ratio = ratios(ours, theirs) if theirs else None
        ending = [metrics["success"], metrics["energy_plus"] / metrics["optimum"], metrics["contacts"]]
        table.add(num_agents, ours, theirs or None, ratio, seconds, *ending, metrics["overflow"])
        compared = f", {spread(ratio, '.2f')} times JuPedSim {version}" if ratio else ""
        sentences.append(f"{num_agents:,}: {spread(ours, ',.0f')}{compared}; {metrics['success']:.3f} arrive")
        report.require(metrics["overflow"] == 0, f"{metrics['overflow']:.0f} neighbours of {num_agents:,} are left out")
        report.require(metrics["success"] >= LEAST, f"{metrics['success']:.3f} of {num_agents:,} arrive, not {LEAST}")
    report.finish("; ".join(sentences))


def rates(
    policy: TrainedPolicy, scene: Recorded, num_agents: int, options: argparse.Namespace
) -> tuple[list[float], list[float], str]:
    """Agent-steps per second of the policy and of JuPedSim, in turn, and JuPedSim's version; empty without it."""
    ours, side = [], None
    if options.peers is not None:
        size = argparse.Namespace(agents=num_agents, spacing=options.spacing)
        side = peer(options.peers, "jupedsim", size)
    walked(policy, scene, num_agents, DECISIONS)  # compiles
    for _ in range(options.rounds):
        if side is not None:
            side.run()
        episode, seconds = walked(policy, scene, num_agents, DECISIONS)
        assert np.all(episode.walking), "somebody arrived within the measured decisions"
        ours.append(num_agents * DECISIONS * Crowd.substeps / seconds)
    if side is None:
        return ours, [], ""
    side.close()
    return ours, side.figures("agent_steps_per_second"), side.compiled["version"]


def walked(policy: TrainedPolicy, scene: Recorded, num_agents: int, num_steps: int) -> tuple[Trajectory, float]:
    """An episode, or its start, and the seconds that it took."""
    start = time.perf_counter()
    episode = jaxrl.walk(policy, scenario=scene, num_agents=num_agents, num_steps=num_steps)
    jax.block_until_ready(episode)
    return episode, time.perf_counter() - start


if __name__ == "__main__":
    pin()
    main()
