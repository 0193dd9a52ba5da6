"""Beliefs about a hazard rate: an uncertain rate discounts the future by the Laplace transform of the belief.

With a constant hazard rate h, a reward t steps away is still available with probability exp(-h t). Under a prior over h
this probability is E[exp(-h t)], the prior's Laplace transform at t. Its rate of decay falls, because survival so far
is evidence for low rates. Each prior here has a `curve`, so it is a discount, applied lag by lag; `fit` finds the Beta
weights nearest to it, which cost less.

Source: Sozou (1998), On hyperbolic discounting and uncertain hazard rates; Fedus et al. (2019).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from envs.errors import UserValueError
from jaxrl.discounts.form import checked_horizon
from jaxrl.pytrees import register_fields

__all__ = ["ConstantHazard", "ExponentialHazard", "GammaHazard", "SampledHazard", "UniformHazard"]


class Hazard:
    """The base of the priors; their parameters are concrete, in events per step, and the leaves of a pytree."""

    def __init_subclass__(cls) -> None:
        register_fields(cls)

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            _check(name, value)

    def laplace(self, t: np.ndarray) -> np.ndarray:
        """E[exp(-h t)] for delays `t` of any shape, in float64."""
        raise NotImplementedError

    def curve(self, horizon: int) -> np.ndarray:
        """Gamma(0) ... Gamma(horizon), `[horizon + 1]` float64: the probability that a reward is still available."""
        return self.laplace(np.arange(checked_horizon(horizon, 0) + 1, dtype=np.float64))


@dataclasses.dataclass(frozen=True)
class ConstantHazard(Hazard):
    """A known hazard rate, which is exponential discounting at exp(-rate).

    Args:
      rate: Hazard rate, events per step, at least 0.
    """

    rate: float

    def laplace(self, t: np.ndarray) -> np.ndarray:
        return np.exp(-self.rate * t)


@dataclasses.dataclass(frozen=True)
class ExponentialHazard(Hazard):
    """A rate distributed exponentially, which is hyperbolic discounting, 1 / (1 + mean t).

    Args:
      mean: Mean of the rate, events per step, at least 0.
    """

    mean: float

    def laplace(self, t: np.ndarray) -> np.ndarray:
        return 1.0 / (1.0 + self.mean * t)


@dataclasses.dataclass(frozen=True)
class UniformHazard(Hazard):
    """A rate distributed uniformly.

    Args:
      low, high: Bounds of the rate, events per step, 0 <= low <= high.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.low > self.high:
            raise UserValueError(f"high must be at least low, got low {self.low} and high {self.high}.")

    def laplace(self, t: np.ndarray) -> np.ndarray:
        width = (self.high - self.low) * np.asarray(t, np.float64)
        some = np.where(width > 0, width, 1.0)
        return np.exp(-self.low * t) * np.where(width > 0, -np.expm1(-some) / some, 1.0)


@dataclasses.dataclass(frozen=True)
class GammaHazard(Hazard):
    """A rate with a gamma distribution, (1 + scale t)^-shape; shape 1 is the exponential prior.

    Args:
      shape: Shape of the distribution, above 0.
      scale: Scale of the distribution, events per step, at least 0; the mean is shape * scale.
    """

    shape: float
    scale: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shape == 0:
            raise UserValueError("shape must be above 0, got 0.")

    def laplace(self, t: np.ndarray) -> np.ndarray:
        return np.exp(-self.shape * np.log1p(self.scale * t))


@dataclasses.dataclass(frozen=True, eq=False)
class SampledHazard(Hazard):
    """A rate given by samples, all equally likely.

    Args:
      rates: Samples, `[n]`, events per step, each at least 0.
    """

    rates: Sequence[float] | npt.NDArray[np.floating]

    def __post_init__(self) -> None:
        rates = np.asarray(self.rates, np.float64)
        if rates.ndim != 1 or rates.size == 0:
            raise UserValueError(f"rates must be a sequence of at least one rate, got the shape {rates.shape}.")
        for rate in rates[~(np.isfinite(rates) & (rates >= 0))][:1]:
            _check("rates", rate)
        object.__setattr__(self, "rates", rates)

    def laplace(self, t: np.ndarray) -> np.ndarray:
        delays = np.asarray(t, np.float64)
        rates = np.asarray(self.rates)
        return np.asarray([np.exp(-rates * delay).mean() for delay in delays.ravel()]).reshape(delays.shape)


def _check(name: str, value: float) -> None:
    if isinstance(value, bool | str) or np.ndim(value) != 0 or not np.isfinite(value) or value < 0:
        raise UserValueError(f"{name} must be a hazard rate, a number of at least 0 and finite, got {value}.")
    with np.errstate(over="ignore"):
        used = np.float32(value)
    if not np.isfinite(used) or (used == 0) != (value == 0):
        raise UserValueError(
            f"{name} must be at least 0 and finite in float32 too, the precision in which it is used, got {value}."
        )
