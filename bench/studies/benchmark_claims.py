"""Questions about comparisons, answered from the curves of the benchmark.

Which algorithm is the best after how many environment steps, how many seeds tell 5 % apart, does a choice by two seeds
among algorithms mislead, and do ranks change if evaluations are discounted hyperbolically? Intervals are of a
bootstrap over seeds, of ranks over episodes.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

import jaxrl
from bench.studies.benchmark_samples import (
    SEEDS,
    Searches,
    alike,
    percentiles,
    rank_correlation,
    resampled,
    searches,
    seeds_needed,
    simulations_of_a_resample,
)
from bench.studies.frames import MISSING, interval
from bench.studies.study import Study, StudyRun
from envs.errors import UserValueError
from jaxrl.benchmark.data import Benchmark, returns_at
from jaxrl.benchmark.references import reference
from jaxrl.checks import check_choices, check_counts
from jaxrl.learning.evaluation import evaluate_episodes
from jaxrl.results.statistics import iqm

if TYPE_CHECKING:
    import pandas


__all__ = ["STUDY", "Settings", "ends", "ranks"]


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the study: tasks, sizes of effects and numbers of samples."""

    tasks: tuple[str, ...] = ()
    """Tasks; all on which at least `least` algorithms have data if none are named."""
    least: int = 4
    """Smallest number of algorithms on a task."""
    shares: tuple[float, ...] = (0.1, 0.25, 0.5, 1.0)
    """Shares of the environment steps that all algorithms on a task have, after which they are compared."""
    shift: float = 0.05
    """Difference to tell apart, as a share of the distance from random actions to the optimum or the best cell."""
    power: float = 0.8
    """Probability with which it is detected at the 5 % level."""
    samples: int = 2000
    """Number of simulated comparisons, and of simulated searches; a tenth of them, at least 100, in each resample."""
    resamples: int = 200
    """Number of times that the seeds, or the episodes, are resampled for the intervals."""
    tuning_seeds: int = 2
    """Number of seeds of each candidate of a simulated search."""
    k: float = 0.1
    """Rate of the hyperbolic discount, 1 / (1 + k t)."""
    episodes: int = 512
    """Number of greedy episodes of the stored policies."""

    def __post_init__(self) -> None:
        if self.tasks:
            check_choices("tasks", self.tasks, tuple(dict.fromkeys(each.environment for each in jaxrl.benchmark.CELLS)))
        check_counts(self, least=2, samples=100, resamples=2, tuning_seeds=1, episodes=2)
        for name in ("shift", "power"):
            if not 0 < getattr(self, name) < 1:
                raise UserValueError(f"{name} takes a share above 0 and below 1, got {getattr(self, name)}")
        if not self.shares or not all(0 < share <= 1 for share in self.shares):
            raise UserValueError(f"shares takes shares above 0 and up to 1, got {self.shares}")


def run(settings: Settings, study: StudyRun) -> None:
    """Answer every question on every task, a table for each."""
    benchmark = jaxrl.benchmark.load()
    tasks = settings.tasks or tuple(
        task for task in benchmark.tasks if sum(each.environment == task for each in benchmark.cells) >= settings.least
    )
    if not tasks:
        raise UserValueError(f"least is {settings.least}; no task has data of so many algorithms")
    text = f"normalised: 0 for random actions, 1 for the optimum or the best cell. Tasks: {', '.join(tasks)}."
    caption = (
        "The best algorithm after a share of the environment steps that all algorithms on a task have, and the share "
        f"of the resamples of seeds in which it is the best; {text}"
    )
    study.table("best", _best(benchmark, tasks, settings), caption)
    caption = (
        f"Number of seeds of each of two algorithms with which a Welch test tells apart {settings.shift:.0%} at the "
        f"end of training with a power of {settings.power}; {text}"
    )
    study.table("seeds", _seeds(benchmark, tasks, settings), caption)
    caption = (
        f"Simulated searches over the algorithms of a task by {settings.tuning_seeds} seeds, at the end of the "
        f"training of each; {text}"
    )
    study.table("tuning", _tuning(benchmark, tasks, settings), caption)
    caption = (
        f"Kendall's rank correlation of stored policies by returns and by hyperbolic returns, k = {settings.k}: "
        "intervals over episodes, and p-values over policies."
    )
    study.table("ranks", _ranks(benchmark, tasks, settings), caption)


def ends(benchmark: Benchmark, task: str, share: float | None = None) -> tuple[dict[str, np.ndarray], int]:
    """Normalised returns of the seeds of each algorithm, and the environment step at which they are.

    Args:
      benchmark: Data of the benchmark.
      task: Name of the task.
      share: Share of the environment steps that all its algorithms have; None for the end of the training of each,
        and the step at which the longest ends.
    """
    low, high, _ = reference(benchmark, task)
    results = {name: parts[0] for name, parts in benchmark.results(task).items()}
    last = {name: int(result.metrics["env_step"][-1]) for name, result in results.items()}
    at = dict.fromkeys(last, int(share * min(last.values()))) if share is not None else last
    values = {name: (returns_at(result, at[name]) - low) / (high - low) for name, result in results.items()}
    return values, max(at.values())


def _best(benchmark: Benchmark, tasks: tuple[str, ...], settings: Settings) -> pandas.DataFrame:
    """Rows of the best algorithm after each share of the steps, and those that are not told apart from it."""
    import pandas

    rows = []
    for task in tasks:
        for share in settings.shares:
            values, at = ends(benchmark, task, share)
            best = max(values, key=lambda name: float(iqm(values[name])))
            settings_from = benchmark.result(best, task).metrics.attrs["settings_from"]
            origin = "defaults" if settings_from == "defaults" else "preset"
            row = {"task": task, "env_steps": at, "algorithms": len(values), "best": best, "settings": origin}
            again = [
                {name: float(iqm(own)) for name, own in each.items()} for each in resampled(values, settings.resamples)
            ]
            best_again = np.mean([means[best] >= max(means.values()) - 1e-9 for means in again])
            row |= {"iqm": interval(iqm, values[best], 3), "again the best": f"{best_again:.0%}"}
            rows.append(row | {"not told apart": ", ".join(alike(values, best))})
    return pandas.DataFrame(rows)


def _seeds(benchmark: Benchmark, tasks: tuple[str, ...], settings: Settings) -> pandas.DataFrame:
    """Rows of the numbers of seeds that the most and the least regular algorithm of each task need."""
    import pandas

    rows = []
    for task in tasks:
        values, _ = ends(benchmark, task)
        counts = _counts(values, settings, settings.samples)
        again = [
            _counts(each, settings, simulations_of_a_resample(settings.samples))
            for each in resampled(values, settings.resamples)
        ]
        ordered = sorted(counts, key=lambda name: counts[name])
        row: dict[str, Any] = {"task": task}
        for column, name in (("fewest", ordered[0]), ("most", ordered[-1])):
            row[column] = f"{_count(counts[name])} {percentiles([each[name] for each in again], _count)}"
            row[f"{column} of"] = name
        medians = [float(np.median(list(each.values()))) for each in (counts, *again)]
        row["median"] = f"{_count(medians[0])} {percentiles(medians[1:], _count)}"
        rows.append(row)
    return pandas.DataFrame(rows)


def _counts(values: dict[str, np.ndarray], settings: Settings, samples: int) -> dict[str, float]:
    return {name: seeds_needed(each, settings.shift, settings.power, samples) for name, each in values.items()}


def _count(number: float) -> str:
    return f"{number:,.0f}" if np.isfinite(number) else f"over {SEEDS[-1]:,}"


def _tuning(benchmark: Benchmark, tasks: tuple[str, ...], settings: Settings) -> pandas.DataFrame:
    """Rows of the optimism and the regret of searches on a few seeds, with the range of 95 % of the searches.

    A resample has equal seeds among those that choose and among the others, which lowers its optimism by about the
    share of one seed.
    """
    import pandas

    rows = []
    for task in tasks:
        values, _ = ends(benchmark, task)
        simulated = searches(values, settings.tuning_seeds, settings.samples)
        again = [
            _means(searches(each, settings.tuning_seeds, simulations_of_a_resample(settings.samples)))
            for each in resampled(values, settings.resamples)
        ]
        cells = []
        for value, own, text in zip(
            _means(simulated), zip(*again, strict=True), (_three, _three, _percent), strict=True
        ):
            cells.append(f"{text(value)} {percentiles(own, text)}")
        row = {"task": task, "candidates": len(values), "optimism": cells[0]}
        row |= {"95 % of searches": percentiles(simulated.optimism.tolist(), _three)}
        rows.append(row | {"regret": cells[1], "best chosen": cells[2]})
    return pandas.DataFrame(rows)


def _means(simulated: Searches) -> tuple[float, float, float]:
    """Mean optimism, mean regret, and the share of the searches that choose the best candidate."""
    regret = simulated.regret
    return float(simulated.optimism.mean()), float(regret.mean()), float(np.mean(regret <= 1e-9))


def _three(value: float) -> str:
    return f"{value:.3f}"


def _percent(value: float) -> str:
    return f"{value:.0%}"


def ranks(benchmark: Benchmark, task: str, k: float, episodes: int) -> dict[str, np.ndarray]:
    """Returns and hyperbolic returns of the episodes of the stored policy of each algorithm on a task, `[2, episodes]`.

    Args:
      benchmark: Data of the benchmark.
      task: Name of the task.
      k: Rate of the hyperbolic discount.
      episodes: Number of greedy episodes, the same first states for all.
    """
    every = {}

    def hyperbolic(t: jax.Array, weight: jax.Array) -> jax.Array:
        del weight
        return 1.0 / (1.0 + k * (t + 1.0))

    for name in benchmark.results(task):
        policy = benchmark.policy(name, task)
        env, actor = policy.algo.env, policy.algo.actor

        def returns(key: jax.Array, weights: Any, env: Any = env, actor: Any = actor) -> dict[str, jax.Array]:
            return evaluate_episodes(env, env.default_params, actor, weights, key, episodes, hyperbolic)

        metrics = jax.jit(returns)(jax.random.key(0), policy.params)
        both = [np.asarray(metrics[metric], np.float64) for metric in ("return", "discounted_return")]
        every[name] = np.stack(both)
    return every


def _ranks(benchmark: Benchmark, tasks: tuple[str, ...], settings: Settings) -> pandas.DataFrame:
    """Rows of Kendall's rank correlation, and of the best algorithm by each."""
    import pandas

    rows = []
    for task in tasks:
        every = ranks(benchmark, task, settings.k, settings.episodes)
        names, returns = list(every), np.stack(list(every.values()))
        tau, again, p_value = rank_correlation(returns, settings.resamples)
        finite = [each for each in again if np.isfinite(each)]
        row = {"task": task, "policies": len(names), "tau": MISSING, "p": p_value}
        if finite and np.isfinite(tau):
            row["tau"] = f"{tau:.2f} {percentiles(finite, _two)}"
        best = [names[int(means.argmax())] for means in returns.mean(axis=-1).T]
        rows.append(row | dict(zip(("best by return", "best by hyperbolic return"), best, strict=True)))
    return pandas.DataFrame(rows)


def _two(value: float) -> str:
    return f"{value:.2f}"


STUDY = Study(
    "benchmark-claims",
    "Which algorithm is best when, how many seeds tell 5 % apart, does a choice by two seeds mislead: the benchmark.",
    Settings,
    run,
)
