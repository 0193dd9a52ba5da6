"""Social forces of other libraries, for bench/crowd.py; prints a JSON line when ready and one for each line read.

    python bench/peers/crowd.py pysocialforce|jupedsim --num-agents 1000 --spacing 1.5 --steps 100

Runs in a separate environment with PySocialForce and JuPedSim but without jaxrl. Agents start on a grid, every second
one heading right and the others left, at 1.33 m/s.
"""

import argparse
import importlib.metadata
import json
import logging
import sys
import time
from collections.abc import Callable

import numpy as np

DT = 0.01
SPEED = 1.33


def grid(num_agents: int, spacing: float) -> tuple[np.ndarray, np.ndarray]:
    """Positions `[N, 2]` in m, slightly off a square grid, and directions `[N]`, 1 or -1."""
    side = int(np.ceil(np.sqrt(num_agents)))
    place = np.stack(np.meshgrid(np.arange(side), np.arange(side)), -1).reshape(-1, 2)[:num_agents] * spacing
    place = place + np.random.default_rng(0).uniform(-0.2, 0.2, place.shape)
    return place, np.where(np.arange(num_agents) % 2, -1.0, 1.0)


def pysocialforce(num_agents: int, spacing: float, steps: int) -> Callable[[], object]:
    """Steps of PySocialForce's simulator, which compiles in the first."""
    import pysocialforce as psf  # pyright: ignore[reportMissingImports] -- installed in another environment

    logging.disable(logging.CRITICAL)
    place, way = grid(num_agents, spacing)
    zero = np.zeros(num_agents)
    state = np.stack([place[:, 0], place[:, 1], way * SPEED, zero, place[:, 0] + 100 * way, place[:, 1]], -1)
    simulator = psf.Simulator(state)
    simulator.peds.step_width = DT
    return lambda: simulator.step(steps)


def jupedsim(num_agents: int, spacing: float, steps: int) -> Callable[[], object]:
    """Iterations of JuPedSim's social-force model, in C++, in a square with room to walk."""
    import jupedsim as jps  # pyright: ignore[reportMissingImports]

    place, way = grid(num_agents, spacing)
    low, high = float(place.min()) - 60, float(place.max()) + 60
    simulation = jps.Simulation(
        model=jps.SocialForceModel(), geometry=[(low, low), (high, low), (high, high), (low, high)], dt=DT
    )
    journeys = {}
    for sign, x in ((1.0, high - 2), (-1.0, low + 2)):
        stage = simulation.add_waypoint_stage((x, (low + high) / 2), 1.0)
        journeys[sign] = simulation.add_journey(jps.JourneyDescription([stage])), stage
    for (x, z), sign in zip(place, way, strict=True):
        journey, stage = journeys[float(sign)]
        simulation.add_agent(
            jps.SocialForceModelAgentParameters(
                position=(float(x), float(z)),
                orientation=(float(sign), 0.0),
                velocity=(float(sign) * SPEED, 0.0),
                journey_id=journey,
                stage_id=stage,
                desired_speed=SPEED,
                radius=0.2,
            )
        )
    return lambda: simulation.iterate(steps)


def main() -> None:
    """Run the steps of a library once for each line of the standard input."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", choices=("pysocialforce", "jupedsim"))
    parser.add_argument("--num-agents", type=int, default=1000)
    parser.add_argument("--spacing", type=float, default=1.5, help="distance between neighbours on the grid, in m")
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    run = {"pysocialforce": pysocialforce, "jupedsim": jupedsim}[options.library](
        options.num_agents, options.spacing, options.steps
    )
    run()
    print(json.dumps({"version": importlib.metadata.version(options.library)}), flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        run()
        rate = options.num_agents * options.steps / (time.perf_counter() - start)
        print(json.dumps({"agent_steps_per_second": rate}), flush=True)


if __name__ == "__main__":
    main()
