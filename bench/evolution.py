"""Environment steps per second of evolution and of the same policies without evolution, measured alternately.

    python bench/evolution.py [--populations 256 2048] [--hidden 32 32] [--rounds 20] [--json FILE]

The task is Pendulum, whose episodes all have 200 steps. A generation samples a population, plays an episode of each
policy and updates the strategy. The other side plays an episode of each of as many policies, the same in every round,
in one loop over steps that only adds rewards, without discounted returns, ends of episodes or a strategy. Processor
time depends less on other load. The exit status is 1 if evolution takes less than half as many steps per second.
"""

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

if __name__ == "__main__":  # a script's folder is first on the path, where envs.py hides `envs`
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import envs
import jaxrl
from bench.report import Report, benchmark_parser, ratios

LEAST = 0.5  # steps per second of evolution, divided by those of the other side
STRATEGIES = ("open-es", "snes", "pgpe", "simple-ga")


def sides_of(strategy: str, population: int, hidden: tuple[int, ...]) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Functions of one generation, and of one episode of each policy without evolution."""
    env = envs.make("pendulum")
    config = jaxrl.EvolveConfig(strategy=strategy, population_size=population, hidden=hidden)
    algo = jaxrl.evolve(env, config)
    hparams, params = algo.prepare(algo.hparams), env.default_params
    state = jax.jit(algo.init)(jax.random.key(0), hparams, params)
    generation = jax.jit(algo.step)

    def evolve() -> Any:
        nonlocal state
        state, metrics = generation(jax.random.key(1), jnp.int32(0), state, hparams, params)
        return metrics["population_return"]

    policy = algo.policy(state, hparams)
    policies = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (population, *leaf.shape)), policy)

    def step(policy: Any, carry: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        obs, env_state = carry
        scores, _ = algo.actor.scores(policy, (), obs, None)
        action = algo.actor.choose(None, scores, (), True, None)[0]
        obs, env_state, reward, _, _ = env.step_env(key, env_state, action, params)
        return (obs, env_state), reward

    @jax.jit
    def episodes(policies: Any, key: jax.Array) -> jax.Array:
        keys = jax.random.split(key, population)
        carry = jax.vmap(env.reset_env, in_axes=(0, None))(keys, params)

        def body(t: jax.Array, loop: tuple[Any, jax.Array]) -> tuple[Any, jax.Array]:
            carry, total = loop
            now = jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys, t)
            carry, reward = jax.vmap(step)(policies, carry, now)
            return carry, total + reward

        return jax.lax.fori_loop(0, params.max_steps_in_episode, body, (carry, jnp.zeros(population)))[1]

    return evolve, lambda: episodes(policies, jax.random.key(1))


def rates(
    sides: tuple[Callable[[], Any], ...], env_steps: int, rounds: int
) -> tuple[list[list[float]], list[list[float]]]:
    """Environment steps of each side in each round, after two rounds that compile, per second and processor second."""
    clock: list[list[float]] = [[] for _ in sides]
    processor: list[list[float]] = [[] for _ in sides]
    for turn in range(rounds + 2):
        for i, side in enumerate(sides):
            start, processor_start = time.perf_counter(), time.process_time()
            jax.block_until_ready(side())
            seconds, processor_seconds = time.perf_counter() - start, time.process_time() - processor_start
            if turn >= 2:
                clock[i].append(env_steps / seconds)
                processor[i].append(env_steps / processor_seconds)
    return clock, processor


def main() -> None:
    """Print the table."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--populations", type=int, nargs="+", default=[256, 2048])
    parser.add_argument("--hidden", type=int, nargs="*", default=[32, 32])
    parser.add_argument("--strategies", nargs="+", default=list(STRATEGIES))
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    report = Report(parser, arguments, "environment steps per second of evolution on Pendulum, without evolution = 1")
    columns = {"strategy": "", "policies": ",d", "steps/s": ".3g", "without evolution": ".3g", "ratio": ".2f"}
    columns |= {"ratio by processor time": ".2f"}
    table = report.table(f"{arguments.rounds} alternating rounds: median (least to most)", columns)
    results = []
    for strategy in arguments.strategies:
        for population in arguments.populations:
            sides = sides_of(strategy, population, tuple(arguments.hidden))
            (evolved, alone), processor = rates(sides, 200 * population, arguments.rounds)
            ratio, processor_ratio = ratios(evolved, alone), ratios(*processor)
            table.add(strategy, population, evolved, alone, ratio, processor_ratio)
            middle, processor_middle = statistics.median(ratio), statistics.median(processor_ratio)
            results.append(f"{strategy} {population:,}: {middle:.2f} ({processor_middle:.2f} by processor time)")
            report.require(middle >= LEAST, f"{strategy} with {population} policies: {middle:.2f} is below {LEAST}")
    report.finish("; ".join(results))


if __name__ == "__main__":
    main()
