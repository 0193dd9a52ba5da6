"""Optimism of searches over hyper-parameters: the best mean of a few seeds, less the mean of the setting's other seeds.

Random settings of PPO are trained with many seeds each. Searches are simulated from these: each chooses the setting
with the best mean of a few seeds, the same for all settings, and its other seeds show its return on fresh ones.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

import envs
import jaxrl
from bench.studies.benchmark_samples import Searches, percentiles, resampled, searches, simulations_of_a_resample
from bench.studies.study import Study, StudyRun
from envs.errors import UserValueError
from jaxrl.algorithms.contract import Algorithm
from jaxrl.algorithms.ppo import PPOConfig
from jaxrl.benchmark.cells import CELLS
from jaxrl.benchmark.references import reference
from jaxrl.checks import check_choices, check_count, check_counts
from jaxrl.results.statistics import normalise

SPACE = {
    "lr": jaxrl.LogUniform(1e-4, 1e-2),
    "lam": jaxrl.Uniform(0.8, 1.0),
    "entropy_coef": jaxrl.LogUniform(1e-4, 1e-1),
    "clip_eps": jaxrl.Uniform(0.1, 0.4),
    "discount.gamma": jaxrl.Uniform(0.95, 0.999),
}
CONFIG = PPOConfig(
    num_envs=16, num_steps=64, num_epochs=4, num_minibatches=4, normalise_observation=True, normalise_reward=True
)
RESET_POOLS = {"stopping": 64}  # states for every step of a rollout, where episodes are as short as one

__all__ = ["CONFIG", "SPACE", "STUDY", "Settings", "agent", "rows"]


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the study: tasks, candidates, seeds and searches."""

    tasks: tuple[str, ...] = ("cartpole", "acrobot", "pendulum", "stopping", "inventory")
    """Tasks with a random return and an optimum or a cell of the benchmark."""
    candidates: int = 64
    """Number of random settings."""
    seeds: int = 16
    """Number of seeds of each setting."""
    env_steps: int = 50_176
    """Number of environment steps of a run."""
    eval_episodes: int = 16
    """Number of greedy episodes of the evaluation of a run."""
    tuning_seeds: tuple[int, ...] = (1, 2, 4, 8)
    """Numbers of seeds of each setting in a search."""
    samples: int = 2000
    """Number of simulated searches; a tenth of them, at least 100, in each resample."""
    resamples: int = 200
    """Number of times that the seeds are resampled for the intervals."""

    def __post_init__(self) -> None:
        check_choices("tasks", self.tasks, tuple(dict.fromkeys(each.environment for each in CELLS)))
        check_counts(self, candidates=2, seeds=2, env_steps=1, eval_episodes=1, samples=100, resamples=2)
        for count in self.tuning_seeds:
            check_count("tuning_seeds", count, 1)
        if not self.tuning_seeds or max(self.tuning_seeds) >= self.seeds:
            raise UserValueError(
                f"tuning_seeds takes numbers of seeds above 0 and below seeds={self.seeds}, got {self.tuning_seeds}"
            )


def run(settings: Settings, study: StudyRun) -> None:
    """Train the settings on every task, and simulate searches."""
    benchmark = jaxrl.benchmark.load()
    ends = {task: reference(benchmark, task)[:2] for task in settings.tasks}
    tables = []
    for task, (low, high) in ends.items():
        algo = agent(task)
        result = study.train(
            task.replace("/", "-"),
            algo,
            jaxrl.sample(algo.hparams, settings.candidates, SPACE),
            seeds=settings.seeds,
            env_steps=settings.env_steps,
            evals=1,
            eval_episodes=settings.eval_episodes,
        )
        tables += rows(task, normalise(result.values("return")[..., -1], low, high), settings)
    import pandas

    table = pandas.DataFrame(tables)
    caption = (
        f"Searches for a setting of PPO among {settings.candidates} random ones after {settings.env_steps:,} "
        "environment steps, by means of a few seeds: that mean of the chosen setting, the mean of its other seeds, and "
        "their difference. Returns are 0 for random actions, and 1 for the optimum or the best cell of the benchmark. "
        "Intervals are over seeds, not over other random settings; a setting of which a run failed is left out."
    )
    study.table("searches", table, caption)


def agent(task: str) -> Algorithm:
    """PPO on a task, whose settings are searched.

    Args:
      task: Name of the task.
    """
    return jaxrl.ppo(envs.make(task), dataclasses.replace(CONFIG, reset_pool=RESET_POOLS.get(task, CONFIG.reset_pool)))


def rows(task: str, values: np.ndarray, settings: Settings) -> list[dict[str, Any]]:
    """The rows of a task, one for each number of seeds of a search.

    Args:
      task: Name of the task.
      values: Normalised returns, `[candidates, seeds]`; nan for a failed run.
      settings: Settings of the study.

    Raises:
      ValueError: Fewer than two settings have no failed run.
    """
    whole = np.flatnonzero(np.isfinite(values).all(axis=1))
    if whole.size < 2:
        raise UserValueError(f"values takes at least two settings without a failed run, got {whole.size} on {task}")
    named = {str(at): values[at] for at in whole}
    table = []
    for count in settings.tuning_seeds:
        simulated = searches(named, count, settings.samples, paired=True)
        fewer = simulations_of_a_resample(settings.samples)
        again = [
            _means(searches(each, count, fewer, paired=True))
            for each in resampled(named, settings.resamples, paired=True)
        ]
        cells = [
            f"{value:.3f} {percentiles(own, _three)}"
            for value, own in zip(_means(simulated), zip(*again, strict=True), strict=True)
        ]
        row = {"task": task, "seeds": count, "settings": whole.size, "failed": len(values) - whole.size}
        row |= dict(zip(("in the search", "on other seeds", "optimism"), cells, strict=True))
        table.append(row | {"95 % of searches": percentiles(simulated.optimism.tolist(), _three)})
    return table


def _means(simulated: Searches) -> tuple[float, float, float]:
    """Means over searches: of the seeds that chose, of the others, and of the difference."""
    return float(simulated.own.mean()), float(simulated.others.mean()), float(simulated.optimism.mean())


def _three(value: float) -> str:
    return f"{value:.3f}"


STUDY = Study(
    "search-bias",
    "Optimism of searches: the best mean of a few seeds less the mean of the setting's other seeds.",
    Settings,
    run,
)
