"""What a few seeds of algorithms say: tests, simulated comparisons and searches, ranks, and resamples for intervals."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.stats

from envs.errors import UserValueError
from jaxrl.results.p_values import corrected, improvement_p_value

SEEDS = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)

__all__ = ["SEEDS", "alike", "optimism", "percentiles", "rank_correlation", "resampled", "seeds_needed"]


def resampled(values: dict[str, np.ndarray], resamples: int) -> list[dict[str, np.ndarray]]:
    """Values of as many seeds of each algorithm, drawn with replacement.

    Args:
      values: Values of the seeds of each algorithm.
      resamples: Number of such draws.
    """
    draws = np.random.default_rng(0)
    return [{name: draws.choice(each, each.size) for name, each in values.items()} for _ in range(resamples)]


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


def rank_correlation(returns: np.ndarray, resamples: int) -> tuple[float, list[float], float]:
    """Kendall's rank correlation of the means of two kinds of returns, its resamples, and its p-value.

    Args:
      returns: Both returns of the episodes of each policy, `[policies, 2, episodes]`, of common first states.
      resamples: Number of times that the episodes are drawn with replacement, the same for all policies.

    Returns:
      The correlation, that of each resample, and the p-value of independent orders of the policies; nan where all
      means of one kind are equal.
    """
    draws, count = np.random.default_rng(0), returns.shape[-1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", scipy.stats.ConstantInputWarning)
        observed: Any = scipy.stats.kendalltau(*returns.mean(axis=-1).T)
        again: list[Any] = [
            scipy.stats.kendalltau(*returns[..., draws.integers(count, size=count)].mean(axis=-1).T)
            for _ in range(resamples)
        ]
    return float(observed.statistic), [float(each.statistic) for each in again], float(observed.pvalue)


def percentiles(values: Sequence[float], text: Callable[[float], str]) -> str:
    """The percentiles between which 95 % of the values lie, which are values themselves."""
    low, high = np.quantile(values, (0.025, 0.975), method="nearest")
    return f"[{text(low)}, {text(high)}]"
