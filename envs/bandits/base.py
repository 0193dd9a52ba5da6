"""The base of all bandits: the state with its true values, one pull, and its observation."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from envs import base
from envs.arguments import check_count
from envs.bandits.batched_last import highest
from envs.bandits.checking import Unasked, agreed, instance_array, numbers
from envs.base import MetricRule, spaces
from envs.pytrees import Params, State

__all__ = ["Bandit", "BanditParams", "BanditState", "MeansBandit", "best", "check_num_arms", "fresh"]


@struct.dataclass
class BanditState(base.EnvState):
    """An instance and its present state.

    Attributes:
      time: Number of pulls so far, int32 `[]`.
      values: Expected reward of each arm at the next pull, float32 `[K]`; policies do not see it.
      last_action: Last action, int32; -1 before the first pull.
      last_reward: Last reward, float32 `[]`; 0 before the first pull.
    """

    time: jax.Array
    values: jax.Array
    last_action: jax.Array
    last_reward: jax.Array


@struct.dataclass
class BanditParams(base.EnvParams):
    """The length of an episode, for algorithms that learn over many instances; `run_bandit` sets its own."""

    max_steps_in_episode: int = 100


@dataclasses.dataclass(frozen=True)
class Bandit(base.Environment):
    """A bandit of `num_arms` arms; an episode is one instance, and it never terminates.

    A subclass defines `instance` and `reward`, and `drift` where values change. Its observation
    `[K + 2]` is sufficient for a recurrent policy: the last arm, one-hot, the last reward and the
    elapsed share of the episode; a subclass with contexts appends them.
    """

    num_arms: int = Unasked(10)

    def __post_init__(self) -> None:
        check_num_arms(self.num_arms)

    def _take(self, name: str, values: tuple[Any, ...]) -> None:
        """Set a field to one value per arm, and with it the number of arms."""
        object.__setattr__(self, name, values)
        object.__setattr__(self, "num_arms", agreed("num_arms", self.num_arms, len(values), name))

    @property
    def default_params(self) -> Any:
        """The prior from which instances are drawn, or the instance itself."""
        return BanditParams()

    @property
    def metric_rules(self) -> Mapping[str, MetricRule]:
        """Sum of the regret over an episode, mean of the pulls of a best arm."""
        return {"regret": "sum", "optimal": "mean"}

    @property
    def stationary(self) -> bool:
        """Whether values are constant within an episode."""
        return True

    @property
    def reward_range(self) -> tuple[float, float] | None:
        """The smallest and the largest reward of a pull, infinite where there is no bound; None if unknown."""
        return None

    @property
    def has_regret(self) -> bool:
        """Whether each pull has a best action, independent of later pulls; otherwise runs report rewards alone."""
        return True

    @property
    def interchangeable(self) -> bool:
        """Whether an action is one arm or several, so that a policy may be shown the arms in any order.

        `run_bandit` then draws an order for each run, by which policies break ties.
        """
        return True

    def known(self, state: State, params: Params) -> Any:
        """The parameters that a policy may use for planning: `params`, and the instance unless it is hidden."""
        del state
        return params

    def instance(self, key: jax.Array, params: Params) -> BanditState:
        """A new instance, before its first pull; see `fresh`."""
        raise NotImplementedError

    def reward(self, key: jax.Array, state: State, action: jax.Array, params: Params) -> jax.Array:
        """The reward `[]` of pulling an arm, drawn independently; its expectation is `state.values[action]`."""
        raise NotImplementedError

    def drift(self, key: jax.Array, state: State, action: jax.Array, params: Params) -> Any:
        """The state for the next pull, where values or contexts may change; by default the state itself."""
        del key, action, params
        return state

    def context(self, state: State, params: Params) -> Any:
        """The context that a policy may see before it pulls: None, or features float32 `[K, d]` of the arms."""
        del state, params
        return None

    def action_value(self, state: State, action: jax.Array, params: Params) -> jax.Array:
        """The expected reward `[]` of an action."""
        del params
        return state.values[action]

    def optimum(self, state: State, params: Params) -> jax.Array:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The expected reward `[]` of the best allowed action."""
        return best(state.values, self.action_mask(state, params))

    def pulls(self, action: jax.Array) -> jax.Array:
        """The number of times that an action pulls each arm, float32 `[K]`."""
        return (jnp.arange(self.num_arms) == action).astype(jnp.float32)

    def observe(self, state: State, params: Params) -> jax.Array:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The observation `[K + 2 + ...]`."""
        past = jnp.stack([state.last_reward, state.time / jnp.float32(params.max_steps_in_episode)])
        context = self.context(state, params)
        parts = [self.pulls(state.last_action), past, *(() if context is None else (jnp.ravel(context),))]
        return jnp.concatenate(parts)

    def reset_env(self, key: jax.Array, params: Params) -> tuple[jax.Array, Any]:
        """A new instance."""
        state = self.instance(key, params)
        return self.observe(state, params), state

    def step_env(
        self, key: jax.Array, state: State, action: jax.Array, params: Params
    ) -> tuple[jax.Array, Any, jax.Array, jax.Array, dict[Any, Any]]:
        """One pull."""
        optimum, value = self.optimum(state, params), self.action_value(state, action, params)
        reward = self.reward(key, state, action, params)
        pulled = dataclasses.replace(state, time=state.time + 1, last_action=action, last_reward=reward)
        state = self.drift(jax.random.fold_in(key, 1), pulled, action, params)
        metrics = {"regret": optimum - value, "optimal": (value >= optimum).astype(jnp.float32)}
        return self.observe(state, params), state, reward, jnp.zeros((), bool), {"metrics": metrics}

    def action_space(self, params: Params) -> spaces.Discrete:
        """The index of an arm."""
        del params
        return spaces.Discrete(self.num_arms)

    def observation_space(self, params: Params) -> spaces.Box:
        """All numbers: rewards may be unbounded."""
        shape = jax.eval_shape(lambda key: self.reset_env(key, params)[0], jax.random.key(0)).shape
        return spaces.Box(-math.inf, math.inf, shape, jnp.float32)


@dataclasses.dataclass(frozen=True)
class MeansBandit(Bandit):
    """Arms with one constant mean each, which make up the instance.

    A subclass defines `default_params`, which has a leaf `means` and refuses invalid ones, `draw` and `reward`.

    Args:
      num_arms: Number of arms drawn from the prior; omitted where means are given.
      means: Means of the instance, in place of the prior.

    Raises:
      ValueError: There are fewer than two arms, or a mean is impossible for the rewards.
    """

    means: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.means is not None:
            self._take("means", numbers("means", self.means))
        super().__post_init__()
        _ = self.default_params

    def draw(self, key: jax.Array, params: Params) -> jax.Array:
        """Means `[K]` from the prior."""
        raise NotImplementedError

    def instance(self, key: jax.Array, params: Params) -> BanditState:
        """The given means, or means drawn from the prior."""
        if params.means is not None:
            return BanditState(**fresh(instance_array("means", params.means, (self.num_arms,))))
        return BanditState(**fresh(jnp.asarray(self.draw(key, params), jnp.float32)))


def fresh(values: jax.Array) -> dict[str, jax.Array]:
    """The fields of a `BanditState` before the first pull, `BanditState(**fresh(values))`."""
    zero = jnp.zeros((), jnp.int32)
    return {"time": zero, "values": values, "last_action": zero - 1, "last_reward": jnp.zeros(())}


def best(values: jax.Array, mask: jax.Array | None) -> jax.Array:
    """The largest value among the arms that may be pulled; `mask` is bool `[K]`, None for all."""
    return highest(values if mask is None else jnp.where(mask, values, -jnp.inf))


def check_num_arms(num_arms: int) -> None:
    """Reject a number of arms below two."""
    check_count("num_arms", num_arms, 2)
