"""Argument checks that environments and jaxrl share: one sentence with the argument, what it got and what it takes."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from envs.errors import UserValueError
from envs.spelling import near

__all__ = [
    "check_at_least",
    "check_choice",
    "check_count",
    "check_number",
    "check_positive",
    "described",
    "in_interval",
]


class _Text(str):
    """Text that stands for itself inside a container's repr."""

    def __repr__(self) -> str:
        return str(self)


def described(tree: Any) -> str:
    """Types and shapes of a pytree of arrays, of their shapes or of tracers, such as `float32[4]`."""
    import jax

    def leaf_text(leaf: Any) -> _Text:
        known = hasattr(leaf, "shape") and hasattr(leaf, "dtype")
        return _Text(f"{leaf.dtype}{list(leaf.shape)}" if known else repr(leaf))

    return str(jax.tree.map(leaf_text, tree))


def check_count(name: str, value: Any, least: int = 1, most: float = math.inf, why: str = "") -> None:
    """Refuse what is not a whole number in a range.

    Args:
      name: Name of the argument.
      value: What it got.
      least, most: Ends of the range, both taken.
      why: Clause that follows the range, such as ", the number of arms".
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        limits = f"of at least {least}" if most == math.inf else f"from {least} to {most}"
        raise UserValueError(f"{name} must be a whole number {limits}{why}, got {value!r}")


def check_choice(name: str, value: Any, choices: Iterable[Any]) -> None:
    """Refuse what is not one of the choices, and say which is meant where one is close."""
    choices = tuple(choices)
    if value not in choices:
        hint = near(value, map(str, choices)) if isinstance(value, str) else ""
        raise UserValueError(f"{name} must be one of {', '.join(map(str, choices))}, got {value!r}{hint}")


def check_positive(params: Any, *names: str) -> None:
    """Refuse parameters of an environment that are not above 0 and finite; each may have an axis of settings."""
    for name in names:
        values = np.atleast_1d(np.asarray(getattr(params, name)))
        for wrong in values[~((values > 0) & (values < math.inf))][:1]:
            raise UserValueError(f"env.{name} must be above 0 and finite, got {wrong}")


def check_at_least(params: Any, **least: float) -> None:
    """Refuse parameters of an environment below a bound, each by its name; each may have an axis of settings."""
    for name, bound in least.items():
        values = np.atleast_1d(np.asarray(getattr(params, name)))
        for wrong in values[~((values >= bound) & (values < math.inf))][:1]:
            raise UserValueError(f"env.{name} must be at least {bound} and finite, got {wrong}")


def in_interval(values: np.ndarray, low: float, high: float, closed: str) -> np.ndarray:
    """Whether each number lies between two ends, of which those that `closed` has a square bracket for belong to it."""
    above = values >= low if closed[0] == "[" else values > low
    below = values <= high if closed[1] == "]" else values < high
    return above & below


def check_number(name: str, value: Any, low: float = -math.inf, high: float = math.inf, closed: str = "()") -> None:
    """Refuse a number, or an array with one, outside its range; let None, tracers and placeholders be.

    Args:
      name: Name of the argument.
      value: Number or array, concrete or traced, of any shape.
      low, high: Ends of the range.
      closed: Ends that belong to it: "()", "[)", "(]" or "[]".

    Raises:
      ValueError: It lies outside, or is not a number.
    """
    if isinstance(value, list | tuple):
        raise UserValueError(f"{name} takes a number or an array such as np.array({list(value)}), got {value!r}")
    if isinstance(value, str | bool):
        raise UserValueError(f"{name} takes a number, got {value!r}")
    if not isinstance(value, int | float | np.ndarray | np.generic) or np.asarray(value).dtype.kind not in "fiu":
        return
    array = np.asarray(value)
    inside = in_interval(array, low, high, closed)
    if not np.all(inside):
        wrong = array[~inside].ravel()[0]
        raise UserValueError(f"{name} must lie in {closed[0]}{low}, {high}{closed[1]}, got {wrong}")
