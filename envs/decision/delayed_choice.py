"""Delayed choice: one choice between two rewards, both paid much later."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from flax import struct

from envs import base, discount_curves
from envs.arguments import check_at_least, check_number, check_whole
from envs.base import spaces
from envs.pytrees import DiscountLike


@struct.dataclass
class DelayedChoiceState(base.EnvState):
    """The choice, 0 or 1 (0 before the choice)."""

    time: jax.Array
    choice: jax.Array


@struct.dataclass
class DelayedChoiceParams(base.EnvParams):
    """Parameters of a delayed choice.

    Attributes:
      first_reward: Reward of action 0.
      second_reward: Reward of action 1.
      num_steps: Number of steps of an episode; the reward is paid with the last of them.
      max_steps_in_episode: Time limit, in steps.
    """

    first_reward: float = 1.75
    second_reward: float = 1.0
    num_steps: int = 100
    max_steps_in_episode: int = 100


@dataclass(frozen=True)
class DelayedChoice(base.Environment):
    """A choice in the first step that is rewarded in the last of 100: a test of credit assignment over a long delay.

    The better action is the same under every discount; the difficulty is to learn it. Between the choice and its reward
    there are no decisions: `action_mask` allows only the chosen action.

    Source: the decision tasks of Kwiatkowski et al. (2023), "UGAE: a novel approach to
    non-exponential discounting".
    """

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "delayed-choice"

    @property
    def default_params(self) -> DelayedChoiceParams:
        """Rewards of 1.75 and 1, paid after 100 steps."""
        return DelayedChoiceParams()

    def check_params(self, params: DelayedChoiceParams) -> None:
        """Reject rewards that are not finite, and a number of steps that is below 1 or not whole."""
        for name in ("first_reward", "second_reward"):
            check_number(f"env.{name}", np.asarray(getattr(params, name)))
        check_at_least(params, num_steps=1)
        check_whole(params, "num_steps")

    @property
    def metric_rules(self) -> dict[str, base.MetricRule]:
        """`chose_first`: 1 in an episode that chose action 0."""
        return {"chose_first": "sum"}

    def reset_env(self, key: jax.Array, params: DelayedChoiceParams) -> tuple[jax.Array, DelayedChoiceState]:
        """The first observation `[3]` and state."""
        del key
        zero = jnp.zeros((), jnp.int32)
        state = DelayedChoiceState(zero, zero)
        return _observe(state, params), state

    def step_env(
        self, key: jax.Array, state: DelayedChoiceState, action: jax.Array, params: DelayedChoiceParams
    ) -> tuple[jax.Array, DelayedChoiceState, jax.Array, jax.Array, dict[Any, Any]]:
        """Choose in the first step, then wait, and receive the reward in the last."""
        del key
        deciding = state.time == 0
        choice = jnp.where(deciding, action, state.choice).astype(jnp.int32)
        state = DelayedChoiceState(state.time + 1, choice)
        paid = state.time >= params.num_steps
        pay = jnp.where(choice == 0, params.first_reward, params.second_reward)
        reward = jnp.where(paid, pay, 0.0).astype(jnp.float32)
        info = {"metrics": {"chose_first": deciding & (choice == 0)}}
        return _observe(state, params), state, reward, paid, info

    def action_mask(self, state: DelayedChoiceState, params: DelayedChoiceParams) -> jax.Array:
        """Both actions at the start, then only the chosen one."""
        del params
        return (state.time == 0) | (jnp.arange(2) == state.choice)

    def action_space(self, params: DelayedChoiceParams | None = None) -> spaces.Discrete:
        """0 for the first reward, 1 for the second."""
        del params
        return spaces.Discrete(2)

    def observation_space(self, params: DelayedChoiceParams) -> spaces.Box:
        """Whether the choice is ahead, the choice (-1 for action 0, 1 for 1), and the share of steps left."""
        del params
        return spaces.Box(-1.0, 1.0, (3,), jnp.float32)

    def values(self, curve: npt.ArrayLike, params: DelayedChoiceParams | None = None) -> np.ndarray:
        """The values of the two actions at the start.

        Args:
          curve: Discount curve `[>= num_steps]`, Gamma(0) = 1, Gamma(1), ...
          params: Parameters, concrete; None for the defaults.

        Returns:
          float64 `[2]`, Gamma(num_steps - 1) times the reward.
        """
        params = self.checked_params(params)
        rewards = np.array([params.first_reward, params.second_reward], np.float64)
        return rewards * discount_curves.at(curve, int(params.num_steps) - 1)

    def optimum(
        self,
        params: DelayedChoiceParams | None = None,
        discount: DiscountLike = None,
        kind: base.OptimumKind = "precommitted",
    ) -> float:
        """The higher value of the two actions; 0 if the time limit is shorter. See `envs.Environment.optimum`.

        All kinds are equal, because the first step decides alone.
        """
        base.check_optimum_kind(kind)
        params = self.checked_params(params)
        steps = int(params.num_steps)
        values = self.values(discount_curves.of(discount, steps), params)
        return float(np.max(values)) if int(params.max_steps_in_episode) >= steps else 0.0


def _observe(state: DelayedChoiceState, params: DelayedChoiceParams) -> jax.Array:
    deciding = state.time == 0
    left = jnp.maximum(1 - state.time / params.num_steps, 0)
    numbers = [deciding, jnp.where(deciding, 0, 2 * state.choice - 1), left]
    return jnp.stack([jnp.asarray(number, jnp.float32) for number in numbers])
