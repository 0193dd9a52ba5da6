"""The best linear law with one gain at all steps, of the observation C x + v, and laws of all kinds, in float64."""

from typing import Any

import numpy as np
import scipy.linalg as sla
from scipy.optimize import minimize

from envs import base, discount_curves
from envs.control.riccati import (
    Infinite,
    Law,
    Problem,
    check_observed,
    growing_for_free,
    infinite_horizon,
    precommitted,
    reach_of,
    sophisticated,
    stage_cost,
)
from envs.errors import UserValueError
from envs.pytrees import DiscountLike

__all__ = ["best_law", "best_stationary", "best_stationary_over_rates"]


def best_law(
    problem: Problem, discount: DiscountLike, steps: int, kind: base.OptimumKind = "precommitted", starts: int = 3
) -> Law:
    """The law of a kind of optimum, see `envs.Environment.optimum`.

    Args:
      problem: Problem.
      discount: Discount, see `envs.Environment.optimum`.
      steps: Number of steps of an episode.
      kind: Kind of the optimum.
      starts: Number of random starts of the stationary one, see `best_stationary`.

    Raises:
      ValueError: There is no such kind, or the discount is invalid.
    """
    base.check_optimum_kind(kind)
    curve = discount_curves.of(discount, steps)
    if kind == "stationary":
        return best_stationary(problem, curve, starts)
    return precommitted(problem, curve) if kind == "precommitted" else sophisticated(problem, curve)


def best_stationary(problem: Problem, weights: np.ndarray, starts: int = 3) -> Law:
    """The best linear function of the present observation alone, the same at all steps.

    The expected cost is a rational function of the gain, whose gradient is exact; BFGS starts at the gains of the other
    two laws, and at random ones around the best of these. It need not be convex, so no proof excludes a better gain far
    from all starts.

    Args:
      problem: Problem.
      weights: Weights `[T]` of the costs at each step, at least 0.
      starts: Number of random starts.
    """
    back = np.linalg.pinv(_observation(problem)[0])
    laws = (precommitted(problem, weights).gains, sophisticated(problem, weights).gains)
    firsts = [gain @ back for law in laws for gain in (law[0], np.average(law, axis=0, weights=weights))]

    def cost(flat: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = _of_one_gain(problem, flat.reshape(firsts[0].shape), weights)
        return value, slope.ravel()

    gain = _minimised(cost, firsts, starts)
    return Law(gain, cost(gain.ravel())[0], _reach_of_one_gain(problem, gain, len(weights)))


def best_stationary_over_rates(problem: Problem, rates: np.ndarray, weights: np.ndarray, starts: int = 3) -> Infinite:
    """The best gain of one linear function of the state over an infinite horizon, under a mixture of exponentials.

    Args:
      problem: Problem whose state is observed.
      rates: Discount factors `[Q]` of the mixture's nodes, below 1.
      weights: Weights `[Q]` of the nodes, at least 0; their sum is 1.
      starts: Number of random starts, see `best_stationary`.

    Returns:
      The gain, its cost, and the mean over the nodes of its value matrices.

    Raises:
      ValueError: No gain keeps the cost at every node finite, some states grow and cost nothing, the state is observed
        in part, a rate is not below 1, or the weights are not one of each rate, at least 0, with the sum 1.
    """
    check_observed(problem)
    rates, weights = np.asarray(rates, np.float64), np.asarray(weights, np.float64)
    if rates.ndim != 1 or not rates.size or not np.all((rates >= 0) & (rates < 1)):
        raise UserValueError(f"rates are {rates}; each takes a number from 0 to below 1.")
    if weights.shape != rates.shape or not np.all(weights >= 0) or abs(np.sum(weights) - 1) > 1e-6:
        raise UserValueError(f"weights are {weights}; they take a number of at least 0 for each rate, with the sum 1.")
    if growing_for_free(problem, float(np.max(rates))) is not None:
        raise UserValueError(
            "problem has states that grow and cost nothing, where one gain at all steps has no known optimum; it takes "
            "a Q that sees all states that grow."
        )
    firsts = [infinite_horizon(problem, rate).gain for rate in {float(np.max(rates)), float(np.median(rates))}]
    starting = problem.spread + np.outer(problem.mean, problem.mean)

    def cost(flat: np.ndarray) -> tuple[float, np.ndarray]:
        gain = flat.reshape(firsts[0].shape)
        closed, stage, total = problem.a - problem.b @ gain, stage_cost(problem, gain), 0.0
        slope = np.zeros_like(gain)
        if np.max(rates) * np.max(np.abs(np.linalg.eigvals(closed))) ** 2 >= 1:
            return np.inf, slope.ravel()
        for rate, weight in zip(rates, weights, strict=True):
            moment = sla.solve_discrete_lyapunov(
                np.sqrt(rate) * closed, starting + rate / (1 - rate) * problem.noise, method="direct"
            )
            value = sla.solve_discrete_lyapunov(np.sqrt(rate) * closed.T, stage, method="direct")
            curvature = problem.r + rate * problem.b.T @ value @ problem.b
            slope += 2 * weight * (curvature @ gain - rate * problem.b.T @ value @ problem.a - problem.s.T) @ moment
            total += weight * np.sum(stage * moment)
        return float(total), slope.ravel()

    gain = _minimised(cost, firsts, starts)
    closed = problem.a - problem.b @ gain
    each = [sla.solve_discrete_lyapunov(np.sqrt(rate) * closed.T, stage_cost(problem, gain)) for rate in rates]
    return Infinite(np.tensordot(weights, np.array(each), axes=1), gain, cost(gain.ravel())[0])


def _of_one_gain(problem: Problem, gain: np.ndarray, weights: np.ndarray) -> tuple[float, np.ndarray]:
    """Cost and its gradient of u = -F y at all steps: second moments forwards, then values backwards."""
    n, steps = len(problem.a), len(weights)
    c, seen = _observation(problem)
    closed, stage = problem.a - problem.b @ gain @ c, stage_cost(problem, gain @ c)
    moved = problem.noise + problem.b @ gain @ seen @ gain.T @ problem.b.T
    moments, values = np.empty((steps, n, n)), np.zeros((steps + 1, n, n))
    with np.errstate(over="ignore", invalid="ignore"):
        moment = problem.spread + np.outer(problem.mean, problem.mean)
        for time in range(steps):
            moments[time] = moment
            moment = closed @ moment @ closed.T + moved
        for time in reversed(range(steps)):
            values[time] = weights[time] * stage + closed.T @ values[time + 1] @ closed
        seen_moments = c @ moments @ c.T + seen
        curvature = weights[:, None, None] * problem.r + problem.b.T @ values[1:] @ problem.b
        across = weights[:, None, None] * problem.s.T + problem.b.T @ values[1:] @ problem.a
        slope = np.sum(curvature @ gain @ seen_moments - across @ moments @ c.T, axis=0)
        cost = np.sum(np.tensordot(weights, moments, axes=1) * stage)
        cost += np.sum(weights) * np.sum((gain.T @ problem.r @ gain) * seen)
    return float(cost), 2 * slope


def _observation(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Observation matrix `[p, n]`, and the covariance of its noise."""
    n = len(problem.a)
    if problem.c is None or problem.measurement is None:
        return np.eye(n), np.zeros((n, n))
    return problem.c, problem.measurement


def _reach_of_one_gain(problem: Problem, gain: np.ndarray, steps: int) -> float:
    c, seen = _observation(problem)
    closed, moved = problem.a - problem.b @ gain @ c, problem.b @ gain @ seen @ gain.T @ problem.b.T
    mean, spread, reach = problem.mean, problem.spread, 0.0
    for _ in range(steps):
        reach = max(reach, reach_of(gain @ c @ mean, gain @ (c @ spread @ c.T + seen) @ gain.T))
        mean, spread = closed @ mean, closed @ spread @ closed.T + problem.noise + moved
    return reach


def _minimised(cost: Any, firsts: list[np.ndarray], starts: int) -> np.ndarray:
    """The argument with the least cost that BFGS finds from these starts, and from random ones around the best."""
    generator = np.random.default_rng(0)
    scale = min(cost(first.ravel())[0] for first in firsts) or 1.0

    def scaled(flat: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = cost(flat)
        return (value / scale, slope / scale) if np.isfinite(value) else (1e50, np.zeros_like(slope))

    def search(first: np.ndarray) -> Any:
        return minimize(scaled, first.ravel(), jac=True, method="BFGS", options={"gtol": 1e-8, "maxiter": 500})

    best = min(map(search, firsts), key=lambda result: result.fun)
    around = np.abs(best.x) + 0.1 * np.max(np.abs(best.x), initial=1e-3)
    more = [search(best.x + around * generator.standard_normal(best.x.shape)) for _ in range(starts)]
    return min([best, *more], key=lambda result: result.fun).x.reshape(firsts[0].shape)
