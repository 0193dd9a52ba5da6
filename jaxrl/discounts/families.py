"""The discount families: each is a small pytree of parameters that resolves to the common form."""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Callable
from typing import Any, ClassVar

import chex
import jax
import jax.numpy as jnp
import numpy as np

from envs.errors import UserTypeError, UserValueError
from jaxrl.checks import is_concrete
from jaxrl.discounts.form import Form, checked_horizon, to_host
from jaxrl.pytrees import register_fields

# Metadata of fields: the rule that a parameter obeys, as error messages state it, and its test.
SHARE = {"rule": "lie in [0, 1]", "holds": lambda x: (x >= 0) & (x <= 1)}
_NOT_NEGATIVE = {"rule": "be at least 0 and finite", "holds": lambda x: (x >= 0) & np.isfinite(x)}
_STEPS = {"rule": "be a whole number of at least 1", "holds": lambda x: (x >= 1) & np.isfinite(x) & (x == np.round(x))}


class Family:
    """The base of the families of this module; each is a frozen dataclass, a pytree and a special case of `Form`.

    Parameters are numbers, arrays with a leading sweep axis, or tracers; they are used in float32. Numbers are checked
    when a discount is made, never when JAX rebuilds one from its leaves.
    """

    prefix: ClassVar[str]

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # pyright: ignore[reportArgumentType]
            if field.metadata:
                _check(self, field.name, **field.metadata)

    def form(self) -> Form:
        """The discount as the common form, `[*S]`."""
        raise NotImplementedError

    def curve(self, horizon: int) -> jax.Array:
        """Gamma(0) ... Gamma(horizon).

        Args:
          horizon: Longest delay, in steps, at least 0, static.

        Returns:
          `[*S, horizon + 1]` float32, where `*S` is the batch shape of the parameters.
        """
        return jnp.asarray(_resolve(self).curve(checked_horizon(horizon, 0)), jnp.float32)

    def mixture(self, horizon: int) -> tuple[jax.Array, jax.Array]:
        """The discount as a mixture of exponentials, valid up to `horizon`.

        Args:
          horizon: Longest delay for which it holds, in steps, at least 0, static.

        Returns:
          Rates and weights, `[*S, Q]` float32, with Gamma(t) = sum_q weights_q rates_q^t.

        Raises:
          ValueError: The family is not a mixture (`FixedHorizon`, `TruncatedDiscount`, `Tabulated`).
        """
        form = _resolve(self)
        if form.horizon is not None or form.table is not None:
            raise UserValueError(f"{type(self).__name__} is not a mixture of exponentials; use its curve(horizon).")
        rates, weights = form.broadcast().mixture(checked_horizon(horizon, 0))
        return jnp.asarray(rates, jnp.float32), jnp.asarray(weights, jnp.float32)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return False
        (own, shape), (others, other_shape) = jax.tree.flatten(self), jax.tree.flatten(other)
        if not is_concrete((own, others)):
            return self is other
        return shape == other_shape and all(np.array_equal(a, b) for a, b in zip(own, others, strict=True))

    def __hash__(self) -> int:
        return hash((type(self), str(self)))

    def is_single(self) -> bool:
        """Whether this is one discount with known parameters, neither a stack nor traced."""
        return is_concrete(self) and not any(np.ndim(leaf) for leaf in jax.tree.leaves(self))

    def __str__(self) -> str:
        """The string that parses back to this discount (the `repr` of traced or stacked ones)."""
        if not self.is_single():
            return repr(self)
        parts = []
        for field in dataclasses.fields(self):  # pyright: ignore[reportArgumentType]
            value = getattr(self, field.name)
            parts.append(f"{field.name}=" + (f"({value})" if isinstance(value, Family) else format_number(value)))
        return f"{self.prefix}:{','.join(parts)}"


@dataclasses.dataclass(frozen=True, eq=False)
class Exponential(Family):
    """Gamma(t) = gamma^t.

    Args:
      gamma: Factor per step, in [0, 1], traced.
    """

    prefix = "exp"
    gamma: Any = dataclasses.field(metadata=SHARE)

    def form(self) -> Form:
        return Form(mu=self.gamma, step=1.0 - self.gamma)


@dataclasses.dataclass(frozen=True, eq=False)
class QuasiHyperbolic(Family):
    """Gamma(t) = beta gamma^t for t >= 1, and Gamma(0) = 1: a drop in the first step, then exponential.

    Args:
      beta, gamma: Factor of the first step and factor per step, in [0, 1], traced.

    Source: Laibson (1997), Golden eggs and hyperbolic discounting.
    """

    prefix = "quasi"
    beta: Any = dataclasses.field(metadata=SHARE)
    gamma: Any = dataclasses.field(metadata=SHARE)

    def form(self) -> Form:
        return Form(mu=self.gamma, step=1.0 - self.gamma, beta=self.beta)


@dataclasses.dataclass(frozen=True, eq=False)
class Hyperbolic(Family):
    """Gamma(t) = 1 / (1 + k t).

    Args:
      k: Impatience per step, at least 0 and finite, traced. The first step, 1 / (1 + k), is that of an exponential with
        that rate.
    """

    prefix = "hyperbolic"
    k: Any = dataclasses.field(metadata=_NOT_NEGATIVE)

    def form(self) -> Form:
        return Form(mu=1.0 / (1.0 + self.k), step=self.k / (1.0 + self.k), eta=1.0 + 0.0 * self.k)


@dataclasses.dataclass(frozen=True, eq=False)
class BetaWeighted(Family):
    """Gamma(t) = E[gamma^t] for gamma distributed as Beta: exponential at eta = 0, hyperbolic at eta = 1.

    Args:
      mu: Mean of the Beta distribution, and so Gamma(1), in [0, 1]; traced.
      eta: Dispersion of the Beta distribution, at least 0 and finite, traced. In the usual parameters beta is 1 / eta
        and alpha is mu / (eta (1 - mu)).

    Source: Kwiatkowski et al. (2023), UGAE: a novel approach to non-exponential discounting.
    """

    prefix = "beta"
    mu: Any = dataclasses.field(metadata=SHARE)
    eta: Any = dataclasses.field(metadata=_NOT_NEGATIVE)

    def form(self) -> Form:
        return Form(mu=self.mu, step=1.0 - self.mu, eta=self.eta)


@dataclasses.dataclass(frozen=True, eq=False)
class FixedHorizon(Family):
    """Gamma(t) = 1 for t < horizon and 0 from there on: the sum of the next `horizon` rewards.

    Args:
      horizon: Number of steps with weight, a whole number of at least 1, traced.
    """

    prefix = "fixed"
    horizon: Any = dataclasses.field(metadata=_STEPS)

    def form(self) -> Form:
        zero = 0.0 * self.horizon
        return Form(mu=1.0 + zero, step=zero, horizon=self.horizon, has_mixture=False)


@dataclasses.dataclass(frozen=True, eq=False)
class TruncatedDiscount(Family):
    """Another discount up to a horizon: Gamma(t) = inner(t) for t < horizon and 0 from there on.

    Args:
      inner: Discount of one of these families.
      horizon: Number of steps with weight, a whole number of at least 1, traced.
    """

    prefix = "truncated"
    inner: Any
    horizon: Any = dataclasses.field(metadata=_STEPS)

    def __post_init__(self) -> None:
        if not isinstance(self.inner, Family):
            raise UserTypeError(f"inner takes a discount family such as Exponential(0.99), got {self.inner!r}.")
        super().__post_init__()

    def form(self) -> Form:
        form = self.inner.form()
        horizon = self.horizon
        if form.horizon is not None:
            horizon = (np if is_concrete(self) else jnp).minimum(horizon, form.horizon)
        return dataclasses.replace(form, horizon=horizon, has_mixture=False)

    def is_single(self) -> bool:
        return is_concrete(self) and self.inner.is_single() and np.ndim(self.horizon) == 0


@dataclasses.dataclass(frozen=True, eq=False, init=False)
class Tabulated(Family):
    """A curve as a list of values; Gamma is 0 past its end.

    Args:
      curve: Values by delay, `[n]`, starting at 1, within [0, 1] and never growing; traced. Stored as `values`.
    """

    prefix = "table"
    values: Any = dataclasses.field(init=False)

    def __init__(self, curve: Any) -> None:
        if isinstance(curve, list | tuple):
            curve = np.asarray([as_number("curve", value) for value in curve])
        if not isinstance(curve, np.ndarray | jax.Array) or curve.ndim == 0:
            raise UserTypeError(f"curve takes a sequence of numbers such as [1, 0.9, 0.5], got {curve!r}.")
        if is_concrete(curve):
            check_curve(np.asarray(curve))
        object.__setattr__(self, "values", curve)

    def form(self) -> Form:
        zero = 0.0 * self.values[..., 0]
        return Form(mu=1.0 + zero, step=zero, table=self.values, tail=zero, has_mixture=False)

    def is_single(self) -> bool:
        return is_concrete(self) and np.ndim(self.values) == 1

    def __str__(self) -> str:
        if not self.is_single():
            return repr(self)
        return f"{self.prefix}:{','.join(format_number(value) for value in np.asarray(self.values))}"


FAMILIES = (Exponential, QuasiHyperbolic, Hyperbolic, BetaWeighted, FixedHorizon, TruncatedDiscount, Tabulated)


def check_curve(values: np.ndarray, name: str = "curve") -> None:
    """Reject curves, `[*S, n]`, that do not start at 1, grow, or leave [0, 1]; `name` is their name in errors."""
    chex.assert_shape(values, (..., None), custom_message="values")
    if values.shape[-1] == 0:
        raise UserValueError(f"{name} must start at 1, got no values.")
    for start in values[..., 0][values[..., 0] != 1][:1]:
        raise UserValueError(f"{name} must start at 1, got {start:g}.")
    for position in np.argwhere(~((values >= 0) & (values <= 1)))[:1]:
        raise UserValueError(f"{name} must stay within [0, 1], got {values[tuple(position)]:g} at t = {position[-1]}.")
    for *row, t in np.argwhere(np.diff(values, axis=-1) > 0)[:1]:
        before, after = values[(*row, t)], values[(*row, t + 1)]
        raise UserValueError(f"{name} must never grow, got {before:g} at t = {t} and {after:g} after it.")


def format_number(value: object) -> str:
    """The shortest decimal that reads back as `value` in its own precision."""
    chex.assert_rank(value, 0, custom_message="value")
    array = np.asarray(value)
    text = repr(float(array)) if array.dtype == np.float64 or array.dtype.kind in "iu" else str(np.float32(array))
    return text.removesuffix(".0")


def _resolve(discount: Family) -> Form:
    return (to_host(discount) if is_concrete(discount) else discount).form()


def as_number(name: str, value: object) -> Any:
    """Python numbers as floats; arrays, tracers and abstract values as they are."""
    if isinstance(value, bool | np.bool_):
        raise UserTypeError(f"{name} takes a number, got {value!r}.")
    if isinstance(value, numbers.Real) and not isinstance(value, np.generic):
        return float(value) + 0.0  # turns -0.0 into 0.0, whose string differs
    if isinstance(value, np.generic | np.ndarray | jax.Array) and value.dtype.kind in "fiuV":
        return value
    if isinstance(value, jax.ShapeDtypeStruct):
        return value
    raise UserTypeError(f"{name} takes a number, got {value!r}.")


def _check(discount: Family, name: str, rule: str, holds: Callable[[np.ndarray], np.ndarray]) -> None:
    value = as_number(name, getattr(discount, name))
    if is_concrete(value) and not isinstance(value, jax.ShapeDtypeStruct):
        exact = np.asarray(value)
        for wrong in exact[~holds(exact)][:1]:
            raise UserValueError(f"{name} must {rule}, got {wrong}.")
        with np.errstate(over="ignore"):
            used = exact.astype(np.float32)
            # At the end of its range a parameter gives another kind of discount, such as one that never falls.
            at_end = ~holds(used) | ~holds(np.nextafter(used, -np.inf)) | ~holds(np.nextafter(used, np.inf))
        for position in np.argwhere((used != exact) & at_end)[:1]:
            raise UserValueError(
                f"{name} must {rule} in float32 too, the precision in which it is used, got "
                f"{exact[tuple(position)]}, which is {used[tuple(position)]:.9g} there."
            )
    object.__setattr__(discount, name, value)


for _family in FAMILIES:
    register_fields(_family)
