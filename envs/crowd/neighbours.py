"""Who is nearest: the K nearest agents within a radius and a cone of vision."""

import jax
import jax.numpy as jnp
from flax import struct

from envs.crowd import pairs
from envs.crowd.dynamics import direction

__all__ = ["Nearest", "nearest"]

# The cell list looks this far first, in m: in a dense crowd K neighbours are found there.
_NEAR = 2.5
_CANDIDATES_PER_NEIGHBOUR = 4

# Agents for whom all others are looked at together, where the cell list does not do.
_BLOCK = 256


@struct.dataclass
class Nearest:
    """The nearest agents of each, sorted by distance.

    Attributes:
      index: int32 `[N, K]`; anyone's where not valid.
      valid: bool `[N, K]`; the valid ones come first.
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

    A large crowd is searched by a cell list of a few metres; where somebody would miss a neighbour by that (too few
    found, or a full cell) all pairs are looked at instead, so that both searches find the same.

    Args:
      position: `[N, 2]` m.
      heading: `[N]` rad.
      walking: bool `[N]`; the others neither see nor are seen.
      sight_radius: `[]` m, traced.
      sight_angle: `[]` rad, traced, to either side of the heading; pi sees all around.
      num_neighbours: K, static, below N.
      search: static.

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
    found = _sorted(away, ahead, lists.valid, lists.index, sight_radius, least, num_neighbours)
    short = jnp.any(walking & ~found.valid[:, -1]) & (reach < sight_radius)
    everyone = jnp.arange(position.shape[0], dtype=jnp.int32)

    def all_of(me: jax.Array) -> Nearest:
        others = walking & walking[me] & (everyone != me)
        return _sorted(position - position[me], ahead[me], others, everyone, sight_radius, least, num_neighbours)

    def in_blocks() -> Nearest:  # all pairs of a large crowd at once would fill the memory
        return jax.lax.map(all_of, everyone, batch_size=_BLOCK)

    return jax.lax.cond(short | (lists.overflow > 0), in_blocks, lambda: found)


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
