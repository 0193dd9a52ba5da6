"""Mixtures of few exponentials that approximate a discount curve, for critics with one head per exponential."""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp
import numpy as np

from envs.errors import UserValueError
from jaxrl.checks import is_concrete
from jaxrl.discounts.form import Prepared, to_host
from jaxrl.pytrees import Number

__all__ = ["few_nodes", "head_sizes", "with_nodes"]


def few_nodes(rates: Number, weights: Number, count: int, horizon: int) -> tuple[np.ndarray, np.ndarray]:
    """At most `count` exponentials that replace many, close to their sum up to `horizon` and equal to it at 0.

    The curve is Gamma(t) = b' A^t b with A = diag(rates) and b = sqrt(weights). A and b are projected onto the space
    that b and the leading directions of A^t b, t <= horizon, span: the eigenvalues of the projected A are the new
    rates, between the old ones, and the squared components of b along its eigenvectors the new weights, none negative.
    With 8 nodes the curve is within 1e-5 up to a horizon of 128, and within 3e-4 up to 1,024, for mu in [0.5, 1] and
    eta <= 2; for mu in [0.98, 1] within 1e-6 and 6e-6.

    Args:
      rates, weights: Rates and weights of the original mixture, `[Q]`, concrete; weights of 0 are left out.
      count: Number of nodes to return.
      horizon: Number of steps over which the curve counts.

    Returns:
      rates, weights: float64 `[count]`, slowest last, padded in front with rates and weights of 0.

    Source: balanced truncation of a symmetric system (Moore 1981) with a Gramian over finite time (Gawronski and Juang
    1990), with b itself added to the basis.
    """
    rates, weights = np.asarray(rates, np.float64), np.asarray(weights, np.float64)
    chex.assert_rank([rates, weights], 1, custom_message="rates, weights")
    chex.assert_equal_shape([rates, weights], custom_message="rates, weights")
    rates, root = rates[weights > 0], np.sqrt(weights[weights > 0])
    if len(rates) > count:
        gramian = np.outer(root, root) * geometric_sum(np.outer(rates, rates), horizon + 1)
        projector = np.eye(len(rates)) - np.outer(root, root) / np.sum(root**2)
        leading = np.linalg.eigh(projector @ gramian @ projector)[1][:, ::-1][:, : count - 1]
        basis = np.linalg.qr(np.concatenate([root[:, None], leading], axis=1))[0]
        rates, vectors = np.linalg.eigh(basis.T @ (rates[:, None] * basis))
        rates, root = np.clip(rates, 0.0, 1.0), vectors.T @ (basis.T @ root)
    order = np.argsort(rates)
    padding = (count - len(rates), 0)
    return np.pad(rates[order], padding), np.pad(root[order] ** 2, padding)


def geometric_sum(rate: np.ndarray, count: int) -> np.ndarray:
    """1 + rate + ... + rate^(count - 1), for rates in [0, 1]."""
    below = np.minimum(rate, 1 - 1e-15)
    return np.where(rate < 1, -np.expm1(count * np.log(np.maximum(below, 1e-300))) / (1 - below), count)


def with_nodes(discount: Prepared, count: int, horizon: int, name: str = "the discount") -> Prepared:
    """A prepared discount whose mixture has exactly `count` nodes.

    Args:
      discount: Prepared discount, or a stack of them with leaves `[S, ...]`. With concrete leaves it gets `few_nodes`.
        With traced leaves it is padded, and rejected if it has more nodes; one with `count` nodes is unchanged.
      count: Number of nodes, static.
      horizon: Number of steps over which few nodes represent the curve, static.
      name: Name of the discount in error messages.

    Raises:
      ValueError: The discount is not a mixture of exponentials, or is traced and has more nodes.
    """
    if discount.rates is None or (discount.lags is not None and not is_concrete(discount.lags)):
        raise UserValueError(_no_mixture(name))
    chex.assert_equal_shape([discount.rates, discount.weights], custom_message="discount.rates, discount.weights")
    if discount.lags is not None and np.any(discount.lags):
        settings = np.flatnonzero(np.any(np.reshape(discount.lags, (-1, discount.horizon + 1)), axis=-1))
        raise UserValueError(
            _no_mixture(name if np.shape(discount.lags)[:-1] in ((), (1,)) else f"{name} of setting {settings[0]}")
        )
    num_nodes = np.shape(discount.rates)[-1]
    if num_nodes == count and discount.mixture_curve is None:
        return discount.replace(lags=None)  # pyright: ignore[reportAttributeAccessIssue]
    if is_concrete(discount):
        rates, weights = _host_nodes(discount, count, horizon)
    elif num_nodes <= count:
        padding = [(0, 0)] * (np.ndim(discount.rates) - 1) + [(0, count - num_nodes)]
        rates, weights = jnp.pad(discount.rates, padding), jnp.pad(discount.weights, padding)
    else:
        raise UserValueError(
            f"a mixture critic of {count} heads takes a traced discount of at most {count} exponentials, got one of "
            f"{num_nodes}; prepare it before tracing, by algo.prepare(hparams), or use more critic_heads"
        )
    return discount.replace(  # pyright: ignore[reportAttributeAccessIssue]
        rates=rates, weights=weights, mixture_curve=None, lags=None
    )


def head_sizes(discount: Prepared) -> jax.Array:
    """Ratio of each exponential's horizon to the mixture's, `[K]`."""
    chex.assert_rank([discount.rates, discount.weights], 1, custom_message="discount.rates, discount.weights")
    chex.assert_equal_shape([discount.rates, discount.weights], custom_message="discount.rates, discount.weights")
    steps = jnp.arange(discount.horizon)
    horizons = jnp.sum(jnp.asarray(discount.rates)[:, None] ** steps, axis=1)
    return horizons / jnp.sum(discount.weights * horizons)


def _host_nodes(discount: Prepared, count: int, horizon: int) -> tuple[np.ndarray, np.ndarray]:
    assert discount.form is not None  # a discount with a mixture has a form
    many = to_host(discount.form).broadcast().mixture(horizon)
    batch, num_nodes = np.shape(many[0])[:-1], np.shape(many[0])[-1]
    pairs = zip(np.reshape(many[0], (-1, num_nodes)), np.reshape(many[1], (-1, num_nodes)), strict=True)
    few = np.asarray([few_nodes(rates, weights, count, horizon) for rates, weights in pairs], np.float32)
    rates, weights = (np.reshape(few[:, i], (*batch, count)) for i in range(2))
    return rates, weights


def _no_mixture(name: str) -> str:
    return (
        f"critic='mixture' takes a discount that is a mixture of exponentials, which {name} is not; use "
        f"critic='single', or the exponential, quasi-hyperbolic, hyperbolic or Beta-weighted family"
    )
