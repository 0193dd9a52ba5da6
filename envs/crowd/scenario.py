"""The common parts of scenarios: the base class, and scenes of starts, goals and obstacles.

A scenario is a frozen dataclass of static settings, with `default_params` for the traced ones, and places
agents by `place`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import struct

from envs.arguments import CheckedFlags
from envs.crowd import spawning
from envs.crowd.state import Goals, Obstacles, Scene, Traits
from envs.errors import UserValueError
from envs.pytrees import Params

__all__ = ["ARENA", "GOAL_HALF", "PILLAR_RADIUS", "Box", "NoParams", "Scenario", "fixed_obstacles", "separated_scene"]

Box = tuple[float, float, float, float]  # centre x, centre z, half x, half z

GOAL_HALF = 0.375  # m, of an agent's own goal
PILLAR_RADIUS = 0.2
ARENA: tuple[Box, ...] = (
    (-10.25, 0.0, 0.5, 10.75),
    (10.25, 0.0, 0.5, 10.75),
    (0.0, -10.25, 9.75, 0.5),
    (0.0, 10.25, 9.75, 0.5),
)


@struct.dataclass
class NoParams:
    """A scenario without traced numbers."""


@dataclasses.dataclass(frozen=True)
class Scenario(CheckedFlags):
    """The interface of scenarios; a subclass places agents.

    Attributes:
      obstacles: Whether the scene has its own obstacles; it always has the arena's walls.
    """

    obstacles: bool = dataclasses.field(default=True, kw_only=True)

    name: ClassVar[str]

    @property
    def default_params(self) -> Any:
        """The default values of the traced numbers."""
        return NoParams()

    @property
    def last_entry(self) -> float:
        """The time in s at which the last agent enters, by which an episode is longer by default."""
        return 0.0

    def capacity(self, radius: float) -> int:
        """Number of agents of this radius, in m, for which the starting places have room."""
        raise NotImplementedError

    def place(self, key: jax.Array, params: Params, present: jax.Array, traits: Traits) -> Scene:
        """The start of an episode.

        Args:
          key: Random key.
          params: Parameters like `default_params`, traced.
          present: Agents that take part, the first ones, bool `[N]`.
          traits: Traits, whose radii keep agents apart.

        Returns:
          Places of all N agents; those of agents that are not present have no meaning.
        """
        raise NotImplementedError

    def check(self, num_agents: int, radius: float) -> None:
        """Raise an error if there is not enough room for the agents.

        Args:
          num_agents: Static maximum.
          radius: Largest radius in m.

        Raises:
          ValueError: There is not enough room for `num_agents`.
        """
        capacity = self.capacity(radius)
        if num_agents > capacity:
            raise UserValueError(
                f"num_agents must be at most {capacity} in {self.name} with a radius of up to {radius:.3g} m, "
                f"got {num_agents}"
            )


def fixed_obstacles(
    boxes: Sequence[Box], pillars: Sequence[tuple[float, float]] = (), *, arena: bool = True
) -> Obstacles:
    """Fixed boxes, the arena's first, and pillars of the usual radius."""
    box = jnp.asarray([*(ARENA if arena else ()), *boxes], jnp.float32).reshape(-1, 4)
    pillar = jnp.asarray(pillars, jnp.float32).reshape(-1, 2)
    return Obstacles(
        box_centre=box[:, :2],
        box_half=box[:, 2:],
        box_velocity=jnp.zeros_like(box[:, :2]),
        box_mass=jnp.full(box.shape[0], jnp.inf),
        pillar_centre=pillar,
        pillar_radius=jnp.full(pillar.shape[0], PILLAR_RADIUS),
    )


def separated_scene(
    position: jax.Array,
    heading: jax.Array | None,
    goal: jax.Array,
    half: Any,
    obstacles: Obstacles,
    present: jax.Array,
    traits: Traits,
    entry: jax.Array | None = None,
) -> Scene:
    """The scene after overlapping agents are separated; without a heading they face their goals.

    With entries, only the agents present at the start are separated from each other; all are separated from obstacles.
    """
    if entry is None:
        position = spawning.push_apart(position, traits.radius, present, obstacles)
    else:
        alone = jax.vmap(
            lambda place, radius: spawning.push_apart(place[None], radius[None], jnp.ones(1, bool), obstacles)[0]
        )(position, traits.radius)
        first = present & (entry <= 0)
        position = jnp.where(first[:, None], spawning.push_apart(position, traits.radius, first, obstacles), alone)
    if heading is None:
        ahead = goal - position
        heading = jnp.arctan2(ahead[:, 1], ahead[:, 0])
    goals = Goals(centre=goal, half=jnp.broadcast_to(jnp.asarray(half, jnp.float32), goal.shape))
    return Scene(position=position, heading=heading, goals=goals, obstacles=obstacles, entry=entry)
