"""Returns that count as 0 and as 1 on a task: that of random actions, and the optimum or the best of the benchmark."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import envs
from envs.abstract_checking import sample
from envs.base import Environment, agent_axes, optimum_of
from envs.errors import UserValueError
from envs.files import replacing
from jaxrl.benchmark.cells import CELLS
from jaxrl.benchmark.data import Benchmark, data_directory, estimates_at
from jaxrl.learning.actor import Actor, memoryless
from jaxrl.learning.evaluation import evaluate_episodes
from jaxrl.results.dataset import ResultError

__all__ = ["EPISODES", "Measured", "Reference", "measure", "measured", "reference", "store_measured"]

EPISODES = 1024
OPTIMUM = "optimum"  # origin of a reference
FILE = "references.csv"
TASKS = tuple(dict.fromkeys(each.environment for each in CELLS))


class Measured(NamedTuple):
    """Return of uniformly random actions on a task, and its optimum.

    Attributes:
      task: Name of the task.
      episodes: Number of whole episodes of random actions.
      random: Mean of their returns.
      error: Standard error of the mean.
      optimum: The best expected return; None where it is not known.
    """

    task: str
    episodes: int
    random: float
    error: float
    optimum: float | None


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
      episodes: Number of whole episodes.
      seed: Random seed.
    """
    env = next((each.algo().env for each in CELLS if each.environment == task), None) or envs.make(task)
    params, actor = env.default_params, _random_actor(env)

    def returns(key: jax.Array) -> jax.Array:
        return evaluate_episodes(env, params, actor, (), key, episodes // 2, None)["return"]

    # Greedy and sampled actions are equally random, and start from the same first states.
    keys = jax.random.split(jax.random.key(seed), 2)
    values = np.concatenate([np.asarray(jax.jit(returns)(key), np.float64) for key in keys])
    error = float(values.std(ddof=1) / np.sqrt(len(values)))
    return Measured(task, len(values), float(values.mean()), error, optimum_of(env))


def measured(directory: str | Path | None = None) -> dict[str, Measured]:
    """The stored returns of random actions, and optima, by task.

    Args:
      directory: Directory of the data; None for that of the clone.
    """
    file = data_directory(directory) / FILE
    if not file.is_file():
        return {}
    with file.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.reader(stream))[1:]
    return {
        task: Measured(task, int(episodes), float(random), float(error), float(optimum) if optimum else None)
        for task, episodes, random, error, optimum in rows
    }


def store_measured(each: Measured, directory: str | Path | None = None) -> None:
    """Write what was measured on a task among the other tasks, in the order of the cells.

    Args:
      each: Return of random actions on the task, and its optimum.
      directory: Directory of the data; None for that of the clone.
    """
    every = measured(directory) | {each.task: each}
    order = {task: at for at, task in enumerate(TASKS)}
    with (
        replacing(data_directory(directory) / FILE, ResultError) as part,
        part.open("w", encoding="utf-8", newline="") as stream,
    ):
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(Measured._fields)
        for row in sorted(every.values(), key=lambda row: order.get(row.task, len(order))):
            optimum = "" if row.optimum is None else f"{row.optimum:.8g}"
            writer.writerow([row.task, row.episodes, f"{row.random:.6g}", f"{row.error:.3g}", optimum])


def reference(benchmark: Benchmark, task: str) -> Reference:
    """The returns that count as 0 and as 1 on a task.

    Args:
      benchmark: Data of the benchmark.
      task: Name of the task.

    Raises:
      ValueError: The benchmark has no random return of the task, or no cell with data that is better.
    """
    have = measured(benchmark.directory)
    if task not in have:
        known = ", ".join(have) or "none"
        raise UserValueError(
            f"normalise is 'benchmark', which has no return of random actions on {task!r}; it has {known}"
        )
    low, optimum = have[task].random, have[task].optimum
    if optimum is not None:
        return Reference(low, optimum, OPTIMUM)
    best = []
    for each in benchmark.cells:
        if each.environment == task:
            result = benchmark.result(each.algorithm, task)
            best.append((estimates_at(result, int(result.metrics["env_step"][-1]), 0.95)[0], each.algorithm))
    if not best or max(best)[0] <= low:
        raise UserValueError(
            f"normalise is 'benchmark', which has no optimum and no cell above random actions on {task!r}"
        )
    return Reference(low, *max(best))


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
