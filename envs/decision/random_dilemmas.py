"""Random dilemmas: one choice between two random rewards after two random delays."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from flax import struct

from envs import base, discount_curves
from envs.arguments import check_at_least, check_positive, check_whole
from envs.base import spaces
from envs.pytrees import DiscountLike


@struct.dataclass
class RandomDilemmasState(base.EnvState):
    """The two rewards `[2]`, their delays in steps `[2]`, and the choice (0 before it)."""

    time: jax.Array
    rewards: jax.Array
    delays: jax.Array
    choice: jax.Array


@struct.dataclass
class RandomDilemmasParams(base.EnvParams):
    """Parameters of random dilemmas.

    Attributes:
      max_reward: Upper end of the rewards, which are uniform in [0, max_reward).
      max_delay: Number of delays; they are 0, 1, ..., max_delay - 1.
      max_steps_in_episode: Time limit, in steps.
    """

    max_reward: float = 5.0
    max_delay: int = 400
    max_steps_in_episode: int = 400


@dataclass(frozen=True)
class RandomDilemmas(base.Environment):
    """Choose one of two rewards, each with a delay, and wait for it: a test of whether choices follow the discount.

    The observation shows both rewards and both delays. After the choice both are those of the chosen reward, with the
    remaining steps, and `action_mask` allows only the chosen action.

    Source: the decision tasks of Kwiatkowski et al. (2023), "UGAE: a novel approach to
    non-exponential discounting".
    """

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "random-dilemmas"

    @property
    def default_params(self) -> RandomDilemmasParams:
        """Rewards up to 5, delays below 400 steps."""
        return RandomDilemmasParams()

    def check_params(self, params: RandomDilemmasParams) -> None:
        """Reject rewards that are not above 0, and a number of delays that is below 1 or not whole."""
        check_positive(params, "max_reward")
        check_at_least(params, max_delay=1)
        check_whole(params, "max_delay")

    @property
    def metric_rules(self) -> dict[str, base.MetricRule]:
        """`chosen_delay`: the delay that an episode chose, in steps."""
        return {"chosen_delay": "sum"}

    def reset_env(self, key: jax.Array, params: RandomDilemmasParams) -> tuple[jax.Array, RandomDilemmasState]:
        """The first observation `[4]` and state: a dilemma."""
        reward_key, delay_key = jax.random.split(key)
        zero = jnp.zeros((), jnp.int32)
        rewards = jax.random.uniform(reward_key, (2,)) * params.max_reward
        delays = jax.random.randint(delay_key, (2,), 0, params.max_delay, jnp.int32)
        state = RandomDilemmasState(zero, rewards.astype(jnp.float32), delays, zero)
        return _observe(state, params), state

    def step_env(
        self, key: jax.Array, state: RandomDilemmasState, action: jax.Array, params: RandomDilemmasParams
    ) -> tuple[jax.Array, RandomDilemmasState, jax.Array, jax.Array, dict[Any, Any]]:
        """Choose in the first step, then wait; the step with the delay's index pays and ends."""
        del key
        deciding = state.time == 0
        choice = jnp.where(deciding, action, state.choice).astype(jnp.int32)
        delay = state.delays[choice]
        paid = state.time >= delay
        reward = jnp.where(paid, state.rewards[choice], 0.0).astype(jnp.float32)
        state = RandomDilemmasState(state.time + 1, state.rewards, state.delays, choice)
        info = {"metrics": {"chosen_delay": jnp.where(deciding, delay, 0)}}
        return _observe(state, params), state, reward, paid, info

    def action_mask(self, state: RandomDilemmasState, params: RandomDilemmasParams) -> jax.Array:
        """Both actions at the start, then only the chosen one."""
        del params
        return (state.time == 0) | (jnp.arange(2) == state.choice)

    def action_space(self, params: RandomDilemmasParams | None = None) -> spaces.Discrete:
        """The index of one of the two rewards."""
        del params
        return spaces.Discrete(2)

    def observation_space(self, params: RandomDilemmasParams) -> spaces.Box:
        """Both rewards, and both delays as shares of the longest possible."""
        high = jnp.stack([jnp.float32(params.max_reward)] * 2 + [jnp.float32(1)] * 2)
        return spaces.Box(jnp.zeros(4, jnp.float32), high, (4,), jnp.float32)

    def optimum(
        self,
        params: RandomDilemmasParams | None = None,
        discount: DiscountLike = None,
        kind: base.OptimumKind = "precommitted",
    ) -> float:
        """The best return, by choosing the higher value in each dilemma; see `envs.Environment.optimum`.

        For two rewards uniform in [0, m) with weights a >= b the mean of the higher value is m (a / 2 + b^2 / (6 a)).
        All kinds are equal, because the first step decides alone.
        """
        base.check_optimum_kind(kind)
        params = self.checked_params(params)
        delays = np.arange(int(params.max_delay))
        curve = np.asarray(discount_curves.of(discount, len(delays)), np.float64)
        weights = np.where(delays < int(params.max_steps_in_episode), curve, 0.0)
        a, b = (choose(*np.meshgrid(weights, weights)) for choose in (np.maximum, np.minimum))
        share = np.divide(b, a, out=np.zeros_like(a), where=a > 0)
        return float(params.max_reward * np.mean(a / 2 + b * share / 6))

    def values(
        self, curve: npt.ArrayLike, obs: npt.ArrayLike, params: RandomDilemmasParams | None = None
    ) -> np.ndarray:
        """The values of the two choices.

        Args:
          curve: Discount curve `[>= max_delay]`, Gamma(0) = 1, Gamma(1), ...
          obs: Observations before the choice, `[..., 4]`.
          params: Parameters, concrete; None for the defaults.

        Returns:
          float64 `[..., 2]`, Gamma(delay) times the reward.
        """
        params = self.checked_params(params)
        numbers = np.asarray(obs, np.float64)
        delays = np.rint(numbers[..., 2:] * params.max_delay).astype(np.int64)
        return numbers[..., :2] * discount_curves.at(curve, delays)


def _observe(state: RandomDilemmasState, params: RandomDilemmasParams) -> jax.Array:
    chosen = jnp.full(2, state.choice)
    shown = jnp.where(state.time == 0, jnp.arange(2), chosen)
    left = jnp.maximum(state.delays[shown] - state.time, 0) / params.max_delay
    return jnp.concatenate([state.rewards[shown], left.astype(jnp.float32)])
