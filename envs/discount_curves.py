"""Discount curves, for the exact values of tasks."""

import numpy as np
import numpy.typing as npt

from envs.errors import UserValueError
from envs.pytrees import DiscountLike

__all__ = ["at", "is_exponential", "of", "rises"]

_ROUNDING = 1e-6  # of a curve in float32


def at(curve: npt.ArrayLike, delays: npt.ArrayLike) -> np.ndarray:
    """Values of Gamma at given delays.

    Args:
      curve: Discount curve `[n]`, Gamma(0) = 1, Gamma(1), ...
      delays: Whole numbers of steps, of any shape.

    Returns:
      float64 of the delays' shape.

    Raises:
      ValueError: The curve is shorter than a delay.
    """
    table, where = np.asarray(curve, np.float64), np.asarray(delays)
    if table.ndim != 1 or len(table) <= where.max():
        raise UserValueError(
            f"curve has the shape {table.shape}; it takes at least {int(where.max()) + 1} entries along one axis."
        )
    return table[where]


def of(discount: DiscountLike, steps: int) -> np.ndarray:
    """Gamma(0), ..., Gamma(steps - 1) of a discount.

    Args:
      discount: None for no discounting, a number from 0 to 1, a curve `[>= steps]` that starts at 1, or an object with
        `curve(horizon)`, such as a discount of `jaxrl`.
      steps: Number of values, at least 1.

    Returns:
      float64 `[steps]`.

    Raises:
      ValueError: The number is out of range, the curve is too short, does not start at 1 or has values that are
        negative or not finite, or the discount is something else.
    """
    if discount is None:
        return np.ones(steps)
    curve = discount.curve(steps) if hasattr(discount, "curve") else discount
    table = np.asarray(curve)
    if table.dtype.kind not in "iuf" or (table.ndim == 0 and not 0 <= table <= 1):
        raise UserValueError(
            f"discount is {discount!r}; it takes None, a number from 0 to 1, a curve, or an object with curve(horizon)."
        )
    if table.ndim == 0:
        return np.float64(table) ** np.arange(steps)
    values = at(table, np.arange(steps))
    if not abs(values[0] - 1) <= _ROUNDING:
        raise UserValueError(f"discount must start at Gamma(0) = 1, got a curve that starts at {values[0]:.6g}.")
    for step in np.flatnonzero(~((values >= 0) & np.isfinite(values)))[:1]:
        raise UserValueError(f"discount must be finite and not negative, got {values[step]:.6g} at t = {step}.")
    return values


def rises(discount: DiscountLike, steps: int) -> bool:
    """Whether a later one of Gamma(0), ..., Gamma(steps - 1) exceeds an earlier one by more than 1e-6.

    Args:
      discount: See `of`; of an array that is shorter, its own values are compared, while `curve(steps)` of an object
        must be known.
      steps: Number of values, at least 1.

    Returns:
      False for None and numbers, whatever the number of steps.

    Raises:
      ValueError: See `of`.
    """
    if not hasattr(discount, "curve"):
        known = np.shape(discount)
        steps = min(steps, known[0]) if known else 1
    curve = of(discount, steps)
    return bool(np.any(curve - np.minimum.accumulate(curve) > _ROUNDING))


def is_exponential(curve: npt.ArrayLike) -> bool:
    """Whether Gamma(t) = Gamma(1)^t for all t, to 1e-6, the rounding of a curve in float32.

    Args:
      curve: Discount curve `[n]`, Gamma(0) = 1, Gamma(1), ...
    """
    table = np.asarray(curve, np.float64)
    powers = np.power(table[1] if len(table) > 1 else 1.0, np.arange(len(table)))
    return bool(np.all(np.abs(table - powers) <= _ROUNDING))
