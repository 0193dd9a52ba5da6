"""Lower bounds of the regret of any policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import rel_entr

from envs.errors import UserValueError
from jaxrl.checks import check_choice, check_flag

__all__ = ["checked_steps", "gaps_of", "lai_robbins", "means_and_gaps", "minimax"]

Array = Any


# Relative entropy of each arm to the best, by the kind of rewards.
_DIVERGENCES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "bernoulli": lambda means, best: rel_entr(means, best) + rel_entr(1 - means, 1 - best),
    "gaussian": lambda means, best: (best - means) ** 2 / 2,
    "poisson": lambda means, best: best - means + rel_entr(means, best),
    "exponential": lambda means, best: means / best - 1 - np.log(means / best),
}


def lai_robbins(means: Array, rewards: str = "bernoulli", sigma: float = 1.0) -> np.ndarray:
    """Lower bound of the slope of regret in ln T, for large T, of any policy that learns every instance.

    Args:
      means: Means of instances, `[*B, K]`.
      rewards: Kind of rewards: "bernoulli", "gaussian", "poisson" or "exponential".
      sigma: Standard deviation of Gaussian rewards.

    Returns:
      `[*B]`, the sum over arms of gap / KL(arm, best arm); best arms add nothing. KL-UCB and
      Thompson sampling attain it.

    Raises:
      ValueError: Such rewards cannot have these means, or the kind of rewards is unknown.

    Source: Lai and Robbins (1985), theorem 1.
    """
    check_choice("rewards", rewards, tuple(_DIVERGENCES))
    means, best, gaps = means_and_gaps(means, unit=rewards == "bernoulli")
    if rewards in ("poisson", "exponential") and not np.all(means > 0):
        raise UserValueError(f"means of {rewards} rewards must be above 0, got {means.min()}")
    if not sigma > 0:
        raise UserValueError(f"sigma must be above 0, got {sigma}")
    divergence = _DIVERGENCES[rewards](means, np.broadcast_to(best, means.shape))
    if rewards == "gaussian":
        divergence = divergence / sigma**2
    return np.sum(np.where(gaps > 0, gaps, 0) / np.where(gaps > 0, divergence, 1), axis=-1)


def minimax(num_arms: int, steps: Array, constant: float = 1 / 20) -> np.ndarray:
    """Lower bound of the regret of any policy on its worst instance: `constant min(sqrt(K T), T)`, rewards in [0, 1].

    Args:
      num_arms: Number of arms, K.
      steps: Number of steps, T, of any shape.
      constant: Factor of the bound; 1/20 is proven, 1 is the rate.

    Source: Auer, Cesa-Bianchi, Freund and Schapire (2002), theorem 5.1.
    """
    steps = checked_steps(steps)
    return constant * np.minimum(np.sqrt(num_arms * steps), steps)


def gaps_of(means: Array) -> np.ndarray:
    """The difference between the best arm of an instance and each arm, `[*B, K]`."""
    return means_and_gaps(means, unit=False)[2]


def means_and_gaps(means: Array, unit: bool = True) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means in float64 `[*B, K]`, the best `[*B, 1]` and gaps `[*B, K]`; `unit` keeps means in [0, 1]."""
    check_flag("unit", unit)
    array = np.asarray(means, np.float64)
    if array.ndim < 1 or array.shape[-1] < 2 or not np.all(np.isfinite(array)):
        raise UserValueError(f"means must be the finite means of two or more arms, got {means}")
    if unit and not (np.all(array >= 0) and np.all(array <= 1)):
        raise UserValueError(f"means must lie in [0, 1], got {array[(array < 0) | (array > 1)][0]}")
    best = array.max(axis=-1, keepdims=True)
    return array, best, best - array


def checked_steps(steps: Array) -> np.ndarray:
    """Numbers of steps in float64, each at least 1."""
    array = np.asarray(steps, np.float64)
    if not np.all(array >= 1):
        raise UserValueError(f"steps must be at least 1, got {steps}")
    return array
