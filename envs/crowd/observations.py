"""Observations of an agent's own state and of its neighbours, in three frames.

Source: Kwiatkowski et al. (2022, 2023), learned crowds; entries and scales are theirs.
"""

from typing import Literal, get_args

import jax
import jax.numpy as jnp

from envs.crowd.dynamics import direction
from envs.crowd.neighbours import Nearest
from envs.crowd.state import Goals, Traits, Walkers

__all__ = ["FRAMES", "PERCEPTIONS", "Frame", "Perception", "own_vector", "rows"]

Frame = Literal["absolute", "relative", "egocentric"]
Perception = Literal["neighbours", "rays", "both"]
FRAMES: tuple[Frame, ...] = get_args(Frame)
PERCEPTIONS: tuple[Perception, ...] = get_args(Perception)

# Headings are encoded from -3/8 to 5/8 of a turn, so that the jump is at none of the directions in which the scenarios'
# groups walk (right, left, up).
_CUT = 0.75 * jnp.pi


def own_vector(
    frame: Frame,
    walkers: Walkers,
    goals: Goals,
    traits: Traits,
    arrived: jax.Array,
    elapsed: jax.Array | float,
    energy: bool,
    remove_globals: bool = False,
) -> jax.Array:
    """The observation of each agent's own state.

    Args:
      frame: Frame, static.
      walkers, goals, traits: Present state.
      arrived: Agents that have arrived, bool `[N]`.
      elapsed: Share of the time limit that has passed, `[]`.
      energy: Whether to include e_s, e_w, the preferred speed and the time, static.
      remove_globals: Whether to replace the agent's own position by 0, static.

    Returns:
      `[N, 9]`, or `[N, 13]` with `energy`: position / 10 (2); heading (radians in the absolute frame, turns in the
      others); goal (2: its position / 10; its position relative to the agent / 10; or the latter turned into the
      agent's frame / 20); velocity in the world's axes (2: / 2, in the egocentric frame / 5); whether the goal is
      reached; the mass.
    """
    turned = jnp.mod(walkers.heading + _CUT, 2 * jnp.pi) - _CUT
    to_goal = goals.centre - walkers.position
    if frame == "absolute":
        heading, goal, velocity = turned, goals.centre / 10, walkers.velocity / 2
    elif frame == "relative":
        heading, goal, velocity = turned / (2 * jnp.pi), to_goal / 10, walkers.velocity / 2
    else:
        heading, velocity = turned / (2 * jnp.pi), walkers.velocity / 5
        goal = _into_own(to_goal, walkers.heading) / 20
    position = jnp.zeros_like(walkers.position) if remove_globals else walkers.position / 10
    singles = [arrived.astype(jnp.float32), traits.size_mass]
    if energy:
        singles += [traits.resting, traits.walking, traits.preferred_speed]
        singles.append(jnp.broadcast_to(jnp.asarray(elapsed, jnp.float32), arrived.shape))
    return jnp.concatenate([position, heading[:, None], goal, velocity, jnp.stack(singles, axis=-1)], axis=-1)


def rows(frame: Frame, walkers: Walkers, traits: Traits, nearest: Nearest, mass: bool) -> jax.Array:
    """The observation of each agent's neighbours, in metres and metres per second.

    Args:
      frame: Frame, static.
      walkers, traits: Present state.
      nearest: Neighbours.
      mass: Whether to include their masses, static.

    Returns:
      `[N, K, 4]`, or `[N, K, 5]` with `mass`: position (2) and velocity (2): the neighbour's own in the absolute
      frame; the position relative to the agent in the relative frame; the same turned into the agent's frame, velocity
      included, in the egocentric one. 0 where there is no neighbour.
    """
    place, velocity = walkers.position[nearest.index], walkers.velocity[nearest.index]
    if frame != "absolute":
        place = place - walkers.position[:, None]
    if frame == "egocentric":
        place, velocity = (_into_own(vector, walkers.heading[:, None]) for vector in (place, velocity))
    parts = [place, velocity]
    if mass:
        parts.append(traits.size_mass[nearest.index][..., None])
    return jnp.where(nearest.valid[..., None], jnp.concatenate(parts, axis=-1), 0.0)


def _into_own(vector: jax.Array, heading: jax.Array) -> jax.Array:
    """A vector `[*B, 2]` in axes along and to the left of a heading `[*B]`."""
    ahead = direction(heading)
    along = jnp.sum(vector * ahead, axis=-1)
    left = ahead[..., 0] * vector[..., 1] - ahead[..., 1] * vector[..., 0]
    return jnp.stack([along, left], axis=-1)
