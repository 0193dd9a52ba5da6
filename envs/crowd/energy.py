"""The energy of walking: two models of the energy per kilogram, the cheapest speed, and the least energy of a walk."""

import jax
import jax.numpy as jnp

from envs.crowd import shapes
from envs.crowd.state import Goals, Traits

__all__ = [
    "RESTING",
    "WALKING",
    "average_remaining",
    "distance_to_touch",
    "dynamic_power",
    "optimum",
    "power",
    "preferred_speed",
    "standing_threshold",
]

# Constants of an average person: e_s in J/(kg s) and e_w in J s/(kg m^2).
RESTING = 2.23
WALKING = 1.26

# Slowest speed, in m/s, that estimates of the energy for the remaining distance assume.
_SLOWEST = 0.1


def preferred_speed(resting: jax.Array | float, walking: jax.Array | float) -> jax.Array:
    """The speed at which a metre costs the least energy, sqrt(e_s / e_w).

    Args:
      resting: Energy constant e_s, J/(kg s).
      walking: Energy constant e_w, J s/(kg m^2).

    Returns:
      v* in m/s, 1.3304 for an average person.
    """
    return jnp.sqrt(jnp.asarray(resting, jnp.float32) / walking)


def power(square: jax.Array, traits: Traits) -> jax.Array:
    """Energy per second and kilogram of a person at a steady speed.

    Args:
      square: Squared speed, or its mean over an interval, `[N]` m^2/s^2.
      traits: Traits with e_s and e_w.

    Returns:
      `[N]` J/(kg s), e_s + e_w v^2.

    Source: Guy et al. (2010), PLEdestrians: a least-effort approach to crowd simulation.
    """
    return traits.resting + traits.walking * square


def dynamic_power(velocity: jax.Array, previous: jax.Array, traits: Traits, interval: jax.Array) -> jax.Array:
    """Energy per second and kilogram of a person, including the energy of changes of speed.

    A force F = a + e_w v drives the body against its drag; slowing down no faster than drag does costs nothing.

    Args:
      velocity, previous: Velocities in this decision and in the previous one, `[N, 2]` m/s.
      traits: Traits with e_s and e_w.
      interval: Length of one decision in s.

    Returns:
      `[N]` J/(kg s), e_s + |v . a + e_w v . v_previous|: at a constant velocity the same as `power`.
    """
    gain = jnp.sum(velocity * (velocity - previous), axis=-1) / interval
    drag = traits.walking * jnp.sum(velocity * previous, axis=-1)
    return traits.resting + jnp.abs(gain + drag)


def distance_to_touch(position: jax.Array, traits: Traits, goals: Goals) -> jax.Array:
    """The distance that bodies have to walk until they touch their goals.

    Args:
      position: Positions, `[N, 2]` m.
      traits: Traits with radii.
      goals: Boxes.

    Returns:
      `[N]` m, 0 for agents that touch their goals.
    """
    gap, _ = shapes.box_gap(position, goals.centre, goals.half)
    return jnp.maximum(gap - traits.radius, 0.0)


def optimum(distance: jax.Array, traits: Traits) -> jax.Array:
    """The least energy for which a distance can be walked: straight, at the preferred speed.

    Args:
      distance: Distance, `[N]` m.
      traits: Traits with e_s and e_w.

    Returns:
      `[N]` J/kg, 2 sqrt(e_s e_w) d; 3.3525 for each metre of an average person.
    """
    return 2 * jnp.sqrt(traits.resting * traits.walking) * distance


def average_remaining(distance: jax.Array, start_distance: jax.Array, elapsed: jax.Array, traits: Traits) -> jax.Array:
    """The energy for the remaining distance at the average speed towards the goal so far.

    Args:
      distance: Remaining distance, `[N]` m.
      start_distance: Distance at the start, `[N]` m.
      elapsed: Time since the start, `[N]` or `[]` s.
      traits: Traits with e_s and e_w.

    Returns:
      `[N]` J/kg, (e_s + e_w v^2) d / v with v = (d_0 - d) / t, at least 0.1 m/s.
    """
    speed = jnp.maximum((start_distance - distance) / jnp.maximum(elapsed, 1e-6), _SLOWEST)
    return power(speed * speed, traits) * distance / speed


def standing_threshold(time_limit: jax.Array | float, speed: jax.Array | float) -> jax.Array:
    """The distance beyond which standing still until the time limit costs less than walking to the goal.

    Args:
      time_limit: Time limit in s.
      speed: Preferred speed in m/s.

    Returns:
      The distance in m, T v* / 2: standing costs e_s T, walking at least 2 sqrt(e_s e_w) d.
    """
    return jnp.asarray(time_limit, jnp.float32) * speed / 2
