"""Rays: the first body hit in each direction around an agent's heading, and its distance."""

import jax
import jax.numpy as jnp

from envs.crowd.dynamics import direction
from envs.crowd.state import Obstacles

__all__ = ["cast"]


def cast(
    position: jax.Array,
    heading: jax.Array,
    radius: jax.Array,
    walking: jax.Array,
    obstacles: Obstacles,
    reach: jax.Array | float,
    field_of_view: jax.Array | float,
    num_rays: int,
    see_agents: bool = True,
    tags: bool = False,
) -> jax.Array:
    """Rays from the centre of each agent, evenly spread around its heading from right to left.

    Args:
      position: Positions, `[N, 2]` m.
      heading: Headings, `[N]` rad.
      radius: Radii, `[N]` m.
      walking: Agents that walk, bool `[N]`; the others are not hit.
      obstacles: Boxes and pillars, which are hit.
      reach: Length of rays, `[]` m, traced.
      field_of_view: Angle to either side of the heading, `[]` rad, traced.
      num_rays: Number of rays, R, static.
      see_agents: Whether rays hit agents rather than pass through them, static.
      tags: Whether two more features name the kind of body, static.

    Returns:
      `[N, R, 2]`: whether something is hit, and 1 - distance / reach, 0 if not; with tags `[N, R, 4]`: whether it
      is an agent, whether it is a box or a pillar.
    """
    spread = jnp.linspace(-1.0, 1.0, num_rays) if num_rays > 1 else jnp.zeros(1)
    ray = direction(heading[:, None] + field_of_view * spread)  # [N, R, 2]
    far = jnp.full(ray.shape[:2], jnp.inf)
    to_agent = far
    if see_agents:
        others = walking[None] & ~jnp.eye(position.shape[0], dtype=bool)
        to_agent = _to_discs(position, ray, position, jnp.where(others, radius[None], -1.0))
    pillar_radius = jnp.broadcast_to(obstacles.pillar_radius, (position.shape[0], obstacles.pillar_radius.shape[0]))
    to_pillar = _to_discs(position, ray, obstacles.pillar_centre, pillar_radius)
    to_thing = jnp.minimum(to_pillar, _to_boxes(position, ray, obstacles.box_centre, obstacles.box_half))
    distance = jnp.minimum(to_agent, to_thing)
    hit = distance <= reach
    closeness = jnp.where(hit, 1.0 - jnp.where(hit, distance, 0.0) / reach, 0.0)
    features = [hit, closeness]
    if tags:
        features += [hit & (to_agent <= to_thing), hit & (to_agent > to_thing)]
    return jnp.stack([feature.astype(jnp.float32) for feature in features], axis=-1)


def _to_discs(origin: jax.Array, ray: jax.Array, centre: jax.Array, radius: jax.Array) -> jax.Array:
    """Distances `[N, R]` to the first of the discs `[D, 2]` with radii `[N, D]`; negative radii mark absent discs."""
    away = centre[None] - origin[:, None]  # [N, D, 2]
    along = jnp.einsum("nrk,ndk->nrd", ray, away, precision="highest")
    square = jnp.sum(away * away, axis=-1)[:, None]
    room = (radius * radius)[:, None] - (square - along * along)
    distance = along - jnp.sqrt(jnp.maximum(room, 0.0))
    inside = square <= (radius * radius)[:, None]
    hit = (room >= 0) & (distance >= 0)
    distance = jnp.where(inside, 0.0, jnp.where(hit, distance, jnp.inf))
    return jnp.min(jnp.where((radius >= 0)[:, None], distance, jnp.inf), axis=-1, initial=jnp.inf)


def _to_boxes(origin: jax.Array, ray: jax.Array, centre: jax.Array, half: jax.Array) -> jax.Array:
    """Distances `[N, R]` to the first of the boxes `[M, 2]`, from the slabs that a ray enters and leaves."""
    tiny = jnp.where(ray < 0, -1e-9, 1e-9)
    inverse = 1.0 / jnp.where(jnp.abs(ray) < 1e-9, tiny, ray)
    away = centre[None] - origin[:, None]  # [N, M, 2]
    middle = away[:, None] * inverse[:, :, None]
    extent = half[None, None] * jnp.abs(inverse)[:, :, None]
    enter, leave = jnp.max(middle - extent, axis=-1), jnp.min(middle + extent, axis=-1)
    distance = jnp.where((enter <= leave) & (leave >= 0), jnp.maximum(enter, 0.0), jnp.inf)
    return jnp.min(distance, axis=-1, initial=jnp.inf)
