"""The named scenarios: starts, goals and obstacles in an arena.

The arena is 20 x 20 m, enclosed by walls whose inner faces are at 9.75 m; user-defined scenes (`Areas`, `Recorded`)
have no arena.

Source: Kwiatkowski et al. (2022, 2023), learned crowds.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import struct

from envs.crowd import spawning
from envs.crowd.scenario import (
    GOAL_HALF,
    Box,
    Scenario,
    fixed_obstacles,
    separated_scene,
)
from envs.crowd.state import Obstacles, Scene, Traits
from envs.crowd.user_scenarios import Areas, Recorded
from envs.errors import UserTypeError, UserValueError
from envs.pytrees import Params
from envs.spelling import near

__all__ = [
    "GOAL_HALF",
    "SCENARIOS",
    "Areas",
    "Car",
    "Choke",
    "Circle",
    "CircleBlock",
    "CircleParams",
    "Corridor",
    "Crossway",
    "RandomPlaces",
    "Recorded",
    "Scenario",
    "as_scenario",
]

SHARED_GOAL_HALF = 2.0
SHARED_GOAL_DISTANCE = 10.0
SQUARE_HALF = 1.5  # half the side of the square in which people start on a grid
SQUARE_DISTANCE = 7.5  # distance of the square's centre from the middle
CIRCLE_PILLARS = ((-1.487, 0.0), (2.93, 0.0), (1.29, -3.48), (-3.66, 2.45), (-3.66, -2.52), (0.6, 1.2))


@struct.dataclass
class CircleParams:
    """Parameters of a circle.

    Attributes:
      radius: Radius in m.
      noise: Half the side, in m, of the square in which starts and goals scatter.
    """

    radius: Any = 6.0
    noise: Any = 0.5


@struct.dataclass
class RandomParams:
    """Parameters of random places.

    Attributes:
      half: Half the side, in m, of the square of starts and goals.
      spacing: Least distance in m between two starts, and between two goals, where there is room.
    """

    half: Any = 4.0
    spacing: Any = 0.5


@dataclasses.dataclass(frozen=True)
class Circle(Scenario):
    """Agents evenly around a circle, each with its goal on the opposite side; six pillars in the middle."""

    name: ClassVar[str] = "circle"

    @property
    def default_params(self) -> CircleParams:
        return CircleParams()

    def capacity(self, radius: float) -> int:
        return math.floor(math.pi / math.asin(min(radius / float(self.default_params.radius), 1.0)))

    def boxes(self) -> tuple[Box, ...]:
        """Boxes in addition to the arena's."""
        return ()

    def pillars(self) -> tuple[tuple[float, float], ...]:
        """Centres of pillars."""
        return CIRCLE_PILLARS

    def place(self, key: jax.Array, params: CircleParams, present: jax.Array, traits: Traits) -> Scene:
        num_agents = present.shape[0]
        count = jnp.maximum(jnp.sum(present), 1)
        angle = 2 * jnp.pi * jnp.arange(num_agents) / count
        at = params.radius * jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=-1)
        noise = params.noise * jax.random.uniform(key, (2, num_agents, 2), minval=-1.0)
        things = fixed_obstacles(self.boxes() if self.obstacles else (), self.pillars() if self.obstacles else ())
        return separated_scene(at + noise[0], None, -at + noise[1], GOAL_HALF, things, present, traits)


@dataclasses.dataclass(frozen=True)
class CircleBlock(Circle):
    """A circle with a box in the middle.

    Attributes:
      block: Side of the box in m.
    """

    block: float = 3.0
    name: ClassVar[str] = "circle-block"

    def __post_init__(self) -> None:
        if not 0 < self.block < 2 * CircleParams.radius:
            raise UserValueError(f"block must lie between 0 and {2 * CircleParams.radius} m, got {self.block}")

    def boxes(self) -> tuple[Box, ...]:
        return ((0.0, 0.0, self.block / 2, self.block / 2),)

    def pillars(self) -> tuple[tuple[float, float], ...]:
        return ()


@dataclasses.dataclass(frozen=True)
class Flows(Scenario):
    """Groups that start on squares and cross to goals on the other side.

    Attributes:
      shared_goals: Whether each group has one goal of 4 x 4 m; otherwise each agent has a small one 15 m ahead.
    """

    shared_goals: bool = True
    directions: ClassVar[tuple[tuple[float, float], ...]]

    def boxes(self) -> tuple[Box, ...]:
        """Boxes in addition to the arena's."""
        raise NotImplementedError

    def capacity(self, radius: float) -> int:
        return len(self.directions) * spawning.rectangle_holds((SQUARE_HALF, SQUARE_HALF), radius)

    def place(self, key: jax.Array, params: Params, present: jax.Array, traits: Traits) -> Scene:
        del key, params
        groups = len(self.directions)
        agent = jnp.arange(present.shape[0])
        group = agent % groups
        count = (jnp.sum(present) - group + groups - 1) // groups
        ahead = jnp.asarray(self.directions, jnp.float32)[group]
        position = spawning.grid(agent // groups, count, -SQUARE_DISTANCE * ahead, jnp.full(2, SQUARE_HALF))
        if self.shared_goals:
            goal, half = SHARED_GOAL_DISTANCE * ahead, SHARED_GOAL_HALF
        else:
            goal, half = position + 15.0 * ahead, GOAL_HALF
        heading = jnp.arctan2(ahead[:, 1], ahead[:, 0])
        return separated_scene(position, heading, goal, half, self.things(), present, traits)

    def things(self) -> Obstacles:
        """The obstacles of the scene."""
        return fixed_obstacles(self.boxes() if self.obstacles else ())


@dataclasses.dataclass(frozen=True)
class Crossway(Flows):
    """Two groups that cross at a right angle, in corridors 4 m wide between four blocks."""

    name: ClassVar[str] = "crossway"
    directions: ClassVar[tuple[tuple[float, float], ...]] = ((1.0, 0.0), (0.0, 1.0))

    def boxes(self) -> tuple[Box, ...]:
        return ((6.0, 6.0, 4.0, 4.0), (-6.0, 6.0, 4.0, 4.0), (6.0, -6.0, 4.0, 4.0), (-6.0, -6.0, 4.0, 4.0))


@dataclasses.dataclass(frozen=True)
class Corridor(Flows):
    """Two groups that walk towards each other between two walls 4 m apart."""

    name: ClassVar[str] = "corridor"
    directions: ClassVar[tuple[tuple[float, float], ...]] = ((1.0, 0.0), (-1.0, 0.0))

    def boxes(self) -> tuple[Box, ...]:
        return ((0.0, 5.875, 9.75, 3.875), (0.0, -5.875, 9.75, 3.875))


@dataclasses.dataclass(frozen=True)
class Choke(Flows):
    """One group through a door 1 m wide in a wall 2 m thick."""

    name: ClassVar[str] = "choke"
    directions: ClassVar[tuple[tuple[float, float], ...]] = ((1.0, 0.0),)

    def boxes(self) -> tuple[Box, ...]:
        return ((0.0, 5.125, 1.0, 4.625), (0.0, -5.125, 1.0, 4.625))


@dataclasses.dataclass(frozen=True)
class Car(Flows):
    """One group, whose way is crossed by a car of 2 x 9.9 m and 1,000 kg at 1 m/s."""

    name: ClassVar[str] = "car"
    directions: ClassVar[tuple[tuple[float, float], ...]] = ((1.0, 0.0),)

    def boxes(self) -> tuple[Box, ...]:
        return ((0.0, -7.0, 1.0, 4.95),)

    def things(self) -> Obstacles:
        still = fixed_obstacles(self.boxes() if self.obstacles else ())
        if not self.obstacles:
            return still
        return dataclasses.replace(
            still,
            box_velocity=still.box_velocity.at[-1].set(jnp.array([0.0, 1.0])),
            box_mass=still.box_mass.at[-1].set(1000.0),
        )


@dataclasses.dataclass(frozen=True)
class RandomPlaces(Scenario):
    """Random starts, goals and headings in a square, among 18 pillars on a spiral that is not from the papers."""

    name: ClassVar[str] = "random"

    @property
    def default_params(self) -> RandomParams:
        return RandomParams()

    def capacity(self, radius: float) -> int:
        # Discs dropped at random cover at most 0.547 of a plane.
        side, spacing = 2 * float(self.default_params.half), max(2 * radius, float(self.default_params.spacing))
        return math.floor(0.5 * side**2 / (math.pi * (spacing / 2) ** 2))

    def pillars(self) -> tuple[tuple[float, float], ...]:
        """Centres of the pillars: a sunflower's seeds within 5.5 m."""
        turn = math.pi * (3 - math.sqrt(5))
        reach = [5.5 * math.sqrt((i + 0.5) / 18) for i in range(18)]
        return tuple((r * math.cos(i * turn), r * math.sin(i * turn)) for i, r in enumerate(reach))

    def place(self, key: jax.Array, params: RandomParams, present: jax.Array, traits: Traits) -> Scene:
        num_agents = present.shape[0]
        start_key, goal_key, heading_key = jax.random.split(key, 3)
        things = fixed_obstacles((), self.pillars() if self.obstacles else ())
        start, goal = (
            spawning.spaced(each, num_agents, params.half, params.spacing, 10, things) for each in (start_key, goal_key)
        )
        heading = jax.random.uniform(heading_key, (num_agents,), minval=-jnp.pi, maxval=jnp.pi)
        return separated_scene(start, heading, goal, GOAL_HALF, things, present, traits)


SCENARIOS: dict[str, type[Scenario]] = {
    kind.name: kind for kind in (Circle, Crossway, Corridor, RandomPlaces, CircleBlock, Choke, Car)
}


def as_scenario(scenario: str | Scenario, obstacles: bool) -> Scenario:
    """Look up a scenario by name, or return a `Scenario` unchanged.

    Args:
      scenario: Name in `SCENARIOS` or a `Scenario`.
      obstacles: Whether a scenario given by name has obstacles.

    Raises:
      ValueError: There is no scenario of this name.
      TypeError: `scenario` is neither a name nor a `Scenario`.
    """
    if isinstance(scenario, Scenario):
        return scenario
    if not isinstance(scenario, str):
        raise UserTypeError(f"scenario must be a name or a Scenario, got {type(scenario).__name__}")
    if scenario not in SCENARIOS:
        hint = near(scenario, SCENARIOS) or f"; known are {', '.join(SCENARIOS)}"
        raise UserValueError(f"there is no scenario {scenario!r}{hint}")
    return SCENARIOS[scenario](obstacles=obstacles)
