"""Random steps through the adapters of suites, compared with each suite's own vectorised loop, in one invocation.

    python bench/suites.py [--tasks xminigrid/MiniGrid-Empty-6x6 ...] [--num-envs 64 1024] [--rounds 7] [--json FILE]

Both sides run scans of 128 steps with actions drawn in bulk, and store every observation, reward and flag of a scan.
jaxrl steps by `jaxrl.learning.rollout`, with fresh states from the pool that training takes, and also stores the last
observations of episodes; the number of reused states is printed. The suites step by their own functions with their own
automatic reset: XLand-MiniGrid by `GymAutoResetWrapper`, Jumanji by `VmapAutoResetWrapper`, and NAVIX by `step`.
Tasks of suites that are not installed are left out. Figures are medians of alternating runs.

The exit status is 1 if an adapter has less than 0.9 times the steps a second of its suite.
"""

import statistics
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # a script's folder is first on the path, where envs.py hides `envs`
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import jax
import jax.numpy as jnp

import envs
from bench.envs import NUM_STEPS, action_of, calls_of, in_one_program, measure, ours, random_words
from bench.report import Report, benchmark_parser, ratios
from envs.casting import cast, held_types

LEAST = 0.9
TASKS = (
    "xminigrid/MiniGrid-Empty-6x6",
    "xminigrid/MiniGrid-DoorKey-5x5",
    "jumanji/Game2048-v1",
    "jumanji/Snake-v1",
    "navix/Navix-Empty-5x5-v0",
    "navix/Navix-DoorKey-5x5-v0",
)

# A reset of keys to a carry, and a step of a carry and actions to the next carry and what is stored; both vectorised.
Loop = tuple[Callable[[jax.Array], Any], Callable[[Any, jax.Array], tuple[Any, Any]]]


def of_xminigrid(env_id: str) -> Loop:
    """XLand-MiniGrid's own loop."""
    task, params = import_module("xminigrid.registration").make(env_id)
    task = import_module("xminigrid.wrappers").GymAutoResetWrapper(task)

    def step(timestep: Any, action: jax.Array) -> Any:
        timestep = jax.vmap(task.step, (None, 0, 0))(params, timestep, action)
        return timestep, (timestep.observation, timestep.reward, timestep.step_type, timestep.discount)

    return lambda keys: jax.vmap(task.reset, (None, 0))(params, keys), step


def of_jumanji(env_id: str) -> Loop:
    """Jumanji's own loop."""
    task = import_module("jumanji.wrappers").VmapAutoResetWrapper(import_module("jumanji.registration").make(env_id))

    def step(state: Any, action: jax.Array) -> Any:
        state, timestep = task.step(state, action)
        return state, (timestep.observation, timestep.reward, timestep.step_type, timestep.discount)

    return lambda keys: task.reset(keys)[0], step


def of_navix(env_id: str) -> Loop:
    """NAVIX's own loop."""
    task = import_module("navix").make(env_id)

    def step(timestep: Any, action: jax.Array) -> Any:
        timestep = jax.vmap(task.step)(timestep, action)
        return timestep, (timestep.observation, timestep.reward, timestep.step_type)

    return jax.vmap(task.reset), step


LOOPS = {"xminigrid": of_xminigrid, "jumanji": of_jumanji, "navix": of_navix}


def theirs(name: str, num_envs: int) -> tuple[Callable[[Any, Any], Any], Any]:
    """One rollout of 128 steps by the suite, and its initial carry."""
    library, _, env_id = name.partition("/")
    reset, step = LOOPS[library](env_id)
    space = envs.make(name).action_space(None)

    first = jax.jit(reset)(jax.random.split(jax.random.key(0), num_envs))
    words = jax.eval_shape(lambda key: random_words(space, key, num_envs)[0], jax.random.key(0))
    types = held_types(first, lambda held: jax.eval_shape(lambda x: step(held, action_of(space, x))[0], words))

    def body(carry: Any, words: jax.Array) -> Any:
        carry, stored = step(carry, action_of(space, words))
        return cast(carry, types), stored

    def once(key: jax.Array, carry: Any) -> Any:
        carry, steps = jax.lax.scan(body, carry, random_words(space, key, num_envs))
        return carry, steps, jnp.zeros((), jnp.int32)

    return once, cast(first, types)


def main() -> None:
    """Print the table."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), help="names of tasks")
    parser.add_argument("--num-envs", type=int, nargs="+", default=[64, 1024], help="environments stepped together")
    parser.add_argument("--steps", type=int, default=250_000, help="minimum steps of one timing (at least 4 rollouts)")
    parser.add_argument("--rounds", type=int, default=7, help="measurements of each side")
    arguments = parser.parse_args()
    report = Report(parser, arguments, "random steps through adapters of suites; compared with the suites' own loops")
    columns = {"task": "", "N": ",d", "adapter": ",.0f", "suite": ",.0f", "adapter / suite": ".2f"}
    columns |= {"compiled in, s": ".1f", "states reused": ""}
    table = report.table(f"Thousands of steps a second; medians of {arguments.rounds} alternating runs", columns)
    results = []
    for name in arguments.tasks:
        library = name.partition("/")[0]
        try:
            envs.names(library)
        except ImportError as error:
            print(f"Missing: {error}", flush=True)
            continue
        for num_envs in arguments.num_envs:
            rates, compiled, reused = compare(name, num_envs, arguments)
            faster = ratios(*rates)
            medians = [statistics.median(side) for side in rates]
            median = statistics.median(faster)
            table.add(name, num_envs, *medians, median, compiled, reused)
            report.require(median >= LEAST, f"{name} at N = {num_envs:,}: {median:.2f} times its suite, under {LEAST}.")
            results.append(f"{name}, {num_envs:,}: {median:.2f}")
    report.finish(f"steps a second through the adapter over those of the suite: {'; '.join(results)}")


def compare(name: str, num_envs: int, arguments: Any) -> tuple[list[list[float]], float, int]:
    """Thousands of steps a second of both sides, seconds of the adapter's first call, and reused states."""
    calls = calls_of(arguments.steps, num_envs)
    programs, carries, compiled = [], [], []
    for once, carry in (ours(name, num_envs), theirs(name, num_envs)):
        start = time.perf_counter()
        programs.append(in_one_program(once))
        carries.append(measure(programs[-1], carry, 1)[1])
        compiled.append(time.perf_counter() - start)
    rates: list[list[float]] = [[], []]
    total = 0
    for _ in range(arguments.rounds):
        for side, run in enumerate(programs):
            seconds, carries[side], reused = measure(run, carries[side], calls)
            rates[side].append(calls * NUM_STEPS * num_envs / seconds / 1e3)
            total += reused
    return rates, compiled[0], total


if __name__ == "__main__":
    main()
