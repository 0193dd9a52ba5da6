"""Representations of values, with their losses: one number, quantiles, or a histogram.

Targets are distributions: atoms `[*B, M]` with probabilities `[*B, M]`; a number is a distribution with M = 1.
"""

import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import chex
import jax
import jax.numpy as jnp
import numpy as np

Kind = Literal["squared", "huber", "quantile", "categorical", "hl-gauss"]
KINDS: tuple[str, ...] = get_args(Kind)
WITH_SUPPORT = ("categorical", "hl-gauss")
WITH_HUBER = ("huber", "quantile")
DISTRIBUTIONAL = ("quantile", "categorical")
SIGMA_BINS = 0.75  # standard deviation of the targets of HL-Gauss, in bin widths
MARGIN_BINS = 3 * SIGMA_BINS  # bins of HL-Gauss beyond each end of the support, for the tails of targets at the ends
FEWEST_BINS = 6  # of HL-Gauss, more than its margins

__all__ = [
    "DISTRIBUTIONAL",
    "FEWEST_BINS",
    "KINDS",
    "WITH_HUBER",
    "WITH_SUPPORT",
    "Kind",
    "Scale",
    "ValueLoss",
    "value_loss",
]


class Scale(NamedTuple):
    """Parameters of value losses; all traced.

    Attributes:
      low, high: Ends of the support of a histogram, any shape that broadcasts to `[*B]`; None for other
        representations.
      huber_delta: Absolute error above which a loss is linear, `[]`, above 0; None for losses without it.
    """

    low: Any = None
    high: Any = None
    huber_delta: Any = None


class ValueLoss(NamedTuple):
    """Representation of values by network outputs `[*B, num_outputs]`.

    Attributes:
      num_outputs: Number of outputs for one value.
      distribution: Function `(outputs, scale) -> (atoms, probabilities)`, `[*B, M]` each, for targets.
      loss: Function `(outputs, atoms, probabilities, scale) -> loss`, `[*B]`; the target `[*B, M]` gets no gradient.
    """

    num_outputs: int
    distribution: Callable[[jax.Array, Scale], tuple[jax.Array, jax.Array]]
    loss: Callable[[jax.Array, jax.Array, jax.Array, Scale], jax.Array]

    def value(self, outputs: jax.Array, scale: Scale) -> jax.Array:
        """Values `[*B]` of network outputs `[*B, num_outputs]`."""
        chex.assert_axis_dimension(outputs, -1, self.num_outputs, custom_message="outputs")
        return expected(*self.distribution(outputs, scale))


def expected(atoms: jax.Array, probabilities: jax.Array) -> jax.Array:
    """Mean `[*B]` of a distribution with atoms and probabilities `[*B, M]`."""
    chex.assert_equal_shape([atoms, probabilities], custom_message="atoms, probabilities")
    return jnp.sum(atoms * probabilities, axis=-1)


def value_loss(kind: Kind, num_atoms: int) -> ValueLoss:
    """Value representation and loss named by `kind`.

    Args:
      kind: Kind of representation: "squared", half the squared error; "huber"; "quantile", quantile regression of the
        return distribution; "categorical", its projection on fixed atoms; or "hl-gauss", the value as a histogram.
      num_atoms: Number of quantiles, atoms or bins; without effect for "squared" and "huber". Bins are at least
        6, because 2.25 of them lie beyond each end of the support.

    Source: Dabney et al. (2018) for "quantile", Bellemare et al. (2017) for "categorical", Farebrother et al. (2024),
    arXiv 2403.03950, for "hl-gauss".
    """
    if kind == "quantile":
        return ValueLoss(num_atoms, _equal_atoms, _quantile_loss)
    if kind == "categorical":
        return ValueLoss(num_atoms, _histogram(_atoms), _categorical_loss)
    if kind == "hl-gauss":
        return ValueLoss(num_atoms, _one_atom(_histogram(_centres)), _hl_gauss_loss)
    return ValueLoss(1, _equal_atoms, _squared_loss if kind == "squared" else _huber_loss)


def _huber(error: jax.Array, delta: jax.Array | float) -> jax.Array:
    clipped = jnp.clip(error, -delta, delta)
    return clipped * (error - 0.5 * clipped)


def _error(outputs: jax.Array, atoms: jax.Array, probabilities: jax.Array) -> jax.Array:
    chex.assert_axis_dimension(outputs, -1, 1, custom_message="outputs")
    return outputs[..., 0] - jax.lax.stop_gradient(expected(atoms, probabilities))


def _squared_loss(outputs: jax.Array, atoms: jax.Array, probabilities: jax.Array, scale: Scale) -> jax.Array:
    del scale
    return 0.5 * jnp.square(_error(outputs, atoms, probabilities))


def _huber_loss(outputs: jax.Array, atoms: jax.Array, probabilities: jax.Array, scale: Scale) -> jax.Array:
    return _huber(_error(outputs, atoms, probabilities), scale.huber_delta)


def _equal_atoms(outputs: jax.Array, scale: Scale) -> tuple[jax.Array, jax.Array]:
    del scale
    return outputs, jnp.full(outputs.shape, 1 / outputs.shape[-1], outputs.dtype)


def _quantile_loss(outputs: jax.Array, atoms: jax.Array, probabilities: jax.Array, scale: Scale) -> jax.Array:
    atoms, probabilities = jax.lax.stop_gradient((atoms, probabilities))
    count = outputs.shape[-1]
    level = ((np.arange(count) + 0.5) / count).astype(np.float32)[:, None]
    error = atoms[..., None, :] - outputs[..., :, None]
    asymmetric = jnp.abs(level - (error < 0)) * _huber(error, scale.huber_delta) / scale.huber_delta
    return jnp.sum(asymmetric * probabilities[..., None, :], axis=(-2, -1))


def _on_support(share: np.ndarray, scale: Scale) -> jax.Array:
    low, high = jnp.asarray(scale.low)[..., None], jnp.asarray(scale.high)[..., None]
    return low + (high - low) * share.astype(np.float32)


def _atoms(count: int, scale: Scale) -> jax.Array:
    return _on_support(np.arange(count) / (count - 1), scale)


def _centres(count: int, scale: Scale) -> jax.Array:
    return _on_support((np.arange(count) + 0.5 - MARGIN_BINS) / (count - 2 * MARGIN_BINS), scale)


def _histogram(support: Callable[[int, Scale], jax.Array]) -> Callable[..., tuple[jax.Array, jax.Array]]:
    def distribution(outputs: jax.Array, scale: Scale) -> tuple[jax.Array, jax.Array]:
        return jnp.broadcast_to(support(outputs.shape[-1], scale), outputs.shape), jax.nn.softmax(outputs)

    return distribution


def _one_atom(histogram: Callable[..., tuple[jax.Array, jax.Array]]) -> Callable[..., tuple[jax.Array, jax.Array]]:
    def distribution(outputs: jax.Array, scale: Scale) -> tuple[jax.Array, jax.Array]:
        value = expected(*histogram(outputs, scale))[..., None]
        return value, jnp.ones_like(value)

    return distribution


def _cross_entropy(outputs: jax.Array, target: jax.Array) -> jax.Array:
    return -jnp.sum(jax.lax.stop_gradient(target) * jax.nn.log_softmax(outputs), axis=-1)


def _categorical_loss(outputs: jax.Array, atoms: jax.Array, probabilities: jax.Array, scale: Scale) -> jax.Array:
    count = outputs.shape[-1]
    atoms, probabilities = jax.lax.stop_gradient((atoms, probabilities))
    low, high = jnp.asarray(scale.low)[..., None], jnp.asarray(scale.high)[..., None]
    place = (jnp.clip(atoms, low, high) - low) / (high - low) * (count - 1)
    return _cross_entropy(outputs, projection(place, probabilities, count))


def projection(place: jax.Array, probabilities: jax.Array, count: int) -> jax.Array:
    """Probabilities of points 0 to `count - 1`, each atom divided between its two neighbours, `[*B, count]`.

    On a CPU the shares are scattered, which is faster than a sum over all pairs of atoms and points (bench/NOTES.md).
    On a GPU a scatter may add in a varying order, and so change the last bits of a result: there the sum is used.

    Args:
      place: Atoms `[*B, M]`, from 0 to `count - 1`.
      probabilities: Probabilities of the atoms, `[*B, M]`.
      count: Number of points, at least 2.
    """
    chex.assert_equal_shape([place, probabilities], custom_message="place, probabilities")
    scattered, multiplied = (functools.partial(form, count=count) for form in (_scattered, _multiplied))
    return jax.lax.platform_dependent(place, probabilities, cpu=scattered, default=multiplied)


def _scattered(place: jax.Array, probabilities: jax.Array, count: int) -> jax.Array:
    below = jnp.clip(jnp.floor(place), 0, count - 2)
    upper = jnp.clip(place - below, 0, 1) * probabilities

    def one(below: jax.Array, upper: jax.Array, lower: jax.Array) -> jax.Array:
        return jnp.zeros(count, jnp.result_type(lower, np.float32)).at[below].add(lower).at[below + 1].add(upper)

    return jnp.vectorize(one, signature="(m),(m),(m)->(n)")(below.astype(jnp.int32), upper, probabilities - upper)


def _multiplied(place: jax.Array, probabilities: jax.Array, count: int) -> jax.Array:
    share = jnp.maximum(1 - jnp.abs(place[..., None, :] - np.arange(count, dtype=np.float32)[:, None]), 0.0)
    return jnp.sum(share * probabilities[..., None, :], axis=-1)


def _hl_gauss_loss(outputs: jax.Array, atoms: jax.Array, probabilities: jax.Array, scale: Scale) -> jax.Array:
    count = outputs.shape[-1]
    share = jnp.clip((expected(atoms, probabilities) - scale.low) / (scale.high - scale.low), 0.0, 1.0)
    place = MARGIN_BINS + share * (count - 2 * MARGIN_BINS)
    edges = np.arange(count + 1, dtype=np.float32)
    below = jax.scipy.special.ndtr((edges - place[..., None]) / SIGMA_BINS)
    mass = jnp.diff(below, axis=-1)
    return _cross_entropy(outputs, mass / jnp.sum(mass, axis=-1, keepdims=True))
