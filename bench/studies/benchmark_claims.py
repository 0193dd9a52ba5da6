"""Questions about comparisons, answered from the curves of the benchmark.

Which algorithm is the best after how many environment steps, how many seeds tell 5 % apart, does tuning on two seeds
mislead, and do ranks change if evaluations are discounted hyperbolically?
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import scipy.stats

import jaxrl
from bench.studies.study import Study, StudyRun
from envs.errors import UserValueError
from jaxrl.benchmark.data import Benchmark, returns_at
from jaxrl.benchmark.references import reference
from jaxrl.checks import check_choices, check_counts
from jaxrl.learning.evaluation import evaluate_episodes
from jaxrl.results.p_values import corrected, improvement_p_value
from jaxrl.results.statistics import iqm

if TYPE_CHECKING:
    import pandas

SEEDS = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)

__all__ = ["STUDY", "Settings", "alike", "ends", "optimism", "ranks", "seeds_needed"]


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
    """Number of simulated comparisons, and of simulated searches."""
    tuning_seeds: int = 2
    """Number of seeds of each candidate of a simulated search."""
    k: float = 0.1
    """Rate of the hyperbolic discount, 1 / (1 + k t)."""
    episodes: int = 512
    """Number of greedy episodes of the stored policies."""

    def __post_init__(self) -> None:
        if self.tasks:
            check_choices("tasks", self.tasks, tuple(dict.fromkeys(each.environment for each in jaxrl.benchmark.CELLS)))
        check_counts(self, least=2, samples=100, tuning_seeds=1, episodes=2)
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
    study.table("best", _best(benchmark, tasks, settings), f"The best algorithm after fewer environment steps; {text}")
    caption = (
        f"Number of seeds of each of two algorithms with which a Welch test tells apart {settings.shift:.0%} with a "
        f"power of {settings.power}; {text}"
    )
    study.table("seeds", _seeds(benchmark, tasks, settings), caption)
    caption = f"Simulated searches over the algorithms of a task by {settings.tuning_seeds} seeds; {text}"
    study.table("tuning", _tuning(benchmark, tasks, settings), caption)
    caption = f"Ranks of stored policies by returns and by hyperbolic returns, k = {settings.k}."
    study.table("ranks", _ranks(benchmark, tasks, settings), caption)


def ends(benchmark: Benchmark, task: str, share: float = 1.0) -> tuple[dict[str, np.ndarray], int]:
    """Normalised returns of the seeds of each algorithm, and the environment step at which they are.

    Args:
      benchmark: Data of the benchmark.
      task: Name of the task.
      share: Share of the environment steps that all its algorithms have.
    """
    low, high, _ = reference(benchmark, task)
    results = {name: parts[0] for name, parts in benchmark.results(task).items()}
    at = int(share * min(int(result.metrics["env_step"][-1]) for result in results.values()))
    values = {}
    for name, result in results.items():
        values[name] = (returns_at(result, at) - low) / (high - low)
    return values, at


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
            rows.append(row | {"iqm": float(iqm(values[best])), "not told apart": ", ".join(alike(values, best))})
    return pandas.DataFrame(rows)


def alike(values: dict[str, np.ndarray], best: str, level: float = 0.05) -> list[str]:
    """Algorithms whose values are not told apart from those of one, by p-values corrected for all pairs.

    Args:
      values: Values of the seeds of each algorithm.
      best: Algorithm that was chosen by these values, hence the correction for all pairs.
      level: Largest corrected p-value of two algorithms that are told apart.
    """
    pairs = list(itertools.combinations(values, 2))
    p_values = corrected([improvement_p_value([values[one]], [values[other]]) for one, other in pairs])
    equal = [pair for pair, p_value in zip(pairs, p_values, strict=True) if p_value > level]
    return [name for name in values if name != best and any({name, best} == {*pair} for pair in equal)]


def seeds_needed(values: np.ndarray, shift: float, power: float, samples: int) -> float:
    """The number of seeds with which a Welch test detects a shift of the distribution of an algorithm's values.

    Args:
      values: Values of its seeds, `[seeds]`, from which samples are drawn with replacement, so that no value beyond
        them occurs.
      shift: Difference between two algorithms of such values.
      power: Probability of its detection at the 5 % level.
      samples: Number of simulated comparisons.

    Returns:
      The first of `SEEDS` that has this power; infinity if none has.
    """
    draws = np.random.default_rng(0)
    for count in SEEDS:
        first, second = (draws.choice(values, (samples, count)) for _ in range(2))
        parts = [each.var(axis=1, ddof=1) / count for each in (first, second)]
        error = parts[0] + parts[1]
        difference = np.abs(second.mean(axis=1) + shift - first.mean(axis=1))
        degrees = (count - 1) * error**2 / np.maximum(parts[0] ** 2 + parts[1] ** 2, 1e-300)
        bound = scipy.stats.t.ppf(0.975, np.clip(degrees, count - 1, 2 * count - 2)) * np.sqrt(error)
        if np.mean(difference > bound) >= power:
            return float(count)
    return float("inf")


def _seeds(benchmark: Benchmark, tasks: tuple[str, ...], settings: Settings) -> pandas.DataFrame:
    """Rows of the numbers of seeds that the most and the least regular algorithm of each task need."""
    import pandas

    rows = []
    for task in tasks:
        values, _ = ends(benchmark, task)
        counts = {
            name: seeds_needed(each, settings.shift, settings.power, settings.samples) for name, each in values.items()
        }
        ordered = sorted(counts, key=lambda name: counts[name])
        median = float(np.median(list(counts.values())))
        row = {"task": task, "fewest": counts[ordered[0]], "fewest of": ordered[0], "median": median}
        rows.append(row | {"most": counts[ordered[-1]], "most of": ordered[-1]})
    return pandas.DataFrame(rows)


def optimism(values: dict[str, np.ndarray], tuning_seeds: int, samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Simulated searches: the candidate with the best mean of a few seeds, and its mean on its other seeds.

    Args:
      values: Values of the seeds of each candidate.
      tuning_seeds: Number of seeds of each candidate.
      samples: Number of searches.

    Returns:
      For each search, how much the mean of its seeds exceeds that of the other seeds of the chosen candidate, and
      how much the chosen candidate's mean over all seeds is below the best one, both `[samples]`.
    """
    fewest = min(map(len, values.values()))
    if tuning_seeds >= fewest:
        raise UserValueError(f"tuning_seeds takes fewer than the {fewest} seeds of a candidate, got {tuning_seeds}")
    draws = np.random.default_rng(0)
    means = np.array([each.mean() for each in values.values()])
    on_few, on_others = [], []
    for each in values.values():
        orders = draws.permuted(np.broadcast_to(each, (samples, len(each))), axis=1)
        on_few.append(orders[:, :tuning_seeds].mean(axis=1))
        on_others.append(orders[:, tuning_seeds:].mean(axis=1))
    few, others = np.stack(on_few), np.stack(on_others)
    chosen = few.argmax(axis=0)
    at = np.arange(samples)
    return few[chosen, at] - others[chosen, at], means.max() - means[chosen]


def _tuning(benchmark: Benchmark, tasks: tuple[str, ...], settings: Settings) -> pandas.DataFrame:
    """Rows of the optimism and the regret of searches on a few seeds, with the range of 95 % of the searches."""
    import pandas

    rows = []
    for task in tasks:
        values, _ = ends(benchmark, task)
        few, regret = optimism(values, settings.tuning_seeds, settings.samples)
        best = np.mean(regret <= 1e-9)
        row = {"task": task, "candidates": len(values), "optimism": few.mean(), "95 % of searches": _range(few)}
        rows.append(row | {"regret": regret.mean(), "best chosen": best})
    return pandas.DataFrame(rows)


def _range(values: np.ndarray) -> str:
    low, high = np.quantile(values, (0.025, 0.975))
    return f"[{low:.3f}, {high:.3f}]"


def ranks(benchmark: Benchmark, task: str, k: float, episodes: int) -> dict[str, tuple[float, float]]:
    """Mean return and mean hyperbolic return of the stored policy of each algorithm on a task.

    Args:
      benchmark: Data of the benchmark.
      task: Name of the task.
      k: Rate of the hyperbolic discount.
      episodes: Number of greedy episodes, the same first states for all.
    """
    means = {}

    def hyperbolic(t: jax.Array, weight: jax.Array) -> jax.Array:
        del weight
        return 1.0 / (1.0 + k * (t + 1.0))

    for name in benchmark.results(task):
        policy = benchmark.policy(name, task)
        env, actor = policy.algo.env, policy.algo.actor

        def returns(key: jax.Array, weights: Any, env: Any = env, actor: Any = actor) -> dict[str, jax.Array]:
            return evaluate_episodes(env, env.default_params, actor, weights, key, episodes, hyperbolic)

        metrics = jax.jit(returns)(jax.random.key(0), policy.params)
        means[name] = float(metrics["return"].mean()), float(metrics["discounted_return"].mean())
    return means


def _ranks(benchmark: Benchmark, tasks: tuple[str, ...], settings: Settings) -> pandas.DataFrame:
    """Rows of Kendall's rank correlation, and of the best algorithm by each."""
    import pandas

    rows = []
    for task in tasks:
        means = ranks(benchmark, task, settings.k, settings.episodes)
        plain, hyperbolic = (np.array(column) for column in zip(*means.values(), strict=True))
        names = list(means)
        correlation: Any = scipy.stats.kendalltau(plain, hyperbolic)
        row = {"task": task, "policies": len(means), "tau": float(correlation.statistic)}
        row |= {"best by return": names[int(plain.argmax())]}
        rows.append(row | {"best by hyperbolic return": names[int(hyperbolic.argmax())]})
    return pandas.DataFrame(rows)


STUDY = Study(
    "benchmark-claims",
    "Which algorithm is best when, how many seeds tell 5 % apart, and does tuning on two seeds mislead: the benchmark.",
    Settings,
    run,
)
