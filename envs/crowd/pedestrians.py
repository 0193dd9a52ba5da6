"""Measures for comparing simulated with real people: speed by density, flows, lanes and free speeds.

`measures.fundamental_diagram` has the speeds by density of a simulation.
"""

import chex
import jax
import jax.numpy as jnp

from envs.crowd import measures

__all__ = ["door_flow", "free_speed", "lane_order", "lane_order_by_chance", "weidmann_speed"]

_FREE = 1.34  # m/s, of people who are alone
_JAM = 5.4  # 1/m^2, at which nobody moves
_SHAPE = 1.913  # 1/m^2


def weidmann_speed(density: jax.typing.ArrayLike) -> jax.Array:
    """The speed of real people at a density, 1.34 (1 - exp(-1.913 (1 / density - 1 / 5.4))) m/s, at least 0.

    Args:
      density: Number of people per square metre, any shape.

    Returns:
      Speeds in m/s, of the same shape.

    Source: Weidmann (1993), "Transporttechnik der Fussgaenger", as commonly cited.
    """
    crowded = jnp.clip(jnp.asarray(density), 1e-6, _JAM)
    return -_FREE * jnp.expm1(-_SHAPE * (1 / crowded - 1 / _JAM))


def door_flow(
    position: jax.Array,
    walking: jax.Array,
    start: tuple[float, float],
    end: tuple[float, float],
    interval: jax.Array | float,
    to_end: jax.Array | bool = False,
) -> jax.Array:
    """The mean flow through a door, from the first to the last person who passes it.

    Args:
      position: Positions, `[T + 1, N, 2]` m.
      walking: Agents that walk, bool `[T + 1, N]`.
      start, end: Ends of the door in m; people pass from its right to its left, see `measures.flow`.
      interval: Time between two positions in s.
      to_end: Whether the time ends with the last position instead of the last person, bool `[]`; True where people
        have not passed yet, so that a jam lowers the flow.

    Returns:
      `[]` 1/s: the number of people after the first, divided by the time between the first and the last, or the end.
      With fewer than two people it is 0 if `to_end`, and else nan. Those who go back do not reduce the number, and
      count again if they pass again.
    """
    chex.assert_rank(position, 3, custom_message="position")
    chex.assert_axis_dimension(position, -1, 2, custom_message="position")
    chex.assert_shape(walking, position.shape[:-1], custom_message="walking")
    each = jax.vmap(lambda one, here: measures.flow(one[:, None], here[:, None], start, end, 1.0), in_axes=1)
    passes = jnp.sum(each(position, walking) > 0, axis=0)
    steps = passes.shape[0]
    first, last = jnp.argmax(passes > 0), steps - 1 - jnp.argmax(passes[::-1] > 0)
    count = jnp.sum(passes) - passes[first]
    last = jnp.where(to_end, steps - 1, last)
    return jnp.where((count > 0) | to_end, count / (jnp.maximum(last - first, 1) * interval), jnp.nan)


def lane_order(position: jax.Array, walking: jax.Array, forwards: jax.Array, width: jax.Array | float) -> jax.Array:
    """The order parameter of lanes in a counterflow along the x axis: 1 if no lane contains people of both groups.

    It is the mean over people of ((s - o) / (s + o))^2, where s and o are the numbers of people of the same group (the
    person included) and of the other group in the person's lane. It is also above 0 for disordered people, and larger
    for fewer people; `lane_order_by_chance` is that value.

    Args:
      position: Positions, `[*B, N, 2]` m.
      walking: Agents that walk, bool `[*B, N]`.
      forwards: Group of each agent, bool `[N]`.
      width: Width of a person's lane in m: it contains the people whose z differs by at most half the width.

    Returns:
      `[*B]`; nan where nobody walks.

    Source: Nowak and Schadschneider (2012), "Quantitative analysis of pedestrian counterflow in a cellular automaton
    model", whose lanes are the rows of a grid. Lanes around each person are those of von Kruechten (2019), 3 radii
    wide, as cited by PedPy.
    """
    lane = _lanes(position, walking, forwards, width)
    alike = forwards[:, None] == forwards[None]
    same, other = jnp.sum(lane & alike, axis=-1), jnp.sum(lane & ~alike, axis=-1)
    each = ((same - other) / jnp.maximum(same + other, 1)) ** 2
    return jnp.sum(jnp.where(walking, each, 0.0), axis=-1) / jnp.sum(walking, axis=-1)


def lane_order_by_chance(
    position: jax.Array, walking: jax.Array, forwards: jax.Array, width: jax.Array | float
) -> jax.Array:
    """The expected `lane_order` of disordered people: its mean over all permutations of the groups of walking people.

    It is the mean over people of (1 + (m - 1) c) / m, where m is the number of people in the person's lane, and c the
    mean over pairs of people of the product of their directions, 1 or -1.

    Args:
      position, walking, forwards, width: Arguments of `lane_order`.

    Returns:
      `[*B]`; nan where nobody walks.

    Source: the formula is derived here. Nowak and Schadschneider (2012) reduce the order parameter by its value for
    random places, as (order - by chance) / (1 - by chance).
    """
    members = jnp.sum(_lanes(position, walking, forwards, width), axis=-1)
    people = jnp.sum(walking, axis=-1)
    balance = jnp.sum(jnp.where(walking, jnp.where(forwards, 1, -1), 0), axis=-1)
    product = (balance**2 - people) / jnp.maximum(people * (people - 1), 1)
    each = (1 + (members - 1) * product[..., None]) / jnp.maximum(members, 1)
    return jnp.sum(jnp.where(walking, each, 0.0), axis=-1) / people


def _lanes(position: jax.Array, walking: jax.Array, forwards: jax.Array, width: jax.Array | float) -> jax.Array:
    """Whether somebody walks in the lane of each person, bool `[*B, N, N]`."""
    chex.assert_axis_dimension(position, -1, 2, custom_message="position")
    chex.assert_shape(walking, position.shape[:-1], custom_message="walking")
    chex.assert_shape(forwards, position.shape[-2:-1], custom_message="forwards")
    z = position[..., 1]
    return (jnp.abs(z[..., :, None] - z[..., None, :]) <= jnp.asarray(width) / 2) & walking[..., None, :]


def free_speed(
    position: jax.Array, walking: jax.Array, distance: jax.Array | float, interval: jax.Array | float
) -> jax.Array:
    """The mean speed of each person while no other walking person is near.

    Args:
      position: Positions, `[T + 1, N, 2]` m.
      walking: Agents that walk, bool `[T + 1, N]`.
      distance: Distance in m below which another person is near.
      interval: Time between two positions in s.

    Returns:
      `[N]` m/s, the mean over the steps at whose start and end the person walks and nobody is near; nan without such
      steps.
    """
    chex.assert_rank(position, 3, custom_message="position")
    chex.assert_axis_dimension(position, -1, 2, custom_message="position")
    chex.assert_shape(walking, position.shape[:-1], custom_message="walking")
    others = ~jnp.eye(walking.shape[-1], dtype=bool)

    def alone(now: tuple[jax.Array, jax.Array]) -> jax.Array:
        place, here = now
        apart = place[:, None] - place[None]
        near = (jnp.sum(apart * apart, axis=-1) < jnp.square(distance)) & others & here[None]
        return here & ~jnp.any(near, axis=-1)

    free = jax.lax.map(alone, (position, walking))
    free = free[:-1] & free[1:]
    step = position[1:] - position[:-1]
    length = jnp.sqrt(jnp.sum(step * step, axis=-1))
    count = jnp.sum(free, axis=0)
    return jnp.sum(jnp.where(free, length, 0.0), axis=0) / (count * interval)
