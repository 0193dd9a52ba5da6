"""Common parts of tests of bandits: instances, draws of rewards, rollouts, and tolerances of means."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

DRAWS = 20_000
# A mean of n draws is off by this many standard errors with probability 6e-7: never, in a fixed suite.
STANDARD_ERRORS = 5.0
LEVEL = 1e-6  # of chi-square and Kolmogorov-Smirnov tests


def f32(values: Any) -> np.ndarray:
    """An array as bandits store it."""
    return np.asarray(values, np.float32)


def draw_rewards(env: Any, state: Any, params: Any, action: int, draws: int = DRAWS) -> np.ndarray:
    """Independent rewards of one arm of one state, float64 `[draws]`."""
    keys = jax.random.split(jax.random.key(7), draws)
    rewards = jax.jit(jax.vmap(lambda key: env.reward(key, state, jnp.int32(action), params)))(keys)
    return np.asarray(rewards, np.float64)


def assert_mean(draws: np.ndarray, mean: float, sigma: float | None = None) -> None:
    """Check that the mean of draws is as expected, within the error for their number and standard deviation."""
    sigma = float(draws.std()) if sigma is None else sigma
    assert abs(draws.mean() - mean) < STANDARD_ERRORS * sigma / np.sqrt(len(draws)) + 1e-6


RESET = jax.jit(lambda env, key, params: env.reset_env(key, params)[1], static_argnums=0)


def start(env: Any, params: Any = None, seed: int = 0) -> Any:
    """An instance before its first pull, drawn in one program."""
    params = env.default_params if params is None else params
    return RESET(env, jax.random.key(seed), params)


def walk(env: Any, params: Any, steps: int, seed: int = 0, action: Any = None) -> Any:
    """A rollout without resets: the states before each pull, rewards and info, leaves `[T, ...]`."""

    def body(state: Any, key: jax.Array) -> Any:
        chosen = jax.random.randint(key, (), 0, env.num_arms) if action is None else jnp.int32(action)
        mask = env.action_mask(state, params)
        chosen = chosen if mask is None else jnp.where(mask[chosen], chosen, jnp.argmax(mask)).astype(jnp.int32)
        obs, after, reward, _, info = env.step_env(jax.random.fold_in(key, 1), state, chosen, params)
        return after, (state, chosen, reward, info, obs)

    def run(key: jax.Array) -> Any:
        first = env.reset_env(key, params)[1]
        return jax.lax.scan(body, first, jax.random.split(jax.random.fold_in(key, 2), steps))[1]

    return jax.tree.map(np.asarray, jax.jit(run)(jax.random.key(seed)))
