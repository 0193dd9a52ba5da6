"""Returns that count as 0 and as 1 on a task: that of random actions, and the optimum or the best of the benchmark."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import envs
from envs.abstract_checking import sample
from envs.base import Environment, agent_axes, optimum_of
from envs.errors import UserValueError
from envs.spelling import near_or_all
from jaxrl.benchmark.cells import CELLS
from jaxrl.benchmark.data import Benchmark, estimates_at
from jaxrl.benchmark.measured import Measured, measured
from jaxrl.checks import check_count
from jaxrl.learning.actor import Actor, memoryless
from jaxrl.learning.evaluation import evaluate_episodes

__all__ = ["OPTIMUM", "Reference", "measure", "reference"]

EPISODES = 1024
OPTIMUM = "optimum"  # origin of a reference


class Reference(NamedTuple):
    """Returns that count as 0 and as 1 on a task.

    Attributes:
      low: Mean return of random actions.
      high: Optimum where it is known, otherwise the highest interquartile mean of a cell after training.
      origin: "optimum", or the algorithm of the cell.
    """

    low: float
    high: float
    origin: str


def measure(task: str, episodes: int = EPISODES, seed: int = 0) -> Measured:
    """Measure the return of uniformly random actions, of those that are allowed, and compute the optimum if known.

    Args:
      task: Name of an environment, with its default parameters; as the benchmark trains it, if it does.
      episodes: Number of whole episodes, an even number of at least 2.
      seed: Random seed.
    """
    check_count("episodes", episodes, least=2)
    if episodes % 2:
        raise UserValueError(f"episodes takes an even number, got {episodes}")
    env = next((each.algo().env for each in CELLS if each.environment == task), None) or envs.make(task)
    params, actor = env.default_params, _random_actor(env)

    def returns(key: jax.Array) -> jax.Array:
        return evaluate_episodes(env, params, actor, (), key, episodes // 2, None)["return"]

    # Of "greedy" and "sampled" episodes, which are equally random here, those of one kind: both begin in the same first
    # states, so that their returns depend on each other.
    keys = jax.random.split(jax.random.key(seed), 2)
    values = np.concatenate([np.asarray(jax.jit(returns)(key), np.float64) for key in keys])
    error = float(values.std(ddof=1) / np.sqrt(len(values)))
    return Measured(task, len(values), float(values.mean()), error, optimum_of(env))


def reference(benchmark: Benchmark, task: str, *, trust: bool = False) -> Reference:
    """The returns that count as 0 and as 1 on a task.

    Args:
      benchmark: Data of the benchmark.
      task: Name of the task.
      trust: Whether to read files that do not match their checksums.

    Raises:
      ValueError: The benchmark has no random return of the task, or no cell with data that is better.
    """
    have = measured(benchmark.directory, trust=trust)
    if task not in have:
        raise UserValueError(f"task takes one with a return of random actions{near_or_all(task, have, 'those are')}")
    low, high, origin = have[task].random, have[task].optimum, OPTIMUM
    if high is None:
        best = []
        for each in benchmark.cells:
            if each.environment == task:
                result = benchmark.result(each.algorithm, task, trust=trust)
                best.append((estimates_at(result, int(result.metrics["env_step"][-1]), 0.95)[0], each.algorithm))
        high, origin = max(best, default=(low, "none"))
    if not low < high:
        raise UserValueError(f"task is {task!r}, on which no optimum and no cell is above random actions")
    return Reference(low, high, origin)


def _random_actor(env: Environment) -> Actor:
    """Actor of uniformly random actions; of discrete ones, those that are allowed."""
    space = env.action_space(env.default_params)
    obs = jax.eval_shape(env.reset_env, jax.random.key(0), env.default_params)[0]
    agents = agent_axes(env.observation_space(env.default_params), obs)

    def noise(key: jax.Array, shape: tuple[int, ...]) -> Any:
        own, other = jax.random.split(key)
        action = sample(space, own, shape) if shape else space.sample(own)
        return action, jax.random.split(other, shape) if shape else other

    def choose(noise: Any, scores: Any, greedy: Any, mask: Any) -> tuple[Any, Any]:
        del scores, greedy
        action, keys = noise
        if mask is not None:
            draw = jax.random.categorical
            for _ in agents:
                draw = jax.vmap(draw)
            action = draw(keys, jnp.where(mask, 0.0, -jnp.inf))
        return action, action

    return memoryless(lambda policy, obs, mask: {}, noise, choose)
