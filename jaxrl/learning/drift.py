"""Drift of PPO's objective: a small network of probability ratio and advantage that begins as PPO's clip."""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp

from jaxrl.learning.composites import Perceptron
from jaxrl.learning.losses import weighted_mean

NARROW = 5.0  # changes of the log-ratio of a fifth, which is about the half width of PPO's clip, are resolved

__all__ = ["Drift", "drift_correction", "drift_features"]


class Drift(Perceptron):
    """Weights of the drift of PPO's objective, a `Perceptron` with an output of 0 for PPO's clip."""

    prefix = "drift"
    field = "drift"
    num_inputs = 5


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
