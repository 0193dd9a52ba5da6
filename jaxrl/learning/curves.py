"""Curves: hyper-parameters that change over a run, as values at evenly spaced points of it."""

from __future__ import annotations

from typing import Any, Self

import chex
import jax
import jax.numpy as jnp
import numpy as np

from envs.arguments import in_interval
from envs.errors import UserTypeError, UserValueError
from jaxrl.checks import Range, is_concrete
from jaxrl.learning.composites import Composite, as_array

__all__ = ["Curve", "check_curve_range"]


class Curve(Composite):
    """Hyper-parameter that changes over a run: values at evenly spaced points of it, and on straight lines between.

    Args:
      values: Values at K >= 2 points, `[K]`, the first at the start of the run and the last at its end, traced.

    It is taken in place of a number by the fields of hyper-parameters that `curves` of their class names, and covers
    `anneal_env_steps`, by default the whole run.

    Raises:
      TypeError: The values are not a sequence of numbers.
      ValueError: There are fewer than 2 values, or one is not finite.
    """

    prefix = "curve"
    names = ("values",)
    ranks = (1,)
    values: Any

    def __init__(self, values: Any) -> None:
        if isinstance(values, str) or not np.shape(values):
            raise UserTypeError(f"Curve takes a list of numbers, such as [1e-3, 3e-4, 0.0], got {values!r}")
        try:
            numbers = as_array(values)
        except (TypeError, ValueError):
            raise UserTypeError(f"Curve takes a list of numbers, such as [1e-3, 3e-4, 0.0], got {values!r}") from None
        if np.ndim(numbers) != 1 or len(numbers) < 2:
            raise UserValueError(f"Curve takes 2 values or more, along one axis, got {values!r}")
        if is_concrete(numbers) and not np.all(np.isfinite(np.asarray(numbers, np.float32))):
            raise UserValueError(f"Curve takes finite values, got {values!r}")
        object.__setattr__(self, "values", numbers)

    @classmethod
    def from_numbers(cls, numbers: list[float]) -> Self:
        return cls(numbers)

    def __repr__(self) -> str:
        if not self.is_single():
            return super().__repr__()
        return f"Curve([{str(self).partition(':')[2].replace(',', ', ')}])"

    def at(self, share: jax.Array) -> jax.Array:
        """Value after a share of the run, `[]` float32; a curve of equal values has exactly their value everywhere.

        Args:
          share: Share in [0, 1], `[]`, traced.
        """
        values = jnp.asarray(self.values, jnp.float32)
        chex.assert_rank([values, share], [1, 0], custom_message="values, share")
        position = share * (len(values) - 1)
        before = jnp.floor(position)
        here = jnp.arange(len(values)) == before  # a sum, because `vmap` would make a gather of an index
        low = jnp.sum(jnp.where(here, values, 0.0))
        high = jnp.sum(jnp.where(here, jnp.append(values[1:], values[-1]), 0.0))
        return low + (high - low) * (position - before)


def check_curve_range(name: str, curve: Curve, allowed: Range) -> None:
    """Check that all values of a curve are in a range in float32; traced ones and stacks pass.

    Raises:
      ValueError: A value is outside the range.
    """
    if not curve.is_single():
        return
    values = np.asarray(curve.values, np.float32)
    outside = values[~in_interval(values, *allowed)]
    if outside.size:
        raise UserValueError(f"{name} must lie in {allowed}, got {outside[0]} in {curve}")
