"""Pairs of agents that may be near each other: all pairs in a small crowd, a cell list in a large one."""

from typing import Literal, get_args

import jax
import jax.numpy as jnp
from flax import struct

from envs.arguments import check_choice

__all__ = ["CELLS_FROM", "SEARCHES", "Candidates", "Search", "around", "candidates", "closest", "resolve"]

Search = Literal["auto", "all-pairs", "cells"]

SEARCHES: tuple[Search, ...] = get_args(Search)

# From this number of agents on, building lists costs less than comparing all pairs.
CELLS_FROM = 200

# Number of agents that a row of three cells yields, per candidate that an agent may keep; the three rows around
# an agent hold 9 / pi times the agents of the circle inside them, if these are spread evenly.
_SLOTS_PER_CANDIDATE = 1.0

# Coordinates of cells have 15 bits each, with one cell of margin around.
_FARTHEST = 16_383


@struct.dataclass
class Candidates:
    """Agents that may be within reach of each agent, in no particular order.

    Attributes:
      index: Indices of the candidates, int32 `[N, C]`; arbitrary where not valid.
      valid: Whether an entry is a candidate, bool `[N, C]`.
      overflow: Number of agents for which the lists had no room and which may be missing, int32 `[]`.
    """

    index: jax.Array
    valid: jax.Array
    overflow: jax.Array


def resolve(search: Search, num_agents: int) -> Literal["all-pairs", "cells"]:
    """The search for a crowd of this size: the requested one, or the cheaper one for "auto"."""
    check_choice("search", search, SEARCHES)
    if search == "auto":
        return "cells" if num_agents >= CELLS_FROM else "all-pairs"
    return search


def candidates(
    position: jax.Array, walking: jax.Array, reach: jax.Array, search: Search = "auto", capacity: int = 12
) -> Candidates:
    """The other walking agents within a distance of each walking agent.

    Args:
      position: Positions, `[N, 2]` m.
      walking: Agents that walk, bool `[N]`; the others are not candidates.
      reach: Largest distance between centres, `[]` m, traced.
      search: Search method, static; "auto" is all pairs for a small crowd and cells from `CELLS_FROM` agents on.
      capacity: Number of candidates in the cell list, C, static; agents beyond it are counted in `overflow`. All pairs
        have C = N and never overflow.

    Returns:
      The candidates, which are the same for both searches if nothing overflows.
    """
    num_agents = position.shape[0]
    if resolve(search, num_agents) == "all-pairs":
        index = jnp.broadcast_to(jnp.arange(num_agents, dtype=jnp.int32), (num_agents, num_agents))
        away = position[:, None] - position[None]
        near = jnp.sum(away * away, axis=-1) < reach * reach
        near &= walking[:, None] & walking[None] & ~jnp.eye(num_agents, dtype=bool)
        return Candidates(index=index, valid=near, overflow=jnp.int32(0))
    return _from_cells(position, walking, reach, min(capacity, max(num_agents - 1, 1)))


def _from_cells(position: jax.Array, walking: jax.Array, reach: jax.Array, capacity: int) -> Candidates:
    agents, square, dropped = around(position, walking, reach, max(4, int(capacity * _SLOTS_PER_CANDIDATE)))
    near = square < reach * reach
    rank = jnp.cumsum(near.astype(jnp.int32), axis=1)  # 1, 2, ... at the near ones
    places = jnp.arange(1, capacity + 1, dtype=jnp.int32)
    chosen = near[:, None] & (rank[:, None] == places[:, None])  # [N, C, 3 S]
    index = jnp.sum(jnp.where(chosen, agents[:, None], 0), axis=-1)
    count = rank[:, -1]
    dropped = jnp.sum(jnp.maximum(count - capacity, 0)) + jnp.sum(dropped)
    return Candidates(index=index, valid=places <= count[:, None], overflow=dropped.astype(jnp.int32))


def closest(position: jax.Array, walking: jax.Array, reach: jax.Array, slots: int) -> jax.Array:
    """The smallest squared distance between two walking agents, `[]` m^2, infinite where none is below `reach`.

    Args:
      position, walking, reach: As in `candidates`.
      slots: Number of agents considered in each row of three cells as wide as the reach, static.
    """
    _, square, _ = around(position, walking, reach, slots)
    return jnp.min(jnp.where(square < reach * reach, square, jnp.inf))


def around(
    position: jax.Array, walking: jax.Array, reach: jax.Array, slots: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The agents in the three rows of three cells around each agent.

    The agents are sorted by cell; the three cells of a row are then one run of the sorted list.

    Args:
      position, walking, reach: As in `candidates`; cells are as wide as the reach.
      slots: Number of agents considered in each row, S, static.

    Returns:
      Agents in the rows, `[N, 3 S]`, their squared distances, infinite for empty places, and the number of agents in
      each row for which there was no room, `[N, 3]`.
    """
    num_agents = position.shape[0]
    slots = min(num_agents, slots)
    cell = jnp.clip(jnp.floor(position / reach), -_FARTHEST, _FARTHEST).astype(jnp.int32)
    key = _key(cell[:, 0], cell[:, 1])
    sorted_key, order = jax.lax.sort_key_val(
        jnp.where(walking, key, jnp.int32(2**31 - 1)), jnp.arange(num_agents, dtype=jnp.int32)
    )
    column = cell[:, :1] + jnp.array([-1, 0, 1], jnp.int32)  # [N, 3]
    low, high = _key(column, cell[:, 1:] - 1), _key(column, cell[:, 1:] + 1)
    start = jnp.searchsorted(sorted_key, low.ravel(), method="scan").reshape(num_agents, 3)
    end = jnp.searchsorted(sorted_key, high.ravel(), side="right", method="scan").reshape(num_agents, 3)
    place = start[..., None] + jnp.arange(slots, dtype=jnp.int32)  # [N, 3, S]
    inside = place < end[..., None]
    agents = order[jnp.minimum(place, num_agents - 1)].reshape(num_agents, -1).astype(jnp.int32)
    x, z = position[:, 0], position[:, 1]
    dx, dz = x[:, None] - x[agents], z[:, None] - z[agents]
    other = inside.reshape(num_agents, -1) & walking[:, None]
    other &= agents != jnp.arange(num_agents, dtype=jnp.int32)[:, None]
    crowded = jnp.maximum(end - start - slots, 0) * walking[:, None]
    return agents, jnp.where(other, dx * dx + dz * dz, jnp.inf), crowded


def _key(column: jax.Array, row: jax.Array) -> jax.Array:
    """One number per cell, consecutive along a column of rows."""
    return (column + _FARTHEST + 1) * (1 << 15) + row + _FARTHEST + 1
