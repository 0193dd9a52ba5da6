"""Measures of walking: metrics of an episode, and flow, density and their relation in a recorded trajectory."""

import jax
import jax.numpy as jnp
from flax import struct

from envs.base import MetricRule
from envs.crowd import energy, pairs
from envs.crowd.state import CrowdState

__all__ = [
    "APART",
    "RULES",
    "FundamentalDiagram",
    "density",
    "episode_metrics",
    "flow",
    "fundamental_diagram",
    "local_density",
    "nearest",
    "start_totals",
    "update_totals",
]

# Largest value of `minimum_distance`, in m, which it has if no two agents came closer.
APART = 100.0
LEAST_WALKED = 0.1  # smallest divisor of `path_efficiency`, in m
# Reach of the lists of near agents, in m, which is doubled as long as the lists are empty. Where no two agents are
# within half of a reach, a row of three cells has at most 27 of them, for which these lists have room.
_FIRST_REACH = 0.5
_SLOTS = 28

RULES: dict[str, MetricRule] = {
    "success": "last",
    "energy": "last",
    "energy_dynamics": "last",
    "energy_plus": "last",
    "energy_plus_average": "last",
    "optimum": "last",
    "time_to_goal": "last",
    "path_efficiency": "last",
    "mean_speed": "last",
    "contacts": "sum",
    "minimum_distance": "last",
    "deepest_overlap": "last",
    "overflow": "sum",
}


def nearest(position: jax.Array, walking: jax.Array, search: pairs.Search = "auto") -> jax.Array:
    """The smallest distance between the centres of two walking agents.

    Args:
      position: Positions, `[N, 2]` m.
      walking: Agents that walk, bool `[N]`.
      search: Search method, static; both give the same distance, unless more than 28 people are within a
        rectangle of 0.5 by 1.5 m.

    Returns:
      The distance, `[]` m; 100 with fewer than two agents, and where all are farther apart.
    """
    if pairs.resolve(search, position.shape[0]) == "cells":
        return _nearest_of_lists(jax.lax.stop_gradient(position), walking)
    apart = position[:, None] - position[None]
    both = walking[:, None] & walking[None] & ~jnp.eye(position.shape[0], dtype=bool)
    square = jnp.where(both, jnp.sum(apart * apart, axis=-1), APART**2)
    return jnp.sqrt(jnp.min(square))


def _nearest_of_lists(position: jax.Array, walking: jax.Array) -> jax.Array:
    def look(reach: jax.Array) -> jax.Array:
        return jnp.sqrt(jnp.minimum(pairs.closest(position, walking, reach, _SLOTS), APART**2))

    def farther(loop: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        reach = 2 * loop[0]
        return reach, look(reach)

    first = jnp.float32(_FIRST_REACH)
    seen = jnp.sum(walking) > 1
    start = (first, look(first))
    return jax.lax.while_loop(lambda loop: seen & (loop[1] > loop[0]) & (loop[0] < APART), farther, start)[1]


def start_totals(state: CrowdState, search: pairs.Search = "auto") -> dict[str, jax.Array]:
    """The running totals at the start of an episode.

    Args:
      state: State at the start; its own `totals` are not read.
      search: Search method, static, see `nearest`.

    Returns:
      `[N]`: `energy`, `energy_dynamics` (J/kg), `travelled` (m), `walked` (s), `way` (m from the start to touching the
      goal); `[]`: `minimum_distance`, `deepest_overlap` (m).
    """
    zero = jnp.zeros_like(state.start_distance)
    return {
        "energy": zero,
        "energy_dynamics": zero,
        "travelled": zero,
        "walked": zero,
        "way": energy.distance_to_touch(state.walkers.position, state.traits, state.goals),
        "minimum_distance": nearest(state.walkers.position, state.walking, search),
        "deepest_overlap": jnp.zeros((), jnp.float32),
    }


def update_totals(
    totals: dict[str, jax.Array],
    *,
    power: jax.Array,
    dynamic_power: jax.Array,
    duration: jax.Array,
    travelled: jax.Array,
    deepest: jax.Array,
    minimum_distance: jax.Array,
) -> dict[str, jax.Array]:
    """The running totals after one more decision.

    Args:
      totals: Totals as returned by `start_totals`.
      power, dynamic_power: Power by the two energy models, `[N]` J/(kg s).
      duration: Time that each agent walked, `[N]` s.
      travelled: Distance that each agent walked, `[N]` m.
      deepest, minimum_distance: Deepest overlap and smallest distance in this decision, `[]` m.
    """
    return totals | {
        "energy": totals["energy"] + power * duration,
        "energy_dynamics": totals["energy_dynamics"] + dynamic_power * duration,
        "travelled": totals["travelled"] + travelled,
        "walked": totals["walked"] + duration,
        "minimum_distance": jnp.minimum(totals["minimum_distance"], minimum_distance),
        "deepest_overlap": jnp.maximum(totals["deepest_overlap"], deepest),
    }


def episode_metrics(state: CrowdState, elapsed: jax.Array) -> dict[str, jax.Array]:
    """The metrics of an episode so far, means over the agents that take part.

    Args:
      state: State after a decision.
      elapsed: Time since the start, `[]` s, or since each agent's entry, `[N]` s.

    Returns:
      `success`: share of agents that arrived. `energy`, `energy_dynamics`: J/kg, by the two models. `energy_plus`,
      `energy_plus_average`: `energy` plus, for agents on the way, the estimate for the remaining distance at the
      preferred and at the average speed. `optimum`: the least energy for reaching the goals. `time_to_goal`: s, with
      the time so far for agents on the way. `path_efficiency`: metres by which the distance to the goal decreased per
      metre walked, at least 0.1 m. `mean_speed`: m/s. `minimum_distance`: m, see `nearest`. `deepest_overlap`: m.
    """
    totals, traits, on_the_way = state.totals, state.traits, state.on_the_way
    count = jnp.maximum(jnp.sum(state.present), 1)

    def mean(values: jax.Array) -> jax.Array:
        return jnp.sum(jnp.where(state.present, values, 0.0)) / count

    left = jnp.where(on_the_way, energy.distance_to_touch(state.walkers.position, traits, state.goals), 0.0)
    average = energy.average_remaining(left, totals["way"], elapsed, traits)
    travelled = totals["travelled"]
    # The difference of two distances is exact to about 1e-6 m, too coarse to be divided by a first small step.
    nearer = jnp.clip((totals["way"] - left) / jnp.maximum(travelled, LEAST_WALKED), 0.0, 1.0)
    return {
        "success": mean(state.arrived.astype(jnp.float32)),
        "energy": mean(totals["energy"]),
        "energy_dynamics": mean(totals["energy_dynamics"]),
        "energy_plus": mean(totals["energy"] + energy.optimum(left, traits)),
        "energy_plus_average": mean(totals["energy"] + average),
        "optimum": mean(energy.optimum(totals["way"], traits)),
        "time_to_goal": mean(jnp.where(state.arrived, state.arrival_time, elapsed)),
        "path_efficiency": mean(nearer),
        "mean_speed": mean(travelled / jnp.maximum(totals["walked"], 1e-6)),
        "minimum_distance": totals["minimum_distance"],
        "deepest_overlap": totals["deepest_overlap"],
    }


def flow(
    position: jax.Array, walking: jax.Array, start: tuple[float, float], end: tuple[float, float], interval: float
) -> jax.Array:
    """Number of people per second that cross a line from its right to its left.

    Args:
      position: Positions, `[T + 1, N, 2]` m.
      walking: Agents that walk, bool `[T + 1, N]`.
      start, end: Ends of the line in m; its left is counter-clockwise of the direction from `start` to `end`.
      interval: Time between two positions in s.

    Returns:
      `[T]` 1/s; crossings in the other direction count negative. A point on the line is on its left.
    """
    start_point, along = (
        jnp.asarray(start, jnp.float32),
        jnp.subtract(jnp.asarray(end, jnp.float32), jnp.asarray(start)),
    )
    away = position - start_point
    side = along[0] * away[..., 1] - along[1] * away[..., 0]  # > 0 on the left
    is_left = side >= 0
    crossed = is_left[1:] != is_left[:-1]
    step = side[1:] - side[:-1]
    share = jnp.where(crossed, -side[:-1] / jnp.where(crossed, step, 1.0), 0.0)
    where = away[:-1] + share[..., None] * (away[1:] - away[:-1])
    place = jnp.sum(where * along, axis=-1) / jnp.sum(along * along)
    counts = crossed & (place >= 0) & (place <= 1) & walking[:-1]
    return jnp.sum(jnp.where(counts, jnp.where(is_left[1:], 1.0, -1.0), 0.0), axis=-1) / interval


def density(position: jax.Array, walking: jax.Array, low: tuple[float, float], high: tuple[float, float]) -> jax.Array:
    """Number of people per square metre of a rectangle.

    Args:
      position: Positions, `[*B, N, 2]` m.
      walking: Agents that walk, bool `[*B, N]`.
      low, high: Corners of the rectangle in m.

    Returns:
      `[*B]` 1/m^2.
    """
    area = (high[0] - low[0]) * (high[1] - low[1])
    return jnp.sum(_inside(position, walking, low, high), axis=-1) / area


def local_density(position: jax.Array, walking: jax.Array, radius: float = 1.0) -> jax.Array:
    """Number of people per square metre around each agent: those within a radius, itself included.

    Args:
      position: Positions, `[*B, N, 2]` m.
      walking: Agents that walk, bool `[*B, N]`.
      radius: Radius in m.

    Returns:
      `[*B, N]` 1/m^2, 0 for agents that do not walk.
    """
    apart = position[..., :, None, :] - position[..., None, :, :]
    near = jnp.sum(apart * apart, axis=-1) <= radius * radius
    both = near & walking[..., :, None] & walking[..., None, :]
    return jnp.sum(both, axis=-1) / (jnp.pi * radius * radius)


@struct.dataclass
class FundamentalDiagram:
    """Speed and flow as functions of density, in bins of density.

    Attributes:
      density: Centres of the bins, `[num_bins]` 1/m^2.
      speed: Mean speed over times and people, `[num_bins]` m/s; nan for an empty bin.
      flow: Density times speed, `[num_bins]` 1/(m s).
      count: Number of times at which the rectangle had this density, int32 `[num_bins]`.
    """

    density: jax.Array
    speed: jax.Array
    flow: jax.Array
    count: jax.Array


def fundamental_diagram(
    position: jax.Array,
    velocity: jax.Array,
    walking: jax.Array,
    low: tuple[float, float],
    high: tuple[float, float],
    num_bins: int = 10,
    largest: float = 5.0,
) -> FundamentalDiagram:
    """Speed and flow by density in a rectangle; times at which it is empty do not count.

    Args:
      position, velocity: Positions and velocities, `[*B, N, 2]` m and m/s.
      walking: Agents that walk, bool `[*B, N]`.
      low, high: Corners of the rectangle in m.
      num_bins: Number of bins, static.
      largest: Upper end of the last bin in 1/m^2; that bin also takes all larger densities.

    Source: Seyfried et al. (2005), "The fundamental diagram of pedestrian movement revisited".
    """
    inside = _inside(position, walking, low, high).reshape(-1, position.shape[-2])
    speed = jnp.sqrt(jnp.sum(velocity * velocity, axis=-1)).reshape(inside.shape)
    people = jnp.sum(inside, axis=-1)
    mean = jnp.sum(jnp.where(inside, speed, 0.0), axis=-1) / jnp.maximum(people, 1)
    crowded = people / ((high[0] - low[0]) * (high[1] - low[1]))
    place = jnp.clip((crowded / largest * num_bins).astype(jnp.int32), 0, num_bins - 1)
    used = people > 0
    count = jnp.zeros(num_bins, jnp.int32).at[place].add(used.astype(jnp.int32))
    weight = jnp.maximum(count, 1)

    def binned(values: jax.Array) -> jax.Array:
        total = jnp.zeros(num_bins).at[place].add(jnp.where(used, values, 0.0))
        return jnp.where(count > 0, total / weight, jnp.nan)

    centres = (jnp.arange(num_bins) + 0.5) * (largest / num_bins)
    return FundamentalDiagram(density=centres, speed=binned(mean), flow=binned(mean * crowded), count=count)


def _inside(position: jax.Array, walking: jax.Array, low: tuple[float, float], high: tuple[float, float]) -> jax.Array:
    within = (position >= jnp.asarray(low, jnp.float32)) & (position < jnp.asarray(high, jnp.float32))
    return jnp.all(within, axis=-1) & walking
