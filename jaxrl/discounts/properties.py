"""Properties of a discount: its sums, its horizon, the distribution of its weight, its rates."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, TypeAlias

import chex
import jax
import jax.numpy as jnp
import numpy as np

from envs.errors import UserTypeError, UserValueError
from jaxrl.checks import is_concrete
from jaxrl.discounts.families import Family
from jaxrl.discounts.form import Form, checked_horizon, to_host
from jaxrl.discounts.parsing import as_discount
from jaxrl.pytrees import DiscountLike

BOUNDARIES = (100, 1_000, 10_000)  # delays at which the near, the middle and the far future end
_WITHIN = 1.0 - math.exp(-1.0)  # the share of the total weight that lies within the effective horizon
_EXPLICIT_STEPS = 64
_NEWTON_STEPS = 8
_LONGEST_HORIZON = 2.0**25  # above 1 / (1 - rate) for every float32 rate below 1
_LARGEST_EXPONENT = 44.0  # beyond exp(44) steps a horizon counts as infinite
_BELOW_ONE = 1.0 - 2.0**-24
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(32)
_Array: TypeAlias = jax.Array | np.ndarray  # concrete on the host, or traced


def partial_sum(discount: DiscountLike, horizon: int) -> jax.Array:
    """The weight of the first `horizon` steps, Gamma(0) + ... + Gamma(horizon - 1).

    Args:
      discount: Number, string or discount, as in `as_discount`, or a stack; parameters may be traced.
      horizon: Number of steps, at least 1, static.

    Returns:
      `[*S]` float32, where `*S` is the batch shape of the parameters.
    """
    return _float32(_curve(discount, checked_horizon(horizon, 1) - 1).sum(-1))


def total_sum(discount: DiscountLike) -> jax.Array:
    """The weight of the whole future, Gamma(0) + Gamma(1) + ..., infinite where the sum diverges.

    In closed form: (1 - eta (1 - mu)) / ((1 - mu) (1 - eta)) for Beta weights with eta < 1, infinite for eta >= 1
    (including hyperbolic discounting) and at mu = 1; the mean of 1 / (1 - rate) for an `ExponentialMixture`. A curve
    that ends at a horizon or the end of a table is summed up to there.

    Args:
      discount: Discount, as in `partial_sum`. A horizon that cuts Beta weights must not be traced.

    Returns:
      `[*S]` float32. Where the sum is infinite, its derivatives are 0.

    Raises:
      TypeError: The family only has a curve, whose end is unknown.
      ValueError: Beta weights are cut at a traced horizon.

    Source: the partial sum telescopes, since (alpha + beta + t - 1) Gamma(t) falls by (beta - 1) Gamma(t) a step.
    """
    form = _form(discount, "total_sum")
    xp = np if is_concrete(form) else jnp
    cut = _cut_curve(form, "total_sum")
    total = _mixture_total(form)
    if cut is not None:
        total = xp.where(form.is_mixture() > 0, total, cut.sum(-1))
    elif form.horizon is not None:
        total = xp.where(form.is_mixture() > 0, total, _geometric_total(form))
    return _float32(total)


def effective_horizon(discount: DiscountLike) -> jax.Array:
    """The delay that contains 1 - 1/e of all weight: the least n with Gamma(0) + ... + Gamma(n) >= that share.

    About 1 / (1 - mu) steps for an exponential, and (exp(eta / (1 - eta)) - 1) / (eta (1 - mu)) for Beta weights.

    Args:
      discount: Discount, as in `total_sum`.

    Returns:
      `[*S]` float32, whole numbers; infinite where the total weight is, or beyond exp(44) steps (eta above 0.977).
      Exact for concrete parameters; for traced ones a long horizon is accurate to a few float32 roundings of the weight
      before it.

    Raises:
      TypeError, ValueError: See `total_sum`.

    Source: the share beyond T steps is prod_{k<T} (mu + k e) / (1 + (k - 1) e) with e = eta (1 - mu), whose logarithm
    is summed for a few steps and by the midpoint rule's integral from there on.
    """
    form = _form(discount, "effective_horizon")
    xp = np if is_concrete(form) else jnp
    cut = _cut_curve(form, "effective_horizon")
    horizon = _mixture_horizon(form)
    if cut is not None:
        reached = xp.cumsum(cut, axis=-1) >= _WITHIN * cut.sum(-1, keepdims=True)
        horizon = xp.where(form.is_mixture() > 0, horizon, xp.argmax(reached, axis=-1))
    elif form.horizon is not None:
        horizon = xp.where(form.is_mixture() > 0, horizon, _geometric_horizon(form))
    return jax.lax.stop_gradient(_float32(horizon))


def future_weights(discount: DiscountLike, boundaries: tuple[int, ...] = BOUNDARIES) -> jax.Array:
    """The weights of the near, the middle and the far future.

    Args:
      discount: Discount, as in `partial_sum`.
      boundaries: Growing delays in steps, static; the first span contains the delays below the first of them, the next
        one those from there to below the second, and so on.

    Returns:
      `[*S, spans]` float32, Gamma summed over each span.

    Raises:
      ValueError: The boundaries do not grow.
    """
    if not boundaries or any(low >= high for low, high in zip((0, *boundaries), boundaries, strict=False)):
        raise UserValueError(f"boundaries must be delays that grow from above 0, got {boundaries!r}.")
    ends = [checked_horizon(end, 1) for end in boundaries]
    curve = _curve(discount, ends[-1] - 1)
    xp = np if is_concrete(curve) else jnp
    starts = [0, *ends[:-1]]
    spans = [curve[..., start:end].sum(-1) for start, end in zip(starts, ends, strict=True)]
    return _float32(xp.stack(spans, axis=-1))


def future_shares(discount: DiscountLike, boundaries: tuple[int, ...] = BOUNDARIES) -> jax.Array:
    """`future_weights` as shares of the weight before the last boundary, which is finite for every discount.

    Args:
      discount, boundaries: Discount and delays, as in `future_weights`.

    Returns:
      `[*S, spans]` float32; they add up to 1.
    """
    weights = future_weights(discount, boundaries)
    return weights / weights.sum(-1, keepdims=True)


def one_step_rates(discount: DiscountLike, horizon: int) -> jax.Array:
    """Gamma(t + 1) / Gamma(t), the rate of an exponential with the same step from t to t + 1.

    Constant for an exponential; growing, which is decreasing impatience, for the hyperbolic kinds.

    Args:
      discount: Discount, as in `partial_sum`.
      horizon: Number of steps, at least 1, static.

    Returns:
      `[*S, horizon]` float32; 0 where Gamma(t) is 0 already.
    """
    horizon = checked_horizon(horizon, 1)
    discount = as_discount(discount)
    if not isinstance(discount, Family | Form):
        curve = _float32(_curve(discount, horizon))
        here = curve[..., :-1]
        return jnp.where(here > 0, curve[..., 1:] / jnp.where(here > 0, here, 1.0), 0.0)
    form = _form(discount, "one_step_rates")
    xp = np if is_concrete(form) else jnp
    t = xp.arange(horizon)
    rates = xp.broadcast_to(form.columns().ratio(t), (*form.mu.shape, horizon))
    rates = xp.where((t == 0) | (rates[..., :1] > 0), rates, 0.0)
    # Without the mixture, whose product would underflow where its rates do not.
    cuts = Form(mu=xp.ones_like(form.mu), step=xp.zeros_like(form.mu), horizon=form.horizon, table=form.table)
    factors = dataclasses.replace(cuts, tail=form.tail).curve(horizon)
    here = factors[..., :-1]
    return _float32(rates * xp.where(here > 0, factors[..., 1:] / xp.where(here > 0, here, 1.0), 0.0))


def rate_variance(discount: DiscountLike) -> jax.Array:
    """The variance of the discount rate that a mixture of exponentials implies: how uncertain the rate is.

    0 for an exponential, mu (1 - mu)^2 eta / (1 + eta (1 - mu)) for Beta weights (hyperbolic discounting has eta 1),
    beta (1 - beta) gamma^2 for quasi-hyperbolic ones, whose rate is gamma or 0, and the variance of the rates for an
    `ExponentialMixture`.

    Args:
      discount: Discount, as in `partial_sum`.

    Returns:
      `[*S]` float32; nan where a member of a traced stack is not a mixture.

    Raises:
      TypeError: The family only has a curve.
      ValueError: The discount is not a mixture of exponentials (`FixedHorizon`, `TruncatedDiscount`, `Tabulated`).

    Source: the variance of the Beta distribution, in its mean and dispersion.
    """
    discount = as_discount(discount)
    form = _form(discount, "rate_variance")
    xp = np if is_concrete(form) else jnp
    mixed = form.is_mixture()
    if not form.has_mixture or (xp is np and not np.all(mixed)):
        name = type(discount).__name__ if isinstance(discount, Family) else "a member of this stack"
        raise UserValueError(f"rate_variance takes mixtures of exponentials, which {name} is not.")
    variance = xp.zeros_like(form.mu)
    if form.eta is not None:
        variance = form.mu * form.step**2 * form.eta / (1.0 + form.eta * form.step)
    if form.weights is not None:
        spread = (form.weights * (form.rates - form.mu[..., None]) ** 2).sum(-1)
        variance = xp.where(form.has_nodes(), spread, variance)
    if form.beta is not None:
        variance = form.beta * (variance + (1.0 - form.beta) * form.mu**2)
    return _float32(xp.where(mixed > 0, variance, xp.nan))


def _float32(array: Any) -> jax.Array:
    return jnp.asarray(array, jnp.float32)


def _curve(discount: DiscountLike, horizon: int) -> Any:
    """Gamma(0) ... Gamma(horizon), in float64 where the parameters are known."""
    discount = as_discount(discount)
    if isinstance(discount, Family | Form):
        return _form(discount, "curve").curve(horizon)
    curve = discount.curve(horizon)
    curve = np.asarray(curve, np.float64) if is_concrete(curve) else curve
    chex.assert_shape(curve, (..., horizon + 1), custom_message="discount.curve")
    return curve


def _form(discount: DiscountLike, function: str) -> Form:
    discount = as_discount(discount)
    if not isinstance(discount, Family | Form):
        name = type(discount).__name__
        raise UserTypeError(f"{function} cannot extend {name}, which only has a curve; use partial_sum.")
    resolved = to_host(discount) if is_concrete(discount) else jax.tree.map(_float32, discount)
    return (resolved if isinstance(resolved, Form) else resolved.form()).broadcast()


def _cut_curve(form: Form, function: str) -> Any:
    """The curves to the end of the longest one that a horizon or a table cuts; None where none is needed."""
    longest = None if form.table is None else form.table.shape[-1]
    if form.horizon is None:
        if longest is None:
            return None
        length = longest
    elif longest is None and form.eta is None and form.weights is None:
        return None
    elif is_concrete(form):
        ends = np.where(np.isfinite(form.horizon), form.horizon, 0)
        if longest is not None:
            ends = np.where(form.tail > 0, ends, np.minimum(np.where(ends > 0, ends, longest), longest))
        length = int(max(1, ends.max()))
    else:
        raise UserValueError(
            f"{function} of Beta weights or a mixture cut at a horizon needs that horizon untraced; "
            "call it outside of jit and vmap (it takes stacks), or use partial_sum."
        )
    return form.curve(length - 1)


def _mixture_total(form: Form) -> Any:
    xp = np if is_concrete(form) else jnp
    numerator, denominator = xp.ones_like(form.mu), form.step
    diverges = form.step <= 0
    if form.eta is not None:
        numerator, denominator = 1.0 - form.eta * form.step, form.step * (1.0 - form.eta)
        diverges = diverges | ((form.eta >= 1) & (form.mu > 0))
    single = form.mu <= 0  # Gamma(0) alone, for any eta
    plain = diverges | single
    total = xp.where(plain, 1.0, numerator / xp.where(plain, 1.0, denominator))
    if form.weights is not None:
        endless = (form.weights > 0) & (form.rates >= 1)
        sums = form.weights / xp.where(form.rates < 1, 1.0 - form.rates, 1.0)
        diverges = xp.where(form.has_nodes(), endless.any(-1), diverges)
        total = xp.where(form.has_nodes(), sums.sum(-1), total)
    if form.beta is not None:
        total = 1.0 + form.beta * (total - 1.0)
        diverges = diverges & (form.beta > 0)
    return xp.where(diverges, xp.inf, total)


def _geometric(form: Form) -> tuple[Any, Any, Any]:
    """For exponentials: the step and log(1 - step), both safe at a step of 0 and of 1, and the horizon, made finite."""
    xp = np if is_concrete(form) else jnp
    step = xp.where(form.step > 0, form.step, 0.5)
    log_rate = xp.log1p(-xp.where(step < 1, step, _BELOW_ONE))
    return step, log_rate, xp.where(xp.isinf(form.horizon), 1.0, form.horizon)


def _geometric_total(form: Form) -> Any:
    """The total of exponentials, quasi-hyperbolic or not, that end at their horizons."""
    xp = np if is_concrete(form) else jnp
    step, log_rate, end = _geometric(form)
    total = xp.where(form.step > 0, -xp.expm1(end * log_rate) / step, end)
    total = xp.where(form.step < 1, total, 1.0)
    return total if form.beta is None else 1.0 + form.beta * (total - 1.0)


def _geometric_horizon(form: Form) -> Any:
    """The effective horizon of exponentials: (1 - rate^T) / step is the uncut weight of the first T steps."""
    xp = np if is_concrete(form) else jnp
    step, log_rate, _ = _geometric(form)
    needed = _WITHIN * _geometric_total(form)
    if form.beta is not None:
        needed = 1.0 + (needed - 1.0) / xp.where(form.beta > 0, form.beta, 1.0)
    inside = xp.clip(step * needed, 0.0, _BELOW_ONE)
    steps = xp.where(form.step > 0, xp.log1p(-inside) / log_rate, needed)
    return xp.maximum(xp.ceil(steps), 1.0) - 1.0


def _mixture_horizon(form: Form) -> Any:
    """The effective horizon of uncut discounts: the first T whose share of later weight is at most 1/e, less one."""
    xp = np if is_concrete(form) else jnp
    eta = xp.zeros_like(form.mu) if form.eta is None else form.eta
    total = _mixture_total(form)
    # Where the horizon is infinite, or 0, harmless numbers replace the arguments.
    short = eta < _LARGEST_EXPONENT / (1.0 + _LARGEST_EXPONENT)
    at_once = form.mu <= 0 if form.beta is None else (form.mu <= 0) | (form.beta <= 0)
    usual = xp.isfinite(total) & short & ~at_once
    step, eta = xp.where(usual, form.step, 0.5), xp.where(usual, eta, 0.0)
    spread, excess = eta * step, step * (1.0 - eta)
    goal = -xp.ones_like(step)
    if form.beta is not None:  # beta weighs only the steps after the first
        weighed = form.beta * (1.0 - spread) / excess
        goal = goal + xp.where(usual, xp.log(xp.where(usual, total, 1.0) / xp.where(usual, weighed, 1.0)), 0.0)
    k = xp.arange(_EXPLICIT_STEPS, dtype=step.dtype)
    terms = xp.log1p(-xp.minimum(excess[..., None] / (1.0 + (k - 1.0) * spread[..., None]), _BELOW_ONE))
    shares = xp.cumsum(terms, axis=-1)  # logarithm of the share of weight beyond 1, 2, ... steps
    reached = shares <= goal[..., None]
    soon = xp.argmax(reached, axis=-1)
    late = _late_steps(spread, excess, xp.maximum(shares[..., -1] - goal, 0.0), xp)
    horizon = xp.where(reached.any(-1), soon, xp.ceil(late) - 1.0)
    horizon = xp.where(usual, horizon, xp.where(at_once, 0.0, xp.inf))
    return horizon if form.weights is None else xp.where(form.has_nodes(), _node_horizon(form), horizon)


def _node_horizon(form: Form) -> Any:
    """The effective horizon of sums of exponentials, by bisection over T: the weight beyond T steps falls with T."""
    xp = np if is_concrete(form) else jnp
    sums = form.weights / xp.where(form.rates < 1, 1.0 - form.rates, 1.0)
    after = sums if form.beta is None else form.beta[..., None] * sums
    total = _mixture_total(form)
    low, high = xp.zeros_like(total), xp.full_like(total, _LONGEST_HORIZON)
    for _ in range(int(_LONGEST_HORIZON).bit_length()):
        middle = xp.floor((low + high) / 2.0)
        enough = (after * form.rates ** middle[..., None]).sum(-1) <= total * math.exp(-1.0)
        low, high = xp.where(enough, low, middle), xp.where(enough, middle, high)
    return xp.where(xp.isfinite(total), high - 1.0, xp.inf)


def _late_steps(spread: _Array, excess: _Array, missing: _Array, xp: Any) -> Any:
    """The real T > 64 at which sum_{k=64}^{T-1} log(1 - excess / (1 + (k - 1) spread)) is -missing.

    By the midpoint rule the sum is an integral over x from 63.5 to T - 0.5. In v = log(1 + (x - 1) spread) / spread its
    integrand, exp(v spread) log(1 - excess exp(-v spread)), is almost constant, also as spread -> 0.
    """
    chex.assert_equal_shape([spread, excess, missing], custom_message="spread, excess, missing")
    small = spread < 1e-30
    safe = xp.where(small, 1.0, spread)
    start = (_EXPLICIT_STEPS - 1.5) * xp.ones_like(spread)
    start = xp.where(small, start, xp.log1p(start * safe) / safe)

    def density(v: _Array) -> Any:
        growth = xp.exp(v * spread[..., None])
        return growth * xp.log1p(-xp.minimum(excess[..., None] / growth, _BELOW_ONE))

    def slope(
        v: _Array,
    ) -> Any:  # of log(1 - excess / u) by x, with u = 1 + (x - 1) spread; the midpoint rule's next term
        u = xp.exp(v * spread)
        return spread * excess / (u * xp.maximum(u - excess, 2.0**-24)) / 24.0

    v = start + missing / excess
    nodes, weights = _NODES.astype(spread.dtype), _WEIGHTS.astype(spread.dtype)
    for _ in range(_NEWTON_STEPS):
        half = (v - start)[..., None] / 2.0
        integral = (half * weights * density(start[..., None] + half * (1.0 + nodes))).sum(-1)
        error = integral - (slope(v) - slope(start)) + missing
        v = xp.maximum(v - error / density(v[..., None])[..., 0], start)
    return xp.where(small, v, xp.expm1(xp.where(small, 0.0, v * safe)) / safe) + 1.5
