"""Fishery: harvest a stock of fish that grows back; its best policies leave a constant part of the stock."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs import base
from envs.arguments import check_number, check_positive
from envs.base import spaces
from envs.decision import escapement
from envs.decision.escapement import Fish
from envs.decision.finite_horizon import FiniteHorizon, horizon
from envs.decision.pictures import bars
from envs.errors import UserValueError
from envs.pytrees import DiscountLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@struct.dataclass
class FisheryState(base.EnvState):
    """The stock before the next harvest."""

    time: jax.Array
    stock: jax.Array


@struct.dataclass
class FisheryParams(base.EnvParams):
    """Parameters of a fishery.

    Attributes:
      growth_rate: Growth rate r of a small stock in a step.
      capacity: Stock K that does not grow.
      stock: Stock at the start.
      noise: Half-width s of the factor of the growth, which is uniform in [1 - s, 1 + s].
      num_steps: Number of harvests.
      max_steps_in_episode: Time limit, in steps.
    """

    growth_rate: float = 0.3
    capacity: float = 1.0
    stock: float = 0.75
    noise: float = 0.0
    num_steps: int = 101
    max_steps_in_episode: int = 101


@dataclass(frozen=True)
class Fishery(FiniteHorizon):
    """Harvest a share of the stock x; the escapement s that is left grows to s + r s (1 - s / K). The harvest is paid.

    The best escapement is K / 2 undiscounted, and K / 2 (1 - (1 / gamma - 1) / r) under an exponential discount, as
    long as every stock regrows to it: with noise of up to 0.13 for the default growth, undiscounted. The last harvest
    takes all. The return of the default is at best 8.25. The `stationary` optimum is that of the best constant
    escapement: other functions of the stock may read the time from its last digits.

    Source: the growth of Schaefer (1954) and the constants of gym-fishing 0.1.0; Reed (1979), "Optimal escapement
    levels in stochastic and deterministic harvesting models".
    """

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "fishery"

    @property
    def default_params(self) -> FisheryParams:
        """The constants of gym-fishing, without noise: 101 harvests of a stock of 0.75."""
        return FisheryParams()

    def check_params(self, params: FisheryParams) -> None:
        """Reject a growth rate above 1, stocks of 0 or less or above twice the capacity, and noise above 1."""
        super().check_params(params)
        check_number("env.growth_rate", np.asarray(params.growth_rate), 0, 1, "(]")
        check_number("env.noise", np.asarray(params.noise), 0, 1, "[]")
        check_positive(params, "capacity", "stock")
        stock, capacity = np.broadcast_arrays(params.stock, params.capacity)
        for wrong, most in zip(stock[stock > 2 * capacity][:1], 2 * capacity[stock > 2 * capacity][:1], strict=True):
            raise UserValueError(f"env.stock must be at most twice env.capacity, {most}, got {wrong}")

    def reset_env(self, key: jax.Array, params: FisheryParams) -> tuple[jax.Array, FisheryState]:
        """The first observation and state."""
        del key
        state = FisheryState(jnp.zeros((), jnp.int32), jnp.asarray(params.stock, jnp.float32))
        return self._observe(state.stock / params.capacity, state, params), state

    def step_env(
        self, key: jax.Array, state: FisheryState, action: jax.Array, params: FisheryParams
    ) -> tuple[jax.Array, FisheryState, jax.Array, jax.Array, dict[Any, Any]]:
        """Harvest the share `action[0]` of the stock, clipped to [0, 1]; what is left grows."""
        harvest = jnp.clip(action[0], 0.0, 1.0) * state.stock
        left = state.stock - harvest
        factor = 1 + params.noise * (2 * jax.random.uniform(key) - 1)
        stock = factor * left * (1 + params.growth_rate * (1 - left / params.capacity))
        state = FisheryState(state.time + 1, jnp.maximum(stock, 0.0).astype(jnp.float32))
        obs = self._observe(state.stock / params.capacity, state, params)
        return obs, state, harvest.astype(jnp.float32), state.time >= params.num_steps, {}

    def plan(
        self,
        params: FisheryParams | None = None,
        discount: DiscountLike = None,
        kind: base.OptimumKind = "precommitted",
    ) -> escapement.Harvests:
        """The policy that attains the `optimum`, by dynamic programming over 2,001 stocks.

        The stationary one is the best constant escapement.

        The relative error of the value is below 1e-6 for the defaults, 1e-5 with noise of up to 0.3, and 1e-4 where
        the stock of the start is below the escapements.
        """
        solve = getattr(escapement, self._simplest(kind, params, discount))
        params = self.checked_params(params)
        return solve(_fish(params), self.weights(params, discount))

    def optimum(
        self,
        params: FisheryParams | None = None,
        discount: DiscountLike = None,
        kind: base.OptimumKind = "precommitted",
    ) -> float:
        """The value of `plan`; see `envs.Environment.optimum`."""
        return self.plan(params, discount, kind).value

    def return_range(self, params: FisheryParams) -> tuple[Any, Any]:
        """From no harvest to the stock of the start and the highest growth after every harvest but the last."""
        rate, capacity, stock, noise = (
            np.asarray(number, np.float64)
            for number in (params.growth_rate, params.capacity, params.stock, params.noise)
        )
        highest = (1 + noise) * capacity * (1 + rate - 1 / (1 + noise)) ** 2 / (4 * rate)
        return 0.0, stock + (horizon(params) - 1) * highest

    def action_space(self, params: FisheryParams | None = None) -> spaces.Box:
        """The share of the stock that is harvested, `[1]`."""
        del params
        return spaces.Box(0.0, 1.0, (1,), jnp.float32)

    def observation_space(self, params: FisheryParams) -> spaces.Box:
        """The stock as a share of the capacity, not negative, and the share of steps left."""
        del params
        high = jnp.array([jnp.inf, 1.0][: 1 + self.shows_time], jnp.float32)
        return spaces.Box(jnp.zeros_like(high), high, high.shape, jnp.float32)

    def draw(self, ax: "Axes", state: FisheryState, params: FisheryParams) -> None:
        """The stock as a bar, and half of the capacity as a line."""
        stock, capacity = float(state.stock), float(params.capacity)
        top = max(_fish(params).highest(), capacity)
        bars(ax, [stock], [f"{stock:.3g}"], top=top, line=capacity / 2, caption="stock")


def _fish(params: FisheryParams) -> Fish:
    return Fish(*(float(each) for each in (params.stock, params.growth_rate, params.capacity, params.noise)))
