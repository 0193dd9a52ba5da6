"""Random-policy stepping of the control environments beside gymnax's, in one invocation.

    python bench/envs.py [--num-envs 1 64 1024 8192] [--steps 250000]

All sides run compiled scans of 128 steps and keep every reward, observation and flag of the scan as a
trainer would. Ours steps by `jaxrl.rollout`, with actions drawn in bulk and every initial state fresh: a
count of states that were given out twice is printed, and is 0. gymnax steps by its own `step`, once as
its README does, with an action sampled from the action space at every step, and once given our actions
drawn in bulk, which its users have not. Times are the best of fifteen, by turns.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # as a script this file lies first on the path, where it hides the package `envs`
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import gymnax
import jax
import jax.numpy as jnp

import envs
from bench.machine import print_header
from jaxrl import rollout

TASKS = (
    ("cartpole", "CartPole-v1"),
    ("pendulum", "Pendulum-v1"),
    ("acrobot", "Acrobot-v1"),
    ("mountain-car", "MountainCar-v0"),
)
NUM_STEPS = 128
ROUNDS = 15


def random_actions(space: Any, key: jax.Array, num_envs: int) -> jax.Array:
    """Uniform actions `[T, N, ...]`, drawn in bulk; discrete ones from 16 bits each, the cheapest there is."""
    shape = (NUM_STEPS, num_envs, *space.shape)
    if isinstance(space, envs.spaces.Discrete):
        return (jax.random.bits(key, shape, jnp.uint16).astype(jnp.int32) * space.n) >> 16
    return jax.random.uniform(key, shape, minval=space.low, maxval=space.high)


def ours(name: str, num_envs: int) -> tuple[Callable[..., Any], Any]:
    """One rollout of 128 steps, and where it starts."""
    env = envs.make(name)
    params = env.default_params

    @jax.jit
    def run(key: jax.Array, carry: Any) -> Any:
        action_key, key = jax.random.split(key)
        actions = random_actions(env.action_space(params), action_key, num_envs)
        return rollout.rollout(env, params, lambda obs, mask, action: (action, None), key, carry, actions)

    return run, rollout.reset_all(env, jax.random.key(0), params, num_envs)


def theirs(env_id: str, num_envs: int, in_bulk: bool) -> tuple[Callable[..., Any], Any]:
    """The same by gymnax's own `step`, with actions drawn in bulk or sampled step by step."""
    env, params = gymnax.make(env_id)
    step = jax.vmap(env.step, (0, 0, 0, None))
    sample = jax.vmap(env.action_space(params).sample)

    @jax.jit
    def run(key: jax.Array, carry: Any) -> Any:
        action_key, key = jax.random.split(key)
        actions = random_actions(env.action_space(params), action_key, num_envs) if in_bulk else None

        def body(carry: Any, xs: Any) -> Any:
            state, obs = carry
            t, action = xs
            keys = jax.random.split(jax.random.fold_in(key, t), num_envs)
            if action is None:
                action = sample(jax.random.split(jax.random.fold_in(action_key, t), num_envs))
            new_obs, state, reward, terminated, truncated, info = step(keys, state, action, params)
            return (state, new_obs), (obs, info["final_observation"], reward, terminated, truncated)

        carry, steps = jax.lax.scan(body, carry, (jnp.arange(NUM_STEPS), actions))
        return carry, steps, jnp.zeros((), jnp.int32)

    obs, state = jax.jit(jax.vmap(env.reset, (0, None)))(jax.random.split(jax.random.key(0), num_envs), params)
    # After a first step the state has the types that gymnax's scan keeps.
    action = random_actions(env.action_space(params), jax.random.key(1), num_envs)[0]
    obs, state, *_ = step(jax.random.split(jax.random.key(2), num_envs), state, action, params)
    return run, (state, obs)


def measure(run: Callable[..., Any], carry: Any, calls: int) -> tuple[float, Any, int]:
    """Seconds of `calls` rollouts, where they end, and the states reused."""
    reused = []
    start = time.perf_counter()
    for call in range(calls):
        carry, _, count = run(jax.random.key(call), carry)
        reused.append(count)
    jax.block_until_ready((carry, reused))
    return time.perf_counter() - start, carry, int(sum(reused))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-envs", type=int, nargs="+", default=[1, 64, 1024, 8192])
    parser.add_argument("--steps", type=int, default=250_000, help="environment steps in one timing")
    arguments = parser.parse_args()
    print_header()
    print("millions of steps a second; gymnax as its README steps it, and with actions drawn in bulk")
    print(
        f"{'task':14s} {'N':>6s} {'ours':>7s} {'gymnax':>7s} {'ratio':>6s} {'in bulk':>8s} {'ratio':>6s} {'reused':>7s}"
    )
    for name, env_id in TASKS:
        for num_envs in arguments.num_envs:
            calls = max(1, arguments.steps // (NUM_STEPS * num_envs))
            programs = [ours(name, num_envs), *(theirs(env_id, num_envs, in_bulk) for in_bulk in (False, True))]
            sides = [[*program, []] for program in programs]
            total = 0
            for side in sides:  # compile
                side[1] = measure(side[0], side[1], 1)[1]
            for _ in range(ROUNDS):
                for side in sides:
                    seconds, side[1], reused = measure(side[0], side[1], calls)
                    side[2].append(seconds)
                    total += reused
            mine, usual, bulk = (calls * NUM_STEPS * num_envs / min(side[2]) / 1e6 for side in sides)
            print(
                f"{name:14s} {num_envs:6d} {mine:7.2f} {usual:7.2f} {mine / usual:6.1f} {bulk:8.2f} {mine / bulk:6.1f} "
                f"{total:7d}",
                flush=True,
            )


if __name__ == "__main__":
    main()
