"""What walking costs: two models of the energy per kilogram, the cheapest speed, and the optimum of a way."""

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

# Of an average person: e_s in J/(kg s) and e_w in J s/(kg m^2).
RESTING = 2.23
WALKING = 1.26

# Nobody is expected to go on more slowly than this, in m/s, when the rest of a way is estimated.
_SLOWEST = 0.1


def preferred_speed(resting: jax.Array | float, walking: jax.Array | float) -> jax.Array:
    """The speed at which a metre costs least, sqrt(e_s / e_w).

    Args:
      resting: e_s, J/(kg s).
      walking: e_w, J s/(kg m^2).

    Returns:
      v* in m/s, 1.3304 for an average person.
    """
    return jnp.sqrt(jnp.asarray(resting, jnp.float32) / walking)


def power(square: jax.Array, traits: Traits) -> jax.Array:
    """What a person spends per second and kilogram at a steady speed.

    Args:
      square: `[N]` m^2/s^2, the squared speed, or its mean over a while.
      traits: e_s and e_w.

    Returns:
      `[N]` J/(kg s), e_s + e_w v^2.

    Source: Guy et al. (2010), PLEdestrians: a least-effort approach to crowd simulation.
    """
    return traits.resting + traits.walking * square


def dynamic_power(velocity: jax.Array, previous: jax.Array, traits: Traits, interval: jax.Array) -> jax.Array:
    """What a person spends per second and kilogram when speeding up and slowing down count as well.

    A force F = a + e_w v drives the body against its drag; slowing down no faster than drag does is free.

    Args:
      velocity, previous: `[N, 2]` m/s, in this decision and in the one before.
      traits: e_s and e_w.
      interval: s, of one decision.

    Returns:
      `[N]` J/(kg s), e_s + |v . a + e_w v . v_previous|: at a constant velocity the same as `power`.
    """
    gain = jnp.sum(velocity * (velocity - previous), axis=-1) / interval
    drag = traits.walking * jnp.sum(velocity * previous, axis=-1)
    return traits.resting + jnp.abs(gain + drag)


def distance_to_touch(position: jax.Array, traits: Traits, goals: Goals) -> jax.Array:
    """How far bodies have to go until they touch their goals.

    Args:
      position: `[N, 2]` m.
      traits: radii.
      goals: boxes.

    Returns:
      `[N]` m, 0 for who touches.
    """
    gap, _ = shapes.box_gap(position, goals.centre, goals.half)
    return jnp.maximum(gap - traits.radius, 0.0)


def optimum(distance: jax.Array, traits: Traits) -> jax.Array:
    """The least energy for which a distance can be walked: straight on, at the preferred speed.

    Args:
      distance: `[N]` m.
      traits: e_s and e_w.

    Returns:
      `[N]` J/kg, 2 sqrt(e_s e_w) d; 3.3525 for each metre of an average person.
    """
    return 2 * jnp.sqrt(traits.resting * traits.walking) * distance


def average_remaining(distance: jax.Array, start_distance: jax.Array, elapsed: jax.Array, traits: Traits) -> jax.Array:
    """The energy of the rest of a way if it goes on at the average speed towards the goal so far.

    Args:
      distance: `[N]` m, what is left.
      start_distance: `[N]` m, what it was at the start.
      elapsed: `[N]` s since then.
      traits: e_s and e_w.

    Returns:
      `[N]` J/kg, (e_s + e_w v^2) d / v with v = (d_0 - d) / t, at least 0.1 m/s.
    """
    speed = jnp.maximum((start_distance - distance) / jnp.maximum(elapsed, 1e-6), _SLOWEST)
    return power(speed * speed, traits) * distance / speed


def standing_threshold(time_limit: jax.Array | float, speed: jax.Array | float) -> jax.Array:
    """The distance from which on it costs less to stand until the time is up than to walk to the goal.

    Args:
      time_limit: s.
      speed: m/s, the preferred one.

    Returns:
      m, T v* / 2: standing costs e_s T, walking at least 2 sqrt(e_s e_w) d.
    """
    return jnp.asarray(time_limit, jnp.float32) * speed / 2
