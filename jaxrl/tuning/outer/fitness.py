"""From the returns of inner trainings to the fitness of the members of a population."""

from __future__ import annotations

from collections.abc import Callable

import chex
import numpy as np
import scipy.stats

OBJECTIVES = ("final", "area")
SHAPINGS = ("ranks", "raw")

__all__ = ["OBJECTIVES", "SHAPINGS", "constant", "fitness_of", "objective_of"]


def objective_of(returns: np.ndarray, objective: str) -> np.ndarray:
    """Objective of each inner training.

    Args:
      returns: Returns at the evaluations of each training, `[evals, *B]`, evenly spaced and the last one at the end.
      objective: Name of the objective: "final", the last return, or "area", the mean of all.

    Returns:
      Objectives `[*B]`, NaN for a training with an evaluation that is not finite.
    """
    chex.assert_shape(returns, (None, ...), custom_message="returns")
    value = returns[-1] if objective == "final" else returns.mean(axis=0)
    return np.where(np.isfinite(returns).all(axis=0), value, np.nan)


def constant(scores: np.ndarray) -> bool:
    """Whether no score tells members apart.

    Args:
      scores: Objectives `[num_members, num_trainings]`, NaN for a failed training.
    """
    chex.assert_rank(scores, 2, custom_message="scores")
    return bool(np.all((scores == scores[:1]) | (np.isnan(scores) & np.isnan(scores[:1]))))


def fitness_of(scores: np.ndarray, shaping: str) -> np.ndarray:
    """Fitness of the members of a population.

    Trainings that differ in their members alone, with one task and one seed, are a column. "ranks" takes the mean over
    columns of the rank of a member within each, from -0.5 for the lowest to 0.5 for the highest, equal scores sharing
    the mean of their ranks; tasks whose returns differ in scale then count alike. "raw" takes the mean of the scores.
    A failed training has the lowest rank of its column, or the lowest score in it.

    Args:
      scores: Objectives `[num_members, num_trainings]`, NaN for a failed training.
      shaping: Name of the shaping: "ranks" or "raw".

    Returns:
      Fitness `[num_members]`, float32.
    """
    chex.assert_rank(scores, 2, custom_message="scores")
    return _SHAPING[shaping](np.asarray(scores, np.float64)).mean(axis=1).astype(np.float32)


def _ranks(scores: np.ndarray) -> np.ndarray:
    ranks = scipy.stats.rankdata(np.where(np.isnan(scores), -np.inf, scores), axis=0)
    return (ranks - 1) / (len(scores) - 1) - 0.5


def _raw(scores: np.ndarray) -> np.ndarray:
    lowest = np.min(scores, axis=0, where=np.isfinite(scores), initial=np.inf)
    lowest = np.where(np.isfinite(lowest), lowest, 0.0)  # a column without a score tells no members apart
    return np.where(np.isnan(scores), lowest, scores)


_SHAPING: dict[str, Callable[[np.ndarray], np.ndarray]] = {"ranks": _ranks, "raw": _raw}
