"""Random references that a controlled quantity has to follow."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

__all__ = ["Reference", "advance", "begin"]


@struct.dataclass
class Reference:
    """Values to follow, of `n` quantities.

    Attributes:
      value: Values, float32 `[n]`.
      deviation: Standard deviations of their changes in a step, float32 `[n]`.
      left: Numbers of steps until the next deviations are drawn, int32 `[n]`.
    """

    value: jax.Array
    deviation: jax.Array
    left: jax.Array


def begin(key: jax.Array, count: int, most: Any, params: Any) -> Reference:
    """References at the start of an episode, uniform within their limits.

    Args:
      key: Random key.
      count: Number of quantities n.
      most: Largest size of a value.
      params: Parameters with `least_deviation`, `most_deviation`, `least_steps` and `most_steps`.
    """
    own, drawn = jax.random.split(key)
    value = most * jax.random.uniform(own, (count,), minval=-1.0)
    return Reference(value, *_drawn(drawn, count, params))


def advance(key: jax.Array, reference: Reference, most: Any, params: Any) -> Reference:
    """References a step later: a random walk within the limits, whose deviation changes from time to time.

    Args:
      key: Random key.
      reference: References now.
      most: Largest size of a value.
      params: See `begin`.

    Source: the Wiener process of gym-electric-motor, Balakrishna et al. (2021): a deviation whose logarithm is uniform,
    for a uniform number of steps.
    """
    own, drawn = jax.random.split(key)
    count = reference.value.shape[0]
    deviation, left = _drawn(drawn, count, params)
    ends = reference.left <= 0
    deviation, left = jnp.where(ends, deviation, reference.deviation), jnp.where(ends, left, reference.left)
    value = reference.value + deviation * jax.random.normal(own, (count,))
    return Reference(jnp.clip(value, -most, most), deviation, left - 1)


def _drawn(key: jax.Array, count: int, params: Any) -> tuple[jax.Array, jax.Array]:
    shares = jax.random.uniform(key, (2, count))
    low, high = jnp.log(params.least_deviation), jnp.log(params.most_deviation)
    steps = params.least_steps + shares[1] * (params.most_steps - params.least_steps)
    return jnp.exp(low + shares[0] * (high - low)), steps.astype(jnp.int32)
