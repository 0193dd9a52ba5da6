"""Walking or standing: the least energy, under any discount, of one who is to walk a way in a given time."""

from __future__ import annotations

from typing import Any

import numpy as np

import jaxrl
from envs.crowd.energy import RESTING, WALKING
from envs.crowd.presets import preset

__all__ = [
    "DECISIONS",
    "INTERVAL",
    "PREFERRED",
    "THRESHOLD",
    "TIME_LIMIT",
    "cheapest",
    "decision_weights",
    "least",
    "standing_cost",
    "threshold",
]

DECISIONS = 200  # of an episode
INTERVAL = 10 * preset("2022").dt  # s, of a decision
TIME_LIMIT = DECISIONS * INTERVAL
PREFERRED = (RESTING / WALKING) ** 0.5  # m/s
THRESHOLD = TIME_LIMIT * PREFERRED / 2  # m


def cheapest(distance: float, weights: np.ndarray) -> tuple[float, float]:
    """Brute force over constant speeds, standing included.

    Args:
      distance: m, to the touch of the goal.
      weights: `[decisions]`, of each decision of an episode.

    Returns:
      The speed, in m/s, with the least weighted sum of e_s + e_w v^2 over the time that it walks or
      stands; and that sum, in J/kg.
    """
    speeds = np.linspace(0.0, preset("2022").max_speed, 2001)
    with np.errstate(divide="ignore"):
        needed = distance / speeds
    active = np.clip(needed[:, None] - INTERVAL * np.arange(len(weights)), 0.0, INTERVAL)
    costs = (RESTING + WALKING * speeds**2) * (active @ weights)
    best = int(np.argmin(costs))
    return float(speeds[best]), float(costs[best])


def least(distance: float, weights: np.ndarray) -> float:
    """The energy below which no way of walking or standing gets, speeds changing from decision to decision.

    Who is to arrive after given decisions spends least with speeds inverse to their weights; the
    number of decisions is tried out. Speed and acceleration are unlimited, so this is a bound.

    Args:
      distance, weights: as for `cheapest`.

    Returns:
      J/kg, weighted as the decisions are.
    """
    share = np.linspace(0.0, 1.0, 101)  # of the last decision

    def so_far(values: np.ndarray) -> np.ndarray:
        before = np.cumsum(values) - values
        return INTERVAL * (before[:, None] + share * values[:, None])

    with np.errstate(divide="ignore", invalid="ignore"):
        inverse = np.where(weights > 0, 1 / weights, np.inf)
        costs = RESTING * so_far(weights) + WALKING * distance**2 / so_far(inverse)
    return float(min(np.nanmin(costs), standing_cost(weights)))


def standing_cost(weights: np.ndarray) -> float:
    """The energy, in J/kg, of who never moves."""
    return float(RESTING * INTERVAL * weights.sum())


def threshold(discount: Any) -> float:
    """The distance, in m, from which on no walk is cheaper than standing under a discount, by bisection."""
    weights = decision_weights(discount)
    low, high = 0.0, TIME_LIMIT * preset("2022").max_speed
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if least(middle, weights) < standing_cost(weights) else (low, middle)
    return low


def decision_weights(discount: Any) -> np.ndarray:
    """What a discount makes of each decision of an episode, float64 `[DECISIONS]`."""
    return np.asarray(jaxrl.as_discount(discount).curve(DECISIONS), np.float64)[:DECISIONS]
