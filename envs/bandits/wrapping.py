"""The base class of bandits that wrap another bandit."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from envs.bandits.base import Bandit, BanditParams, BanditState, fresh
from envs.bandits.bernoulli import BernoulliBandit, BernoulliParams
from envs.bandits.checking import agreed
from envs.base import MetricRule
from envs.errors import UserValueError
from envs.pytrees import Params, State

__all__ = ["Wrapped", "WrappedParams", "WrappedState"]


@struct.dataclass
class WrappedParams(BanditParams):
    """The parameters of the inner bandit, whose time limit does not apply.

    Attributes:
      inner: Parameters of the inner bandit; swept as `env.inner.alpha`.
    """

    inner: Any = dataclasses.field(default_factory=BernoulliParams)


@struct.dataclass
class WrappedState(BanditState):
    """The state of the inner bandit.

    Attributes:
      inner: State of the inner bandit.
    """

    inner: Any


@dataclasses.dataclass(frozen=True)
class Wrapped(Bandit):
    """A bandit around another one, which it leaves unchanged; a subclass adds to it.

    Args:
      num_arms: Number of arms of a Bernoulli bandit; omitted where `inner` is given.
      inner: Inner bandit; None for a Bernoulli bandit.

    Raises:
      ValueError: There are fewer than two arms, or `inner` is not a bandit whose actions are single arms.
    """

    inner: Bandit | None = None

    def __post_init__(self) -> None:
        if self.inner is not None:
            if not isinstance(self.inner, Bandit) or type(self.inner).action_space is not Bandit.action_space:
                raise UserValueError(f"inner must be a bandit whose actions are single arms, got {self.inner!r}")
            arms = agreed("num_arms", self.num_arms, self.inner.num_arms, "inner")
            object.__setattr__(self, "num_arms", arms)
        super().__post_init__()

    @property
    def bandit(self) -> Bandit:
        """The inner bandit."""
        return BernoulliBandit(self.num_arms) if self.inner is None else self.inner

    @property
    def stationary(self) -> bool:
        """Whether the inner bandit is stationary."""
        return self.bandit.stationary

    @property
    def reward_range(self) -> tuple[float, float] | None:
        """The reward range of the inner bandit."""
        return self.bandit.reward_range

    def check_params(self, params: Params) -> None:
        """Reject parameters that the inner bandit rejects."""
        self.bandit.check_params(params.inner)

    @property
    def metric_rules(self) -> Mapping[str, MetricRule]:
        """The metric rules of the inner bandit."""
        return self.bandit.metric_rules

    @property
    def interchangeable(self) -> bool:
        """Whether the inner bandit's arms may be shown in any order."""
        return self.bandit.interchangeable

    def within(self, key: jax.Array, params: WrappedParams) -> dict[str, Any]:
        """The fields of a `WrappedState` around a new instance."""
        inner = self.bandit.instance(key, params.inner)
        return {**fresh(inner.values), "inner": inner}

    def instance(self, key: jax.Array, params: Params) -> Any:
        """A new instance of the inner bandit."""
        return WrappedState(**self.within(key, params))

    def reward(self, key: jax.Array, state: State, action: jax.Array, params: Params) -> jax.Array:
        """The reward of the inner bandit."""
        return self.bandit.reward(key, state.inner, action, params.inner)

    def drift(self, key: jax.Array, state: State, action: jax.Array, params: Params) -> Any:
        """The drift of the inner bandit."""
        inner = dataclasses.replace(
            state.inner, time=state.time, last_action=state.last_action, last_reward=state.last_reward
        )
        inner = self.bandit.drift(key, inner, action, params.inner)
        return dataclasses.replace(state, values=jnp.asarray(inner.values), inner=inner)

    def context(self, state: State, params: Params) -> Any:
        """The context of the inner bandit."""
        return self.bandit.context(state.inner, params.inner)

    def action_mask(self, state: State, params: Params) -> Any:
        """The mask of the inner bandit."""
        return self.bandit.action_mask(state.inner, params.inner)
