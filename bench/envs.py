"""Random-policy stepping of the control environments beside gymnax's and Gymnasium's, in one invocation.

    python bench/envs.py [--num-envs 1 64 1024 8192] [--steps 250000] [--rounds 15] [--json FILE]

The sides in JAX run scans of 128 steps and keep every reward, observation and flag of a scan as a trainer would, four
scans or more in one compiled program as in a training loop, so that all but the first write where the one before did.
(Calls of single scans of many environments touch fresh memory or not by chance, which shows in their time.)
Ours steps by `jaxrl.learning.rollout`, with random words for the actions drawn in bulk, by keys of `envs.unrolled` as
`train` does, and every initial state fresh: a count of states that were given out twice is printed, and is 0. gymnax
steps by its own `step`, once as its README does, with an action sampled from the action space at every step, and once
given our words, which its users have not. Gymnasium's CartPole that steps all environments in NumPy, without JAX and on
one core, gets actions drawn in bulk, too, and keeps nothing. Figures are medians of runs by turns, with the least and
the most.

The exit status is 1 where from 64 environments on CartPole is not at least 5 times as fast as gymnax as its README
steps it, another task not 3 times, or CartPole not 3 times as fast as Gymnasium's.
"""

import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # as a script this file lies first on the path, where it hides the package `envs`
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import gymnasium
import gymnax
import jax
import jax.numpy as jnp
import numpy as np

import envs
from bench.report import Report, benchmark_parser, ratios, spread
from jaxrl.learning import rollout
from jaxrl.learning.actor import memoryless

TASKS = (
    ("cartpole", "CartPole-v1"),
    ("pendulum", "Pendulum-v1"),
    ("acrobot", "Acrobot-v1"),
    ("mountain-car", "MountainCar-v0"),
)
NUM_STEPS, LEAST_CALLS = 128, 4
TARGETS_FROM, LEAST_TIMES_GYMNASIUM = 64, 3.0
LEAST_TIMES_GYMNAX = {"cartpole": 5.0, "pendulum": 3.0, "acrobot": 3.0, "mountain-car": 3.0}


def random_words(space: Any, key: jax.Array, num_envs: int) -> jax.Array:
    """What uniform actions are made of, drawn in bulk: `[T, N, ...]`, 16 bits for a discrete one, else from 0 to 1."""
    shape = (NUM_STEPS, num_envs, *space.shape)
    if isinstance(space, envs.spaces.Discrete):
        return jax.random.bits(key, shape, jnp.uint16)
    return jax.random.uniform(key, shape)


def action_of(space: Any, words: jax.Array) -> jax.Array:
    """The uniform actions that random words stand for."""
    if isinstance(space, envs.spaces.Discrete):
        return (words.astype(jnp.int32) * space.n) >> 16
    return space.low + (space.high - space.low) * words


def in_one_program(once: Callable[[Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    """Rollouts one after another as one compiled function of a key, the environments and how many rollouts."""

    @jax.jit
    def run(key: jax.Array, carry: Any, calls: jax.Array) -> Any:
        def next_one(call: jax.Array, loop: Any) -> Any:
            carry, _, count = loop
            carry, kept, more = once(jax.random.fold_in(key, call), carry)
            return carry, kept, count + more

        _, kept, _ = jax.eval_shape(once, key, carry)
        blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), kept)
        return jax.lax.fori_loop(0, calls, next_one, (carry, blank, jnp.zeros((), jnp.int32)))

    return run


def no_noise(key: jax.Array, shape: tuple[int, ...]) -> Any:
    raise AssertionError("a rollout takes its noise from its caller")


def ours(name: str, num_envs: int) -> tuple[Callable[[Any, Any], Any], Any]:
    """One rollout of 128 steps, and where it starts."""
    env = envs.make(name)
    params = env.default_params
    space = env.action_space(params)

    actor = memoryless(lambda *_: {}, no_noise, lambda words, *_: (action_of(space, words), None))

    def once(key: jax.Array, carry: Any) -> Any:
        action_key, key = jax.random.split(envs.unrolled(key))
        words = random_words(space, action_key, num_envs)
        return rollout.rollout(env, params, actor, None, key, carry, words)

    return once, rollout.reset_all(env, jax.random.key(0), params, num_envs)


def theirs(env_id: str, num_envs: int, in_bulk: bool) -> tuple[Callable[[Any, Any], Any], Any]:
    """The same by gymnax's own `step`, with actions drawn in bulk or sampled step by step."""
    env, params = gymnax.make(env_id)
    space = env.action_space(params)
    step = jax.vmap(env.step, (0, 0, 0, None))
    sample = jax.vmap(space.sample)

    def once(key: jax.Array, carry: Any) -> Any:
        action_key, key = jax.random.split(key)
        words = random_words(space, action_key, num_envs) if in_bulk else None

        def body(carry: Any, xs: Any) -> Any:
            state, obs = carry
            t, words = xs
            keys = jax.random.split(jax.random.fold_in(key, t), num_envs)
            if words is None:
                action = sample(jax.random.split(jax.random.fold_in(action_key, t), num_envs))
            else:
                action = action_of(space, words)
            new_obs, state, reward, terminated, truncated, info = step(keys, state, action, params)
            return (state, new_obs), (obs, info["final_observation"], reward, terminated, truncated)

        carry, steps = jax.lax.scan(body, carry, (jnp.arange(NUM_STEPS), words))
        return carry, steps, jnp.zeros((), jnp.int32)

    obs, state = jax.jit(jax.vmap(env.reset, (0, None)))(jax.random.split(jax.random.key(0), num_envs), params)
    # After a first step the state has the types that gymnax's scan keeps.
    action = action_of(space, random_words(space, jax.random.key(1), num_envs)[0])
    obs, state, *_ = step(jax.random.split(jax.random.key(2), num_envs), state, action, params)
    return once, (state, obs)


def measure(run: Callable[..., Any], carry: Any, calls: int) -> tuple[float, Any, int]:
    """Seconds of `calls` rollouts, where they end, and the states reused."""
    start = time.perf_counter()
    carry, _, reused = jax.block_until_ready(run(jax.random.key(calls), carry, jnp.int32(calls)))
    return time.perf_counter() - start, carry, int(reused)


def gymnasium_numpy(num_envs: int) -> Callable[[int], float]:
    """Seconds of so many times 128 steps of Gymnasium's CartPole, all environments at a time in NumPy."""
    env = gymnasium.make_vec("CartPole-v1", num_envs=num_envs, vectorization_mode="vector_entry_point")
    generator = np.random.default_rng(0)
    env.reset(seed=0)

    def run(calls: int) -> float:
        start = time.perf_counter()
        for _ in range(calls):
            for action in generator.integers(0, 2, (NUM_STEPS, num_envs)):
                env.step(action)
        return time.perf_counter() - start

    return run


def calls_of(steps: int, num_envs: int) -> int:
    """Rollouts of one timing."""
    return max(LEAST_CALLS, steps // (NUM_STEPS * num_envs))


def beside_gymnasium(num_envs: int, steps: int, rounds: int) -> tuple[list[float], list[float]]:
    """Millions of steps a second, ours and Gymnasium's, by turns."""
    calls = calls_of(steps, num_envs)
    once, carry = ours("cartpole", num_envs)
    run, theirs = in_one_program(once), gymnasium_numpy(num_envs)
    carry = measure(run, carry, 1)[1]  # compiles
    theirs(1)
    their_calls = max(1, calls // 8)  # it is the slower one, and its steps do not depend on how many there are
    rates: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        seconds, carry, _ = measure(run, carry, calls)
        rates[0].append(calls * NUM_STEPS * num_envs / seconds / 1e6)
        rates[1].append(their_calls * NUM_STEPS * num_envs / theirs(their_calls) / 1e6)
    return rates


def beside_gymnax(name: str, env_id: str, num_envs: int, steps: int, rounds: int) -> tuple[list[list[float]], int]:
    """Millions of steps a second, ours, gymnax's and gymnax's with actions in bulk, by turns; states reused."""
    calls = calls_of(steps, num_envs)
    sides = [ours(name, num_envs), *(theirs(env_id, num_envs, in_bulk) for in_bulk in (False, True))]
    programs = [in_one_program(once) for once, _ in sides]
    carries = [measure(run, carry, 1)[1] for run, (_, carry) in zip(programs, sides, strict=True)]  # compiles
    rates: list[list[float]] = [[] for _ in programs]
    total = 0
    for _ in range(rounds):
        for side, run in enumerate(programs):
            seconds, carries[side], reused = measure(run, carries[side], calls)
            rates[side].append(calls * NUM_STEPS * num_envs / seconds / 1e6)
            total += reused
    return rates, total


def main() -> None:
    """Print the tables."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--num-envs", type=int, nargs="+", default=[1, 64, 1024, 8192])
    parser.add_argument(
        "--steps", type=int, default=250_000, help="of one timing, at least, and never fewer than four rollouts"
    )
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    sizes = " / ".join(f"{num_envs:,}" for num_envs in arguments.num_envs)
    report = Report(parser, arguments, f"random-policy steps of {sizes} environments")
    columns = {"task": "", "N": ",d", "ours": ".2f", "gymnax": ".2f", "ours / gymnax": ".1f"}
    columns |= {"gymnax, actions in bulk": ".2f", "ours / that": ".1f", "states reused": ""}
    title = f"Millions of steps a second; {arguments.rounds} runs by turns: median (least to most)"
    table = report.table(title, columns)
    told = []
    for name, env_id in TASKS:
        medians: dict[int, float] = {}
        for num_envs in arguments.num_envs:
            (mine, usual, bulk), reused = beside_gymnax(name, env_id, num_envs, arguments.steps, arguments.rounds)
            faster = ratios(mine, usual)
            table.add(name, num_envs, mine, usual, faster, bulk, ratios(mine, bulk), reused)
            medians[num_envs] = statistics.median(faster)
            require(report, f"{name} beside gymnax", num_envs, medians[num_envs], LEAST_TIMES_GYMNAX[name])
            report.require(reused == 0, f"{name} gave {reused} initial states out twice at N = {num_envs:,}.")
        told.append(f"{name} {' / '.join(f'{one:.1f}' for one in medians.values())}")
    columns = {"N": ",d", "ours": ".2f", "Gymnasium": ".2f", "ours / Gymnasium": ".1f"}
    table = report.table(f"CartPole beside Gymnasium {gymnasium.__version__}'s in NumPy. {title}", columns)
    beside = []
    for num_envs in arguments.num_envs:
        mine, numpy_loop = beside_gymnasium(num_envs, arguments.steps, arguments.rounds)
        faster = ratios(mine, numpy_loop)
        table.add(num_envs, mine, numpy_loop, faster)
        require(report, "cartpole beside Gymnasium", num_envs, statistics.median(faster), LEAST_TIMES_GYMNASIUM)
        beside.append(spread(faster, ".1f"))
    report.finish(
        f"times as fast as gymnax {version('gymnax')} as its README steps it: {', '.join(told)}; as Gymnasium's "
        f"CartPole in NumPy: {' / '.join(beside)}"
    )


def require(report: Report, sides: str, num_envs: int, times: float, least: float) -> None:
    """A target of the larger sizes."""
    met = num_envs < TARGETS_FROM or times >= least
    report.require(met, f"{sides} at N = {num_envs:,}: {times:.1f} times as fast, under {least:g}.")


if __name__ == "__main__":
    main()
