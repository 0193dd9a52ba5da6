"""Starting places: grids over areas, spaced draws, the separation of overlapping agents, and entries."""

import math

import jax
import jax.numpy as jnp

from envs.crowd import pairs, shapes
from envs.crowd.state import Obstacles

__all__ = ["enter", "grid", "push_apart", "rectangle_holds", "spaced"]

# Discs that would touch at a start are left this far apart, in m.
_ROOM = 0.01

# Number of other agents from which each agent of a large crowd is separated at a time.
_CAPACITY = 32


def rectangle_holds(half: tuple[float, float], radius: float) -> int:
    """Number of discs that fit on the grid over a rectangle without overlap.

    Args:
      half: Half of the sides in m.
      radius: Radius of the largest disc in m.
    """
    count = 0
    while True:
        sides = [
            min(math.ceil(math.sqrt((count + 1) * one / other) - 1e-4), count + 1) for one, other in (half, half[::-1])
        ]
        if any(number > 1 and 2 * side / (number - 1) < 2 * radius for side, number in zip(half, sides, strict=True)):
            return count
        count += 1


def grid(rank: jax.Array, count: jax.Array, centre: jax.Array, half: jax.Array) -> jax.Array:
    """Places on a grid over a rectangle, ceil(sqrt(n)) to a side for a square, one row for a line.

    Args:
      rank: Index of the place within its group, int32 `[*B]`.
      count: Number of agents of the group, int32 `[*B]` or `[]`, traced.
      centre, half: Centre and half sides of the rectangle, `[*B, 2]` or `[2]` m.

    Returns:
      Places, `[*B, 2]` m.
    """
    count = jnp.maximum(count, 1)
    ratio = half[..., 1] / half[..., 0]
    rows, columns = (
        jnp.clip(jnp.ceil(jnp.sqrt(count * part) - 1e-4).astype(jnp.int32), 1, count) for part in (ratio, 1 / ratio)
    )

    def along(place: jax.Array, number: jax.Array) -> jax.Array:
        return jnp.where(number > 1, 2 * place / jnp.maximum(number - 1, 1) - 1, 0.0)

    offset = jnp.stack([along(rank // rows, columns), along(rank % rows, rows)], axis=-1)
    return centre + offset * half


def spaced(
    key: jax.Array, num_agents: int, half: jax.Array, spacing: jax.Array, tries: int, obstacles: Obstacles
) -> jax.Array:
    """Uniform places in a square, each the first of several draws that keeps its distance from all earlier places.

    Args:
      key: Random key.
      num_agents, tries: Numbers of agents and of draws for each, static.
      half: Half the side of the square, `[]` m.
      spacing: Distance between centres, and from the rim of a pillar, `[]` m.
      obstacles: Obstacles, whose pillars are avoided, too.

    Returns:
      Places, `[N, 2]` m. Where no draw keeps the distance, the draw farthest from the others is taken.
    """
    draws = jax.random.uniform(key, (num_agents, tries, 2), minval=-half, maxval=half)
    to_pillar, _ = shapes.disc_gap(draws[:, :, None], obstacles.pillar_centre, obstacles.pillar_radius)
    clear = jnp.min(to_pillar, axis=-1, initial=jnp.inf)

    def place(placed: jax.Array, i: jax.Array) -> tuple[jax.Array, None]:
        away = jnp.sqrt(jnp.sum((draws[i, :, None] - placed[None]) ** 2, axis=-1))
        distance = jnp.minimum(jnp.min(away, axis=-1), clear[i])
        keeps = distance >= spacing
        chosen = jnp.where(jnp.any(keeps), jnp.argmax(keeps), jnp.argmax(distance))
        return placed.at[i].set(draws[i, chosen]), None

    nowhere = jnp.full((num_agents, 2), 1e6)
    return jax.lax.scan(place, nowhere, jnp.arange(num_agents))[0]


def push_apart(
    position: jax.Array, radius: jax.Array, present: jax.Array, obstacles: Obstacles, iterations: int = 30
) -> jax.Array:
    """Separate overlapping discs before an episode starts.

    Random starts may overlap; a simulation would throw such bodies apart.

    Args:
      position: Positions, `[N, 2]` m.
      radius: Radii, `[N]` m.
      present: Agents that take part, bool `[N]`; the others are ignored.
      obstacles: Boxes and pillars, which agents are moved out of, too.
      iterations: Largest number of iterations, static; each moves a pair apart by half of its overlap per agent.

    Returns:
      Positions, `[N, 2]` m.
    """
    widest = 2 * jnp.max(jnp.where(present, radius, 0.0)) + _ROOM
    # Two agents in exactly the same place are separated in a direction that depends on their indices.
    angle = 2.4 * jnp.arange(position.shape[0])
    aside = jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=-1)

    def busy(carry: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        return (carry[0] < iterations) & carry[2]

    def once(carry: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        step, position, _ = carry
        near = pairs.candidates(position, present, widest, capacity=_CAPACITY)
        reach = jnp.where(near.valid, radius[:, None] + radius[near.index] + _ROOM, 0.0)
        away = position[:, None] - position[near.index]
        distance = jnp.sqrt(jnp.maximum(jnp.sum(away * away, axis=-1), 1e-12))
        into = jnp.maximum(reach - distance, 0.0)
        way = jnp.where(distance[..., None] > 1e-4, away / distance[..., None], aside[:, None])
        move = jnp.sum(0.5 * into[..., None] * way, axis=1)
        overlaps = jnp.any(into > 0) | (near.overflow > 0)
        for gaps in (
            shapes.box_gap(position[:, None], obstacles.box_centre, obstacles.box_half),
            shapes.disc_gap(position[:, None], obstacles.pillar_centre, obstacles.pillar_radius),
        ):
            gap, normal = gaps
            into = jnp.where(present[:, None], jnp.maximum(radius[:, None] + _ROOM - gap, 0.0), 0.0)
            move += jnp.sum(into[..., None] * normal, axis=1)
            overlaps |= jnp.any(into > 0)
        return step + 1, position + move, overlaps

    return jax.lax.while_loop(busy, once, (jnp.int32(0), position, jnp.bool_(True)))[1]


def enter(
    position: jax.Array, radius: jax.Array, waiting: jax.Array, walking: jax.Array, entry: jax.Array, time: jax.Array
) -> jax.Array:
    """Agents that enter now: those whose time has come and whose places are free.

    A place is free if no walking agent overlaps with it, and no agent of a smaller index that is to enter as well.

    Args:
      position: Positions, `[N, 2]` m.
      radius: Radii, `[N]` m.
      waiting: Agents that have not entered, bool `[N]`.
      walking: Agents that have entered and have not arrived, bool `[N]`.
      entry: Times of entry, `[N]` s.
      time: Present time, `[]` s.

    Returns:
      Agents that enter, bool `[N]`.
    """
    due = waiting & (entry <= time)
    apart = position[:, None] - position[None]
    overlaps = jnp.sum(apart * apart, axis=-1) < (radius[:, None] + radius[None]) ** 2
    before = due[None] & jnp.tri(due.shape[0], k=-1, dtype=bool)
    return due & ~jnp.any(overlaps & (walking[None] | before), axis=-1)
