"""Discount of action values: one exponential, or a mixture with one head for each exponential."""

import warnings
from typing import Any, Literal

import numpy as np

from envs.errors import UserValueError
from jaxrl.checks import is_concrete
from jaxrl.discounts.form import to_host
from jaxrl.discounts.mixtures import with_nodes
from jaxrl.discounts.parsing import LONGEST_EPISODE, Prepared, prepare
from jaxrl.learning.critics import discount_name

LONGEST = 2048  # largest number of steps over which the exponentials are fitted to the discount
SHORTFALL = 1e-3  # least reported difference between their curve and the curve of the discount

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

    Warns where their curve differs from that of the discount by more than 1e-3 within an episode.

    Args:
      discount: Number, string, discount or stack of discounts, as in `jaxrl.discounts.parsing.prepare`.
      heads: Heads of the network; "single" takes an exponential discount.
      num_heads: Number of exponentials, 1 where `heads` is "single".
      episode_length: Time limit of episodes, in steps.
      num_settings: Size of a stack, as in `jaxrl.discounts.parsing.prepare`.
      mixtures: Settings for other discounts than exponential ones, for error messages.

    Raises:
      ValueError: The discount is not a mixture of exponentials, or not one exponential where `heads` is "single";
        or it is traced, and has more exponentials than there are heads.
    """
    name, horizon = discount_name(discount), max(1, min(episode_length, LONGEST))
    prepared = prepare(discount, horizon, num_settings, episode_length)
    rates, lags = prepared.rates, prepared.lags
    if rates is None or (lags is not None and (not is_concrete(lags) or np.any(lags))):
        raise UserValueError(
            "discount must be a mixture of exponentials, because values bootstrap, and "
            f"{name} is not; use the exponential, quasi-hyperbolic, hyperbolic or Beta-weighted family"
        )
    if heads == "single" and np.shape(rates)[-1] != 1:
        raise UserValueError(f"heads='single' takes an exponential discount, which {name} is not; use {mixtures}")
    if not is_concrete(prepared) and np.shape(rates)[-1] > num_heads:
        raise UserValueError(
            f"num_heads={num_heads} takes a traced discount of at most {num_heads} exponentials, got one of "
            f"{np.shape(rates)[-1]}; prepare it before tracing, by algo.prepare(hparams), or use more num_heads"
        )
    mixture = with_nodes(prepared, num_heads, horizon, name)
    if not isinstance(discount, Prepared) and is_concrete(mixture):
        _warn_of_a_shortfall(mixture, num_heads, episode_length, name)
    return mixture


def _warn_of_a_shortfall(mixture: Prepared, num_heads: int, episode_length: int, name: str) -> None:
    assert mixture.form is not None  # a discount with a mixture has a form
    longest = min(episode_length, LONGEST_EPISODE)
    # Every delay at first, then a thousand: beyond the horizon both curves are flat.
    delays = np.unique(np.append(np.arange(min(longest, LONGEST) + 1), np.geomspace(1, longest, 1000).astype(int)))
    curves = np.reshape(to_host(mixture.form).broadcast().curve(longest)[..., delays], (-1, len(delays)))
    nodes = zip(*(np.reshape(to_host(leaf), (-1, num_heads)) for leaf in (mixture.rates, mixture.weights)), strict=True)
    errors = [
        np.abs(curve - rates ** delays[:, None] @ weights)
        for curve, (rates, weights) in zip(curves, nodes, strict=True)
    ]
    worst = int(np.argmax(np.max(errors, axis=1)))
    if np.max(errors[worst]) > SHORTFALL:
        which = name if len(errors) == 1 else f"the discount of setting {worst}"
        warnings.warn(
            f"the {num_heads} exponentials of the heads differ from {which} by up to {np.max(errors[worst]):.2g}, at a "
            f"delay of {delays[np.argmax(errors[worst])]:,} of the {longest:,} steps of an episode; more num_heads "
            f"reduce the difference",
            RuntimeWarning,
            stacklevel=2,
        )
