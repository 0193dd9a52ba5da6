"""Scenes: starts, goals and obstacles.

A scenario is a frozen dataclass of static settings, with `default_params` for the traced ones, and places
agents by `place`. The arena is 20 x 20 m, enclosed by walls whose inner faces are at 9.75 m; user-defined scenes
(`Areas`, `Recorded`) have no arena.

Source: Kwiatkowski et al. (2022, 2023), learned crowds.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs.crowd import spawning
from envs.crowd.shapes import boxes_overlap
from envs.crowd.state import Goals, Obstacles, Scene, Traits
from envs.errors import UserTypeError, UserValueError
from envs.spelling import near

__all__ = [
    "SCENARIOS",
    "Areas",
    "Car",
    "Choke",
    "Circle",
    "CircleBlock",
    "Corridor",
    "Crossway",
    "RandomPlaces",
    "Recorded",
    "Scenario",
    "as_scenario",
]

Box = tuple[float, float, float, float]  # centre x, centre z, half x, half z

GOAL_HALF = 0.375  # m, of an agent's own goal
SHARED_GOAL_HALF = 2.0
SHARED_GOAL_DISTANCE = 10.0
SQUARE_HALF = 1.5  # the square on whose grid people start
SQUARE_DISTANCE = 7.5  # of its centre from the middle
PILLAR_RADIUS = 0.2
CIRCLE_PILLARS = ((-1.487, 0.0), (2.93, 0.0), (1.29, -3.48), (-3.66, 2.45), (-3.66, -2.52), (0.6, 1.2))
ARENA: tuple[Box, ...] = (
    (-10.25, 0.0, 0.5, 10.75),
    (10.25, 0.0, 0.5, 10.75),
    (0.0, -10.25, 9.75, 0.5),
    (0.0, 10.25, 9.75, 0.5),
)


@struct.dataclass
class NoParams:
    """Parameters of a scenario without traced numbers."""


@struct.dataclass
class CircleParams:
    """Numbers of a circle.

    Attributes:
      radius: Radius in m.
      noise: Half the side, in m, of the square in which starts and goals scatter.
    """

    radius: Any = 6.0
    noise: Any = 0.5


@struct.dataclass
class RandomParams:
    """Numbers of random places.

    Attributes:
      half: Half the side, in m, of the square of starts and goals.
      spacing: Distance in m that starts keep from each other where possible, and goals likewise.
    """

    half: Any = 4.0
    spacing: Any = 0.5


@dataclasses.dataclass(frozen=True)
class Scenario:
    """The interface of scenarios; a subclass places agents.

    Attributes:
      obstacles: Whether the scene has its own obstacles; it always has the arena's walls.
    """

    obstacles: bool = dataclasses.field(default=True, kw_only=True)

    name: ClassVar[str]

    @property
    def default_params(self) -> Any:
        """The traced numbers at their usual values."""
        return NoParams()

    def capacity(self, radius: float) -> int:
        """Number of agents of this radius, in m, for which the starting places have room."""
        raise NotImplementedError

    def place(self, key: jax.Array, params: Any, present: jax.Array, traits: Traits) -> Scene:
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
        """Refuse more agents than there is room for.

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
        things = _obstacles(self.boxes() if self.obstacles else (), self.pillars() if self.obstacles else ())
        return _scene(at + noise[0], None, -at + noise[1], GOAL_HALF, things, present, traits)


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

    def place(self, key: jax.Array, params: Any, present: jax.Array, traits: Traits) -> Scene:
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
        return _scene(position, heading, goal, half, self.things(), present, traits)

    def things(self) -> Obstacles:
        """The obstacles of the scene."""
        return _obstacles(self.boxes() if self.obstacles else ())


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
        still = _obstacles(self.boxes() if self.obstacles else ())
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
        things = _obstacles((), self.pillars() if self.obstacles else ())
        start, goal = (
            spawning.spaced(each, num_agents, params.half, params.spacing, 10, things) for each in (start_key, goal_key)
        )
        heading = jax.random.uniform(heading_key, (num_agents,), minval=-jnp.pi, maxval=jnp.pi)
        return _scene(start, heading, goal, GOAL_HALF, things, present, traits)


@dataclasses.dataclass(frozen=True)
class Areas(Scenario):
    """A user-defined scene: groups that start on areas and walk to areas.

    Attributes:
      spawns: Areas `((low x, low z), (high x, high z))` in m, one per group; agents are assigned to them in turn and
        start on a grid over the area.
      goals: Areas, one for each spawn or one for all; the area itself is the goal.
      walls: Solid areas.
      pillars: Solid discs `(x, z, radius)`.
    """

    spawns: Any = ()
    goals: Any = ()
    walls: Any = ()
    pillars: Any = ()
    name: ClassVar[str] = "areas"

    def __post_init__(self) -> None:
        for field in ("spawns", "goals", "walls"):
            object.__setattr__(self, field, tuple(_area(field, area) for area in getattr(self, field)))
        object.__setattr__(self, "pillars", _rows("pillars", self.pillars, ("x", "z", "radius")))
        if not self.spawns:
            raise UserValueError("spawns must name at least one area where agents start, got none")
        if len(self.goals) not in (1, len(self.spawns)):
            raise UserValueError(
                f"goals must name one area for all or one for each of the {len(self.spawns)} spawns, "
                f"got {len(self.goals) or 'none'}"
            )
        for pillar in self.pillars:
            if pillar[2] <= 0:
                raise UserValueError(f"pillars must be (x, z, radius) with a radius above 0, got {pillar}")
        walls = jnp.asarray([_box(wall) for wall in self.walls], jnp.float32).reshape(-1, 4)
        overlap = np.argwhere(np.triu(np.asarray(boxes_overlap(walls[:, :2], walls[:, 2:]))))
        if len(overlap):
            first, second = overlap[0]
            raise UserValueError(f"walls must not overlap, but {self.walls[first]} and {self.walls[second]} do")

    def capacity(self, radius: float) -> int:
        boxes = jnp.asarray([_box(area) for area in self.spawns], jnp.float32)
        groups = 1 + np.sum(np.asarray(boxes_overlap(boxes[:, :2], boxes[:, 2:])), axis=1)  # that share an area
        held = [
            spawning.rectangle_holds(_box(area)[2:], radius) // int(shared)
            for area, shared in zip(self.spawns, groups, strict=True)
        ]
        return len(held) * min(held)

    def place(self, key: jax.Array, params: Any, present: jax.Array, traits: Traits) -> Scene:
        del key, params
        groups = len(self.spawns)
        agent = jnp.arange(present.shape[0])
        group = agent % groups
        count = (jnp.sum(present) - group + groups - 1) // groups
        spawn = jnp.asarray([_box(area) for area in self.spawns], jnp.float32)[group]
        goals = self.goals if len(self.goals) == groups else self.goals * groups
        goal = jnp.asarray([_box(area) for area in goals], jnp.float32)[group]
        position = spawning.grid(agent // groups, count, spawn[:, :2], spawn[:, 2:])
        walls = tuple(_box(wall) for wall in self.walls) if self.obstacles else ()
        things = _obstacles(walls, (), arena=False)
        if self.obstacles and self.pillars:
            discs = jnp.asarray(self.pillars, jnp.float32)
            things = dataclasses.replace(things, pillar_centre=discs[:, :2], pillar_radius=discs[:, 2])
        return _scene(position, None, goal[:, :2], goal[:, 2:], things, present, traits)


@dataclasses.dataclass(frozen=True)
class Recorded(Scenario):
    """Starts and goals from a table, such as a recording of people; no walls.

    Attributes:
      table: Rows `(start x, start z, goal x, goal z)` in m, one per agent; any array-like of NumPy.
      goal_half: Half the side of each goal in m.
    """

    table: Any = ()
    goal_half: float = GOAL_HALF
    name: ClassVar[str] = "recorded"

    def __post_init__(self) -> None:
        object.__setattr__(self, "table", _rows("table", self.table, ("start x", "start z", "goal x", "goal z")))
        if not self.table:
            raise UserValueError("table must have at least one row, got none")
        if not (np.isfinite(self.goal_half) and self.goal_half > 0):
            raise UserValueError(f"goal_half must be above 0 m, got {self.goal_half}")

    def capacity(self, radius: float) -> int:
        del radius
        return len(self.table)

    def place(self, key: jax.Array, params: Any, present: jax.Array, traits: Traits) -> Scene:
        del key, params
        rows = jnp.asarray(self.table, jnp.float32)[: present.shape[0]]
        return _scene(rows[:, :2], None, rows[:, 2:], self.goal_half, Obstacles.none(), present, traits)


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


def _area(field: str, area: Any) -> tuple[tuple[float, float], tuple[float, float]]:
    corners = _numbers(area)
    if corners.shape != (2, 2) or not np.all(np.isfinite(corners)) or not np.all(corners[0] < corners[1]):
        raise UserValueError(f"{field} must be areas ((low x, low z), (high x, high z)) of some size, got {area}")
    return tuple(corners[0].tolist()), tuple(corners[1].tolist())


def _rows(field: str, rows: Any, columns: tuple[str, ...]) -> tuple[tuple[float, ...], ...]:
    """Finite numbers in the named columns; an empty table is allowed."""
    table = _numbers(rows)
    if table.shape == (0,):
        return ()
    if table.shape[1:] != (len(columns),):
        got = f"an array of shape {table.shape}" if table.ndim else "rows of different lengths or not of numbers"
        raise UserValueError(f"{field} must have rows of {len(columns)} numbers ({', '.join(columns)}), got {got}")
    if not np.all(np.isfinite(table)):
        wrong = int(np.argmin(np.all(np.isfinite(table), axis=1)))
        raise UserValueError(f"{field} must have finite numbers, but row {wrong} is {table[wrong].tolist()}")
    return tuple(map(tuple, table.tolist()))


def _numbers(values: Any) -> np.ndarray:
    """The values as a NumPy array; a single nan where they do not form one, whose shape no caller accepts."""
    try:
        return np.asarray(values, np.float64)
    except (ValueError, TypeError):
        return np.asarray(np.nan)


def _box(area: Sequence[Sequence[float]]) -> Box:
    (low_x, low_z), (high_x, high_z) = area
    return (low_x + high_x) / 2, (low_z + high_z) / 2, (high_x - low_x) / 2, (high_z - low_z) / 2


def _obstacles(boxes: Sequence[Box], pillars: Sequence[tuple[float, float]] = (), *, arena: bool = True) -> Obstacles:
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


def _scene(
    position: jax.Array,
    heading: jax.Array | None,
    goal: jax.Array,
    half: Any,
    obstacles: Obstacles,
    present: jax.Array,
    traits: Traits,
) -> Scene:
    """The scene after overlapping agents are separated; without a heading they face their goals."""
    position = spawning.push_apart(position, traits.radius, present, obstacles)
    if heading is None:
        ahead = goal - position
        heading = jnp.arctan2(ahead[:, 1], ahead[:, 0])
    goals = Goals(centre=goal, half=jnp.broadcast_to(jnp.asarray(half, jnp.float32), goal.shape))
    return Scene(position=position, heading=heading, goals=goals, obstacles=obstacles)
