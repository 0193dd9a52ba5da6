"""Discs against axis-aligned boxes and pillars: gaps, outward normals and touches."""

import jax
import jax.numpy as jnp

__all__ = ["box_gap", "box_point", "boxes_overlap", "disc_gap", "touches_box"]


def box_gap(point: jax.Array, centre: jax.Array, half: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The signed distance of points from boxes, and the outward direction.

    Args:
      point: Points, `[*B, 2]` m.
      centre, half: Centres and half sides of the boxes, `[*B, 2]` m, broadcast against the points.

    Returns:
      The distance `[*B]` m from the surface, negative inside, and the outward unit normal `[*B, 2]` at the
      nearest point of the surface (inside: that of the nearest face).
    """
    away = point - centre
    beyond = jnp.abs(away) - half
    sign = jnp.where(away < 0, -1.0, 1.0)
    outside = jnp.maximum(beyond, 0.0)
    square = jnp.sum(outside * outside, axis=-1)
    distance = jnp.sqrt(jnp.maximum(square, 1e-24))
    inner = jnp.max(beyond, axis=-1)
    is_out = square > 0
    across = beyond[..., 0] >= beyond[..., 1]
    face = jnp.stack([across, ~across], axis=-1).astype(point.dtype)
    normal = sign * jnp.where(is_out[..., None], outside / distance[..., None], face)
    return jnp.where(is_out, distance, inner), normal


def disc_gap(point: jax.Array, centre: jax.Array, radius: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The signed distance of points from discs, and the outward direction.

    Args:
      point, centre: Points and centres of the discs, `[*B, 2]` m.
      radius: Radii, `[*B]` m.

    Returns:
      The distance `[*B]` m from the rim, negative inside, and the outward unit normal `[*B, 2]` (0 in the
      very centre, which has no outward direction).
    """
    away = point - centre
    distance = jnp.sqrt(jnp.maximum(jnp.sum(away * away, axis=-1), 1e-24))
    return distance - radius, away / distance[..., None]


def box_point(point: jax.Array, centre: jax.Array, half: jax.Array) -> jax.Array:
    """The point `[*B, 2]` of solid boxes that is nearest to each point; the point itself inside."""
    return jnp.clip(point, centre - half, centre + half)


def touches_box(position: jax.Array, radius: jax.Array, centre: jax.Array, half: jax.Array) -> jax.Array:
    """Whether discs touch or overlap boxes.

    Args:
      position, centre, half: Centres of the discs, and centres and half sides of the boxes, `[*B, 2]` m.
      radius: Radii, `[*B]` m.

    Returns:
      Whether they touch, bool `[*B]`.
    """
    away = position - box_point(position, centre, half)
    return jnp.sum(away * away, axis=-1) <= radius * radius


def boxes_overlap(centre: jax.Array, half: jax.Array) -> jax.Array:
    """Find the pairs of boxes that share more than an edge.

    Args:
      centre, half: Centres and half sides, `[M, 2]` m.

    Returns:
      Whether two boxes overlap, bool `[M, M]`; False on the diagonal.
    """
    near = jnp.abs(centre[:, None] - centre[None]) < half[:, None] + half[None]
    return jnp.all(near, axis=-1) & ~jnp.eye(centre.shape[0], dtype=bool)
