"""User-defined scenarios, without an arena: areas to walk between, and recorded starts, goals and entries."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from envs.crowd import spawning
from envs.crowd.scenario import GOAL_HALF, Box, Scenario, fixed_obstacles, separated_scene
from envs.crowd.shapes import boxes_overlap
from envs.crowd.state import Obstacles, Scene, Traits
from envs.errors import UserValueError
from envs.pytrees import Params

__all__ = ["Areas", "Recorded"]


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
        for field in ("spawns", "goals"):
            object.__setattr__(self, field, tuple(_area(field, area) for area in getattr(self, field)))
        _set_obstacles(self)
        if not self.spawns:
            raise UserValueError("spawns must name at least one area where agents start, got none")
        if len(self.goals) not in (1, len(self.spawns)):
            raise UserValueError(
                f"goals must name one area for all or one for each of the {len(self.spawns)} spawns, "
                f"got {len(self.goals) or 'none'}"
            )

    def capacity(self, radius: float) -> int:
        boxes = jnp.asarray([_box(area) for area in self.spawns], jnp.float32)
        groups = 1 + np.sum(np.asarray(boxes_overlap(boxes[:, :2], boxes[:, 2:])), axis=1)  # that share an area
        held = [
            spawning.rectangle_holds(_box(area)[2:], radius) // int(shared)
            for area, shared in zip(self.spawns, groups, strict=True)
        ]
        return len(held) * min(held)

    def place(self, key: jax.Array, params: Params, present: jax.Array, traits: Traits) -> Scene:
        del key, params
        groups = len(self.spawns)
        agent = jnp.arange(present.shape[0])
        group = agent % groups
        count = (jnp.sum(present) - group + groups - 1) // groups
        spawn = jnp.asarray([_box(area) for area in self.spawns], jnp.float32)[group]
        goals = self.goals if len(self.goals) == groups else self.goals * groups
        goal = jnp.asarray([_box(area) for area in goals], jnp.float32)[group]
        position = spawning.grid(agent // groups, count, spawn[:, :2], spawn[:, 2:])
        return separated_scene(position, None, goal[:, :2], goal[:, 2:], _obstacles(self), present, traits)


@dataclasses.dataclass(frozen=True)
class Recorded(Scenario):
    """Starts, goals and times of entry from a table; `Recording.scenario` makes one from recorded paths.

    An agent enters, standing still, at the first decision at which its place is free, and not before its time of entry,
    rounded to the nearest decision. Before that it takes no part in anything, and is not `active`.

    Attributes:
      table: Rows `(start x, start z, goal x, goal z)` in m, one per agent; any array-like of NumPy.
      goal_half: Half the side of each goal in m.
      walls: Solid areas `((low x, low z), (high x, high z))` in m.
      pillars: Solid discs `(x, z, radius)` in m.
      entries: Times in s at which agents enter, one for each row; none if all are present from the start.
    """

    table: Any = ()
    goal_half: float = GOAL_HALF
    walls: Any = ()
    pillars: Any = ()
    entries: Any = ()
    name: ClassVar[str] = "recorded"

    def __post_init__(self) -> None:
        object.__setattr__(self, "table", _rows("table", self.table, ("start x", "start z", "goal x", "goal z")))
        if not self.table:
            raise UserValueError("table must have at least one row, got none")
        if not (np.isfinite(self.goal_half) and self.goal_half > 0):
            raise UserValueError(f"goal_half must be above 0 m, got {self.goal_half}")
        _set_obstacles(self)
        entries = _numbers(self.entries)
        wrong = entries.size and not (np.all(np.isfinite(entries)) and np.all(entries >= 0))
        if wrong or entries.shape not in ((0,), (len(self.table),)):
            raise UserValueError(
                f"entries must be {len(self.table)} times of at least 0 s, one for each row of table, "
                f"got {self.entries}"
            )
        object.__setattr__(self, "entries", tuple(entries.tolist()))

    @property
    def last_entry(self) -> float:
        return max(self.entries, default=0.0)

    def capacity(self, radius: float) -> int:
        del radius
        return len(self.table)

    def place(self, key: jax.Array, params: Params, present: jax.Array, traits: Traits) -> Scene:
        del key, params
        count = present.shape[0]
        rows = jnp.asarray(self.table, jnp.float32)[:count]
        entry = jnp.asarray(self.entries, jnp.float32)[:count] if self.entries else None
        goal, half = rows[:, 2:], self.goal_half
        return separated_scene(rows[:, :2], None, goal, half, _obstacles(self), present, traits, entry)


def _set_obstacles(scenario: Areas | Recorded) -> None:
    """Check walls and pillars, and keep them as tuples."""
    object.__setattr__(scenario, "walls", tuple(_area("walls", wall) for wall in scenario.walls))
    object.__setattr__(scenario, "pillars", _rows("pillars", scenario.pillars, ("x", "z", "radius")))
    for pillar in scenario.pillars:
        if pillar[2] <= 0:
            raise UserValueError(f"pillars must be (x, z, radius) with a radius above 0, got {pillar}")
    walls = jnp.asarray([_box(wall) for wall in scenario.walls], jnp.float32).reshape(-1, 4)
    overlap = np.argwhere(np.triu(np.asarray(boxes_overlap(walls[:, :2], walls[:, 2:]))))
    if len(overlap):
        first, second = overlap[0]
        raise UserValueError(f"walls must not overlap, but {scenario.walls[first]} and {scenario.walls[second]} do")


def _obstacles(scenario: Areas | Recorded) -> Obstacles:
    walls = tuple(_box(wall) for wall in scenario.walls) if scenario.obstacles else ()
    things = fixed_obstacles(walls, (), arena=False)
    if scenario.obstacles and scenario.pillars:
        discs = jnp.asarray(scenario.pillars, jnp.float32)
        things = dataclasses.replace(things, pillar_centre=discs[:, :2], pillar_radius=discs[:, 2])
    return things


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
    """The values as a NumPy array, or, if they do not form one, a single nan, whose shape no caller accepts."""
    try:
        return np.asarray(values, np.float64)
    except (ValueError, TypeError):
        return np.asarray(np.nan)


def _box(area: Sequence[Sequence[float]]) -> Box:
    (low_x, low_z), (high_x, high_z) = area
    return (low_x + high_x) / 2, (low_z + high_z) / 2, (high_x - low_x) / 2, (high_z - low_z) / 2
