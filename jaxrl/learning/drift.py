"""Drift of PPO's objective: a small network of probability ratio and advantage that begins as PPO's clip."""

from __future__ import annotations

from typing import Any, Self

import chex
import jax
import jax.numpy as jnp
import numpy as np

from envs.errors import UserTypeError, UserValueError
from jaxrl.checks import short
from jaxrl.learning.composites import Composite, as_array
from jaxrl.learning.losses import weighted_mean

FEATURES = 5
NARROW = 5.0  # changes of the log-ratio of a fifth, which is about the half width of PPO's clip, are resolved

__all__ = ["Drift", "drift_correction", "drift_features", "effective_drift", "initial_drift"]


class Drift(Composite):
    """Weights of the drift of PPO's objective: one hidden layer of `width` units.

    Args:
      hidden: Weights of the hidden layer, `[5, width]`, traced.
      bias: Biases of the hidden layer, `[width]`, traced.
      out: Weights of the output, `[width]`, traced.
      offset: Bias of the output, `[]`, traced.

    With `out` and `offset` of 0, as by `initial_drift`, the objective is PPO's.
    """

    prefix = "drift"
    names = ("hidden", "bias", "out", "offset")
    ranks = (2, 1, 1, 0)
    hidden: Any
    bias: Any
    out: Any
    offset: Any

    def __init__(self, hidden: Any, bias: Any, out: Any, offset: Any) -> None:
        for name, value in zip(self.names, (hidden, bias, out, offset), strict=True):
            object.__setattr__(self, name, as_array(value))
        shapes = tuple(np.shape(getattr(self, name)) for name in self.names)
        width = shapes[1][-1] if shapes[1] else 0
        if width < 1 or shapes != ((FEATURES, width), (width,), (width,), ()):
            listing = ", ".join(map(str, shapes))
            raise UserValueError(f"Drift takes the shapes ({FEATURES}, n), (n,), (n,) and (), got {listing}")

    @classmethod
    def from_numbers(cls, numbers: list[float]) -> Self:
        width, rest = divmod(len(numbers) - 1, FEATURES + 2)
        if width < 1 or rest:
            raise UserValueError(f"a drift has {FEATURES + 2} numbers for each hidden unit and 1, got {len(numbers)}")
        values, ends = np.asarray(numbers, np.float32), np.cumsum([FEATURES * width, width, width])
        hidden, bias, out, offset = np.split(values, ends)
        return cls(hidden.reshape(FEATURES, width), bias, out, offset[0])

    @property
    def width(self) -> int:
        """Number of hidden units."""
        return np.shape(self.bias)[-1]


def initial_drift(width: int) -> Drift:
    """Weights of the drift that is PPO's clip: random hidden units, always the same ones, and an output of 0.

    Args:
      width: Number of hidden units.
    """
    random = np.random.default_rng(0)
    hidden = random.uniform(-1, 1, (FEATURES, width)).astype(np.float32)
    bias = random.uniform(-1, 1, width).astype(np.float32)
    return Drift(hidden, bias, np.zeros(width, np.float32), np.float32(0))


def effective_drift(drift: Any, width: int | None, num_settings: int | None = None) -> Any:
    """Weights of a drift that is learned; None where the drift is PPO's clip.

    Args:
      drift: Value of the hyper-parameter; None stands for the initial weights.
      width: Number of hidden units; None for the clip.
      num_settings: Number of settings in a batch, whose weights have a leading axis; None for a single setting.

    Raises:
      TypeError: The value is not a `Drift`.
      ValueError: There are weights for the clip, or for another number of hidden units.
    """
    if drift is not None and not isinstance(drift, Drift):
        raise UserTypeError(f"drift takes a Drift, or None for the initial weights, got {short(drift)}")
    if width is None:
        if drift is not None:
            raise UserValueError(f"drift has no effect with PPOConfig(drift='clip'), got {drift!r}; leave it out")
        return None
    if drift is None:
        initial = initial_drift(width)
        return initial if num_settings is None else jax.tree.map(lambda leaf: np.stack([leaf] * num_settings), initial)
    if drift.width != width:
        raise UserValueError(f"drift takes the weights of drift_width={width} hidden units, got {drift.width}")
    return drift


def drift_features(log_ratio: jax.Array, advantage: jax.Array) -> jax.Array:
    """Features of samples, `[*B, 5]`, all within [-1, 1]: two of the log-ratio, one of the advantage, and products.

    Args:
      log_ratio: Current log-probability of the actions minus that when acting, `[*B]`.
      advantage: Advantages of the actions, `[*B]`, in units of 1, as normalised advantages are.
    """
    chex.assert_equal_shape([log_ratio, advantage], custom_message="log_ratio, advantage")
    wide, narrow, size = jnp.tanh(log_ratio), jnp.tanh(NARROW * log_ratio), jnp.tanh(advantage)
    return jnp.stack([wide, narrow, size, narrow * size, jnp.abs(narrow) * size], axis=-1)


def drift_correction(
    drift: Drift, log_ratio: jax.Array, advantage: jax.Array, weight: jax.Array, clip_eps: jax.Array
) -> jax.Array:
    """Term that changes the drift of PPO's loss, `[]`, to be added to `clipped_surrogate`.

    PPO maximises the mean of r A - C, with the ratio r, the advantage A and the drift C = relu((r - clip(r)) A). The
    drift with this term is D = relu(C + h), where h = q(log r) net(r, A). It is never negative, and 0 with a gradient
    of 0 at r = 1 for all weights if `clip_eps` is positive, as mirror learning requires, because
    q(l) = sqrt(1 + l^2) - 1 has both properties. The features and the slope of q are bounded, and so is the slope of h
    in log r: outliers cannot dominate. With the initial weights h is 0 and D is C.

    Args:
      drift: Weights, traced.
      log_ratio: Current log-probability of the actions minus that when acting, `[*B]`.
      advantage, weight: Advantages of the actions, in units of 1, and weights of the samples, `[*B]`.
      clip_eps: Half width of the interval around 1 to which the ratio is clipped, scalar, traced.

    Returns:
      Mean of max(h, -C), so that the sum with C is D.

    Source: Lu et al. (2022), Discovered policy optimisation; Kuba et al. (2022), Mirror learning.
    """
    chex.assert_equal_shape([log_ratio, advantage, weight], custom_message="log_ratio, advantage, weight")
    chex.assert_rank(clip_eps, 0, custom_message="clip_eps")
    ratio = jnp.exp(log_ratio)
    clip = jnp.maximum((ratio - jnp.clip(ratio, 1 - clip_eps, 1 + clip_eps)) * advantage, 0.0)
    units = jnp.tanh(drift_features(log_ratio, advantage) @ drift.hidden + drift.bias)
    square = jnp.square(log_ratio)
    growth = square / (1 + jnp.sqrt(1 + square))  # sqrt(1 + l^2) - 1 without cancellation
    return weighted_mean(jnp.maximum(growth * (units @ drift.out + drift.offset), -clip), weight)
