"""Nearest neighbours: the K nearest agents within a radius and a cone of vision."""

import jax
import jax.numpy as jnp
from flax import struct

from envs.crowd import pairs
from envs.crowd.dynamics import direction

__all__ = ["Nearest", "nearest"]

# The cell list looks this far first, in m: a dense crowd has K neighbours within it.
_NEAR = 2.5
_CANDIDATES_PER_NEIGHBOUR = 4

# Number of agents compared with all others at a time, where the cell list does not suffice.
_BLOCK = 256


@struct.dataclass
class Nearest:
    """The nearest agents of each agent, sorted by distance.

    Attributes:
      index: Indices of the neighbours, int32 `[N, K]`; arbitrary where not valid.
      valid: Whether an entry is a neighbour, bool `[N, K]`; the valid ones come first.
    """

    index: jax.Array
    valid: jax.Array


def nearest(
    position: jax.Array,
    heading: jax.Array,
    walking: jax.Array,
    sight_radius: jax.Array | float,
    sight_angle: jax.Array | float,
    num_neighbours: int,
    search: pairs.Search = "auto",
) -> Nearest:
    """The nearest walking agents that each walking agent sees.

    A large crowd is searched by a cell list of a few metres; where that could miss a neighbour (fewer than K within it,
    or a full cell) all pairs are compared instead, so that both searches return the same.

    Args:
      position: Positions, `[N, 2]` m.
      heading: Headings, `[N]` rad.
      walking: Agents that walk, bool `[N]`; the others neither see nor are seen.
      sight_radius: Largest distance at which agents are seen, `[]` m, traced.
      sight_angle: Angle to either side of the heading, `[]` rad, traced; pi sees all around.
      num_neighbours: Number of neighbours, K, static, below N.
      search: Search method, static.

    Returns:
      The K nearest of each agent.
    """
    ahead = direction(heading)
    # cos(pi) is -1, and a unit vector's product with another may round below that.
    least = jnp.where(sight_angle >= jnp.pi, -2.0, jnp.cos(sight_angle))

    def all_pairs() -> Nearest:
        away = position[None] - position[:, None]
        others = walking[:, None] & walking[None] & ~jnp.eye(position.shape[0], dtype=bool)
        index = jnp.broadcast_to(jnp.arange(position.shape[0], dtype=jnp.int32), others.shape)
        return _sorted(away, ahead, others, index, sight_radius, least, num_neighbours)

    if pairs.resolve(search, position.shape[0]) == "all-pairs":
        return all_pairs()
    reach = jnp.minimum(sight_radius, _NEAR)
    capacity = _CANDIDATES_PER_NEIGHBOUR * num_neighbours
    lists = pairs.candidates(position, walking, reach, "cells", capacity)
    away = position[lists.index] - position[:, None]
    listed = _sorted(away, ahead, lists.valid, lists.index, sight_radius, least, num_neighbours)
    short = jnp.any(walking & ~listed.valid[:, -1]) & (reach < sight_radius)
    everyone = jnp.arange(position.shape[0], dtype=jnp.int32)

    def all_of(me: jax.Array) -> Nearest:
        others = walking & walking[me] & (everyone != me)
        return _sorted(position - position[me], ahead[me], others, everyone, sight_radius, least, num_neighbours)

    def in_blocks() -> Nearest:  # all pairs of a large crowd at once would fill the memory
        return jax.lax.map(all_of, everyone, batch_size=_BLOCK)

    return jax.lax.cond(short | (lists.overflow > 0), in_blocks, lambda: listed)


def _sorted(
    away: jax.Array,
    ahead: jax.Array,
    others: jax.Array,
    index: jax.Array,
    sight_radius: jax.Array | float,
    least: jax.Array,
    num_neighbours: int,
) -> Nearest:
    """The nearest of the candidates `[*B, C]` that are in sight of agents `[*B]`."""
    square = jnp.sum(away * away, axis=-1)
    in_cone = jnp.sum(away * ahead[..., None, :], axis=-1) >= least * jnp.sqrt(square)
    seen = others & in_cone & (square <= sight_radius * sight_radius)
    closeness, place = jax.lax.top_k(jnp.where(seen, -square, -jnp.inf), num_neighbours)
    return Nearest(index=jnp.take_along_axis(index, place, axis=-1), valid=closeness > -jnp.inf)
