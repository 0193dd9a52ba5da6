"""Walking or standing: the least energy, under any discount, of an agent with a distance and a time limit."""

from __future__ import annotations

from typing import Any

import numpy as np

import jaxrl
from envs.crowd import PRESETS
from envs.crowd.energy import RESTING, WALKING

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

DECISIONS = 200  # decisions of an episode
INTERVAL = 10 * PRESETS["2022"].dt  # s per decision
TIME_LIMIT = DECISIONS * INTERVAL
PREFERRED = (RESTING / WALKING) ** 0.5  # m/s
THRESHOLD = TIME_LIMIT * PREFERRED / 2  # m


def cheapest(distance: float, weights: np.ndarray) -> tuple[float, float]:
    """The cheapest constant speed by brute force, including standing.

    Args:
      distance: Distance to the touch of the goal, in m.
      weights: Weight of each decision of an episode, `[decisions]`.

    Returns:
      The speed, in m/s, with the least weighted sum of e_s + e_w v^2 over the time that it walks or
      stands; and that sum, in J/kg.
    """
    speeds = np.linspace(0.0, PRESETS["2022"].max_speed, 2001)
    with np.errstate(divide="ignore"):
        needed = distance / speeds
    active = np.clip(needed[:, None] - INTERVAL * np.arange(len(weights)), 0.0, INTERVAL)
    costs = (RESTING + WALKING * speeds**2) * (active @ weights)
    best = int(np.argmin(costs))
    return float(speeds[best]), float(costs[best])


def least(distance: float, weights: np.ndarray) -> float:
    """A lower bound on the energy of walking or standing, with speeds that may change from decision to decision.

    For an arrival after a fixed number of decisions, the least energy has speeds inverse to the weights; all
    numbers of decisions are tried. Speed and acceleration are unlimited, so this is a bound.

    Args:
      distance, weights: Distance and weights as for `cheapest`.

    Returns:
      The energy in J/kg, weighted like the decisions.
    """
    share = np.linspace(0.0, 1.0, 101)  # shares of the last decision

    def so_far(values: np.ndarray) -> np.ndarray:
        before = np.cumsum(values) - values
        return INTERVAL * (before[:, None] + share * values[:, None])

    with np.errstate(divide="ignore", invalid="ignore"):
        inverse = np.where(weights > 0, 1 / weights, np.inf)
        costs = RESTING * so_far(weights) + WALKING * distance**2 / so_far(inverse)
    return float(min(np.nanmin(costs), standing_cost(weights)))


def standing_cost(weights: np.ndarray) -> float:
    """The energy, in J/kg, of an agent that never moves."""
    return float(RESTING * INTERVAL * weights.sum())


def threshold(discount: Any) -> float:
    """The smallest distance, in m, at which no walk is cheaper than standing under a discount, by bisection."""
    weights = decision_weights(discount)
    low, high = 0.0, TIME_LIMIT * PRESETS["2022"].max_speed
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if least(middle, weights) < standing_cost(weights) else (low, middle)
    return low


def decision_weights(discount: Any) -> np.ndarray:
    """The weight of each decision of an episode under a discount, float64 `[DECISIONS]`."""
    return np.asarray(jaxrl.as_discount(discount).curve(DECISIONS), np.float64)[:DECISIONS]
