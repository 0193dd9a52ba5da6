"""What a few seeds of algorithms say: tests, simulated comparisons and searches, ranks, and resamples for intervals."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.stats

from envs.errors import UserValueError
from jaxrl.results.p_values import corrected, improvement_p_value

SEEDS = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)

__all__ = [
    "SEEDS",
    "Searches",
    "alike",
    "percentiles",
    "rank_correlation",
    "resampled",
    "searches",
    "seeds_needed",
    "simulations_of_a_resample",
]


class Searches(NamedTuple):
    """Simulated searches, each of which chooses one candidate by a few seeds; all are `[searches]`.

    Attributes:
      own: Mean of the seeds of the chosen candidate by which it was chosen.
      others: Mean of its other seeds.
      regret: Highest mean of a candidate over all seeds less that of the chosen one.
    """

    own: np.ndarray
    others: np.ndarray
    regret: np.ndarray

    @property
    def optimism(self) -> np.ndarray:
        """Excess of the mean by which a candidate was chosen over that of its other seeds, `[searches]`."""
        return self.own - self.others


def resampled(values: dict[str, np.ndarray], resamples: int, *, paired: bool = False) -> list[dict[str, np.ndarray]]:
    """Values of as many seeds of each algorithm, drawn with replacement.

    Args:
      values: Values of the seeds of each algorithm.
      resamples: Number of such draws.
      paired: Whether the same seeds are drawn for all, which then have equal numbers of seeds.
    """
    draws = np.random.default_rng(0)
    if not paired:
        return [{name: draws.choice(each, each.size) for name, each in values.items()} for _ in range(resamples)]
    (count,) = {each.size for each in values.values()}
    return [{name: each[at] for name, each in values.items()} for at in draws.integers(count, size=(resamples, count))]


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


def searches(values: dict[str, np.ndarray], tuning_seeds: int, samples: int, *, paired: bool = False) -> Searches:
    """Simulated searches: the candidate with the best mean of a few seeds, and its mean on its other seeds.

    Args:
      values: Values of the seeds of each candidate.
      tuning_seeds: Number of seeds of each candidate.
      samples: Number of searches.
      paired: Whether a search trains all candidates with the same seeds, as settings of one algorithm are, whose equal
        seeds share their keys; all then have equal numbers of seeds, in one order.

    Raises:
      ValueError: A candidate has no other seeds.
    """
    fewest = min(map(len, values.values()))
    if tuning_seeds >= fewest:
        raise UserValueError(f"tuning_seeds takes fewer than the {fewest} seeds of a candidate, got {tuning_seeds}")
    draws = np.random.default_rng(0)
    means = np.array([each.mean() for each in values.values()])
    same = draws.permuted(np.broadcast_to(np.arange(fewest), (samples, fewest)), axis=1) if paired else None
    on_few, on_others = [], []
    for each in values.values():
        orders = draws.permuted(np.broadcast_to(each, (samples, len(each))), axis=1) if same is None else each[same]
        on_few.append(orders[:, :tuning_seeds].mean(axis=1))
        on_others.append(orders[:, tuning_seeds:].mean(axis=1))
    few, others = np.stack(on_few), np.stack(on_others)
    chosen = few.argmax(axis=0)
    at = np.arange(samples)
    return Searches(few[chosen, at], others[chosen, at], means.max() - means[chosen])


def simulations_of_a_resample(samples: int) -> int:
    """Number of simulations in each resample.

    Args:
      samples: Number of simulations of the estimate itself.
    """
    return max(100, samples // 10)


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
