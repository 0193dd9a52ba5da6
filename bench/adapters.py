"""The vector adapter beside Gymnasium's own vectorised NumPy CartPole, through the same interface, in one invocation.

    python bench/adapters.py [--num-envs 1024 16384] [--rounds 60]

Both sides take the same random actions by `envs.step(actions)`, 50 steps in a timing, by turns. Beside ours stands its
floor: a compiled program that does nothing but read and write buffers of the same sizes, called and waited for in the
same way. Ratios are of medians. A process that competes for the cores stretches what waits for a thread more than what
does not; the last column, seconds of all threads of this process, hardly depends on it.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # as a script this file lies first on the path, where it hides the package `envs`
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import gymnasium
import jax
import numpy as np

import envs
from bench.machine import print_header
from envs.adapters.gymnasium import as_gymnasium_vector

STEPS = 50


def stepper(many: Any) -> Callable[[np.ndarray], Any]:
    """The vector form after a reset."""
    many.reset(seed=0)
    return many.step


def floor(num_envs: int) -> Callable[[np.ndarray], Any]:
    """A call of an empty program on the buffers of the adapter's."""
    many = as_gymnasium_vector(envs.make("cartpole"), num_envs)
    many.reset(seed=0)
    many.step(np.zeros(num_envs, np.int64))
    words = many._last[0].shape[0]
    program = jax.jit(lambda carry, pool, action: (carry + 1, pool, pool[:words] * 1), donate_argnums=(0, 1))
    held = [many._carry, many._pool]

    def step(action: np.ndarray) -> np.ndarray:
        held[0], held[1], told = program(held[0], held[1], action.astype(np.int32))
        return np.array(told)

    return step


def sides_of(num_envs: int) -> dict[str, Callable[[np.ndarray], Any]]:
    """What is timed, Gymnasium's first."""
    env = envs.make("cartpole")
    theirs = gymnasium.make_vec("CartPole-v1", num_envs=num_envs, vectorization_mode="vector_entry_point")
    return {
        "gymnasium": stepper(theirs),
        "ours": stepper(as_gymnasium_vector(env, num_envs)),
        "ours, same step": stepper(as_gymnasium_vector(env, num_envs, autoreset_mode="SameStep")),
        "ours, device arrays": stepper(as_gymnasium_vector(env, num_envs, device_arrays=True)),
        "floor": floor(num_envs),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-envs", type=int, nargs="+", default=[1024, 16384])
    parser.add_argument("--rounds", type=int, default=60, help="timings of each side")
    arguments = parser.parse_args()
    print_header()
    print("CartPole, microseconds a step of all environments: quartiles, the least, and what all threads computed")
    columns = ("lower", "median", "upper", "least", "ratio", "CPU")
    print(f"{'N':>6s}  {'side':20s}" + "".join(f" {column:>8s}" for column in columns))
    for num_envs in arguments.num_envs:
        actions = np.random.default_rng(0).integers(0, 2, (STEPS, num_envs))
        sides = sides_of(num_envs)
        times: dict[str, list[float]] = {name: [] for name in sides}
        computing: dict[str, list[float]] = {name: [] for name in sides}
        for round_number in range(arguments.rounds + 2):
            for name, step in sides.items():
                start, start_computing = time.perf_counter(), time.process_time()
                for action in actions:
                    told = step(action)
                jax.block_until_ready(told)
                if round_number >= 2:  # the first ones compile
                    times[name].append((time.perf_counter() - start) / STEPS * 1e6)
                    computing[name].append((time.process_time() - start_computing) / STEPS * 1e6)
        theirs = np.median(times["gymnasium"])
        for name, values in times.items():
            low, middle, high = np.percentile(values, (25, 50, 75))
            print(
                f"{num_envs:6d}  {name:20s} {low:8.1f} {middle:8.1f} {high:8.1f} {min(values):8.1f} "
                f"{theirs / middle:8.2f} {np.median(computing[name]):8.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
