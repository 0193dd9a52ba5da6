"""Discount curves at given delays, for the exact values of the tasks."""

from typing import Any

import numpy as np
import numpy.typing as npt

from envs.errors import UserValueError


def at(curve: npt.ArrayLike, delays: Any) -> np.ndarray:
    """Gamma at some delays.

    Args:
      curve: `[n]`, Gamma(0) = 1, Gamma(1), ...
      delays: whole numbers of steps, any shape.

    Returns:
      float64 of the delays' shape.

    Raises:
      ValueError: the curve is shorter than a delay.
    """
    table, where = np.asarray(curve, np.float64), np.asarray(delays)
    if table.ndim != 1 or len(table) <= where.max():
        raise UserValueError(
            f"curve has the shape {table.shape}; it takes at least {int(where.max()) + 1} entries, in a row."
        )
    return table[where]
