"""Random-policy stepping of the control environments, compared with gymnax and Gymnasium, in one invocation.

    python bench/envs.py [--num-envs 1 64 1024 8192] [--steps 250000] [--rounds 15] [--json FILE]

The JAX sides run scans of 128 steps and store every reward, observation and flag of a scan, as a trainer would. One
compiled program runs four scans or more, as in a training loop, so that all scans but the first reuse the memory of the
previous one. (A call of a single scan of many environments may or may not touch fresh memory, which changes its time.)
jaxrl steps by `jaxrl.learning.rollout`, with random words for the actions drawn in bulk by keys of `envs.unrolled`, as
in `train`, and with a fresh state for every reset; the number of reused states is printed, and is 0. gymnax steps by
its own `step`: once as in its README, with an action sampled from the action space at every step, and once with jaxrl's
random words, which gymnax does not provide. Gymnasium's CartPole steps all environments in NumPy, without JAX and on
one core, with actions drawn in bulk, and stores nothing. Figures are medians of alternating runs, with minimum and
maximum.

The exit status is 1 if, at 64 environments or more, CartPole is less than 5 times as fast as gymnax stepped as in its
README, another task less than 3 times, or CartPole less than 3 times as fast as Gymnasium's.
"""

import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # a script's folder is first on the path, where envs.py hides `envs`
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
    """Random words for uniform actions, drawn in bulk: `[T, N, ...]`, 16 bits for a discrete action, else in [0, 1)."""
    shape = (NUM_STEPS, num_envs, *space.shape)
    if isinstance(space, envs.spaces.Discrete):
        return jax.random.bits(key, shape, jnp.uint16)
    return jax.random.uniform(key, shape)


def action_of(space: Any, words: jax.Array) -> jax.Array:
    """Uniform actions computed from random words."""
    if isinstance(space, envs.spaces.Discrete):
        return (words.astype(jnp.int32) * space.n) >> 16
    return space.low + (space.high - space.low) * words


def in_one_program(once: Callable[[Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    """Successive rollouts as one compiled function of a key, the environments and the number of rollouts."""

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
    """Fail: the measured rollouts draw no noise of their own."""
    raise AssertionError("a rollout takes its noise from its caller")


def ours(name: str, num_envs: int) -> tuple[Callable[[Any, Any], Any], Any]:
    """One rollout of 128 steps by jaxrl, and its initial carry."""
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
    """One rollout of 128 steps by gymnax's `step`, with actions drawn in bulk or sampled step by step."""
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
    """Seconds of `calls` rollouts, their final carry, and the number of reused states."""
    start = time.perf_counter()
    carry, _, reused = jax.block_until_ready(run(jax.random.key(calls), carry, jnp.int32(calls)))
    return time.perf_counter() - start, carry, int(reused)


def gymnasium_numpy(num_envs: int) -> Callable[[int], float]:
    """A function for the seconds of `calls` times 128 steps of Gymnasium's CartPole, vectorised in NumPy."""
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
    """Number of rollouts in one timing."""
    return max(LEAST_CALLS, steps // (NUM_STEPS * num_envs))


def compare_with_gymnasium(num_envs: int, steps: int, rounds: int) -> tuple[list[float], list[float]]:
    """Millions of steps per second of jaxrl and of Gymnasium, measured alternately."""
    calls = calls_of(steps, num_envs)
    once, carry = ours("cartpole", num_envs)
    run, theirs = in_one_program(once), gymnasium_numpy(num_envs)
    carry = measure(run, carry, 1)[1]  # compiles
    theirs(1)
    their_calls = max(1, calls // 8)  # fewer: this side is slower, at a constant time per step
    rates: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        seconds, carry, _ = measure(run, carry, calls)
        rates[0].append(calls * NUM_STEPS * num_envs / seconds / 1e6)
        rates[1].append(their_calls * NUM_STEPS * num_envs / theirs(their_calls) / 1e6)
    return rates


def compare_with_gymnax(
    name: str, env_id: str, num_envs: int, steps: int, rounds: int
) -> tuple[list[list[float]], int]:
    """Millions of steps per second of jaxrl, gymnax, and gymnax with bulk actions; and the number of reused states."""
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
    parser.add_argument("--steps", type=int, default=250_000, help="minimum steps of one timing (at least 4 rollouts)")
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    compared = f"gymnax {version('gymnax')} stepped as in its README, and with Gymnasium's CartPole in NumPy"
    report = Report(parser, arguments, f"random-policy steps of several environments; compared with {compared}")
    columns = {"task": "", "N": ",d", "ours": ".2f", "gymnax": ".2f", "ours / gymnax": ".1f"}
    columns |= {"gymnax, actions in bulk": ".2f", "ours / bulk": ".1f", "states reused": ""}
    title = f"Millions of steps per second; {arguments.rounds} alternating runs: median (least to most)"
    table = report.table(title, columns)
    sentences = []
    for name, env_id in TASKS:
        for num_envs in arguments.num_envs:
            rates, reused = compare_with_gymnax(name, env_id, num_envs, arguments.steps, arguments.rounds)
            our_rates, usual, bulk = rates
            faster = ratios(our_rates, usual)
            table.add(name, num_envs, our_rates, usual, faster, bulk, ratios(our_rates, bulk), reused)
            median = statistics.median(faster)
            require(report, f"{name} against gymnax", num_envs, median, LEAST_TIMES_GYMNAX[name])
            report.require(reused == 0, f"{name} reused {reused} initial states at N = {num_envs:,}.")
            sentences.append(f"{name}, {num_envs:,}: {median:.1f} times as fast as gymnax")
    columns = {"N": ",d", "ours": ".2f", "Gymnasium": ".2f", "ours / Gymnasium": ".1f"}
    table = report.table(f"CartPole compared with Gymnasium {gymnasium.__version__} in NumPy. {title}", columns)
    for num_envs in arguments.num_envs:
        our_rates, numpy_loop = compare_with_gymnasium(num_envs, arguments.steps, arguments.rounds)
        faster = ratios(our_rates, numpy_loop)
        table.add(num_envs, our_rates, numpy_loop, faster)
        require(report, "cartpole against Gymnasium", num_envs, statistics.median(faster), LEAST_TIMES_GYMNASIUM)
        sentences.append(f"cartpole, {num_envs:,}: {spread(faster, '.1f')} times as fast as Gymnasium")
    report.finish("; ".join(sentences))


def require(report: Report, sides: str, num_envs: int, times: float, least: float) -> None:
    """Add a target, which applies to the larger sizes."""
    met = num_envs < TARGETS_FROM or times >= least
    report.require(met, f"{sides} at N = {num_envs:,}: {times:.1f} times as fast, under {least:g}.")


if __name__ == "__main__":
    main()
