"""Cells of the benchmark: an algorithm on a task, for fixed numbers of environment steps and of seeds."""

from __future__ import annotations

from typing import NamedTuple

from envs.errors import UserValueError
from envs.spelling import near
from jaxrl.algorithms.contract import Algorithm
from jaxrl.presets.registry import PRESETS, find, named

__all__ = ["CELLS", "POINTS", "Cell", "cell"]

POINTS = 20  # evaluations of a run, and one before training
EVAL_EPISODES = 16  # of each evaluation

# Of cells that train with default settings.
_ON_POLICY = ("ppo", "a2c", "reinforce", "spo", "mdpo", "ppo_kl")
_VALUES = ("dqn", "pqn")
_DISCRETE_CONTROL = ("cartpole", "acrobot", "mountain-car")
_CONTINUOUS_CONTROL = ("pendulum", "mountain-car-continuous")
_KNOWN_OPTIMUM = (
    "delayed-choice",
    "preference-reversal",
    "pathworld",
    "stopping",
    "inventory",
    "replacement",
    "queue",
    "river",
)
_LEVELS = ("fishery", "lq/double-integrator")
_STEPS = {"dqn": 98_304, "sac": 49_152, "td3": 49_152, "evolve": 5_000_000}
_STEPS_ON_POLICY = 250_000
# Tasks whose cells have half the seeds, because an environment step was expected to be slow or an observation is a
# picture.
_SLOW = ("brax/", "gymnax/", "jumanji/", "xminigrid/", "crowd/")


class Cell(NamedTuple):
    """An algorithm on a task.

    Attributes:
      algorithm: Name of the algorithm.
      environment: Name of the environment.
      env_steps: Number of environment steps of a run.
      seeds: Number of seeds, from 0 on.
    """

    algorithm: str
    environment: str
    env_steps: int
    seeds: int = 32

    @property
    def name(self) -> str:
        """Name of the cell, such as "ppo on cartpole"."""
        return f"{self.algorithm} on {self.environment}"

    @property
    def stem(self) -> str:
        """Name of the files of the cell, without a suffix."""
        return f"{self.algorithm}-on-{self.environment.replace('/', '-')}"

    @property
    def command(self) -> str:
        """Command that trains the cell."""
        return f"jaxrl benchmark run {self.algorithm} {self.environment}"

    @property
    def settings(self) -> str:
        """Origin of its settings: "preset" or "defaults"."""
        return "defaults" if find(self.algorithm, self.environment) is None else "preset"

    def algo(self) -> Algorithm:
        """The algorithm on the environment, with its preset, or with default settings where there is none."""
        return named(self.algorithm, self.environment)[0]


def _cell(algorithm: str, environment: str) -> Cell:
    known = find(algorithm, environment)
    env_steps = _STEPS.get(algorithm, _STEPS_ON_POLICY) if known is None else known.env_steps
    return Cell(algorithm, environment, env_steps, 16 if environment.startswith(_SLOW) else 32)


_PAIRS = (
    *((row.algorithm, row.environment) for row in PRESETS),
    *((name, task) for task in _DISCRETE_CONTROL for name in (*_ON_POLICY, *_VALUES, "sac", "evolve")),
    *((name, task) for task in _CONTINUOUS_CONTROL for name in (*_ON_POLICY, "sac", "td3", "evolve")),
    *((name, task) for task in _KNOWN_OPTIMUM for name in (*_ON_POLICY, *_VALUES)),
    *((name, task) for task in _LEVELS for name in ("ppo", "a2c", "sac", "td3")),
)
CELLS: tuple[Cell, ...] = tuple(_cell(*pair) for pair in dict.fromkeys(_PAIRS))


def cell(algorithm: str, environment: str) -> Cell:
    """The cell of an algorithm on an environment.

    Args:
      algorithm: Name of the algorithm, such as "ppo".
      environment: Name of the environment, such as "cartpole".

    Raises:
      ValueError: The benchmark has no such cell.
    """
    for each in CELLS:
        if (each.algorithm, each.environment) == (algorithm, environment):
            return each
    tasks = [each.environment for each in CELLS if each.algorithm == algorithm]
    if not tasks:
        names = list(dict.fromkeys(each.algorithm for each in CELLS))
        hint = near(algorithm, names) or f"; it takes {', '.join(names)}"
        raise UserValueError(f"algorithm is {algorithm!r}, of which the benchmark has no cell{hint}")
    hint = near(environment, tasks) or f"; it has {', '.join(tasks)}"
    raise UserValueError(f"environment is {environment!r}, on which the benchmark has no cell of {algorithm}{hint}")
