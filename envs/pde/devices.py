"""Sensors and actuators of a field on a circle: smooth shapes around places, as matrices."""

import numpy as np
import numpy.typing as npt

from envs.arguments import check_number
from envs.errors import UserValueError

__all__ = ["actuators", "evenly", "sensors"]


def evenly(count: int, shift: float = 0.0) -> np.ndarray:
    """Places `[count]` at equal distances, as shares of the circle.

    Args:
      count: Number of places.
      shift: Place of the first, in distances of neighbours.
    """
    return (np.arange(count) + shift) / count


def actuators(places: npt.ArrayLike, num_modes: int, width: float = 0.06) -> np.ndarray:
    """Force by point and actuator, `[num_modes, m]`, 1 at the place of the actuator.

    Args:
      places: Places `[m]` as shares of the circle.
      num_modes: Number of points of the field.
      width: Standard deviation, as a share of the circle, of the shape exp((cos(2 pi x) - 1) / (2 pi width)^2), nearly
        a normal density.

    Raises:
      ValueError: The width is not above 0, or the places are not numbers along one axis.
    """
    return np.exp(_exponents(places, num_modes, width)).T


def sensors(places: npt.ArrayLike, num_modes: int, width: float = 0.02) -> np.ndarray:
    """Weight by sensor and point, `[p, num_modes]`: a sensor shows a mean of the field around its place.

    Args:
      places, num_modes, width: See `actuators`; a width far below the distance of two points shows one of them.
    """
    exponents = _exponents(places, num_modes, width)
    shapes = np.exp(exponents - np.max(exponents, axis=1, keepdims=True))
    return shapes / np.sum(shapes, axis=1, keepdims=True)


def _exponents(places: npt.ArrayLike, num_modes: int, width: float) -> np.ndarray:
    places = np.asarray(places, np.float64)
    if places.ndim != 1 or not np.all(np.isfinite(places)):
        raise UserValueError(f"places take finite numbers along one axis, got {places.tolist()}")
    check_number("width", width, low=0.0)
    angles = 2 * np.pi * (np.arange(num_modes) / num_modes - places[:, None])
    return (np.cos(angles) - 1) / (2 * np.pi * width) ** 2
