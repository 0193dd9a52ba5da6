"""The discount of action values: one rate, or one head for each of a few exponentials that stand for it."""

from typing import Any, Literal

import numpy as np

from envs.errors import UserValueError
from jaxrl.checks import is_concrete
from jaxrl.discounts.mixtures import with_nodes
from jaxrl.discounts.parsing import Prepared, prepare
from jaxrl.learning.critics import discount_name

LONGEST = 2048  # steps up to which the exponentials stand for the discount, where episodes are longer

__all__ = ["prepare_discount"]


def prepare_discount(
    discount: Any,
    heads: Literal["single", "own", "joint"],
    num_heads: int,
    episode_length: int,
    num_settings: int | None = None,
) -> Prepared:
    """A discount resolved for one episode, as a mixture of `num_heads` exponentials.

    Args:
      discount: Number, string, discount or stack of discounts, as in `jaxrl.discounts.parsing.prepare`.
      heads: Whether there is one rate, "single".
      num_heads: Number of exponentials, 1 where `heads` is "single".
      episode_length: Time limit of episodes, in steps.
      num_settings: Size of a stack, as in `jaxrl.discounts.parsing.prepare`.

    Raises:
      ValueError: The discount is no exponential, where there is one rate, or no mixture of exponentials.
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
        raise UserValueError(
            f"heads='single' takes an exponential discount, which {name} is not; use heads='joint' or heads='own'"
        )
    return with_nodes(prepared, num_heads, horizon, name)
