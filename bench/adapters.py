"""The vector adapter compared with Gymnasium's vectorised NumPy CartPole, through the same interface.

    python bench/adapters.py [--num-envs 1024 16384] [--steps 50] [--rounds 60] [--json FILE]

All sides take the same random actions by `envs.step(actions)` and return NumPy arrays, except for the row "device
arrays". The floor is a compiled program that only reads and writes buffers of the adapter's sizes and is called and
awaited in the same way. Figures are medians of alternating runs, with minimum and maximum; the table also has the
processor time of all threads, which depends less on other load of the machine.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # a script's folder is first on the path, where envs.py hides `envs`
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import gymnasium
import jax
import numpy as np

import envs
from bench.report import Report, benchmark_parser, ratios
from envs.adapters.outgoing.gymnasium import as_gymnasium_vector

Step = Callable[[np.ndarray], Any]


def stepper(many: Any) -> Step:
    """A step function of the vector environment, which is reset first."""
    many.reset(seed=0)
    return many.step


def floor(num_envs: int) -> Step:
    """A step function that calls an empty program on buffers of the adapter's sizes."""
    many = as_gymnasium_vector(envs.make("cartpole"), num_envs)
    many.reset(seed=0)
    many.step(np.zeros(num_envs, np.int64))
    words = many._last[0].shape[0]
    program = jax.jit(lambda carry, pool, action: (carry + 1, pool, pool[:words] * 1), donate_argnums=(0, 1))
    held = [many._carry, many._pool]

    def step(action: np.ndarray) -> np.ndarray:
        held[0], held[1], output = program(held[0], held[1], action.astype(np.int32))
        return np.array(output)

    return step


def sides_of(num_envs: int) -> dict[str, Step]:
    """The timed sides by name, Gymnasium first."""
    env = envs.make("cartpole")
    theirs = gymnasium.make_vec("CartPole-v1", num_envs=num_envs, vectorization_mode="vector_entry_point")
    return {
        "Gymnasium": stepper(theirs),
        "ours": stepper(as_gymnasium_vector(env, num_envs)),
        "ours, reset in the same step": stepper(as_gymnasium_vector(env, num_envs, autoreset_mode="SameStep")),
        "ours, device arrays": stepper(as_gymnasium_vector(env, num_envs, device_arrays=True)),
        "an empty program": floor(num_envs),
    }


def timed_alternately(
    sides: dict[str, Step], actions: np.ndarray, rounds: int
) -> dict[str, tuple[list[float], list[float]]]:
    """Microseconds per step of every side: wall time and processor time."""
    times: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in sides}
    for turn in range(rounds + 2):  # the first two compile
        for name, step in sides.items():
            start, processor = time.perf_counter(), time.process_time()
            output = None
            for action in actions:
                output = step(action)
            jax.block_until_ready(output)
            seconds = time.perf_counter() - start, time.process_time() - processor
            if turn >= 2:
                for kept, one in zip(times[name], seconds, strict=True):
                    kept.append(one / len(actions) * 1e6)
    return times


def main() -> None:
    """Print the table."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--num-envs", type=int, nargs="+", default=[1024, 16384])
    parser.add_argument("--steps", type=int, default=50, help="number of steps in one timing")
    parser.add_argument("--rounds", type=int, default=60)
    arguments = parser.parse_args()
    sizes = " / ".join(f"{num_envs:,}" for num_envs in arguments.num_envs)
    what = f"steps of {sizes} CartPoles through Gymnasium's vector interface, compared with Gymnasium's own in NumPy"
    report = Report(parser, arguments, what)
    columns = {"N": ",d", "side": "", "us": ".1f", "times as fast": ".2f", "us of the processor": ".1f"}
    table = report.table(
        f"A step of all environments; {arguments.rounds} alternating runs: median (least to most)", columns
    )
    sentences = []
    for num_envs in arguments.num_envs:
        actions = np.random.default_rng(0).integers(0, 2, (arguments.steps, num_envs))
        timings = timed_alternately(sides_of(num_envs), actions, arguments.rounds)
        theirs = timings["Gymnasium"][0]
        for name, (clock, processor) in timings.items():
            table.add(num_envs, name, clock, ratios(theirs, clock), processor)
        times, least = (float(np.median(ratios(theirs, timings[name][0]))) for name in ("ours", "an empty program"))
        sentences.append(f"{num_envs:,}: {times:.2f} times as fast (an empty program {least:.2f})")
    report.note(
        "The empty program shows the cost of a compiled call and its transfer to NumPy without computation: where it "
        "is less than 3 times as fast as Gymnasium's whole step, no adapter of this kind can be 3 times as fast."
    )
    report.finish("; ".join(sentences))


if __name__ == "__main__":
    main()
