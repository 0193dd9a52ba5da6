"""The normal distribution squashed by tanh, for actions in [-1, 1]."""

import math

import chex
import jax
import jax.numpy as jnp

__all__ = ["sample_squashed"]


def sample_squashed(mean: jax.Array, log_std: jax.Array, noise: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Samples of tanh of a normal variable with independent components, and their log-probabilities.

    A log-probability is computed from the variable before tanh: it is finite, and exact up to rounding, where the
    sample is -1 or 1 in float32. Gradients with respect to `mean` and `log_std` are those of the reparameterised
    sample.

    Args:
      mean: Means before tanh, `[..., n]`.
      log_std: Logarithms of the standard deviations before tanh, `[..., n]`.
      noise: Standard normal noise, `[..., n]`.

    Returns:
      Samples `[..., n]` in [-1, 1], and their log-densities `[...]`.

    Source: Haarnoja et al. (2018), arXiv 1801.01290, appendix C.
    """
    chex.assert_equal_shape([mean, log_std, noise], custom_message="mean, log_std, noise")
    before = mean + jnp.exp(log_std) * noise
    log_normal = -0.5 * jnp.square(noise) - log_std - 0.5 * math.log(2 * math.pi)
    return jnp.tanh(before), jnp.sum(log_normal - _log_slope(before), axis=-1)


def _log_slope(value: jax.Array) -> jax.Array:
    """The logarithm of the slope of tanh, log(1 - tanh(value)^2), without a difference of large numbers."""
    size = jnp.abs(value)
    return 2 * (math.log(2) - size - jnp.log1p(jnp.exp(-2 * size)))
