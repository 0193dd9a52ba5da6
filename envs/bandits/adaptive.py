"""An adaptive adversary: rewards that respond to the pulls."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from flax import struct

from envs.bandits.adversarial import Adversary
from envs.bandits.base import BanditParams, BanditState, fresh
from envs.bandits.checking import check_number

__all__ = ["AdaptiveAdversary", "AdaptiveParams", "AdaptiveState"]


@struct.dataclass
class AdaptiveParams(BanditParams):
    """Parameters of the adversary's response.

    Attributes:
      rate: Rate of forgetting in [0, 1]: an arm's share of the pulls is an average with the weights
        rate (1 - rate)^age.
      strength: Share of its value that an arm loses if it is always pulled, in [0, 1].
    """

    rate: float = 0.05
    strength: float = 1.0

    def __post_init__(self) -> None:
        check_number("rate", self.rate, 0.0, 1.0, "[]")
        check_number("strength", self.strength, 0.0, 1.0, "[]")


@struct.dataclass
class AdaptiveState(BanditState):
    """The adversary's state.

    Attributes:
      shares: Shares of the recent pulls, float32 `[K]`.
    """

    shares: jax.Array


@dataclasses.dataclass(frozen=True)
class AdaptiveAdversary(Adversary):
    """Rewards of 0 and 1 that respond to the pulls: the more an arm has been pulled lately, the less it pays.

    The value of arm k is 1 - strength share_k. The adversary is adaptive, not oblivious: `regret`
    and `fixed_regret` compare with what other arms would have paid at the values that this run
    led to; with other pulls the values would have been different.

    Args:
      num_arms: Number of arms, K.

    Raises:
      ValueError: There are fewer than two arms.

    Source: Arora, Dekel and Tewari (2012), "Online bandit learning against an adaptive adversary",
    for the meaning of regret here; the adversary is this project's own.
    """

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "bandit/adaptive-adversary"

    @property
    def default_params(self) -> AdaptiveParams:
        """A memory of twenty pulls."""
        return AdaptiveParams()

    def instance(self, key: jax.Array, params: AdaptiveParams) -> AdaptiveState:
        """No arm has been pulled."""
        del key, params
        return AdaptiveState(**fresh(jnp.ones(self.num_arms)), shares=jnp.zeros(self.num_arms))

    def reward(self, key: jax.Array, state: AdaptiveState, action: jax.Array, params: AdaptiveParams) -> jax.Array:
        """1 with the value's probability, else 0."""
        del params
        return (jax.random.uniform(key) < state.values[action]).astype(jnp.float32)

    def drift(self, key: jax.Array, state: AdaptiveState, action: jax.Array, params: AdaptiveParams) -> AdaptiveState:
        """The adversary's response to a pull."""
        del key
        shares = state.shares + params.rate * (self.pulls(action) - state.shares)
        return dataclasses.replace(state, values=1 - params.strength * shares, shares=shares)
