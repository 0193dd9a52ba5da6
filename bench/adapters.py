"""The vector adapter beside Gymnasium's own vectorised NumPy CartPole, through the same interface, in one invocation.

    python bench/adapters.py [--num-envs 1024 16384] [--steps 50] [--rounds 60] [--json FILE]

All sides take the same random actions by `envs.step(actions)` and give NumPy arrays, but for the one that says
otherwise. Beside ours stands the floor: a compiled program that only reads and writes buffers of the sizes of the
adapter's, called and waited for in the same way. Figures are medians of runs by turns, with the least and the most, and
the processor time of all threads, which depends less on what else runs on the machine.
"""

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
from bench.report import Report, benchmark_parser, ratios
from envs.adapters.gymnasium import as_gymnasium_vector

Step = Callable[[np.ndarray], Any]


def stepper(many: Any) -> Step:
    """The vector form after a reset."""
    many.reset(seed=0)
    return many.step


def floor(num_envs: int) -> Step:
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


def sides_of(num_envs: int) -> dict[str, Step]:
    """What is timed, Gymnasium's first."""
    env = envs.make("cartpole")
    theirs = gymnasium.make_vec("CartPole-v1", num_envs=num_envs, vectorization_mode="vector_entry_point")
    return {
        "Gymnasium": stepper(theirs),
        "ours": stepper(as_gymnasium_vector(env, num_envs)),
        "ours, reset in the same step": stepper(as_gymnasium_vector(env, num_envs, autoreset_mode="SameStep")),
        "ours, device arrays": stepper(as_gymnasium_vector(env, num_envs, device_arrays=True)),
        "an empty program": floor(num_envs),
    }


def by_turns(sides: dict[str, Step], actions: np.ndarray, rounds: int) -> dict[str, tuple[list[float], list[float]]]:
    """Microseconds a step of every side: of the clock, and of the processor."""
    found: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in sides}
    for turn in range(rounds + 2):  # the first two compile
        for name, step in sides.items():
            start, processor = time.perf_counter(), time.process_time()
            told = None
            for action in actions:
                told = step(action)
            jax.block_until_ready(told)
            seconds = time.perf_counter() - start, time.process_time() - processor
            if turn >= 2:
                for kept, one in zip(found[name], seconds, strict=True):
                    kept.append(one / len(actions) * 1e6)
    return found


def main() -> None:
    """Print the table."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--num-envs", type=int, nargs="+", default=[1024, 16384])
    parser.add_argument("--steps", type=int, default=50, help="in one timing")
    parser.add_argument("--rounds", type=int, default=60)
    arguments = parser.parse_args()
    sizes = " / ".join(f"{num_envs:,}" for num_envs in arguments.num_envs)
    what = f"steps of {sizes} CartPoles through Gymnasium's vector interface, beside Gymnasium's own in NumPy"
    report = Report(parser, arguments, what)
    columns = {"N": ",d", "side": "", "us": ".1f", "times as fast": ".2f", "us of the processor": ".1f"}
    table = report.table(
        f"A step of all environments; {arguments.rounds} runs by turns: median (least to most)", columns
    )
    told = []
    for num_envs in arguments.num_envs:
        actions = np.random.default_rng(0).integers(0, 2, (arguments.steps, num_envs))
        found = by_turns(sides_of(num_envs), actions, arguments.rounds)
        theirs = found["Gymnasium"][0]
        for name, (clock, processor) in found.items():
            table.add(num_envs, name, clock, ratios(theirs, clock), processor)
        times, least = (float(np.median(ratios(theirs, found[name][0]))) for name in ("ours", "an empty program"))
        told.append(f"{times:.2f} (an empty program {least:.2f})")
    report.note(
        "An empty program is what a compiled call and its transfer to NumPy cost before anything is computed: where it "
        "is not 3 times as fast as Gymnasium's whole step, no adapter of this kind can be."
    )
    report.finish(f"{' / '.join(told)} times as fast")


if __name__ == "__main__":
    main()
