"""Maze: walk to the goal between walls that every episode draws anew; a maze may have no way to it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs import base
from envs.arguments import check_at_least, check_count, check_number
from envs.base import spaces

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOVES = np.array([[0, 1], [1, 0], [0, -1], [-1, 0]], np.int32)  # right, up, left, down
INK, BODY, MARK = "#222222", "#0072B2", "#009E73"


@struct.dataclass
class MazeState(base.EnvState):
    """The maze of an episode and the place in it.

    Attributes:
      time: Number of steps taken, int32 `[]`.
      walls: Whether there is a wall, by column and row, bool `[size, size]`.
      position: Column and row, int32 `[2]`.
      goal: Column and row of the goal, int32 `[2]`.
      solvable: Whether there is a way from start to goal, bool `[]`.
    """

    time: jax.Array
    walls: jax.Array
    position: jax.Array
    goal: jax.Array
    solvable: jax.Array


@struct.dataclass
class MazeParams(base.EnvParams):
    """Parameters of mazes.

    Attributes:
      wall_share: Probability of a wall in a cell that is neither the start nor the goal.
      max_steps_in_episode: Time limit, in steps.
    """

    wall_share: float = 0.3
    max_steps_in_episode: int = 40


@dataclass(frozen=True)
class Maze(base.Environment):
    """A square of cells with a wall in each by chance, and a start and a goal in two others.

    A step moves to a neighbouring cell, or nowhere if there is a wall or the end of the square. The goal pays 1 and
    ends the episode. The key of the reset draws the maze; the share of mazes with a way to the goal falls as
    `wall_share` grows, and the metric `solvable` tells whether a maze has one.

    Attributes:
      size: Number of cells of a side.
      view: Number of cells that are seen in each direction, walls beyond the square included; `size` - 1 shows all.
    """

    size: int = 7
    view: int = 3

    def __post_init__(self) -> None:
        check_count("size", self.size, 2)
        check_count("view", self.view)

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "maze"

    @property
    def default_params(self) -> MazeParams:
        """Walls in 30 % of the cells, and 40 steps."""
        return MazeParams()

    @property
    def metric_rules(self) -> dict[str, base.MetricRule]:
        """`solved`: 1 in an episode that reached the goal; `solvable`: 1 in a maze with a way to it."""
        return {"solved": "sum", "solvable": "last"}

    def check_params(self, params: MazeParams) -> None:
        """Reject a probability outside [0, 1], and fewer steps than one."""
        check_number("env.wall_share", np.asarray(params.wall_share), 0.0, 1.0, "[]")
        check_at_least(params, max_steps_in_episode=1)

    def reset_env(self, key: jax.Array, params: MazeParams) -> tuple[jax.Array, MazeState]:
        """The first observation and state, in a new maze."""
        walls_key, start_key, goal_key = jax.random.split(key, 3)
        cells = self.size**2
        start = jax.random.randint(start_key, (), 0, cells)
        goal = (start + jax.random.randint(goal_key, (), 1, cells)) % cells
        cell = jnp.arange(cells)
        walls = (jax.random.uniform(walls_key, (cells,)) < params.wall_share) & (cell != start) & (cell != goal)
        places = [jnp.stack([place // self.size, place % self.size]).astype(jnp.int32) for place in (start, goal)]
        position, goal = places
        unknown = jnp.zeros((), bool)
        state = MazeState(jnp.zeros((), jnp.int32), walls.reshape(self.size, self.size), position, goal, unknown)
        state = MazeState(state.time, state.walls, position, goal, self.distance(state) >= 0)
        return self._observe(state), state

    def step_env(
        self, key: jax.Array, state: MazeState, action: jax.Array, params: MazeParams
    ) -> tuple[jax.Array, MazeState, jax.Array, jax.Array, dict[Any, Any]]:
        """Move to the neighbouring cell if it is free."""
        del key, params
        there = jnp.clip(state.position + jnp.asarray(MOVES)[action], 0, self.size - 1)
        position = jnp.where(state.walls[there[0], there[1]], state.position, there)
        solved = jnp.all(position == state.goal)
        metrics = {"solved": solved, "solvable": state.solvable}
        state = MazeState(state.time + 1, state.walls, position, state.goal, state.solvable)
        return self._observe(state), state, solved.astype(jnp.float32), solved, {"metrics": metrics}

    def distance(self, state: MazeState) -> jax.Array:
        """The number of steps of the shortest way to the goal, by breadth-first search, int32 `[]`; -1 if none."""
        free = jnp.pad(~state.walls, 1)
        at = jnp.zeros_like(free).at[state.position[0] + 1, state.position[1] + 1].set(True)

        def arrived(reached: jax.Array) -> jax.Array:
            return reached[state.goal[0] + 1, state.goal[1] + 1]

        def grow(loop: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
            reached, _, steps = loop
            around = [jnp.roll(reached, step, axis) for axis in (0, 1) for step in (1, -1)]
            grown = (reached | around[0] | around[1] | around[2] | around[3]) & free
            return grown, jnp.any(grown & ~reached), steps + 1

        reached, _, steps = jax.lax.while_loop(
            lambda loop: loop[1] & ~arrived(loop[0]), grow, (at, jnp.ones((), bool), jnp.zeros((), jnp.int32))
        )
        return jnp.where(arrived(reached), steps, -1)

    def return_range(self, params: MazeParams) -> tuple[Any, Any]:
        """From no goal to the goal."""
        del params
        return 0.0, 1.0

    def action_space(self, params: MazeParams | None = None) -> spaces.Discrete:
        """Four actions: 0 right, 1 up, 2 left, 3 down."""
        del params
        return spaces.Discrete(4)

    def observation_space(self, params: MazeParams) -> spaces.Box:
        """The walls of the cells in view, column by column, and the displacement to the goal in sizes of the square."""
        del params
        return spaces.Box(-1.0, 1.0, ((2 * self.view + 1) ** 2 + 2,), jnp.float32)

    def draw(self, ax: "Axes", state: MazeState, params: MazeParams) -> None:
        """The walls, the goal as a square, and the walker as a disc."""
        del params
        size, walls = self.size, np.asarray(state.walls)
        ax.set_xlim(-1, size)
        ax.set_ylim(-1, size + 0.5)
        ax.plot([-0.5, size - 0.5, size - 0.5, -0.5, -0.5], [-0.5, -0.5, size - 0.5, size - 0.5, -0.5], color=INK)
        for column, row in np.argwhere(walls):
            ax.fill([column - 0.5, column + 0.5, column + 0.5, column - 0.5], np.repeat([row - 0.5, row + 0.5], 2), INK)
        goal, position = np.asarray(state.goal), np.asarray(state.position)
        ax.plot([goal[0]], [goal[1]], "s", color=MARK, markersize=100 / size)
        ax.plot([position[0]], [position[1]], "o", color=BODY, markersize=70 / size)
        steps = int(self.distance(state))
        text = f"{steps} steps to the goal" if steps >= 0 else "no way to the goal"
        ax.text((size - 1) / 2, size, text, ha="center", color=INK)

    def _observe(self, state: MazeState) -> jax.Array:
        seen = jnp.pad(state.walls, self.view, constant_values=True)
        window = jax.lax.dynamic_slice(seen, tuple(state.position), (2 * self.view + 1,) * 2)
        towards = (state.goal - state.position) / self.size
        return jnp.concatenate([window.ravel().astype(jnp.float32), towards.astype(jnp.float32)])
