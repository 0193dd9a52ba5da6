"""Kelly: bet a share of the wealth on a coin with a known edge; the reward is the growth of the wealth."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs import base
from envs.arguments import check_number, check_positive
from envs.base import spaces
from envs.decision.finite_horizon import FiniteHorizon, horizon
from envs.decision.pictures import bars
from envs.pytrees import DiscountLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@struct.dataclass
class KellyState(base.EnvState):
    """The natural logarithm of the wealth, of 1 at the start."""

    time: jax.Array
    log_wealth: jax.Array


@struct.dataclass
class KellyParams(base.EnvParams):
    """Parameters of Kelly betting.

    Attributes:
      win_probability: Probability p that a bet is won.
      odds: Gain of a bet of 1 that is won; a bet that is lost is gone.
      max_share: Largest share of the wealth that can be bet, below 1.
      num_steps: Number of bets.
      max_steps_in_episode: Time limit, in steps.
    """

    win_probability: float = 0.6
    odds: float = 1.0
    max_share: float = 0.9
    num_steps: int = 40
    max_steps_in_episode: int = 40


@dataclass(frozen=True)
class Kelly(FiniteHorizon):
    """Bets on independent tosses: a share f of the wealth gains log(1 + odds f) or loses log(1 - f).

    The best share is p - (1 - p) / odds in every step, at least 0 and at most `max_share`, whatever the wealth, the
    time and the discount, so that all kinds of optimum are equal: the growth of a bet times the sum of the weights.

    Source: Kelly (1956), "A new interpretation of information rate".
    """

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "kelly"

    @property
    def default_params(self) -> KellyParams:
        """40 bets at even odds that are won with probability 0.6."""
        return KellyParams()

    def check_params(self, params: KellyParams) -> None:
        """Reject a probability outside [0, 1], a share outside (0, 1), odds of 0 or less, and fewer bets than one."""
        super().check_params(params)
        check_number("env.win_probability", np.asarray(params.win_probability), 0, 1, "[]")
        check_positive(params, "odds")
        check_number("env.max_share", np.asarray(params.max_share, np.float32), 0, 1, "()")

    def reset_env(self, key: jax.Array, params: KellyParams) -> tuple[jax.Array, KellyState]:
        """The first observation and state: a wealth of 1."""
        del key
        state = KellyState(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.float32))
        return self._observe(state.log_wealth, state, params), state

    def step_env(
        self, key: jax.Array, state: KellyState, action: jax.Array, params: KellyParams
    ) -> tuple[jax.Array, KellyState, jax.Array, jax.Array, dict[Any, Any]]:
        """Bet the share `action[0]`, clipped to its limits."""
        share = jnp.clip(action[0], 0.0, params.max_share)
        won = jax.random.uniform(key) < params.win_probability
        growth = jnp.log1p(jnp.where(won, params.odds * share, -share)).astype(jnp.float32)
        state = KellyState(state.time + 1, state.log_wealth + growth)
        obs = self._observe(state.log_wealth, state, params)
        return obs, state, growth, state.time >= params.num_steps, {}

    def best_share(self, params: KellyParams | None = None) -> float:
        """The share of the wealth with the highest mean growth of its logarithm.

        Args:
          params: Parameters, concrete; None for the defaults.
        """
        params = self.checked_params(params)
        win = float(params.win_probability)
        return float(np.clip(win - (1 - win) / float(params.odds), 0, float(params.max_share)))

    def optimum(
        self, params: KellyParams | None = None, discount: DiscountLike = None, kind: base.OptimumKind = "precommitted"
    ) -> float:
        """The mean growth of a bet of the best share times the sum of the weights; see `envs.Environment.optimum`."""
        base.check_optimum_kind(kind)
        params = self.checked_params(params)
        share, win = self.best_share(params), float(params.win_probability)
        growth = win * np.log1p(float(params.odds) * share) + (1 - win) * np.log1p(-share)
        return float(growth * self.weights(params, discount).sum())

    def return_range(self, params: KellyParams) -> tuple[Any, Any]:
        """From the largest bet lost in every step to the largest bet won in every step."""
        share, odds = (np.asarray(number, np.float64) for number in (params.max_share, params.odds))
        return horizon(params) * np.log1p(-share), horizon(params) * np.log1p(odds * share)

    def action_space(self, params: KellyParams | None = None) -> spaces.Box:
        """The share of the wealth that is bet, `[1]`."""
        params = self.default_params if params is None else params
        return spaces.Box(0.0, params.max_share, (1,), jnp.float32)

    def observation_space(self, params: KellyParams) -> spaces.Box:
        """The natural logarithm of the wealth, and the share of steps left."""
        del params
        low = jnp.array([-jnp.inf, 0.0][: 1 + self.shows_time], jnp.float32)
        high = jnp.array([jnp.inf, 1.0][: 1 + self.shows_time], jnp.float32)
        return spaces.Box(low, high, (1 + self.shows_time,), jnp.float32)

    def draw(self, ax: "Axes", state: KellyState, params: KellyParams) -> None:
        """The logarithm of the wealth as a bar from 0, with the mean of the best share at the end as a line."""
        end = max(2 * self.optimum(params), 1.0)
        wealth = float(state.log_wealth)
        label = f"wealth {np.exp(wealth):.3g}"
        bars(ax, [wealth], [label], top=end, bottom=-end, line=self.optimum(params), marked=[0] * (wealth < 0))
