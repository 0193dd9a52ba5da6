"""Checks of a bandit's numbers; the message of each error is one sentence."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from envs.arguments import check_choice, check_number
from envs.errors import UserValueError

__all__ = [
    "Unasked",
    "agreed",
    "check_choice",
    "check_number",
    "check_probabilities",
    "instance_array",
    "leaf",
    "numbers",
]


class Unasked(int):
    """A default number, which an instance passed to the constructor may replace."""


def check_probabilities(name: str, value: object) -> None:
    """Reject values that are not a distribution along the last axis: negative, or with a sum that is not 1.

    A sum of float32 may deviate from 1 by one rounding error per term.
    """
    check_number(name, value, 0.0, 1.0, "[]")
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        sums = np.sum(value, axis=-1, dtype=np.float64)
        wrong = np.abs(sums - 1) > value.shape[-1] * np.finfo(np.float32).eps
        if np.any(wrong):
            raise UserValueError(f"{name} must sum to 1, got {np.atleast_1d(sums)[np.atleast_1d(wrong)][0]:.7g}")


def numbers(name: str, values: Any) -> tuple[float, ...]:
    """A static field of numbers as a tuple, which can be hashed.

    Raises:
      ValueError: `values` is not a sequence of finite numbers.
    """
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "fiu" or not np.all(np.isfinite(array)):
        raise UserValueError(f"{name} must be a sequence of finite numbers, got {values!r}")
    return tuple(float(value) for value in array)


def agreed(name: str, asked: int, count: int, by: str) -> int:
    """Return the number that an instance determines, after a check that no other number was requested.

    Args:
      name: Name of the number, such as `num_arms`.
      asked: Requested number; `Unasked` for the default.
      count: Number that the instance determines.
      by: Name of the argument with the instance.

    Raises:
      ValueError: Another number was requested.
    """
    if isinstance(asked, Unasked):
        return Unasked(count)
    if asked != count:
        raise UserValueError(f"{name} is {asked!r}, but {by} has {count}; leave out {name}")
    return asked


def leaf(values: Any) -> np.ndarray | None:
    """A static field as a float32 leaf of the default parameters; None remains None."""
    return None if values is None else np.asarray(values, np.float32)


def instance_array(name: str, value: object, shape: tuple[int, ...]) -> jax.Array:
    """An instance's numbers as float32, after a check of their shape, which is known before compiling.

    Raises:
      ValueError: The shape is not `shape`.
    """
    array = jnp.asarray(value, jnp.float32)
    if array.shape != shape:
        raise UserValueError(f"{name} must have the shape {shape}, got {array.shape}")
    return array
