"""Nearest neighbours: the K nearest agents within a radius and a cone of vision."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from envs.crowd import pairs
from envs.crowd.dynamics import direction

__all__ = ["Nearest", "nearest"]

# The cell list looks this far first, in m, then twice as far, and so on.
_FIRST_REACH = 2.5
_SLOTS_PER_NEIGHBOUR = 4

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


class _SoFar(NamedTuple):
    """The nearest agents by the cell lists so far, `complete` where they are final, `crowded` where a list was full."""

    neighbours: Nearest
    complete: jax.Array
    crowded: jax.Array
    reach: jax.Array


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

    A large crowd is searched by a cell list of a few metres, and again with twice the reach while many agents have
    fewer than K neighbours within it. The few that remain, and those with a full cell nearby, are compared with all
    others. Both searches therefore return the same, except for the order of neighbours at equal distances.

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
    return _by_cells(*jax.lax.stop_gradient((position, ahead, walking, sight_radius, least)), num_neighbours)


def _by_cells(
    position: jax.Array,
    ahead: jax.Array,
    walking: jax.Array,
    sight_radius: jax.Array | float,
    least: jax.Array,
    num_neighbours: int,
) -> Nearest:
    """Widen the cell lists until at most a block of agents is short of neighbours, then complete those in blocks."""
    num_agents = position.shape[0]
    everyone = jnp.arange(num_agents, dtype=jnp.int32)
    block = min(_BLOCK, max(num_agents // 4, 1))

    def many_are_short(so_far: _SoFar) -> jax.Array:
        return (jnp.sum(~so_far.complete & ~so_far.crowded) > block) & (so_far.reach < sight_radius)

    def widen(so_far: _SoFar) -> _SoFar:
        reach = jnp.minimum(2 * so_far.reach, sight_radius)
        agents, square, left_out = pairs.around(position, walking, reach, _SLOTS_PER_NEIGHBOUR * num_neighbours)
        near = square <= reach * reach
        listed = _sorted(position[agents] - position[:, None], ahead, near, agents, sight_radius, least, num_neighbours)
        neighbours = jax.tree.map(
            lambda old, new: jnp.where(so_far.complete[:, None], old, new), so_far.neighbours, listed
        )
        crowded = so_far.crowded | jnp.any(left_out > 0, axis=1)
        complete = ~crowded & (listed.valid[:, -1] | (reach >= sight_radius))
        return _SoFar(neighbours, so_far.complete | complete, crowded, reach)

    nobody = Nearest(
        index=jnp.zeros((num_agents, num_neighbours), jnp.int32), valid=jnp.zeros((num_agents, num_neighbours), bool)
    )
    reach = jnp.minimum(jnp.float32(_FIRST_REACH), sight_radius)
    start = _SoFar(nobody, ~walking, jnp.zeros(num_agents, bool), reach / 2)
    so_far = jax.lax.while_loop(many_are_short, widen, start)
    incomplete_first = jnp.argsort(so_far.complete)

    def compare_with_all(i: jax.Array, neighbours: Nearest) -> Nearest:
        who = jax.lax.dynamic_slice(incomplete_first, (i * block,), (block,))
        others = walking[who, None] & walking & (everyone != who[:, None])
        index = jnp.broadcast_to(everyone, others.shape)
        new = _sorted(position - position[who, None], ahead[who], others, index, sight_radius, least, num_neighbours)
        return jax.tree.map(lambda old, rows: old.at[who].set(rows), neighbours, new)

    blocks = -(-jnp.sum(~so_far.complete) // block)
    return jax.lax.fori_loop(0, blocks, compare_with_all, so_far.neighbours)


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
