"""Sine and cosine together, several times faster on a CPU than separately."""

import math

import jax
import jax.numpy as jnp

# pi / 2 in three parts, the first two short enough that a whole number up to 2^15 times
# either is exact in float32, so that the reduced angle keeps its relative accuracy.
_HIGH = math.floor(math.pi / 2 * 2**7) / 2**7
_MIDDLE = math.floor((math.pi / 2 - _HIGH) * 2**18) / 2**18
_LOW = math.pi / 2 - _HIGH - _MIDDLE


def sin_cos(angle: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Sine and cosine of an angle, from one range reduction and two Taylor polynomials.

    A rollout of a pendulum spends most of its time here: XLA's own pair costs a CPU about
    six times as much, and is repeated wherever a fusion needs a value twice.

    Args:
      angle: Angles in radians, float32 of any shape, up to 5e4 in size.

    Returns:
      `(sin, cos)` of the angle's shape, within 1.5e-7 (about one unit in the last place
      of 1), never outside [-1, 1].
    """
    quarter = jnp.round(angle * (2 / math.pi))
    rest = ((angle - quarter * _HIGH) - quarter * _MIDDLE) - quarter * _LOW
    square = rest * rest
    sin = rest + rest * square * (-1 / 6 + square * (1 / 120 + square * (-1 / 5040 + square * (1 / 362880))))
    cos = 1 - square * (1 / 2 - square * (1 / 24 - square * (1 / 720 - square * (1 / 40320))))

    # rest is within pi / 4 of 0; of the four quarter turns, two swap the pair and two flip a sign.
    quadrant = quarter.astype(jnp.int32)
    swapped = (quadrant & 1) == 1
    sin_flipped = (quadrant & 2) == 2
    cos_flipped = ((quadrant + 1) & 2) == 2
    new_sin, new_cos = jnp.where(swapped, cos, sin), jnp.where(swapped, sin, cos)
    return jnp.where(sin_flipped, -new_sin, new_sin), jnp.where(cos_flipped, -new_cos, new_cos)
