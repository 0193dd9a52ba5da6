"""Whole episodes of hand-written policies with a memory, for tasks whose best returns are known."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


@functools.partial(jax.jit, static_argnums=(0, 1, 4, 5))
def _played(env: Any, policy: Callable[..., Any], params: Any, memory: Any, steps: int, episodes: int) -> Any:
    def episode(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        reset_key, key = jax.random.split(key)
        obs, state = env.reset_env(reset_key, params)

        def step(carry: Any, key: jax.Array) -> Any:
            obs, state, memory, alive = carry
            action, memory = policy(obs, memory, state.time)
            obs, state, reward, terminated, _ = env.step_env(key, state, action, params)
            on = alive & ~terminated & ~env.is_truncated(state, params)
            return (obs, state, memory, on), (jnp.where(alive, reward, 0), alive)

        rewards, alive = jax.lax.scan(step, (obs, state, memory, jnp.bool_(True)), jax.random.split(key, steps))[1]
        return rewards, alive.sum()

    return jax.vmap(episode)(jax.random.split(jax.random.key(0), episodes))


def play(
    env: Any, policy: Callable[..., Any], memory: Any, steps: int, episodes: int, params: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    """Rewards `[episodes, steps]`, 0 after the end, and lengths `[episodes]`.

    Args:
      env: Task.
      policy: Function of the observation, the memory and the time that returns the action and the memory.
      memory: Memory at the start, of arrays.
      steps: Number of steps that are computed, at least the longest episode.
      episodes: Number of episodes.
      params: Parameters; None for the defaults.
    """
    params = env.default_params if params is None else params
    memory = jax.tree.map(jnp.asarray, memory)
    rewards, lengths = _played(env, policy, params, memory, steps, episodes)
    return np.asarray(rewards, np.float64), np.asarray(lengths)


def assert_mean(returns: np.ndarray, expected: float) -> None:
    """The mean of independent returns is within 4.5 standard errors of a number, which chance exceeds once in 150,000.

    Sums in float32 of some hundred rewards of size 1 add an error below 1e-4, far below the standard errors here.
    """
    error = returns.std(ddof=1) / np.sqrt(len(returns))
    assert abs(returns.mean() - expected) < 4.5 * error, (returns.mean(), expected, error)
