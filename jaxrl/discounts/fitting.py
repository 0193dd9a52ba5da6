"""The Beta-weighted discount, or the mixture of some rates, nearest to a curve, a discount or a belief on a hazard."""

from __future__ import annotations

import functools
from typing import Any

import chex
import jax
import numpy as np
import numpy.typing as npt

from envs.errors import UserTypeError, UserValueError
from jaxrl.checks import is_concrete
from jaxrl.discounts.exponential_mixture import ExponentialMixture
from jaxrl.discounts.families import BetaWeighted, Family, check_curve
from jaxrl.discounts.form import checked_horizon, to_host
from jaxrl.discounts.parsing import as_discount
from jaxrl.pytrees import DiscountLike

_LARGEST_ETA = 1e6
_STARTS = (0.01, 0.5, 1.0, 3.0)  # values of eta


def fit(target: DiscountLike, horizon: int | None = None, *, weights: npt.ArrayLike | None = None) -> BetaWeighted:
    """The Beta-weighted discount with the least squared distance to a curve.

    Computed on the host in float64. A constant hazard rate gives eta 0, and an exponential prior over the rate
    eta 1, exactly; `Exponential`, `Hyperbolic` and `BetaWeighted` discounts are returned unchanged.

    Args:
      target: Curve, `[n]` with n at least 3, that starts at 1 and never grows; or number, string, discount or prior of
        `jaxrl.hazards`, fitted up to `horizon`.
      horizon: Longest delay that counts, in steps, at least 2; None for a curve, whose length determines it.
      weights: Weight of each delay, `[n]` or `[horizon + 1]`, at least 0; None for equal weights.

    Returns:
      The discount. `jaxrl.plotting.discount_curves` plots it together with its target.

    Raises:
      ValueError: The curve does not start at 1, grows, leaves [0, 1], contains a nan, or is too short to determine
        mu and eta; or the horizon ends before a fixed-horizon discount does.
      TypeError: A horizon is given for a curve, or missing for anything else.
    """
    curve = target_curve(target, horizon, "fit")
    if weights is None:
        roots = np.ones(len(curve))
    else:
        roots = np.asarray(weights, np.float64)
        if roots.shape != curve.shape:
            raise UserValueError(f"weights must have the curve's shape {curve.shape}, got {roots.shape}.")
        if not np.all((roots >= 0) & np.isfinite(roots)) or np.count_nonzero(roots[1:]) < 2:
            raise UserValueError("weights must be finite, at least 0, and above 0 at two delays from 1 on.")
        roots = np.sqrt(roots)
    if np.all(curve[roots > 0] == 1):
        return BetaWeighted(1.0, 0.0)
    return _least_squares(curve, roots)


def fit_mixture(target: DiscountLike, rates: npt.ArrayLike, horizon: int | None = None) -> ExponentialMixture:
    """The mixture of some rates with the least squared distance to a curve.

    Computed on the host in float64, by non-negative least squares. A discount that is a mixture of these rates is
    recovered. Rates whose time scales 1 / (1 - rate) double from one to the next are within 0.02 of exponential curves
    between them, and closer to hyperbolic ones.

    Args:
      target: Curve, `[n]` with n at least 3, or number, string, discount or prior of `jaxrl.hazards`, as in `fit`.
      rates: Factors per step of the exponentials, `[Q]`, each in [0, 1].
      horizon: Longest delay that counts, in steps, at least 2; None for a curve, whose length determines it.

    Returns:
      The discount, whose weights may be 0.

    Raises:
      ValueError: A rate is out of range, or the target is not a curve, as in `fit`.
      TypeError: A horizon is given for a curve, or missing for anything else.

    Source: Lawson and Hanson (1974), Solving least squares problems, chapter 23.
    """
    from scipy import optimize

    curve = target_curve(target, horizon, "fit_mixture")
    rates = np.asarray(rates, np.float64)
    ExponentialMixture(rates, np.full(rates.shape, 1.0 / max(rates.size, 1)))  # raises an error for invalid rates
    powers = rates ** np.arange(len(curve))[:, None]
    # The sum 1 as an equation of a weight so large that the division below changes no digit of float32.
    sure = 1e4 * np.sqrt(len(curve))
    weights, _ = optimize.nnls(np.vstack([powers, np.full(rates.size, sure)]), np.append(curve, sure))
    return ExponentialMixture(rates, weights / weights.sum())


def target_curve(target: DiscountLike, horizon: int | None, function: str) -> np.ndarray:
    """A checked curve, float64 `[n]`, from what `fit` takes.

    Args:
      target, horizon: Arguments of `fit`.
      function: Name of the calling function, for messages.
    """
    if not is_concrete(target):
        raise UserTypeError(
            f"{function} takes known numbers and runs on the host: call it outside of jit, grad and vmap."
        )
    if isinstance(target, list | tuple) or (isinstance(target, np.ndarray | jax.Array) and np.ndim(target) > 0):
        if horizon is not None:
            raise UserTypeError(
                "horizon applies to a discount or a prior; the length of a curve determines its horizon."
            )
        curve = np.asarray(target, np.float64)
        if curve.ndim != 1:
            raise UserValueError(f"curve must be one-dimensional, got the shape {curve.shape}.")
    else:
        discount = as_discount(target)
        if horizon is None:
            raise UserTypeError(
                f"{function} needs a horizon, such as {function}({str(discount)!r}, horizon=500), unless given a curve."
            )
        horizon = checked_horizon(horizon, 2)
        if isinstance(discount, Family):
            if not discount.is_single():
                raise UserValueError(f"{function} takes one discount, got a stack; fit them one by one.")
            form = to_host(discount).form()
            end = np.inf if form.horizon is None else float(form.horizon)
            if horizon < end < np.inf:
                raise UserValueError(f"horizon must reach the end of {discount}, at {end:g}, got {horizon}.")
            curve = form.curve(horizon)
        else:
            curve = np.asarray(discount.curve(horizon), np.float64)
    check_curve(curve)
    if len(curve) < 3:
        raise UserValueError(f"curve must have at least 3 values to determine mu and eta, got {len(curve)}.")
    return curve


def _least_squares(curve: np.ndarray, roots: np.ndarray) -> BetaWeighted:
    from scipy import optimize

    chex.assert_rank([curve, roots], 1, custom_message="curve, roots")
    chex.assert_equal_shape([curve, roots], custom_message="curve, roots")

    solve = functools.partial(optimize.least_squares, jac="cs", xtol=1e-15, ftol=1e-15, gtol=1e-15)
    t = np.arange(len(curve) - 1)

    def parameters(x: np.ndarray) -> tuple[Any, Any]:  # 1 - mu and eta, from numbers of similar magnitude
        return np.exp(x[0]), x[1] / (1.0 - x[1])

    def residual(x: np.ndarray) -> np.ndarray:  # analytic in x, for derivatives by a complex step
        step, eta = parameters(x)
        product = np.cumprod(1.0 - step / (1.0 + t * (eta * step)))
        return roots * (np.concatenate([np.ones(1), product]) - curve)

    # 1 - mu from the first step, and from the delay at which half of the weight is gone.
    halves = np.flatnonzero(curve < 0.5)
    half = halves[0] if len(halves) else len(curve) / max(1.0 - curve[-1], 1e-9)
    low, high = [np.log(1e-12), 0.0], [0.0, _LARGEST_ETA / (1.0 + _LARGEST_ETA)]
    solutions = []
    for step in {float(1.0 - curve[1]), float(0.7 / half)}:
        for eta in _STARTS:
            start = [np.log(np.clip(step, 1e-11, 0.999)), eta / (1.0 + eta)]
            solution = solve(residual, start, bounds=(low, high))
            solutions.append((solution.cost, tuple(solution.x)))
    # An eta of 0 lies on the bound, which the solver approaches but does not reach.
    for _, (log_step, _) in list(solutions):
        at_zero = solve(lambda x: residual(np.asarray([x[0], 0.0 * x[0]])), [log_step], bounds=(low[:1], high[:1]))
        solutions.append((at_zero.cost, (at_zero.x[0], 0.0)))
    best = min(cost for cost, _ in solutions)
    # Among solutions that are equally good up to rounding, the one of least eta.
    good = [x for cost, x in solutions if cost <= best + 1e-26 * len(curve)]
    step, eta = parameters(np.asarray(min(good, key=lambda x: x[1])))
    return BetaWeighted(float(1.0 - step), float(eta))
