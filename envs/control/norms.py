"""The Euclidean norm, with a gradient everywhere."""

import jax
import jax.numpy as jnp

__all__ = ["norm"]


def norm(vector: jax.Array) -> jax.Array:
    """The Euclidean norm along the last axis; its gradient is 0, instead of not a number, where the vector is 0.

    Args:
      vector: Vectors, float32 `[..., n]`.
    """
    square = jnp.sum(jnp.square(vector), axis=-1)
    positive = square > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, square, 1.0)), 0.0)
