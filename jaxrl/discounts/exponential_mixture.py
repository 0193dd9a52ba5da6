"""The discount family of any mixture of exponentials: one weight for each rate."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from envs.errors import UserTypeError, UserValueError
from jaxrl.checks import is_concrete
from jaxrl.discounts.families import SHARE, Family, as_number, format_number
from jaxrl.discounts.form import Form
from jaxrl.pytrees import register_fields

__all__ = ["ExponentialMixture"]


@dataclasses.dataclass(frozen=True, eq=False)
class ExponentialMixture(Family):
    """Gamma(t) = sum_q weights_q rates_q^t: a mean of exponentials, from which every mixture here is made.

    Advantages take one reverse scan that carries `[Q, ...]`. One rate is `Exponential`, the rates gamma and 0 are
    `QuasiHyperbolic`, and the exponentials that another family's `mixture(horizon)` returns are that family up to the
    horizon. Weights are divided by their sum before use, so that Gamma(0) is 1 for traced weights too.

    Args:
      rates: Factors per step of the exponentials, `[Q]`, each in [0, 1]; traced.
      weights: Shares of the exponentials, `[Q]`, each at least 0, with the sum 1 up to the rounding of Q numbers to
        float32; traced.

    Raises:
      ValueError: A rate or a weight is out of range, the weights have another sum, or the shapes differ.
      TypeError: The rates or the weights are not a sequence of numbers.
    """

    prefix = "mixture"
    rates: Any = dataclasses.field(metadata=SHARE)
    weights: Any

    def __post_init__(self) -> None:
        for name in ("rates", "weights"):
            values = getattr(self, name)
            if isinstance(values, list | tuple):
                values = np.asarray([as_number(name, value) for value in values])
            if not isinstance(values, np.ndarray | jax.Array) or values.ndim == 0:
                raise UserTypeError(f"{name} takes a sequence of numbers such as [0.9, 0.99], got {values!r}.")
            object.__setattr__(self, name, values)
        if self.rates.shape != self.weights.shape or self.rates.shape[-1] == 0:
            raise UserValueError(
                f"rates and weights must have one shape, of at least one exponential, got {self.rates.shape} and "
                f"{self.weights.shape}."
            )
        super().__post_init__()
        object.__setattr__(self, "weights", as_number("weights", self.weights))
        if is_concrete(self.weights):
            _check_weights(np.asarray(self.weights))

    def form(self) -> Form:
        xp = np if is_concrete(self) else jnp
        rates, weights = xp.asarray(self.rates), xp.asarray(self.weights)
        weights = weights / weights.sum(-1, keepdims=True)
        mean, step = (weights * rates).sum(-1), (weights * (1.0 - rates)).sum(-1)
        return Form(mu=mean, step=step, rates=rates, weights=weights, only_nodes=True)

    def is_single(self) -> bool:
        return is_concrete(self) and np.ndim(self.rates) == np.ndim(self.weights) == 1

    def __str__(self) -> str:
        if not self.is_single():
            return repr(self)
        pairs = zip(np.asarray(self.rates), np.asarray(self.weights), strict=True)
        return f"{self.prefix}:{','.join(f'{format_number(rate)}={format_number(weight)}' for rate, weight in pairs)}"


def _check_weights(weights: np.ndarray) -> None:
    """Reject weights, `[*S, Q]`, that are negative, not finite, or have a sum that rounding does not explain."""
    for wrong in weights[~((weights >= 0) & np.isfinite(weights))][:1]:
        raise UserValueError(f"weights must be at least 0 and finite, got {wrong}.")
    sums = weights.astype(np.float32).sum(-1, dtype=np.float64)
    # Numbers e_q / sum(e) in float32: the sum is off by at most Q - 1 roundings, and each quotient by one more.
    tolerance = (weights.shape[-1] + 1) * 2.0**-24
    for wrong in np.ravel(sums)[np.ravel(np.abs(sums - 1.0) > tolerance)][:1]:
        raise UserValueError(f"weights must sum to 1, got weights that sum to {wrong:.9g}.")


register_fields(ExponentialMixture)
