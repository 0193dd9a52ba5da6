"""Linear-quadratic problems, solved in float64: what is best under any discount, in three senses, by Riccati equations.

The state follows x' = A x + B u + w, a step costs x'Qx + u'Ru + 2 x'Su, and an episode starts with a normal state. Laws
are linear, u_t = -K_t z_t, where z is the state, its estimate by a Kalman filter, or, for one gain at all steps, the
observation C x + v.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg as sla
from scipy.optimize import minimize

from envs.errors import UserValueError

__all__ = [
    "Infinite",
    "Law",
    "Problem",
    "best_stationary",
    "best_stationary_over_rates",
    "infinite_horizon",
    "precommitted",
    "sophisticated",
]

DEVIATIONS = 5.0  # of an action from its mean, within which it counts as always


class Problem(NamedTuple):
    """A linear-quadratic problem; arrays are float64.

    Attributes:
      a, b: Dynamics `[n, n]` and `[n, m]`.
      q, r, s: Costs `[n, n]`, `[m, m]` and `[n, m]`.
      noise: Covariance of the process noise, `[n, n]`.
      mean, spread: Mean `[n]` and covariance `[n, n]` of the first state.
      c, measurement: Observation `[p, n]` and the covariance of its noise `[p, p]`; None if the state is observed.
    """

    a: np.ndarray
    b: np.ndarray
    q: np.ndarray
    r: np.ndarray
    s: np.ndarray
    noise: np.ndarray
    mean: np.ndarray
    spread: np.ndarray
    c: np.ndarray | None = None
    measurement: np.ndarray | None = None


class Law(NamedTuple):
    """A linear law and what it attains.

    Attributes:
      gains: Gains `[T, m, n]`, or `[m, p]` of one for all steps.
      cost: Expected weighted cost of an episode.
      reach: Largest absolute mean of a number of an action plus five standard deviations.
    """

    gains: np.ndarray
    cost: float
    reach: float


class Infinite(NamedTuple):
    """The solution over an infinite horizon: value matrix `[n, n]`, gain `[m, n]` and expected cost."""

    value: np.ndarray
    gain: np.ndarray
    cost: float


def precommitted(problem: Problem, weights: np.ndarray) -> Law:
    """The law that minimises the expected cost, weighted by the step of an episode, by a time-varying Riccati equation.

    Args:
      problem: Problem.
      weights: Weights `[T]` of the costs at each step, Gamma(0), ..., Gamma(T - 1), at least 0.
    """
    gains = np.zeros((len(weights), *problem.b.T.shape))
    value = np.zeros_like(problem.a)
    for time in reversed(range(len(weights))):
        gains[time] = _best_gain(problem, value, weights[time])
        value = _symmetric(weights[time] * _stage(problem, gains[time]) + _after(problem, gains[time], value))
    return _evaluated(problem, gains, weights)


def sophisticated(problem: Problem, curve: np.ndarray) -> Law:
    """The law of which no change at a single step pays, by backward induction over the weights of delays.

    The step t minimises the costs from t on, weighted by Gamma(0), Gamma(1), ..., under the gains of all later steps.
    The cost of the law is weighted from the start of an episode.

    Args:
      problem: Problem.
      curve: Discount curve `[T]`, at least 0, with Gamma(0) above 0.
    """
    steps = len(curve)
    gains = np.zeros((steps, *problem.b.T.shape))
    by_delay = np.zeros((0, *problem.a.shape))  # the cost of each later step as a form in the next state
    for time in reversed(range(steps)):
        value = np.tensordot(curve[1 : steps - time], by_delay, axes=1)
        gains[time] = _best_gain(problem, value, curve[0])
        closed = problem.a - problem.b @ gains[time]
        by_delay = np.concatenate([_stage(problem, gains[time])[None], closed.T @ by_delay @ closed])
    return _evaluated(problem, gains, curve)


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


def infinite_horizon(problem: Problem, discount: float) -> Infinite:
    """The solution under an exponential discount and without a last step, by the algebraic Riccati equation.

    Args:
      problem: Problem whose state is observed.
      discount: Discount factor gamma, from 0 to 1.

    Raises:
      ValueError: The optimum is infinite: no gain keeps the discounted cost finite, or there is noise and no discount.
    """
    if not 0 <= discount <= 1:
        raise UserValueError(f"discount is {discount}; it takes a number from 0 to 1.")
    if discount == 1 and np.any(problem.noise):
        raise UserValueError(
            "discount is 1, under which noise has an infinite cost over an infinite horizon; it takes a number below 1."
        )
    root = np.sqrt(discount)
    try:
        value = sla.solve_discrete_are(root * problem.a, root * problem.b, problem.q, problem.r, s=problem.s)
    except np.linalg.LinAlgError:
        raise UserValueError(
            f"discount is {discount}, under which no linear law has a finite cost over an infinite horizon; it takes "
            "a lower one, or A and B that a gain stabilises."
        ) from None
    gain = _best_gain(problem, discount * value, 1.0)
    cost = problem.mean @ value @ problem.mean + np.sum(value * problem.spread)
    if discount < 1:
        cost += discount / (1 - discount) * np.sum(value * problem.noise)
    return Infinite(value, gain, float(cost))


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
      ValueError: No gain keeps the cost at every node finite, or a rate is not below 1.
    """
    rates, weights = np.asarray(rates, np.float64), np.asarray(weights, np.float64)
    if np.any(rates >= 1) or np.any(rates < 0):
        raise UserValueError(f"rates are {rates}; each takes a number from 0 to below 1.")
    firsts = [infinite_horizon(problem, rate).gain for rate in {float(np.max(rates)), float(np.median(rates))}]
    starting = problem.spread + np.outer(problem.mean, problem.mean)

    def cost(flat: np.ndarray) -> tuple[float, np.ndarray]:
        gain = flat.reshape(firsts[0].shape)
        closed, stage, total = problem.a - problem.b @ gain, _stage(problem, gain), 0.0
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
    each = [sla.solve_discrete_lyapunov(np.sqrt(rate) * closed.T, _stage(problem, gain)) for rate in rates]
    return Infinite(np.tensordot(weights, np.array(each), axes=1), gain, cost(gain.ravel())[0])


def _best_gain(problem: Problem, value: np.ndarray, weight: float) -> np.ndarray:
    """The gain that minimises the weighted cost of a step and a quadratic cost of the next state."""
    curvature = weight * problem.r + problem.b.T @ value @ problem.b
    slope = problem.b.T @ value @ problem.a + weight * problem.s.T
    if weight > 0:
        return sla.solve(curvature, slope, assume_a="pos")
    return np.linalg.pinv(curvature, hermitian=True) @ slope


def _stage(problem: Problem, gain: np.ndarray) -> np.ndarray:
    """The cost of a step under u = -K x, as a form in x."""
    cross = problem.s @ gain
    return problem.q + gain.T @ problem.r @ gain - cross - cross.T


def _after(problem: Problem, gain: np.ndarray, value: np.ndarray) -> np.ndarray:
    closed = problem.a - problem.b @ gain
    return closed.T @ value @ closed


def _symmetric(matrix: np.ndarray) -> np.ndarray:
    return (matrix + matrix.T) / 2


def _filtered(problem: Problem, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Covariances `[T, n, n]` of the error of the estimate at each step, and of the change of the estimate there."""
    if problem.c is None or problem.measurement is None:
        later = np.broadcast_to(problem.noise, (steps - 1, *problem.a.shape))
        return np.zeros((steps, *problem.a.shape)), np.concatenate([problem.spread[None], later])
    errors, changes, ahead = [], [], problem.spread
    for _ in range(steps):
        seen = problem.c @ ahead @ problem.c.T + problem.measurement
        change = ahead @ problem.c.T @ np.linalg.pinv(seen, hermitian=True) @ problem.c @ ahead
        changes.append(_symmetric(change))
        errors.append(ahead - changes[-1])
        ahead = problem.a @ errors[-1] @ problem.a.T + problem.noise
    return np.array(errors), np.array(changes)


def _evaluated(problem: Problem, gains: np.ndarray, weights: np.ndarray) -> Law:
    """A law of the state or its estimate, with its cost; the error of the estimate does not depend on the law."""
    errors, changes = _filtered(problem, len(weights))
    mean, spread = problem.mean, np.zeros_like(problem.a)
    cost, reach = 0.0, 0.0
    for gain, weight, error, change in zip(gains, weights, errors, changes, strict=True):
        spread = spread + change
        stage = _stage(problem, gain)
        cost += weight * (mean @ stage @ mean + np.sum(stage * spread) + np.sum(problem.q * error))
        reach = max(reach, _reach(gain @ mean, gain @ spread @ gain.T))
        closed = problem.a - problem.b @ gain
        mean, spread = closed @ mean, closed @ spread @ closed.T
    return Law(gains, float(cost), reach)


def _reach(mean: np.ndarray, covariance: np.ndarray) -> float:
    return float(np.max(np.abs(mean) + DEVIATIONS * np.sqrt(np.maximum(np.diag(covariance), 0.0))))


def _of_one_gain(problem: Problem, gain: np.ndarray, weights: np.ndarray) -> tuple[float, np.ndarray]:
    """Cost and its gradient of u = -F y at all steps: second moments forwards, then values backwards."""
    n, steps = len(problem.a), len(weights)
    c, seen = _observation(problem)
    closed, stage = problem.a - problem.b @ gain @ c, _stage(problem, gain @ c)
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
        reach = max(reach, _reach(gain @ c @ mean, gain @ (c @ spread @ c.T + seen) @ gain.T))
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

    best = min(map(search, firsts), key=lambda found: found.fun)
    around = np.abs(best.x) + 0.1 * np.max(np.abs(best.x), initial=1e-3)
    more = [search(best.x + around * generator.standard_normal(best.x.shape)) for _ in range(starts)]
    return min([best, *more], key=lambda found: found.fun).x.reshape(firsts[0].shape)
