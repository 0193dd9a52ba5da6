"""The motion of a walker: an action is squashed to a control, then one of four dynamics advances a substep."""

import dataclasses
from typing import Literal, get_args

import jax
import jax.numpy as jnp

from envs.crowd.state import Traits, Walkers
from envs.errors import UserValueError

__all__ = ["DYNAMICS", "STILL", "Dynamics", "advance", "direction", "follow", "settle", "squash", "wrap"]

Dynamics = Literal["cartesian-velocity", "cartesian-acceleration", "polar-velocity", "polar-acceleration"]

DYNAMICS: tuple[Dynamics, ...] = get_args(Dynamics)

# Below this speed, in m/s, Cartesian acceleration stops, and a heading no longer follows the velocity.
STILL = 1e-3

# Actions are clipped here, far above where tanh is 1, so that none of their squares overflows.
_LARGEST = 1e6


def wrap(angle: jax.Array) -> jax.Array:
    """An angle in radians, brought into [-pi, pi)."""
    turned = angle - 2 * jnp.pi * jnp.floor((angle + jnp.pi) / (2 * jnp.pi))
    return jnp.where(turned >= jnp.pi, -jnp.pi, jnp.maximum(turned, -jnp.pi))


def direction(heading: jax.Array) -> jax.Array:
    """The unit vector `[*B, 2]` of a heading `[*B]`."""
    return jnp.stack([jnp.cos(heading), jnp.sin(heading)], axis=-1)


def squash(kind: Dynamics, action: jax.Array) -> jax.Array:
    """Bring an unbounded action into the unit disc (Cartesian) or the unit square (polar).

    Args:
      kind: Dynamics, static.
      action: Actions, `[*B, 2]`; (turn, forward) in polar dynamics.

    Returns:
      Controls, `[*B, 2]`: (a / |a|) tanh |a| in Cartesian dynamics, tanh of each component in polar ones.
    """
    action = jnp.clip(action, -_LARGEST, _LARGEST)
    if kind.startswith("polar"):
        return jnp.tanh(action)
    norm = jnp.sqrt(jnp.maximum(jnp.sum(action * action, axis=-1, keepdims=True), 1e-12))
    return action * (jnp.tanh(norm) / norm)


def advance(
    kind: Dynamics,
    walkers: Walkers,
    control: jax.Array,
    traits: Traits,
    turn_rate: jax.Array,
    dt: jax.Array,
    backwards: bool = False,
) -> Walkers:
    """The motion that the walkers intend in one substep, before contacts.

    Args:
      kind: Dynamics, static.
      walkers: Present walkers; positions are not changed.
      control: Controls, `[N, 2]`, squashed.
      traits: Traits with their limits.
      turn_rate: Rate in rad per substep at full turn (polar), traced.
      dt: Length of the substep in s, traced.
      backwards: Whether the speed of polar acceleration may be negative for a substep (2023) instead of 0; static.

    Returns:
      Walkers with the commanded velocity, heading and speed.

    Source: acceleration has the drag a_max / v_max, which makes v_max the speed reached at full throttle.
    """
    top = traits.max_speed
    drag = traits.max_acceleration / top
    if kind == "cartesian-velocity":
        return follow(dataclasses.replace(walkers, velocity=top[:, None] * control))
    if kind == "cartesian-acceleration":
        pull = traits.max_acceleration[:, None] * control - drag[:, None] * walkers.velocity
        velocity = walkers.velocity + pull * dt
        moves = jnp.sum(velocity * velocity, axis=-1, keepdims=True) >= STILL**2
        velocity = jnp.where(moves, velocity, 0.0)
        return follow(dataclasses.replace(walkers, velocity=velocity))
    heading = wrap(walkers.heading + turn_rate * control[:, 0])
    if kind == "polar-velocity":
        speed = top * jnp.maximum(control[:, 1], 0.0)
    elif kind == "polar-acceleration":
        speed = walkers.speed + (traits.max_acceleration * control[:, 1] - drag * walkers.speed) * dt
        speed = speed if backwards else jnp.maximum(speed, 0.0)
    else:
        raise UserValueError(f"dynamics must be one of {', '.join(DYNAMICS)}, got {kind!r}")
    velocity = speed[:, None] * direction(heading)
    return dataclasses.replace(walkers, velocity=velocity, heading=heading, speed=speed)


def follow(walkers: Walkers) -> Walkers:
    """Turn Cartesian walkers in the direction of their velocity; walkers that stand still keep their heading."""
    speed = jnp.linalg.norm(walkers.velocity, axis=-1)
    heading = wrap(jnp.arctan2(walkers.velocity[:, 1], walkers.velocity[:, 0]))
    heading = jnp.where(speed > STILL, heading, walkers.heading)
    return dataclasses.replace(walkers, heading=heading, speed=speed)


def settle(kind: Dynamics, commanded: Walkers, velocity: jax.Array) -> Walkers:
    """The walkers after contacts changed their velocities.

    Cartesian headings follow the velocity. Polar headings stay, and the speed that is accelerated next
    is the component of the velocity along the heading: sideways pushes do not turn into forward speed, and a
    substep backwards is followed by one that starts forwards, at the same speed.

    Args:
      kind: Dynamics, static.
      commanded: Walkers as returned by `advance`.
      velocity: Velocities after contacts, `[N, 2]` m/s.

    Returns:
      Walkers at their old positions.
    """
    if kind.startswith("cartesian"):
        return follow(dataclasses.replace(commanded, velocity=velocity))
    along = jnp.sum(velocity * direction(commanded.heading), axis=-1)
    speed = jnp.maximum(jnp.where(commanded.speed < 0, -along, along), 0.0)
    return dataclasses.replace(commanded, velocity=velocity, speed=speed)
