"""Arms with features: values are a linear or logistic function of them, common to all arms."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs.arguments import check_count
from envs.bandits.base import Bandit, BanditParams, BanditState, fresh
from envs.bandits.batched_last import added, runs_last
from envs.bandits.checking import check_number, instance_array, numbers
from envs.bandits.normal_draws import normal
from envs.pytrees import Params

__all__ = ["ContextualState", "LinearBandit", "LinearParams", "LogisticBandit", "LogisticParams"]


@struct.dataclass
class ContextualState(BanditState):
    """An instance, and the features shown before the next pull.

    Attributes:
      theta: Parameter vector, which policies have to learn, float32 `[d]`.
      features: Features of the arms at the next pull, each of length 1, float32 `[K, d]`.
    """

    theta: jax.Array
    features: jax.Array


@struct.dataclass
class LogisticParams(BanditParams):
    """A normal prior of theta, or theta itself.

    Attributes:
      prior_sigma: Standard deviation of each component around 0, at least 0; the logits theta . x of the values have
        the same standard deviation, because features have length 1.
      theta: Parameter vector of the instance, float32 `[d]`; None draws it from the prior.
    """

    prior_sigma: float = 2.0
    theta: Any = None

    def __post_init__(self) -> None:
        check_number("prior_sigma", self.prior_sigma, 0.0, closed="[)")
        check_number("theta", self.theta)


@struct.dataclass
class LinearParams(BanditParams):
    """A normal prior of theta, or theta itself, and the noise.

    Attributes:
      prior_sigma: Standard deviation of each component around 0, at least 0.
      sigma: Standard deviation of a reward, at least 0.
      theta: Parameter vector of the instance, float32 `[d]`; None draws it from the prior.
    """

    prior_sigma: float = 1.0
    sigma: float = 1.0
    theta: Any = None

    def __post_init__(self) -> None:
        check_number("prior_sigma", self.prior_sigma, 0.0, closed="[)")
        check_number("sigma", self.sigma, 0.0, closed="[)")
        check_number("theta", self.theta)


@dataclasses.dataclass(frozen=True)
class _Contextual(Bandit):
    """The base of both bandits: features `[K, d]`, uniform on the sphere, and values as a function of theta . x.

    Args:
      num_arms: Number of arms, K.
      num_features: Number of features, d; omitted where theta is given.
      redraw: Whether features are drawn again for every pull; otherwise an instance keeps its first ones.
      theta: Parameter vector of the instance, in place of the prior.

    Raises:
      ValueError: There are fewer than two arms or no features, or theta is not finite.
    """

    num_features: int = 5
    redraw: bool = True
    theta: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.theta is not None:
            object.__setattr__(self, "theta", numbers("theta", self.theta))
            object.__setattr__(self, "num_features", len(self.theta))
        check_count("num_features", self.num_features)

    @property
    def stationary(self) -> bool:
        """Whether an instance keeps its features."""
        return not self.redraw

    def link(self, score: jax.Array) -> jax.Array:
        """Expected rewards `[K]` of scores theta . x `[K]`."""
        raise NotImplementedError

    def instance(self, key: jax.Array, params: Params) -> ContextualState:
        """A given theta, or one drawn from the prior, and the first features."""
        theta_key, features_key = jax.random.split(key)
        if params.theta is None:
            theta = params.prior_sigma * jax.random.normal(theta_key, (self.num_features,))
        else:
            theta = instance_array("theta", params.theta, (self.num_features,))
        features = self._draw(features_key)
        return ContextualState(**fresh(self._values(features, theta)), theta=theta, features=features)

    def drift(self, key: jax.Array, state: ContextualState, action: jax.Array, params: Params) -> ContextualState:
        """New features, where they are drawn again for every pull."""
        del action, params
        if not self.redraw:
            return state
        features = self._draw(key)
        return dataclasses.replace(state, values=self._values(features, state.theta), features=features)

    def context(self, state: ContextualState, params: Params) -> jax.Array:
        """The features `[K, d]`."""
        del params
        return state.features

    def _values(self, features: jax.Array, theta: jax.Array) -> jax.Array:
        return self.link(_scores(features, theta))

    def _draw(self, key: jax.Array) -> jax.Array:
        """Directions `[K, d]`, uniform on the sphere."""
        return _directions(normal(key, (self.num_arms, self.num_features)))


@runs_last
def _scores(features: jax.Array, theta: jax.Array) -> jax.Array:
    return added(features[:, i] * theta[i] for i in range(theta.shape[0]))


@runs_last
def _directions(normal: jax.Array) -> jax.Array:
    """Rows `[K, d]` of length 1; rows of zeros are left unchanged."""
    length = jnp.sqrt(added(normal[:, i] ** 2 for i in range(normal.shape[1])))
    # Without the barrier the length is computed again for each of the features.
    shrink = jax.lax.optimization_barrier(1 / jnp.maximum(length, jnp.finfo(jnp.float32).tiny))
    return normal * shrink[:, None]


class LinearBandit(_Contextual):
    """Arms that pay theta . x plus normal noise, where x are features shown before the pull.

    Features have length 1, uniform on the sphere. The fields are those of `LogisticBandit`.

    Source: Abbasi-Yadkori, Pal and Szepesvari (2011), section 2.
    """

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "bandit/linear"

    @property
    def reward_range(self) -> tuple[float, float] | None:
        """All numbers."""
        return -math.inf, math.inf

    @property
    def default_params(self) -> LinearParams:
        """A theta from a standard normal, or the given one; noise of 1."""
        return LinearParams(theta=None if self.theta is None else np.asarray(self.theta, np.float32))

    def link(self, score: jax.Array) -> jax.Array:
        """The scores themselves."""
        return score

    def reward(self, key: jax.Array, state: ContextualState, action: jax.Array, params: LinearParams) -> jax.Array:
        """The value plus noise."""
        return jnp.asarray(state.values[action] + params.sigma * jax.random.normal(key), jnp.float32)


class LogisticBandit(_Contextual):
    """Arms that pay 1 with the probability sigmoid(theta . x), where x are features shown before the pull.

    Features have length 1, uniform on the sphere.

    Args:
      num_arms: Number of arms, K.
      num_features: Number of features, d; omitted where theta is given.
      redraw: Whether features are drawn again for every pull; otherwise an instance keeps its first ones.
      theta: Parameter vector of the instance, in place of the prior.

    Raises:
      ValueError: There are fewer than two arms or no features, or theta is not finite.

    Source: Filippi et al. (2010), "Parametric bandits: the generalized linear case".
    """

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "bandit/logistic"

    @property
    def reward_range(self) -> tuple[float, float] | None:
        """[0, 1]."""
        return 0.0, 1.0

    @property
    def default_params(self) -> LogisticParams:
        """A theta from a normal prior, or the given one."""
        return LogisticParams(theta=None if self.theta is None else np.asarray(self.theta, np.float32))

    def link(self, score: jax.Array) -> jax.Array:
        """Probabilities of 1."""
        return jax.nn.sigmoid(score)

    def reward(self, key: jax.Array, state: ContextualState, action: jax.Array, params: LogisticParams) -> jax.Array:
        """1 with the arm's probability, else 0."""
        del params
        return (jax.random.uniform(key) < state.values[action]).astype(jnp.float32)
