"""Linear-quadratic problems, solved in float64: the best laws under any discount, by Riccati equations.

The state follows x' = A x + B u + w, a step costs x'Qx + u'Ru + 2 x'Su, and an episode starts with a normal state. Laws
are linear, u_t = -K_t z_t, where z is the state or its estimate by a Kalman filter.
"""

from typing import NamedTuple

import numpy as np
import scipy.linalg as sla

from envs.errors import UserValueError

__all__ = [
    "Infinite",
    "Law",
    "Problem",
    "infinite_horizon",
    "precommitted",
    "sophisticated",
    "unstabilised",
]

DEVIATIONS = 5.0  # of an action from its mean, within which it counts as always
_LEAST_WEIGHT = 2e-292  # smaller weights count as 0: their products with matrices lose their precision
_ROUNDING = 1e-9  # of a matrix, relative to its norm


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
    """A linear law, its expected cost and its largest actions.

    Attributes:
      gains: Gains `[T, m, n]`, or `[m, p]` of one for all steps.
      cost: Expected weighted cost of an episode.
      reach: Largest absolute mean of a number of an action plus five standard deviations.
    """

    gains: np.ndarray
    cost: float
    reach: float


class Infinite(NamedTuple):
    """The solution over an infinite horizon: value matrix `[n, n]`, gain `[m, n]` and expected cost.

    The gain does not stabilise states that grow and cost nothing.
    """

    value: np.ndarray
    gain: np.ndarray
    cost: float


def precommitted(problem: Problem, weights: np.ndarray) -> Law:
    """The law that minimises the expected cost, weighted by the step of an episode, by a time-varying Riccati equation.

    Args:
      problem: Problem.
      weights: Weights `[T]` of the costs at each step, Gamma(0), ..., Gamma(T - 1), at least 0; below 2e-292 they count
        as 0.
    """
    weights = np.where(np.asarray(weights) < _LEAST_WEIGHT, 0.0, weights)
    gains = np.zeros((len(weights), *problem.b.T.shape))
    value = np.zeros_like(problem.a)
    for time in reversed(range(len(weights))):
        gains[time] = _best_gain(problem, value, weights[time])
        value = _symmetric(weights[time] * stage_cost(problem, gains[time]) + _after(problem, gains[time], value))
    return _evaluated(problem, gains, weights)


def sophisticated(problem: Problem, curve: np.ndarray) -> Law:
    """The law that no change at a single step improves, by backward induction over the weights of delays.

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
        by_delay = np.concatenate([stage_cost(problem, gains[time])[None], closed.T @ by_delay @ closed])
    return _evaluated(problem, gains, curve)


def infinite_horizon(problem: Problem, discount: float) -> Infinite:
    """The solution under an exponential discount and without a last step, by the algebraic Riccati equation.

    Of the solutions of this equation it is the least one that is not negative, the limit of long horizons. States that
    cost nothing and grow without inputs have other solutions too: they are left out of the equation. A cost of at most
    1e-9 of the norm of Q counts as none.

    Args:
      problem: Problem whose state is observed.
      discount: Discount factor gamma, from 0 to 1.

    Raises:
      ValueError: The optimum is infinite: no gain keeps the discounted cost finite, or there is noise and no discount;
        or the state is observed in part, or the discount is not in its range.
    """
    check_observed(problem)
    if not 0 <= discount <= 1:
        raise UserValueError(f"discount is {discount}; it takes a number from 0 to 1.")
    if discount == 1 and np.any(problem.noise):
        raise UserValueError(
            "discount is 1, under which noise has an infinite cost over an infinite horizon; it takes a number below 1."
        )
    root, free = np.sqrt(discount), growing_for_free(problem, discount)
    try:
        if free is None:
            value = sla.solve_discrete_are(root * problem.a, root * problem.b, problem.q, problem.r, s=problem.s)
        else:
            value = _value_beyond(problem, root, free)
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


def check_observed(problem: Problem) -> None:
    """Reject a problem whose state is observed in part or with noise, for functions over an infinite horizon."""
    if problem.c is not None:
        raise UserValueError(
            f"problem has an observation c with the shape {problem.c.shape}, and over an infinite horizon it takes one "
            "whose state is observed, with c = None."
        )


def unstabilised(a: np.ndarray, b: np.ndarray) -> complex | None:
    """An eigenvalue beyond the unit circle that no gain changes, by the test of Hautus; None if there is none.

    Args:
      a, b: Dynamics `[n, n]` and `[n, m]`.
    """
    for eigenvalue in np.linalg.eigvals(a):
        if abs(eigenvalue) > 1 + 1e-6:
            shifted = np.concatenate([eigenvalue * np.eye(len(a)) - a, b], axis=1)
            if np.linalg.svd(shifted, compute_uv=False)[-1] <= 1e-6 * np.linalg.norm(shifted):
                return complex(eigenvalue) if eigenvalue.imag else float(eigenvalue.real)
    return None


def not_negative(matrix: np.ndarray) -> np.ndarray:
    """The nearest symmetric matrix without negative eigenvalues; the matrix itself if it has none.

    Args:
      matrix: Matrix `[n, n]`, symmetric to rounding.
    """
    sizes, vectors = np.linalg.eigh(_symmetric(matrix))
    return matrix if sizes[0] >= 0 else (vectors * np.maximum(sizes, 0.0)) @ vectors.T


def growing_for_free(problem: Problem, discount: float) -> np.ndarray | None:
    """An orthonormal basis `[n, k]` of states that cost nothing without inputs, if some grow; None otherwise.

    The inputs are those beyond the ones that minimise the cost of a step. States grow if their costs would not vanish
    under the discount: the pair of the discounted dynamics and the costs is not detectable.

    Args:
      problem: Problem whose state is observed.
      discount: Discount factor gamma, from 0 to 1.
    """
    a, q = _without_cross_term(problem)
    free = _null_space(q, float(np.linalg.norm(problem.q)))
    while free.shape[1]:
        moved = a @ free
        kept = _null_space(moved - free @ (free.T @ moved), float(np.linalg.norm(a)))
        if kept.shape[1] == free.shape[1]:
            break
        free = free @ kept
    growth = np.sqrt(discount) * np.abs(np.linalg.eigvals(free.T @ a @ free))
    return free if np.max(growth, initial=0.0) >= 1 - 1e-6 else None


def _value_beyond(problem: Problem, root: float, free: np.ndarray) -> np.ndarray:
    """The value of the states across those that cost nothing, which form a problem of their own."""
    a, q = _without_cross_term(problem)
    rest = sla.null_space(free.T)
    if not rest.shape[1]:
        return np.zeros_like(a)
    own = sla.solve_discrete_are(root * rest.T @ a @ rest, root * rest.T @ problem.b, rest.T @ q @ rest, problem.r)
    return rest @ own @ rest.T


def _without_cross_term(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """A and Q of the problem whose inputs are those beyond -R^-1 S' x."""
    gain = sla.solve(problem.r, problem.s.T, assume_a="pos")
    return problem.a - problem.b @ gain, _symmetric(problem.q - problem.s @ gain)


def _null_space(matrix: np.ndarray, scale: float) -> np.ndarray:
    """An orthonormal basis of the vectors that a matrix maps to 0, up to rounding relative to a scale."""
    _, sizes, rows = np.linalg.svd(matrix)
    return rows[np.count_nonzero(sizes > _ROUNDING * scale) :].T


def _best_gain(problem: Problem, value: np.ndarray, weight: float) -> np.ndarray:
    """The gain that minimises the weighted cost of a step and a quadratic cost of the next state."""
    curvature = weight * problem.r + problem.b.T @ value @ problem.b
    slope = problem.b.T @ value @ problem.a + weight * problem.s.T
    if weight > 0:
        try:
            return sla.solve(curvature, slope, assume_a="pos")
        except np.linalg.LinAlgError:
            raise UserValueError(
                "problem has states that grow and cost nothing, whose rounding grows too, over more steps than float64 "
                "can follow; it takes fewer steps, a slower growth or a Q that sees these states."
            ) from None
    return np.linalg.pinv(curvature, hermitian=True) @ slope


def stage_cost(problem: Problem, gain: np.ndarray) -> np.ndarray:
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
        stage = stage_cost(problem, gain)
        cost += weight * (mean @ stage @ mean + np.sum(stage * spread) + np.sum(problem.q * error))
        reach = max(reach, reach_of(gain @ mean, gain @ spread @ gain.T))
        closed = problem.a - problem.b @ gain
        mean, spread = closed @ mean, closed @ spread @ closed.T
    return Law(gains, float(cost), reach)


def reach_of(mean: np.ndarray, covariance: np.ndarray) -> float:
    return float(np.max(np.abs(mean) + DEVIATIONS * np.sqrt(np.maximum(np.diag(covariance), 0.0))))
