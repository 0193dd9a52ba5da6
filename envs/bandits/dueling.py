"""Arms that are compared in pairs: preferences of a judge by latent rewards."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from envs.bandits.base import Bandit, BanditParams, BanditState, fresh
from envs.bandits.checking import check_number, instance_array, leaf, numbers
from envs.base import spaces
from envs.errors import UserValueError
from envs.pytrees import Action, Params

__all__ = ["DuelingBandit", "DuelingParams", "preference"]


@struct.dataclass
class DuelingParams(BanditParams):
    """A normal prior for every arm's latent reward, or the latent rewards themselves.

    Attributes:
      scale: Standard deviation of the prior, above 0, which determines how certain the judge is; the
        prior's mean is 0, because only differences matter.
      rewards: Latent rewards of the instance, finite float32 `[K]`; None draws them from the prior.
    """

    scale: float = 1.0
    rewards: Any = None

    def __post_init__(self) -> None:
        check_number("scale", self.scale, 0.0)
        check_number("rewards", self.rewards)


@dataclasses.dataclass(frozen=True)
class DuelingBandit(Bandit):
    """A dueling bandit: a pull names two arms, and a judge answers which of them is preferred.

    The judge follows the model of Bradley and Terry: the first arm is preferred with the probability
    sigmoid(r_first - r_second) of their latent rewards r, which are `state.values`. The judge's
    answer, 1 for the first arm and 0 for the second, is the feedback of policies,
    `info["arrivals"]`, and is stored as `last_reward` and in the observation.

    The reward is a different quantity. Regret is computed from it, and policies of `run_bandit` do not see it: it is
    the mean over both arms of the probability of being preferred to the best arm. It is at most 1/2, attained by naming
    the best arm twice. A trainer that maximises it learns from answers to find the best arm.

    Actions are int32 `[2]`, or tuples of two; observations `[2 K + 2]` are those of a bandit,
    with a one-hot vector for each arm.

    Args:
      num_arms: Number of arms drawn from the prior; omitted where rewards are given.
      rewards: Latent rewards of the instance, in place of the prior.

    Raises:
      ValueError: There are fewer than two arms, or a reward is not finite.

    Source: Bradley and Terry (1952); regret as in Yue, Broder, Kleinberg and Joachims (2012), section 2.
    """

    rewards: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.rewards is not None:
            self._take("rewards", numbers("rewards", self.rewards))
        super().__post_init__()

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "bandit/dueling"

    @property
    def default_params(self) -> DuelingParams:
        """A standard normal prior, or the given latent rewards."""
        return DuelingParams(rewards=leaf(self.rewards))

    @property
    def reward_range(self) -> tuple[float, float]:
        """0 for two arms that are never preferred to the best arm, and 1/2 for the best arm named twice."""
        return 0.0, 0.5

    def instance(self, key: jax.Array, params: DuelingParams) -> BanditState:
        """The given latent rewards, or ones drawn from the prior."""
        if params.rewards is not None:
            rewards = instance_array("rewards", params.rewards, (self.num_arms,))
        else:
            rewards = params.scale * jax.random.normal(key, (self.num_arms,))
        return BanditState(**fresh(rewards) | {"last_action": jnp.full(2, -1, jnp.int32)})

    def reward(self, key: jax.Array, state: BanditState, action: jax.Array, params: DuelingParams) -> jax.Array:
        """The reward from which regret is computed; it is not random."""
        del key
        return self.action_value(state, action, params)

    def answer(self, key: jax.Array, state: BanditState, action: jax.Array) -> jax.Array:
        """The judge's answer `[]`: 1 where the first arm is preferred, else 0."""
        chance = preference(state.values[action[0]], state.values[action[1]])
        return (jax.random.uniform(key) < chance).astype(jnp.float32)

    def action_value(self, state: BanditState, action: jax.Array, params: DuelingParams) -> jax.Array:
        """The mean over both arms of the probability of being preferred to the best arm."""
        del params
        first, second = self._pair(action)
        chances = preference(state.values, jnp.max(state.values))
        return (chances[first] + chances[second]) / 2

    def optimum(self, state: BanditState, params: DuelingParams) -> jax.Array:
        """1/2, the reward of naming the best arm twice."""
        del state, params
        return jnp.float32(0.5)

    def pulls(self, action: jax.Array) -> jax.Array:
        """The number of times that each arm is named: two ones, or one two."""
        return jnp.sum(_one_hots(action, self.num_arms), axis=0)

    def observe(self, state: BanditState, params: DuelingParams) -> jax.Array:
        """The observation `[2 K + 2]`: the compared arms, the answer, and the elapsed share of the episode."""
        past = jnp.stack([state.last_reward, state.time / jnp.float32(params.max_steps_in_episode)])
        return jnp.concatenate([jnp.ravel(_one_hots(state.last_action, self.num_arms)), past])

    def step_env(
        self, key: jax.Array, state: BanditState, action: Action, params: DuelingParams
    ) -> tuple[jax.Array, BanditState, jax.Array, jax.Array, dict[Any, Any]]:
        """One comparison.

        Raises:
          ValueError: The action is not a pair of arms, which is detected while tracing.
        """
        action = self._pair(action)
        optimum, value = self.optimum(state, params), self.action_value(state, action, params)
        answer = self.answer(key, state, action)
        state = dataclasses.replace(state, time=state.time + 1, last_action=action, last_reward=answer)
        metrics = {"regret": optimum - value, "optimal": (value >= optimum).astype(jnp.float32)}
        info = {"metrics": metrics, "arrivals": (action[None], answer[None], jnp.ones(1, bool))}
        return self.observe(state, params), state, value, jnp.zeros((), bool), info

    def action_space(self, params: Params) -> Any:
        """The indices of two arms."""
        del params
        return spaces.Tuple((spaces.Discrete(self.num_arms), spaces.Discrete(self.num_arms)))

    def _pair(self, action: Action) -> jax.Array:
        action = jnp.stack(action) if isinstance(action, tuple) else action
        if action.shape != (2,):
            raise UserValueError(
                f"{self.name} takes two arms at a time, an action of the shape (2,), got one of the shape "
                f"{action.shape}: a policy for it is double-thompson"
            )
        return action


def preference(first: jax.Array, second: jax.Array) -> jax.Array:
    """The probability that the first of two latent rewards is preferred, after Bradley and Terry."""
    return jax.nn.sigmoid(first - second)


def _one_hots(action: jax.Array, num_arms: int) -> jax.Array:
    """Float32 `[2, K]`, zero before the first pull."""
    return (jnp.arange(num_arms) == action[:, None]).astype(jnp.float32)
