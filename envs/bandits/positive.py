"""Non-negative rewards: counts and waiting times."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from envs.bandits.base import BanditParams, BanditState, MeansBandit
from envs.bandits.checking import check_number, leaf

__all__ = ["ExponentialBandit", "PoissonBandit", "PositiveParams", "poisson"]

NEGLIGIBLE = 1e-9  # probability of a count beyond the mean, too small for a uniform number to resolve


@struct.dataclass
class PositiveParams(BanditParams):
    """A Gamma prior for every arm's mean, or the means themselves.

    Attributes:
      shape, rate: Parameters of the prior, each above 0; its mean is `shape / rate`.
      means: Means of the instance, float32 `[K]`, at least 0; None draws them from the prior.
    """

    shape: float = 2.0
    rate: float = 2.0
    means: Any = None

    def __post_init__(self) -> None:
        check_number("shape", self.shape, 0.0)
        check_number("rate", self.rate, 0.0)
        check_number("means", self.means, 0.0, closed="[)")


class _Positive(MeansBandit):
    """The base of both bandits: the prior of their means."""

    @property
    def default_params(self) -> PositiveParams:
        """Means around 1, or the given ones."""
        return PositiveParams(means=leaf(self.means))

    @property
    def reward_range(self) -> tuple[float, float] | None:
        """Any number that is not negative."""
        return 0.0, math.inf

    def draw(self, key: jax.Array, params: PositiveParams) -> jax.Array:
        """Means `[K]` from the Gamma prior."""
        return jax.random.gamma(key, params.shape, (self.num_arms,)) / params.rate


class PoissonBandit(_Positive):
    """Arms with Poisson-distributed rewards, each with its own mean.

    Args:
      num_arms: Number of arms drawn from the prior; omitted where means are given.
      means: Means of the instance, in place of the prior.

    Raises:
      ValueError: There are fewer than two arms, or a mean is negative or not finite.
    """

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "bandit/poisson"

    def reward(self, key: jax.Array, state: BanditState, action: jax.Array, params: PositiveParams) -> jax.Array:
        """A Poisson variate with the arm's mean."""
        del params
        return poisson(key, state.values[action])


class ExponentialBandit(_Positive):
    """Arms with exponentially distributed rewards, each with its own mean.

    Args:
      num_arms: Number of arms drawn from the prior; omitted where means are given.
      means: Means of the instance, in place of the prior.

    Raises:
      ValueError: There are fewer than two arms, or a mean is negative or not finite.
    """

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "bandit/exponential"

    def reward(self, key: jax.Array, state: BanditState, action: jax.Array, params: PositiveParams) -> jax.Array:
        """An exponential variate with the arm's mean."""
        del params
        return state.values[action] * jax.random.exponential(key)


def poisson(key: jax.Array, mean: jax.Array) -> jax.Array:
    """A Poisson variate by inversion of its distribution function, from one uniform variate.

    Under `vmap` on a CPU it costs a twentieth of `jax.random.poisson` at small means. The number of steps is about the
    largest variate of the batch. Probabilities are summed in float32, with an error of at most 1e-4 up to a mean of
    1000.

    Args:
      key: Random key.
      mean: Mean, float32 `[]`, at least 0, traced.

    Returns:
      float32 `[]`, a whole number.
    """
    uniform, log_mean = jax.random.uniform(key), jnp.log(mean)

    def short(carry: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        count, log_probability, total = carry
        return (uniform >= total) & ((count < mean) | (log_probability > math.log(NEGLIGIBLE)))

    def count_on(carry: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        count, log_probability, total = carry
        log_probability = log_probability + log_mean - jnp.log(count + 1)
        return count + 1, log_probability, total + jnp.exp(log_probability)

    first = (jnp.zeros(()), jnp.asarray(-mean, jnp.float32), jnp.exp(jnp.asarray(-mean, jnp.float32)))
    return jax.lax.while_loop(short, count_on, first)[0]
