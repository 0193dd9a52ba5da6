"""The common form of all discount families: its curve, its mixture of exponentials, its step from t to t + 1."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs.arguments import check_count
from envs.errors import UserValueError
from jaxrl.checks import is_concrete, short
from jaxrl.pytrees import Number, PyTree

# Values without effect of the fields that a form may lack.
NEUTRAL = {"mu": 0.0, "step": 0.0, "eta": 0.0, "beta": 1.0, "horizon": np.inf, "tail": 1.0}
NODES = ("rates", "weights")  # fields with an axis of exponentials
ROWS = ("table", *NODES)  # fields with an axis of their own
# Factor of sqrt(horizon): in float64 the quadrature is within 2^-24, float32's rounding of Gamma(0), for mu in
# [0.5, 0.999], eta <= 2 and horizon <= 2048, so more nodes would gain nothing. Rates of traced parameters have errors
# of up to 6.3e-6.
NODES_PER_ROOT_STEP = 1.9


def to_host(tree: PyTree) -> Any:
    """The leaves rounded to float32, the precision in which they are traced, and then stored in NumPy float64."""
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float32).astype(np.float64), tree)


def checked_horizon(horizon: Any, least: int) -> int:
    """`horizon`, if it is a whole number of at least `least`."""
    horizon = int(horizon) if isinstance(horizon, np.integer) else horizon
    check_count("horizon", horizon, least)
    return horizon


@struct.dataclass
class Form:
    """Gamma(t) = [beta, if t >= 1] B(t) [t < horizon] table(t), where B(t+1) / B(t) = 1 - step / (1 + t eta step).

    B is Beta-weighted discounting with mean `mu` = 1 - step and dispersion `eta`; where `weights` are not all 0 it is
    sum_q weights_q rates_q^t instead. A field that is None is statically absent; its neutral values are eta 0, beta 1,
    horizon infinity, a table of ones with tail 1, and weights of 0. All leaves share one batch shape `*S`, which is
    `()` for a single discount.

    Args:
      mu, step: Mean rate of B and 1 - mean, `[*S]`, traced. Both are stored: 1 - mu loses digits in float32 near
        mu = 1.
      eta, beta, horizon: Dispersion of B, factor from t = 1 on, and first delay without weight; `[*S]` or None, traced.
      table: Factors of the curve by delay, `[*S, n]` or None, traced.
      tail: Value of the table from n on, 0 or 1; `[*S]`, None without a table, traced.
      rates, weights: Exponentials of which B is the sum, weights that sum to 1 or are all 0, `[*S, Q]` or None, traced.
      only_nodes: Whether B is such a sum in every discount of the batch, static.
      has_mixture: Whether some discount of the batch is a mixture of exponentials, static.
    """

    mu: Any
    step: Any
    eta: Any = None
    beta: Any = None
    horizon: Any = None
    table: Any = None
    tail: Any = None
    rates: Any = None
    weights: Any = None
    only_nodes: bool = struct.field(pytree_node=False, default=False)
    has_mixture: bool = struct.field(pytree_node=False, default=True)

    def __repr__(self) -> str:
        static = ("only_nodes", "has_mixture")
        present = {name: leaf for name, leaf in vars(self).items() if leaf is not None and name not in static}
        return f"Form({', '.join(f'{name}={short(leaf)}' for name, leaf in present.items())})"

    def broadcast(self) -> Form:
        """The same form with all leaves arrays of one batch shape."""
        xp = np if is_concrete(self) else jnp
        present = {name: leaf for name in NEUTRAL if (leaf := getattr(self, name)) is not None}
        rows = {name: leaf for name in ROWS if (leaf := getattr(self, name)) is not None}
        shapes = {name: np.shape(leaf) for name, leaf in present.items()}
        for name, leaf in rows.items():
            chex.assert_shape(leaf, (..., None), custom_message=name)
            shapes[name] = np.shape(leaf)[:-1]
        batch = _common_shape(shapes)
        wide = {name: xp.broadcast_to(xp.asarray(leaf), (*batch, np.shape(leaf)[-1])) for name, leaf in rows.items()}
        spread = {name: xp.broadcast_to(xp.asarray(leaf), batch) for name, leaf in present.items()}
        return dataclasses.replace(self, **wide, **spread)

    def columns(self) -> Form:
        """The same form without its table, leaves `[*S, 1]` and exponentials `[*S, 1, Q]`, for delays along an axis."""
        nodes = {name: None if (leaf := getattr(self, name)) is None else leaf[..., None, :] for name in NODES}
        others = dataclasses.replace(self, **dict.fromkeys(ROWS))
        return dataclasses.replace(jax.tree.map(lambda leaf: leaf[..., None], others), **nodes)

    def has_nodes(self) -> Any:
        """Bool `[*S]`: whether B is the sum of the exponentials; only where `weights` is not None."""
        return self.weights.sum(-1) > 0

    def is_mixture(self) -> Any:
        """Float `[*S]`: 1 where the discount is a mixture of exponentials, 0 where a horizon or a table cuts it."""
        xp = np if is_concrete(self) else jnp
        mixed = xp.ones_like(self.mu)
        if self.horizon is not None:
            mixed = mixed * xp.isinf(self.horizon)
        if self.tail is not None:
            mixed = mixed * (self.tail > 0)
        return mixed

    def ratio(self, t: Number) -> Any:
        """B(t+1) / B(t), times beta at t = 0; `t` broadcasts against the leaves."""
        _common_shape({"mu": np.shape(self.mu), "t": np.shape(t)})
        xp = np if is_concrete((self, t)) else jnp
        if self.only_nodes:
            ratio = self._node_ratio(t, xp)
        else:
            ratio = self.mu + 0.0 * t if self.eta is None else 1.0 - self.step / (1.0 + t * (self.eta * self.step))
            if self.weights is not None:
                ratio = xp.where(self.has_nodes(), self._node_ratio(t, xp), ratio)
        return ratio if self.beta is None else ratio * xp.where(t == 0, self.beta, 1.0)

    def _node_ratio(self, t: Number, xp: Any) -> Any:
        """The ratio of the sum of exponentials: their mean rate, weighted by what is left of each after t steps."""
        chex.assert_equal_shape([self.rates, self.weights], custom_message="rates, weights")
        delays = xp.asarray(t, self.weights.dtype)[..., None]
        slowest = xp.max(xp.where(self.weights > 0, self.rates, 0.0), axis=-1, keepdims=True)
        # Relative to the slowest rate, of which something is left after any delay.
        relative = xp.minimum(self.rates / xp.where(slowest > 0, slowest, 1.0), 1.0)
        left = self.weights * relative**delays
        total = left.sum(-1)
        return (left * self.rates).sum(-1) / xp.where(total > 0, total, 1.0)

    def curve(self, horizon: int) -> Any:
        """Gamma(0) ... Gamma(horizon), `[*S, horizon + 1]`, by the running product of the ratios."""
        xp = np if is_concrete(self) else jnp
        form = self.broadcast()
        batch = form.mu.shape
        columns = form.columns()
        ratios = columns.ratio(xp.arange(horizon, dtype=form.mu.dtype))
        curve = xp.concatenate([xp.ones((*batch, 1), form.mu.dtype), xp.cumprod(ratios, axis=-1)], axis=-1)
        if form.horizon is not None:
            curve = curve * (xp.arange(horizon + 1) < columns.horizon)
        if form.table is not None:
            missing = max(0, horizon + 1 - form.table.shape[-1])
            tail = xp.broadcast_to(columns.tail, (*batch, missing))
            curve = curve * xp.concatenate([form.table[..., : horizon + 1], tail], axis=-1)
        return curve

    def mixture(self, horizon: int) -> tuple[Any, Any]:
        """Rates and weights `[*S, Q]` with Gamma(t) = sum_q weights_q rates_q^t for t <= horizon.

        The exponentials of the form, if it has them. Otherwise the nodes of the Gauss rule of the Beta distribution,
        by the eigenvalues of the Jacobi matrix of x = (1 - gamma) / step, whose entries stay finite as eta -> 0; rates
        are 1 - step x, weights the squared first components of the eigenvectors. Not to be differentiated where eta is
        present. Discounts that `is_mixture` excludes get the rule of their uncut curve.

        Source: Golub and Welsch (1969); the recurrence of the Jacobi polynomials, rescaled.
        """
        xp = np if is_concrete(self) else jnp
        form = self.broadcast()
        if form.only_nodes:
            rates, weights = form.rates, form.weights
        elif form.eta is None:
            rates, weights = form.mu[..., None], xp.ones_like(form.mu)[..., None]
        else:
            rates, weights = _beta_nodes(form.mu, form.step, form.eta, num_nodes(horizon), xp)
        if form.weights is not None and not form.only_nodes:
            other = form.has_nodes()[..., None]
            rates = xp.concatenate([xp.where(other, 0.0, rates), form.rates], axis=-1)
            weights = xp.concatenate([xp.where(other, 0.0, weights), form.weights], axis=-1)
        if form.beta is not None:
            beta = form.beta[..., None]
            rates = xp.concatenate([rates, xp.zeros_like(beta)], axis=-1)
            weights = xp.concatenate([weights * beta, 1.0 - beta], axis=-1)
        return rates, weights


def _common_shape(shapes: dict[str, tuple[int, ...]]) -> tuple[int, ...]:
    """The shape to which all of `shapes` broadcast; the keys are the names of the arguments."""
    sizes = itertools.zip_longest(*(shape[::-1] for shape in shapes.values()), fillvalue=1)
    common = tuple(next((size for size in each if size != 1), 1) for each in sizes)[::-1]
    for name, shape in shapes.items():
        chex.assert_is_broadcastable(shape, common, custom_message=name, exception_type=ValueError)
    return common


def num_nodes(horizon: int) -> int:
    """Number of exponentials that represent a Beta-weighted curve up to `horizon`."""
    return max(2, math.ceil(NODES_PER_ROOT_STEP * math.sqrt(horizon)))


def _beta_nodes(
    mu: jax.Array | np.ndarray, step: jax.Array | np.ndarray, eta: jax.Array | np.ndarray, count: int, xp: Any
) -> tuple[Any, Any]:
    chex.assert_equal_shape([mu, step, eta], custom_message="mu, step, eta")
    mu, step, eta = mu[..., None], step[..., None], eta[..., None]
    spread = eta * step
    n = xp.arange(count, dtype=mu.dtype)
    # The Jacobi matrix is L L^T, where L has sqrt(own) on and sqrt(below) under its diagonal. At n = 0 two factors
    # 1 - spread of `own` are equal and cancel.
    tail = xp.where(n == 0, 1.0, (1 + (n - 1) * spread) / xp.where(n == 0, 1.0, 1 + (2 * n - 1) * spread))
    own = (1 + n * eta) * tail / (1 + 2 * n * spread)
    below = (n + 1) * eta * (n * spread + mu) / ((1 + 2 * n * spread) * (1 + (2 * n + 1) * spread))
    below = below * (n < count - 1)
    diagonal = own + xp.concatenate([xp.zeros_like(mu), below[..., :-1]], axis=-1)
    own, below = xp.sqrt(own)[..., None], xp.sqrt(below)[..., None]
    off = own * below * xp.eye(count, k=1, dtype=mu.dtype)
    _, vectors = xp.linalg.eigh(diagonal[..., None] * xp.eye(count, dtype=mu.dtype) + off + xp.swapaxes(off, -1, -2))
    # The eigenvalues as |L^T v|^2, where those near 0, the rates near 1, retain their digits in float32.
    following = xp.concatenate([vectors[..., 1:, :], xp.zeros_like(vectors[..., :1, :])], axis=-2)
    nodes = ((own * vectors + below * following) ** 2).sum(-2)
    rates = xp.clip(1.0 - step * nodes, 0.0, 1.0)
    weights = vectors[..., 0, :] ** 2
    # A single exponential (eta = 0, or mu = 1) is represented exactly, by the first node.
    single = (eta == 0) | (step == 0)
    first = xp.arange(count) == 0
    return xp.where(single, xp.where(first, mu, 0.0), rates), xp.where(single, xp.where(first, 1.0, 0.0), weights)


def stack_forms(forms: Sequence[Form]) -> Form:
    """One form with a leading axis over `forms`, with neutral values for fields that only some of them have.

    Args:
      forms: Forms of single discounts, concrete.
    """
    tables = [np.asarray(form.table, np.float32) for form in forms if form.table is not None]
    nodes = [leaf for form in forms for leaf in (form.rates, form.weights) if leaf is not None]
    others = [dataclasses.replace(form, **dict.fromkeys(ROWS)) for form in forms]
    chex.assert_rank([*tables, *nodes], 1, custom_message="forms")
    chex.assert_rank(jax.tree.leaves(others), 0, custom_message="forms")

    columns: dict[str, Any] = {}
    for name, neutral in NEUTRAL.items():
        leaves = [getattr(form, name) for form in forms]
        if any(leaf is not None for leaf in leaves):
            columns[name] = np.asarray([neutral if leaf is None else leaf for leaf in leaves], np.float32)
    table = None
    if tables:
        length = max(len(rows) for rows in tables)
        table = np.ones((len(forms), length), np.float32)
        for row, form in zip(table, forms, strict=True):
            if form.table is not None:
                row[: len(form.table)] = form.table
                row[len(form.table) :] = form.tail
    if nodes:
        count = max(len(leaf) for leaf in nodes)
        for name in NODES:
            rows = [() if (leaf := getattr(form, name)) is None else leaf for form in forms]
            columns[name] = np.asarray([np.pad(row, (0, count - len(row))) for row in rows], np.float32)
    return Form(
        **columns,
        table=table,
        only_nodes=all(form.only_nodes for form in forms),
        has_mixture=any(form.has_mixture for form in forms),
    )


@struct.dataclass
class Prepared:
    """A discount resolved for rollouts of at most `horizon` steps: Gamma = sum_q weights_q rates_q^t + lags.

    Each part is zero where the other applies, so that discounts of all kinds run in one program.

    Args:
      rates, weights: Mixture of exponentials, `[*S, Q]`, or None where no discount is one.
      mixture_curve: Sum of the mixture, `[*S, horizon + 1]` or None, through which gradients flow.
      lags: Curve of the discounts that are not a mixture, `[*S, horizon + 1]` or None.
      form: Common form, from which `next_weight` steps; None for a family that only has a curve.
      horizon: Longest delay, in steps, static.
    """

    rates: Any
    weights: Any
    mixture_curve: Any
    lags: Any
    form: Form | None
    horizon: int = struct.field(pytree_node=False)

    def __repr__(self) -> str:
        kind = "" if self.rates is None else f"a mixture of {jnp.shape(self.rates)[-1]} exponentials, "
        return f"Prepared({kind}{self.horizon} steps)"

    def curve(self, horizon: int) -> Any:
        """Gamma(0) ... Gamma(horizon), `[*S, horizon + 1]`.

        Args:
          horizon: Number of steps, static; at most `self.horizon` for a family that only has a curve.

        Raises:
          ValueError: The discount is not known up to `horizon`.
        """
        if self.form is not None:
            return self.form.curve(checked_horizon(horizon, 0))
        if checked_horizon(horizon, 0) > self.horizon:
            raise UserValueError(f"horizon must be at most the {self.horizon} steps that were prepared, got {horizon}")
        return self.lags[..., : horizon + 1]

    def next_weight(self, t: Number, weight: Number) -> Any:
        """Gamma(t + 1) from Gamma(t).

        Args:
          t: Delay in steps, int, traced, any shape.
          weight: Gamma(t), float of the shape of `t`, traced; 0 remains 0. Gamma(0) is 1.

        Returns:
          Gamma(t + 1), for every t; NaN beyond `horizon` for a family that only has a curve.
        """
        t = jnp.asarray(t)
        chex.assert_shape(weight, t.shape, custom_message="weight")
        if self.form is None:
            return jnp.where(t < self.horizon, jnp.asarray(self.lags)[jnp.minimum(t + 1, self.horizon)], jnp.nan)
        form = jax.tree.map(jnp.asarray, self.form)
        following = weight * form.ratio(t)
        if form.horizon is not None:
            following = jnp.where(t + 1 < form.horizon, following, 0.0)
        if form.table is not None:
            last = form.table.shape[-1] - 1
            here = jnp.where(t <= last, form.table[jnp.minimum(t, last)], form.tail)
            after = jnp.where(t + 1 <= last, form.table[jnp.minimum(t + 1, last)], form.tail)
            following = jnp.where(here > 0, following * after / jnp.where(here > 0, here, 1.0), 0.0)
        return following


def prepare_form(form: Form, horizon: int) -> Prepared:
    """Resolve a form: NumPy float64 where the leaves are concrete (cast to float32), traced otherwise."""
    form = form.broadcast()
    xp = np if is_concrete(form) else jnp
    mixed = form.is_mixture()[..., None]
    curve = form.curve(horizon)
    rates = weights = mixture_curve = lags = None
    if form.has_mixture:
        if form.eta is None:
            rates, weights = form.mixture(horizon)
        else:
            rates, weights = (form if xp is np else jax.lax.stop_gradient(form)).mixture(horizon)
            mixture_curve = curve * mixed
        weights = weights * mixed
    if not form.has_mixture or form.horizon is not None or form.table is not None:
        lags = curve * (1 - mixed)
    prepared = Prepared(rates, weights, mixture_curve, lags, form, horizon)
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), prepared) if xp is np else prepared
