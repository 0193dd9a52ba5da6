"""Parts that both motors share: random references of currents, checks of their parameters, and the range of returns."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs.arguments import check_at_least, check_order, check_positive
from envs.pytrees import Params

__all__ = ["Reference", "advance", "begin", "check", "return_range"]

VIOLATION = -10.0  # reward of a current beyond its limit: the lowest other reward, -1, for ever under a discount of 0.9


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


def check(params: Params) -> None:
    """Reject limits and deviations that are not above 0, ranges whose ends are exchanged, and references beyond limits.

    Args:
      params: Parameters of a motor, which have the fields of `begin`, `max_current` and `nominal_current`.
    """
    check_positive(params, "max_current", "nominal_current", "least_deviation", "most_deviation")
    check_at_least(params, least_steps=0, most_steps=0)
    for low, high in (
        ("nominal_current", "max_current"),
        ("least_deviation", "most_deviation"),
        ("least_steps", "most_steps"),
    ):
        check_order(params, low, high)


def return_range(params: Params) -> tuple[Any, Any]:
    """From the largest error in every step and a violation in the last to no error.

    Args:
      params: See `check`; a step's reward is minus half of the mean error as a share of the limit.
    """
    limit, most, nominal = (
        np.asarray(number, np.float64)
        for number in (params.max_steps_in_episode, params.max_current, params.nominal_current)
    )
    return -(limit - 1) * (1 + nominal / most) / 2 + VIOLATION, 0.0


def begin(key: jax.Array, count: int, params: Params) -> Reference:
    """References at the start of an episode, uniform within their limits.

    Args:
      key: Random key.
      count: Number of quantities n.
      params: Parameters with `max_current` and `nominal_current`, whose ratio is the largest size of a value, and with
        `least_deviation`, `most_deviation`, `least_steps` and `most_steps`.
    """
    own, drawn = jax.random.split(key)
    value = _most(params) * jax.random.uniform(own, (count,), minval=-1.0)
    return Reference(value, *_drawn(drawn, count, params))


def advance(key: jax.Array, reference: Reference, params: Params) -> Reference:
    """References a step later: a random walk within the limits, whose deviation changes from time to time.

    Args:
      key: Random key.
      reference: References now.
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
    most = _most(params)
    return Reference(jnp.clip(value, -most, most), deviation, left - 1)


def _most(params: Params) -> Any:
    return params.nominal_current / params.max_current


def _drawn(key: jax.Array, count: int, params: Params) -> tuple[jax.Array, jax.Array]:
    shares = jax.random.uniform(key, (2, count))
    low, high = jnp.log(params.least_deviation), jnp.log(params.most_deviation)
    steps = params.least_steps + shares[1] * (params.most_steps - params.least_steps)
    return jnp.exp(low + shares[0] * (high - low)), steps.astype(jnp.int32)
