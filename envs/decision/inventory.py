"""Inventory: order goods against random demand; stock, orders and unmet demand cost."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs import base
from envs.arguments import check_at_least, check_choice, check_count, check_positive
from envs.base import spaces
from envs.decision import inventory_problem
from envs.decision.dynamic_programming import FiniteProblem
from envs.decision.finite_horizon import FiniteStates, horizon
from envs.decision.pictures import bars

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@struct.dataclass
class InventoryState(base.EnvState):
    """The stock; below 0, the demand that waits."""

    time: jax.Array
    stock: jax.Array


@struct.dataclass
class InventoryParams(base.EnvParams):
    """Parameters of an inventory; prices and costs are per piece.

    Attributes:
      mean_demand: Mean of the Poisson distribution of which the demand of a step is drawn, up to `max_demand`.
      price: Income of a piece sold or promised.
      order_cost: Cost of a piece ordered.
      holding_cost: Cost of a piece in stock after the demand.
      shortage_cost: Cost of a piece of unmet demand: once where it is lost, in each step where it waits.
      num_steps: Number of steps of an episode.
      max_steps_in_episode: Time limit, in steps.
    """

    mean_demand: float = 3.0
    price: float = 2.0
    order_cost: float = 1.0
    holding_cost: float = 0.1
    shortage_cost: float = 0.5
    num_steps: int = 30
    max_steps_in_episode: int = 30


@dataclass(frozen=True)
class Inventory(FiniteStates):
    """Order up to a capacity, delivered at once; then demand is met from the stock. What is left at the end is lost.

    The optimal policies order up to a base stock, which depends on the steps left; the best stationary ones may order
    otherwise. `action_mask` forbids orders beyond the capacity.

    Attributes:
      capacity: Largest stock.
      max_demand: Largest demand of a step; larger ones are not drawn.
      unmet: "lost" for lost sales; "waits" for a backlog, which is promised and delivered from later orders, of up to
        `capacity` pieces, beyond which it is lost without an income.

    Source: Arrow, Harris and Marschak (1951), "Optimal inventory policy".
    """

    capacity: int = 10
    max_demand: int = 12
    unmet: Literal["lost", "waits"] = "lost"

    def __post_init__(self) -> None:
        check_count("capacity", self.capacity)
        check_count("max_demand", self.max_demand)
        check_choice("unmet", self.unmet, ("lost", "waits"))

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "inventory"

    @property
    def default_params(self) -> InventoryParams:
        """A mean demand of 3 a step, over 30 steps."""
        return InventoryParams()

    def check_params(self, params: InventoryParams) -> None:
        """Reject a demand of 0 or less, negative prices and costs, and fewer steps than one."""
        super().check_params(params)
        check_positive(params, "mean_demand")
        check_at_least(params, price=0, order_cost=0, holding_cost=0, shortage_cost=0)

    def reset_env(self, key: jax.Array, params: InventoryParams) -> tuple[jax.Array, InventoryState]:
        """The first observation and state: no stock."""
        del key
        state = InventoryState(*jnp.zeros(2, jnp.int32))
        return self._observe(state.stock / self.capacity, state, params), state

    def step_env(
        self, key: jax.Array, state: InventoryState, action: jax.Array, params: InventoryParams
    ) -> tuple[jax.Array, InventoryState, jax.Array, jax.Array, dict[Any, Any]]:
        """Order `action` pieces, as far as the capacity allows, and meet a demand."""
        order = jnp.minimum(action, self.capacity - state.stock)
        sizes = jnp.arange(self.max_demand + 1)
        demand = jax.random.categorical(key, sizes * jnp.log(params.mean_demand) - jax.lax.lgamma(sizes + 1.0))
        ready = state.stock + order
        stock = jnp.maximum(ready - demand, self._least).astype(jnp.int32)
        reward = params.price * (ready - stock) - params.order_cost * order
        reward -= params.holding_cost * jnp.maximum(stock, 0) + params.shortage_cost * jnp.maximum(demand - ready, 0)
        state = InventoryState(state.time + 1, stock)
        obs = self._observe(stock / self.capacity, state, params)
        return obs, state, reward.astype(jnp.float32), state.time >= params.num_steps, {}

    def action_mask(self, state: InventoryState, params: InventoryParams) -> jax.Array:
        """The orders that the capacity allows."""
        del params
        return jnp.arange(self.action_space().n) <= self.capacity - state.stock

    def problem(self, params: InventoryParams | None = None) -> FiniteProblem:
        """States are stocks, the lowest first; see `FiniteStates.problem`."""
        params = self.checked_params(params)
        return inventory_problem.problem(params, self.capacity, self._least, self.max_demand)

    def return_range(self, params: InventoryParams) -> tuple[Any, Any]:
        """From the largest costs in every step, without an income, to an income of the largest demand in every step."""
        most = self.capacity - self._least, self.capacity, self.max_demand - self._least  # ordered, in stock, unmet
        names = ("order_cost", "holding_cost", "shortage_cost")
        costs = sum(np.asarray(getattr(params, name), np.float64) * n for name, n in zip(names, most, strict=True))
        return -horizon(params) * costs, horizon(params) * np.asarray(params.price, np.float64) * self.max_demand

    def action_space(self, params: InventoryParams | None = None) -> spaces.Discrete:
        """The number of pieces ordered."""
        del params
        return spaces.Discrete(self.capacity - self._least + 1)

    def observation_space(self, params: InventoryParams) -> spaces.Box:
        """The stock as a share of the capacity, and the share of steps left."""
        low = jnp.array([self._least / self.capacity, 0.0][: 1 + self.shows_time], jnp.float32)
        return spaces.Box(low, jnp.ones_like(low), low.shape, jnp.float32)

    def draw(self, ax: "Axes", state: InventoryState, params: InventoryParams) -> None:
        """The stock as a bar, below 0 where demand waits."""
        bars(ax, [int(state.stock)], [f"{int(state.stock)}"], top=self.capacity, bottom=self._least, caption="stock")

    @property
    def _least(self) -> int:
        return 0 if self.unmet == "lost" else -self.capacity
