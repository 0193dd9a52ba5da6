"""Argument checks that every package uses: one sentence with the argument, what it got and what it takes."""

from typing import Any, NamedTuple

import jax
import numpy as np
from jax.core import Tracer

from envs.arguments import check_choice, check_count, in_interval
from envs.errors import UserTypeError, UserValueError

__all__ = [
    "Range",
    "check_choice",
    "check_count",
    "check_counts",
    "check_range",
    "effective",
    "is_concrete",
]


def is_concrete(tree: Any) -> bool:
    """Whether no leaf of `tree` is being traced, so that NumPy can compute with it."""
    return not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(tree))


def check_counts(settings: Any, **least: int) -> None:
    """Refuse fields of settings that are not whole numbers of at least so much, such as `seeds=2`."""
    for name, bound in least.items():
        check_count(name, getattr(settings, name), bound)


class Range(NamedTuple):
    """The numbers from `low` to `high`, each end among them or not; an infinite end that is not leaves finite numbers.

    Attributes:
      low, high: Ends.
      closed: Ends that belong to it: "[]", "[)" or "()".
    """

    low: float
    high: float
    closed: str = "[]"

    def __str__(self) -> str:
        return f"{self.closed[0]}{self.low}, {self.high}{self.closed[1]}"


def check_range(name: str, value: Any, allowed: Range) -> None:
    """Refuse what is not a number, or lies outside its range in float32; let arrays of a sweep and tracers be.

    Raises:
      TypeError: a list, a tuple, a string or a bool.
      ValueError: a number, or an array with one, outside the range.
    """
    if isinstance(value, list | tuple):
        raise UserTypeError(f"{name} takes one number, got {value!r}; several values make a sweep: use jaxrl.grid")
    if isinstance(value, str | bool):
        raise UserTypeError(f"{name} takes a number, got {value!r}")
    if not is_concrete(value) or not isinstance(value, int | float | np.ndarray | np.number | jax.Array):
        return
    with np.errstate(over="ignore"):
        numbers = np.asarray(value).astype(np.float32)
    if not np.all(in_interval(numbers, *allowed)):
        raise UserValueError(f"{name} must lie in {allowed}, got {value}")


def effective(name: str, value: Any, default: float, active: bool) -> Any:
    """The value of a hyper-parameter that has an effect, None for one without.

    Args:
      name, value: Name and value of the hyper-parameter; None stands for its default.
      default: Value where it is left out.
      active: Whether it has an effect on this environment and configuration.

    Raises:
      ValueError: it has none, and was changed.
    """
    if active:
        return default if value is None else value
    concrete = isinstance(value, int | float | np.ndarray | np.number)
    if concrete and np.any(np.asarray(value, np.float32) != np.float32(default)):
        raise UserValueError(f"{name} has no effect on this environment and configuration, got {value}; leave it out")
    return None
