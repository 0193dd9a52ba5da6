"""Arms whose values change with time, independently of the pulls: step by step, or in waves."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs.bandits.base import Bandit, BanditParams, BanditState, fresh
from envs.bandits.checking import check_choice, check_number, instance_array, leaf, numbers
from envs.errors import UserValueError
from envs.pytrees import Params

__all__ = [
    "Changing",
    "ChangingParams",
    "RandomWalkBandit",
    "RandomWalkParams",
    "SinusoidalBandit",
    "SinusoidalParams",
    "SinusoidalState",
]

REWARDS = ("bernoulli", "gaussian")


@struct.dataclass
class ChangingParams(BanditParams):
    """The range of values, and the noise.

    Attributes:
      low, high: Bounds of values, `low` below `high`; within [0, 1] for rewards of 0 and 1.
      sigma: Standard deviation of rewards with normal noise, at least 0; other rewards ignore it.
    """

    low: float = 0.0
    high: float = 1.0
    sigma: float = 0.5

    def __post_init__(self) -> None:
        check_number("low", self.low)
        check_number("high", self.high)
        check_number("sigma", self.sigma, 0.0, closed="[)")
        ends = [np.asarray(end) for end in (self.low, self.high) if isinstance(end, int | float | np.ndarray)]
        if len(ends) == 2 and all(end.dtype.kind in "fiu" for end in ends) and not np.all(ends[0] < ends[1]):
            raise UserValueError(f"low must be below high, got {self.low} and {self.high}")


@struct.dataclass
class RandomWalkParams(ChangingParams):
    """The speed of the random walk.

    Attributes:
      step: Standard deviation of a value's change between two pulls, at least 0; `low` and `high` are reflecting
        bounds.
      means: Initial values, float32 `[K]`; None to draw them between `low` and `high`.
    """

    step: float = 0.01
    means: Any = None

    def __post_init__(self) -> None:
        ChangingParams.__post_init__(self)
        check_number("step", self.step, 0.0, closed="[)")
        check_number("means", self.means)


@struct.dataclass
class SinusoidalParams(ChangingParams):
    """The length of a wave.

    Attributes:
      period: Number of pulls, above 0, in which values rise from `low` to `high` and fall back.
      phases: Phases in periods, float32 `[K]`; None draws them between 0 and 1.
    """

    period: float = 2000.0
    phases: Any = None

    def __post_init__(self) -> None:
        ChangingParams.__post_init__(self)
        check_number("period", self.period, 0.0)
        check_number("phases", self.phases)


@struct.dataclass
class SinusoidalState(BanditState):
    """An instance and its present state.

    Attributes:
      phases: Phases in periods, float32 `[K]`.
    """

    phases: jax.Array


@dataclasses.dataclass(frozen=True)
class Changing(Bandit):
    """The base class of bandits with changing values, which defines their rewards.

    Args:
      num_arms: Number of arms, K.
      rewards: Kind of rewards: "bernoulli" for 0 and 1, or "gaussian" for normal noise.

    Raises:
      ValueError: There are fewer than two arms, or `rewards` has another value.
    """

    rewards: str = "bernoulli"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("rewards", self.rewards, REWARDS)

    @property
    def stationary(self) -> bool:
        """Values change."""
        return False

    @property
    def reward_range(self) -> tuple[float, float] | None:
        """[0, 1], or all numbers with normal noise."""
        return (0.0, 1.0) if self.rewards == "bernoulli" else (-math.inf, math.inf)

    def reward(self, key: jax.Array, state: BanditState, action: jax.Array, params: Params) -> jax.Array:
        """1 with the value's probability, else 0; or the value plus noise."""
        value = state.values[action]
        if self.rewards == "bernoulli":
            return (jax.random.uniform(key) < value).astype(jnp.float32)
        return jnp.asarray(value + params.sigma * jax.random.normal(key), jnp.float32)

    def true_values(self, values: jax.Array) -> jax.Array:
        """The values clipped to the possible ones: probabilities for rewards of 0 and 1."""
        return jnp.clip(values, 0.0, 1.0) if self.rewards == "bernoulli" else values

    def draw(self, key: jax.Array, params: Params) -> jax.Array:
        """Values `[K]` drawn uniformly between `low` and `high`."""
        return params.low + (params.high - params.low) * jax.random.uniform(key, (self.num_arms,))


@dataclasses.dataclass(frozen=True)
class RandomWalkBandit(Changing):
    """Every value is an independent random walk of normal steps between two reflecting bounds.

    Args:
      num_arms: Number of arms, K.
      rewards: Kind of rewards: "bernoulli" for 0 and 1, or "gaussian" for normal noise.
      means: Initial values, in place of a draw; num_arms is then omitted.

    Raises:
      ValueError: There are fewer than two arms, `rewards` has another value, or a number is not finite.

    Source: Slivkins and Upfal (2008), "Adapting to a changing environment: the Brownian
    restless bandits".
    """

    means: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.means is not None:
            self._take("means", numbers("means", self.means))
        super().__post_init__()

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "bandit/random-walk"

    @property
    def default_params(self) -> RandomWalkParams:
        """Steps of a hundredth of the range."""
        return RandomWalkParams(means=leaf(self.means))

    def instance(self, key: jax.Array, params: RandomWalkParams) -> BanditState:
        """The given initial values, or drawn ones."""
        drawn = (
            self.draw(key, params) if params.means is None else instance_array("means", params.means, (self.num_arms,))
        )
        return BanditState(**fresh(self.true_values(jnp.clip(drawn, params.low, params.high))))

    def drift(self, key: jax.Array, state: BanditState, action: jax.Array, params: RandomWalkParams) -> BanditState:
        """A step of every value."""
        del action
        low, high = params.low, params.high
        values = state.values + params.step * jax.random.normal(key, (self.num_arms,))
        values = jnp.where(values > high, 2 * high - values, values)
        values = jnp.where(values < low, 2 * low - values, values)
        # A value is still outside only if its step is longer than the range.
        return dataclasses.replace(state, values=self.true_values(jnp.clip(values, low, high)))


@dataclasses.dataclass(frozen=True)
class SinusoidalBandit(Changing):
    """Every value is a wave of the same period and its own phase, so each arm is the best one at some time.

    Args:
      num_arms: Number of arms, K.
      rewards: Kind of rewards: "bernoulli" for 0 and 1, or "gaussian" for normal noise.
      phases: Phases of the waves in periods, in place of a draw; num_arms is then omitted.

    Raises:
      ValueError: There are fewer than two arms, `rewards` has another value, or a number is not finite.

    Source: Besbes, Gur and Zeevi (2014), "Stochastic multi-armed-bandit problem with
    non-stationary rewards", section 4.
    """

    phases: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.phases is not None:
            self._take("phases", numbers("phases", self.phases))
        super().__post_init__()

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "bandit/sinusoidal"

    @property
    def default_params(self) -> SinusoidalParams:
        """A period of two thousand pulls."""
        return SinusoidalParams(phases=leaf(self.phases))

    def instance(self, key: jax.Array, params: SinusoidalParams) -> SinusoidalState:
        """The given phases, or drawn ones."""
        arms = (self.num_arms,)
        phases = (
            jax.random.uniform(key, arms) if params.phases is None else instance_array("phases", params.phases, arms)
        )
        return SinusoidalState(**fresh(self._wave(jnp.zeros((), jnp.int32), phases, params)), phases=phases)

    def drift(
        self, key: jax.Array, state: SinusoidalState, action: jax.Array, params: SinusoidalParams
    ) -> SinusoidalState:
        """The wave at the next pull."""
        del key, action
        return dataclasses.replace(state, values=self._wave(state.time, state.phases, params))

    def _wave(self, time: jax.Array, phases: jax.Array, params: SinusoidalParams) -> jax.Array:
        # Take the remainder first, because the sine of many turns would lose precision.
        turns = jnp.mod(time.astype(jnp.float32), params.period) / params.period + phases
        middle, amplitude = (params.low + params.high) / 2, (params.high - params.low) / 2
        return self.true_values(middle + amplitude * jnp.sin(2 * math.pi * turns))
