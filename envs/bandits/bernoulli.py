"""Rewards of 0 and 1."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from envs.bandits.base import BanditParams, BanditState, MeansBandit
from envs.bandits.checking import check_number, leaf, numbers
from envs.bandits.variates import beta
from envs.errors import UserValueError


@struct.dataclass
class BernoulliParams(BanditParams):
    """A Beta prior for every arm's mean, or the means themselves.

    Attributes:
      alpha, beta: Parameters of the prior, each above 0; 1 and 1 is uniform.
      means: Means of the instance, float32 `[K]` in [0, 1]; None draws them from the prior.
    """

    alpha: float = 1.0
    beta: float = 1.0
    means: Any = None

    def __post_init__(self) -> None:
        check_number("alpha", self.alpha, 0.0)
        check_number("beta", self.beta, 0.0)
        check_number("means", self.means, 0.0, 1.0, "[]")


@dataclasses.dataclass(frozen=True)
class BernoulliBandit(MeansBandit):
    """Arms that pay 1, each with its own probability.

    Args:
      num_arms: Number of arms drawn from the prior; omitted where means are given.
      means: Means of the instance, in place of the prior.

    Raises:
      ValueError: There are fewer than two arms, or a mean is not in [0, 1].
    """

    def __post_init__(self) -> None:
        if self.means is not None and not all(0 <= mean <= 1 for mean in numbers("means", self.means)):
            raise UserValueError(f"means must lie in [0, 1], got {self.means}")
        super().__post_init__()

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "bandit/bernoulli"

    @property
    def default_params(self) -> BernoulliParams:
        """A uniform prior, or the given means."""
        return BernoulliParams(means=leaf(self.means))

    @property
    def reward_range(self) -> tuple[float, float]:
        """0 and 1."""
        return 0.0, 1.0

    def draw(self, key: jax.Array, params: BernoulliParams) -> jax.Array:
        """Means `[K]` from the Beta prior."""
        return beta(key, jnp.full(self.num_arms, params.alpha, jnp.float32), jnp.asarray(params.beta))

    def reward(self, key: jax.Array, state: BanditState, action: jax.Array, params: BernoulliParams) -> jax.Array:
        """1 with the arm's probability, else 0."""
        del params
        return (jax.random.uniform(key) < state.values[action]).astype(jnp.float32)
