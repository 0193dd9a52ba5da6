"""A learned discount for an outer loop: weights of exponentials, or a hazard rate by delay."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from envs.errors import UserTypeError, UserValueError
from jaxrl.algorithms.contract import Algorithm
from jaxrl.checks import check_choice, check_count
from jaxrl.discounts.fitting import fit_mixture, target_curve
from jaxrl.discounts.parsing import (
    LONGEST_EPISODE,
    Discount,
    Exponential,
    ExponentialMixture,
    QuasiHyperbolic,
    Tabulated,
    as_discount,
    discount_name,
)
from jaxrl.learning.rollout import longest_episode
from jaxrl.pytrees import HParams
from jaxrl.tuning.learned.theta import Theta

FORMS = ("mixture", "curve")
RATES, KNOTS = 12, 8  # default sizes
SLOWEST = 4.0  # largest time scale of a mixture, as a multiple of the horizon
LOWEST, HIGHEST = 0.01, 20.0  # least hazard rate at the start, over the horizon, and largest one, per step
LEAST_WEIGHT = 1e-6  # of the start, at the horizon of a curve: changes of smaller weights are lost in float32
SHORTFALL = 0.1  # least reported difference between the start and its discount

__all__ = ["hazard_curve", "learned_discount", "learned_rates"]


def learned_discount(
    algo: Algorithm,
    form: Literal["mixture", "curve"] = "mixture",
    start: Any = None,
    *,
    size: int | None = None,
    horizon: int | None = None,
    spread: float = 0.05,
) -> Theta:
    """Discount of an algorithm as numbers to learn.

    "mixture": Gamma(t) = sum_q w_q rate_q^t with fixed rates and weights w = softmax(theta), for every algorithm: an
    `ExponentialMixture`. It starts at the weights nearest to the curve of `start` in least squares, of which a share
    `spread` is moved to all rates alike, so that every weight can change. The rate of an exponential start is among the
    rates, so that the curve at the start differs from it by less than `spread`: over 500 steps, from 0.99 by at most
    0.016, and from "hyperbolic:k=0.02" by 0.013. A discount that is far from all mixtures, such as "fixed:horizon=50",
    gets a warning with the difference. Near 0.99, noise in theta with a standard deviation of 0.3 moves Gamma(10) by
    some 0.005, and by 0.018 with a spread of 0.2; it moves a curve by 0.016.

    "curve": Gamma(t) = exp(-sum_{s<t} h(s)) with a hazard rate h(s) = softplus(y(s)), where y is interpolated linearly
    in log(1 + s) between the numbers of theta at delays that grow geometrically from 0 to the horizon. It can be any
    falling curve, for algorithms with a single critic that estimate advantages by UGAE lag by lag. Beyond the horizon
    the last hazard rate continues up to the time limit. It starts exactly at an exponential with a hazard rate between
    0.01 / horizon and 20 per step, and otherwise at the nearest curve in least squares: "hyperbolic:k=0.02" within 4e-4
    over 500 steps.

    Args:
      algo: Algorithm with a discount among its hyper-parameters.
      form: Form of the discount.
      start: Discount at which learning starts, single and concrete, or a prior of `jaxrl.hazards`; None for the
        algorithm's own.
      size: Number of numbers to learn, rates or knots, at least 2, and for a curve so few that there is a whole number
        of steps near each delay; None takes 12 rates, or as many as the algorithm has heads for exponentials, and for a
        curve 8 knots, or fewer over fewer than 12 steps.
      horizon: Number of steps over which the discount is learned, at least 2. None takes for a mixture the time limit
        of episodes, at most 131,072, or the steps of a rollout if these are more; for a curve, it takes the lags that a
        rollout reads, up to the last one at which the start is at least 1e-6. If the tasks have
        different time limits, pass the longest.
      spread: Share of the weight that a mixture starts with on all rates alike, in (0, 1).

    Returns:
      Theta named "discount": float32 `[size]`, unconstrained.

    Raises:
      ValueError: The algorithm learns by no discount of this form, or an argument is out of range.
      TypeError: `start` is not a discount, or the algorithm has none.
    """
    check_choice("form", form, FORMS)
    if not isinstance(getattr(algo.hparams, "discount", None), Discount):
        raise UserTypeError(f"learned_discount takes an algorithm with a discount, which {algo.name} does not have")
    heads = _heads(algo, form)
    episode = min(longest_episode(algo.env), LONGEST_EPISODE)
    rollout = getattr(algo.config, "num_steps", episode)
    length = max(2, episode, rollout)
    if horizon is not None:
        check_count("horizon", horizon, 2)
        length = max(length, horizon)
    if isinstance(spread, bool) or not isinstance(spread, int | float) or not 0 < spread < 1:
        raise UserValueError(f"spread must be a number in (0, 1), got {spread!r}")
    begin = algo.hparams.discount if start is None else as_discount(start)
    if form == "curve" and horizon is None:
        beginning = target_curve(begin, max(2, min(episode, rollout)), "learned_discount")
        horizon = max(2, int(np.argmin([*(beginning[1:] >= LEAST_WEIGHT), False])))
    horizon = length if horizon is None else horizon
    if size is None:
        size = heads or RATES if form == "mixture" else min(KNOTS, _largest_size(horizon))
    check_count("size", size, 2)
    if form == "curve" and size > _largest_size(horizon):
        raise UserValueError(
            f"size must be at most {_largest_size(horizon)} for a curve over {horizon} steps, where each number has an "
            f"effect, got {size}"
        )
    goal = target_curve(begin, horizon, "learned_discount")
    if form == "mixture":
        rates = learned_rates(size, horizon, begin)
        weights = np.asarray(fit_mixture(begin, rates, horizon).weights)
        initial = np.log((1.0 - spread) * weights + spread / size)
        apply: Any = _Mixture(tuple(rates.tolist()))
    else:
        initial, apply = _nearest_hazard(goal, size), _Curve(horizon, length)
    theta = Theta("discount", (initial - initial.mean() * (form == "mixture")).astype(np.float32), apply)
    _warn_of_another_start(apply.discount(jnp.asarray(theta.initial)), goal, begin)
    return theta


def learned_rates(size: int, horizon: int, start: Any) -> np.ndarray:
    """Rates of a learned mixture, float64 `[size]`: time scales 1 / (1 - rate) from 1 step to 4 horizons, log-spaced.

    Args:
      size: Number of rates, at least 2.
      horizon: Number of steps over which the discount is learned.
      start: Discount at which learning starts: the rate of an `Exponential` or a `QuasiHyperbolic` replaces the nearest
        rate, and those of an `ExponentialMixture` of this size replace all.
    """
    if isinstance(start, ExponentialMixture) and np.size(start.rates) == size:
        return np.asarray(start.rates, np.float64)
    scales = np.geomspace(1.0, SLOWEST * horizon, size)
    rates = 1.0 - 1.0 / scales
    if isinstance(start, Exponential | QuasiHyperbolic):
        own = 1.0 / max(1.0 - float(start.gamma), 1e-9)
        rates[np.argmin(np.abs(np.log(scales) - np.log(own)))] = float(start.gamma)
    return rates


def hazard_curve(theta: Any, horizon: int, length: int | None = None) -> jax.Array:
    """Gamma(0) ... Gamma(length), `[length + 1]` float32: 1 at first and never growing, for any theta.

    Args:
      theta: Numbers whose softplus is the hazard rate, at K delays that grow geometrically, `[K]`, traced; the last
        hazard rate continues beyond the horizon.
      horizon: Delay of the last number plus 1, in steps, static.
      length: Longest delay of the curve, in steps, static; the horizon if None.
    """
    theta = jnp.asarray(theta, jnp.float32)
    delays, knots = _log_delays(theta.shape[0], horizon, length)
    hazard = jax.nn.softplus(jnp.interp(jnp.float32(delays), jnp.float32(knots), theta))
    curve = jnp.concatenate([jnp.ones(1, jnp.float32), jnp.exp(-jnp.cumsum(hazard))])
    # A sum computed in parts may round a later weight above an earlier one; the excess is removed without rounding.
    return curve + jax.lax.stop_gradient(jax.lax.cummin(curve) - curve)


@dataclasses.dataclass(frozen=True)
class _Mixture:
    """Places the weights of fixed rates among hyper-parameters; equal ones share programs."""

    rates: tuple[float, ...]

    def discount(self, theta: Any) -> ExponentialMixture:
        return ExponentialMixture(jnp.float32(self.rates), jax.nn.softmax(jnp.asarray(theta, jnp.float32)))

    def __call__(self, theta: Any, hparams: HParams) -> HParams:
        return dataclasses.replace(hparams, discount=self.discount(theta))


@dataclasses.dataclass(frozen=True)
class _Curve:
    """Places a curve among hyper-parameters; equal ones share programs."""

    horizon: int
    length: int

    def discount(self, theta: Any) -> Tabulated:
        return Tabulated(hazard_curve(theta, self.horizon, self.length))

    def __call__(self, theta: Any, hparams: HParams) -> HParams:
        return dataclasses.replace(hparams, discount=self.discount(theta))


def _heads(algo: Algorithm, form: str) -> int | None:
    """Number of heads of an algorithm for exponentials, None without any; rejects a form or heads that do not fit."""
    config = algo.config
    heads = getattr(config, "heads", None)
    if heads is None and getattr(config, "critic", "single") != "mixture":
        return None
    if form != "mixture":
        raise UserValueError(f"form must be 'mixture' for {algo.name}, whose heads are exponentials, got {form!r}")
    if heads == "single":
        kind = type(config).__name__
        raise UserValueError(f"learned_discount takes {algo.name} with {kind}(heads='joint'), got heads='single'")
    return config.critic_heads if heads is None else config.num_heads


def _log_delays(size: int, horizon: int, length: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """log(1 + s) of the steps s < length, `[length]`, and of the knots up to the horizon, `[size]`."""
    delays = np.log1p(np.arange(horizon if length is None else length, dtype=np.float64))
    return delays, np.linspace(0.0, delays[horizon - 1], size)


def _largest_size(horizon: int) -> int:
    """Largest number of knots of a curve between whose two neighbours, for each one, there is a step.

    Steps are furthest apart at 0, where the next one is at log(2): the second of K knots, between 0 and twice
    log(horizon) / (K - 1), has a step if this is more than log(2). Two knots are the ends.
    """
    return max(2, min(horizon, int(np.ceil(2 * np.log(horizon) / np.log(2) + 1 - 1e-9)) - 1))


def _nearest_hazard(goal: np.ndarray, size: int) -> np.ndarray:
    """Numbers of the curve nearest to `goal`, `[size]`: those of its hazard rate at the knots where that is exact."""
    from scipy import optimize

    horizon = len(goal) - 1
    delays, knots = _log_delays(size, horizon)
    low, high = (float(np.log(np.expm1(rate))) for rate in (LOWEST / horizon, HIGHEST))

    def residual(theta: np.ndarray) -> np.ndarray:
        hazard = np.logaddexp(np.interp(delays, knots, theta), 0.0)
        return np.exp(-np.cumsum(hazard)) - goal[1:]

    share = np.where(goal[:-1] > 0, goal[1:] / np.where(goal[:-1] > 0, goal[:-1], 1.0), 0.0)
    hazard = np.clip(-np.log(np.maximum(share, np.exp(-HIGHEST))), LOWEST / horizon, HIGHEST)
    theta = np.interp(knots, delays, np.log(np.expm1(hazard)))
    if np.max(np.abs(residual(theta))) < 2.0**-24:
        return theta
    inside = np.clip(theta, low + 1e-6, high - 1e-6)
    return np.asarray(optimize.least_squares(residual, inside, bounds=(low, high)).x)


def _warn_of_another_start(discount: Any, goal: np.ndarray, begin: Any) -> None:
    errors = np.abs(np.asarray(discount.curve(len(goal) - 1), np.float64) - goal)
    if np.max(errors) > SHORTFALL:
        warnings.warn(
            f"the learned discount starts at a curve that differs from {discount_name(begin)} by up to "
            f"{np.max(errors):.2g}, at a delay of {np.argmax(errors):,} steps",
            RuntimeWarning,
            stacklevel=3,
        )
