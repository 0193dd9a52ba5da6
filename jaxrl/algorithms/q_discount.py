"""Discount of action values: one exponential, or a mixture with one head for each exponential."""

from typing import Any, Literal

import numpy as np

from envs.errors import UserValueError
from jaxrl.checks import is_concrete
from jaxrl.discounts.mixtures import with_nodes
from jaxrl.discounts.parsing import Prepared, prepare
from jaxrl.learning.critics import discount_name

LONGEST = 2048  # largest number of steps over which the exponentials are fitted to the discount

__all__ = ["prepare_discount"]


def prepare_discount(
    discount: Any,
    heads: Literal["single", "own", "joint"],
    num_heads: int,
    episode_length: int,
    num_settings: int | None = None,
    mixtures: str = "heads='joint' or heads='own'",
) -> Prepared:
    """Discount resolved for one episode, as a mixture of `num_heads` exponentials.

    Args:
      discount: Number, string, discount or stack of discounts, as in `jaxrl.discounts.parsing.prepare`.
      heads: Heads of the network; "single" takes an exponential discount.
      num_heads: Number of exponentials, 1 where `heads` is "single".
      episode_length: Time limit of episodes, in steps.
      num_settings: Size of a stack, as in `jaxrl.discounts.parsing.prepare`.
      mixtures: Settings for other discounts than exponential ones, for error messages.

    Raises:
      ValueError: The discount is not a mixture of exponentials, or not one exponential where `heads` is "single".
    """
    name, horizon = discount_name(discount), max(1, min(episode_length, LONGEST))
    prepared = prepare(discount, horizon, num_settings, episode_length)
    rates, lags = prepared.rates, prepared.lags
    if rates is None or (lags is not None and (not is_concrete(lags) or np.any(lags))):
        raise UserValueError(
            "discount takes a mixture of exponentials, as values that bootstrap need, which "
            f"{name} is not; use the exponential, quasi-hyperbolic, hyperbolic or Beta-weighted family"
        )
    if heads == "single" and np.shape(rates)[-1] != 1:
        raise UserValueError(f"heads='single' takes an exponential discount, which {name} is not; use {mixtures}")
    return with_nodes(prepared, num_heads, horizon, name)
