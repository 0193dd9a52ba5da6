"""The best escapements of a fishery under any discount: dynamic programming over the stock, in float64.

The escapement is the part of the stock that a harvest leaves. Rewards are harvests and the growth depends on the
escapement alone, so that a plan needs the stock only as a limit of the escapement. Stocks lie on a grid, between whose
points values are interpolated. Escapements are points of it, to which a maximum is insensitive; the value of a
sophisticated policy is not one, and there they are the vertices of parabolas.
"""

from typing import Any, NamedTuple

import numpy as np

from envs.pytrees import Number

__all__ = ["Fish", "Harvests", "precommitted", "sophisticated", "stationary"]

POINTS = 2001
NODES = 16


class Fish(NamedTuple):
    """A stock of fish.

    Attributes:
      stock: Stock at the start.
      growth_rate: Growth rate r.
      capacity: Stock K that does not grow.
      noise: Half-width of the uniform factor of the growth, whose mean is 1.
    """

    stock: float
    growth_rate: float
    capacity: float
    noise: float

    def grown(self, escapement: Number) -> Any:
        """The mean of the next stock."""
        return escapement * (1 + self.growth_rate * (1 - escapement / self.capacity))

    def highest(self) -> float:
        """The highest stock that can be reached: that of the start, or that which the best noise maintains."""
        peak = self.capacity * (1 + self.growth_rate) / (2 * self.growth_rate)
        kept = self.capacity * (1 + self.noise / (self.growth_rate * (1 + self.noise)))
        return max(self.stock, kept if kept <= peak else (1 + self.noise) * self.grown(peak))


class Harvests(NamedTuple):
    """A policy, with its value.

    Attributes:
      value: Expected sum of the harvests of an episode, weighted from its start.
      escapements: What each harvest leaves of the highest stock, float64 `[T]`; of a lower stock a precommitted or
        stationary policy leaves as much, or all of it if it is less.
    """

    value: float
    escapements: np.ndarray


def precommitted(fish: Fish, curve: np.ndarray) -> Harvests:
    """The best weighted harvest over all policies.

    Args:
      fish: Stock of fish.
      curve: Weight of each harvest, Gamma(0), ..., Gamma(T - 1), float64 `[T]`.
    """
    stocks, after = _transitions(fish)
    values, left = np.zeros(len(stocks)), np.zeros(len(curve))
    for step in reversed(range(len(curve))):
        worth = after @ values - curve[step] * stocks
        values, left[step] = curve[step] * stocks + np.maximum.accumulate(worth), stocks[np.argmax(worth)]
    return Harvests(float(np.interp(fish.stock, stocks, values)), left)


def sophisticated(fish: Fish, curve: np.ndarray) -> Harvests:
    """The policy of which no change of a single harvest pays; see `precommitted`."""
    stocks, after = _transitions(fish)
    points = np.arange(len(stocks))
    expected = np.zeros((len(stocks), 0))  # harvest at each lag from the next step on
    left = np.zeros(len(curve))
    for step in reversed(range(len(curve))):
        grown = after @ expected
        worth = grown @ curve[1 : 1 + grown.shape[1]] - curve[0] * stocks
        highest = np.maximum.accumulate(worth)
        chosen = np.maximum.accumulate(np.where(worth == highest, points, 0))
        shift = np.where(chosen < points, _vertex(worth)[chosen], 0.0)  # from the point to the escapement
        beside, share = chosen + np.sign(shift).astype(int), np.abs(shift)[:, None]
        harvest = stocks - stocks[chosen] - shift * stocks[1]
        later = (1 - share) * grown[chosen] + share * grown[beside]
        expected, left[step] = np.concatenate([harvest[:, None], later], axis=1), stocks[-1] - harvest[-1]
    return Harvests(float(np.interp(fish.stock, stocks, expected @ curve)), left)


def stationary(fish: Fish, curve: np.ndarray) -> Harvests:
    """The best constant escapement; see `precommitted`."""
    stocks, after = _transitions(fish)
    points = np.arange(len(stocks))

    def value(limit: int) -> float:
        left = np.minimum(points, limit)
        values = np.zeros(len(stocks))
        for weight in curve[::-1]:
            values = weight * (stocks - stocks[left]) + (after @ values)[left]
        return float(np.interp(fish.stock, stocks, values))

    stride = 32
    coarse = max(range(0, len(stocks), stride), key=value)
    best = max(range(max(coarse - stride, 0), min(coarse + stride + 1, len(stocks))), key=value)
    return Harvests(value(best), np.full(len(curve), stocks[best]))


def _vertex(worth: np.ndarray) -> np.ndarray:
    """Places of the vertices of the parabolas through each point and its neighbours, from the point in steps `[S]`."""
    before, at, behind = worth[:-2], worth[1:-1], worth[2:]
    bend = 2 * at - before - behind
    inner = np.divide(behind - before, 2 * bend, out=np.zeros_like(at), where=bend > 0)
    return np.pad(np.clip(inner, -0.5, 0.5), 1)


def _transitions(fish: Fish) -> tuple[np.ndarray, Any]:
    """The grid of stocks `[S]`, and the sparse matrix `[S, S]` from values of stocks to their means after growth."""
    from scipy.sparse import csr_array

    stocks = np.linspace(0, fish.highest(), POINTS)
    nodes, weights = np.polynomial.legendre.leggauss(NODES if fish.noise else 1)
    following = np.outer(fish.grown(stocks), 1 + fish.noise * nodes)
    place = np.clip(following / stocks[1], 0, POINTS - 1)
    below = np.minimum(place.astype(int), POINTS - 2)
    share = place - below
    rows = np.broadcast_to(np.arange(POINTS)[:, None], below.shape)
    entries = [(weights / 2 * (1 - share), below), (weights / 2 * share, below + 1)]
    data, columns = (np.concatenate([np.ravel(each) for each in part]) for part in zip(*entries, strict=True))
    return stocks, csr_array((data, (np.tile(rows.ravel(), 2), columns)), shape=(POINTS, POINTS))
