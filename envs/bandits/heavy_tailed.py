"""Rewards with heavy tails, whose averages converge slowly or whose variance is infinite."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from envs.bandits.base import BanditParams, BanditState, MeansBandit
from envs.bandits.checking import check_number, leaf

__all__ = ["ParetoBandit", "ParetoParams", "StudentBandit", "StudentParams", "fine_uniform"]

FINEST = 2.0**-23  # spacing of the numbers of jax.random.uniform


@struct.dataclass
class StudentParams(BanditParams):
    """A normal prior for every arm's mean, or the means themselves, and the noise.

    Attributes:
      prior_mean, prior_sigma: Mean and standard deviation of the prior, the latter at least 0.
      degrees: Degrees of freedom, above 1; up to 2 the variance is infinite.
      scale: Scale of the noise, at least 0.
      means: Means of the instance, float32 `[K]`; None draws them from the prior.
    """

    prior_mean: float = 0.0
    prior_sigma: float = 1.0
    degrees: float = 2.0
    scale: float = 1.0
    means: Any = None

    def __post_init__(self) -> None:
        check_number("prior_mean", self.prior_mean)
        check_number("prior_sigma", self.prior_sigma, 0.0, closed="[)")
        check_number("degrees", self.degrees, 1.0)
        check_number("scale", self.scale, 0.0, closed="[)")
        check_number("means", self.means)


@struct.dataclass
class ParetoParams(BanditParams):
    """A uniform prior for every arm's mean, or the means themselves, and the tail.

    Attributes:
      low, high: Bounds of the prior, each at least 0.
      tail: Index of the tail, above 1: P(reward > x) falls as x^-tail; up to 2 the variance is infinite.
      means: Means of the instance, float32 `[K]`, at least 0; None draws them from the prior.
    """

    low: float = 0.0
    high: float = 1.0
    tail: float = 1.8
    means: Any = None

    def __post_init__(self) -> None:
        check_number("low", self.low, 0.0, closed="[)")
        check_number("high", self.high, 0.0, closed="[)")
        check_number("tail", self.tail, 1.0)
        check_number("means", self.means, 0.0, closed="[)")


class StudentBandit(MeansBandit):
    """Arms that pay their own mean plus noise from Student's t distribution.

    Args:
      num_arms: Number of arms drawn from the prior; omitted where means are given.
      means: Means of the instance, in place of the prior.

    Raises:
      ValueError: There are fewer than two arms, or a mean is not finite.

    Source: Bubeck, Cesa-Bianchi and Lugosi (2013), "Bandits with heavy tail", for the problem;
    Bailey (1994), "Polar generation of random variates with the t-distribution".
    """

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "bandit/student-t"

    @property
    def default_params(self) -> StudentParams:
        """Two degrees of freedom: a finite mean and an infinite variance."""
        return StudentParams(means=leaf(self.means))

    @property
    def reward_range(self) -> tuple[float, float] | None:
        """All numbers."""
        return -math.inf, math.inf

    def draw(self, key: jax.Array, params: StudentParams) -> jax.Array:
        """Means `[K]` from the normal prior."""
        return params.prior_mean + params.prior_sigma * jax.random.normal(key, (self.num_arms,))

    def reward(self, key: jax.Array, state: BanditState, action: jax.Array, params: StudentParams) -> jax.Array:
        """The arm's mean plus noise."""
        radius_key, angle_key = jax.random.split(key)
        square = params.degrees * jnp.expm1(-2 / params.degrees * jnp.log(fine_uniform(radius_key)))
        noise = jnp.sqrt(square) * jnp.cos(2 * math.pi * jax.random.uniform(angle_key))
        return jnp.asarray(state.values[action] + params.scale * noise, jnp.float32)


class ParetoBandit(MeansBandit):
    """Arms with Pareto-distributed rewards, each with its own mean, and a common tail.

    Args:
      num_arms: Number of arms drawn from the prior; omitted where means are given.
      means: Means of the instance, in place of the prior.

    Raises:
      ValueError: There are fewer than two arms, or a mean is negative or not finite.

    Source: Bubeck, Cesa-Bianchi and Lugosi (2013), "Bandits with heavy tail".
    """

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "bandit/pareto"

    @property
    def default_params(self) -> ParetoParams:
        """Means between 0 and 1, and an infinite variance."""
        return ParetoParams(means=leaf(self.means))

    @property
    def reward_range(self) -> tuple[float, float] | None:
        """Any number that is not negative."""
        return 0.0, math.inf

    def draw(self, key: jax.Array, params: ParetoParams) -> jax.Array:
        """Means `[K]` from the uniform prior."""
        return params.low + (params.high - params.low) * jax.random.uniform(key, (self.num_arms,))

    def reward(self, key: jax.Array, state: BanditState, action: jax.Array, params: ParetoParams) -> jax.Array:
        """A Pareto variate with the arm's mean."""
        least = state.values[action] * (params.tail - 1) / params.tail
        return jnp.asarray(least * jnp.exp(-jnp.log(fine_uniform(key)) / params.tail), jnp.float32)


def fine_uniform(key: jax.Array) -> jax.Array:
    """A uniform variate in (0, 1] with a fine resolution near 0, for drawing the tail of a distribution.

    The smallest value is 2^-47. A smallest value of 2^-23 would lose 0.5 % of the mean of a Pareto variate with the
    tail 1.5; 2^-47 loses 2e-5 of it, and 4e-3 with the tail 1.2.

    Args:
      key: Random key.

    Returns:
      float32 `[]`.
    """
    coarse, fine = jax.random.uniform(key, (2,))
    return coarse + FINEST * (fine + FINEST / 2)
