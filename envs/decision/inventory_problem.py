"""The decision problem of an inventory, in float64."""

import numpy as np

from envs.decision.dynamic_programming import FiniteProblem
from envs.pytrees import Params

__all__ = ["problem"]


def problem(params: Params, capacity: int, least: int, max_demand: int) -> FiniteProblem:
    """The problem whose states are the stocks from the least to the capacity, and whose actions are orders.

    Args:
      params: Prices, costs and the mean demand, concrete; see `envs.decision.inventory.InventoryParams`.
      capacity: Largest stock.
      least: Smallest stock, 0 or below.
      max_demand: Largest demand of a step.
    """
    demand = np.arange(max_demand + 1)
    logarithms = np.cumsum(np.log(np.where(demand > 0, float(params.mean_demand) / np.maximum(demand, 1), 1.0)))
    chances = np.exp(logarithms - logarithms.max())
    chances /= chances.sum()
    stock, order = np.arange(least, capacity + 1)[:, None, None], np.arange(capacity - least + 1)[:, None]
    ready = np.minimum(stock + order, capacity)
    after = np.maximum(ready - demand, least)
    gains = float(params.price) * (ready - after) - float(params.order_cost) * order
    gains = gains - float(params.holding_cost) * np.maximum(after, 0)
    gains = gains - float(params.shortage_cost) * np.maximum(demand - ready, 0)
    allowed = (stock + order <= capacity)[..., 0]
    probabilities = np.broadcast_to(chances, after.shape)
    return FiniteProblem(gains @ chances, allowed, after - least, probabilities, np.eye(len(stock))[-least])
