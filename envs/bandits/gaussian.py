"""Rewards with normal noise."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from envs.bandits.base import BanditParams, BanditState, MeansBandit
from envs.bandits.checking import check_number, leaf

__all__ = ["GaussianBandit", "GaussianParams"]


@struct.dataclass
class GaussianParams(BanditParams):
    """A normal prior for every arm's mean, or the means themselves, and the noise.

    Attributes:
      prior_mean, prior_sigma: Mean and standard deviation of the prior, the latter at least 0.
      sigma: Standard deviation of a reward, at least 0.
      means: Means of the instance, float32 `[K]`; None draws them from the prior.
    """

    prior_mean: float = 0.0
    prior_sigma: float = 1.0
    sigma: float = 1.0
    means: Any = None

    def __post_init__(self) -> None:
        check_number("prior_mean", self.prior_mean)
        check_number("prior_sigma", self.prior_sigma, 0.0, closed="[)")
        check_number("sigma", self.sigma, 0.0, closed="[)")
        check_number("means", self.means)


@dataclasses.dataclass(frozen=True)
class GaussianBandit(MeansBandit):
    """Arms with normally distributed rewards, each around its own mean.

    Args:
      num_arms: Number of arms drawn from the prior; omitted where means are given.
      means: Means of the instance, in place of the prior.

    Raises:
      ValueError: There are fewer than two arms, or a mean is not finite.
    """

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "bandit/gaussian"

    @property
    def reward_range(self) -> tuple[float, float] | None:
        """All numbers."""
        return -math.inf, math.inf

    @property
    def default_params(self) -> GaussianParams:
        """Means from a standard normal, or the given ones; noise of 1."""
        return GaussianParams(means=leaf(self.means))

    def draw(self, key: jax.Array, params: GaussianParams) -> jax.Array:
        """Means `[K]` from the normal prior."""
        return params.prior_mean + params.prior_sigma * jax.random.normal(key, (self.num_arms,))

    def reward(self, key: jax.Array, state: BanditState, action: jax.Array, params: GaussianParams) -> jax.Array:
        """The arm's mean plus noise."""
        return jnp.asarray(state.values[action] + params.sigma * jax.random.normal(key), jnp.float32)
