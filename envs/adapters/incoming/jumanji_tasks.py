"""What Jumanji's tasks do not say of themselves: choices, kinds of masks, episode lengths, bounds, traced numbers."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

from flax import struct

from envs import base
from envs.pytrees import Params

_EACH = "it rewards each of its agents"

# Tasks that are left out, and the reason.
REFUSED: Mapping[str, str] = {
    "Connector-v3": _EACH,
    "LevelBasedForaging-v0": _EACH,
    "SearchAndRescue-v0": _EACH,
    "MultiCVRP-v0": "its rewards depend on its time limit, which therefore cannot be told from an end",
    "Sokoban-v0": "it downloads its levels when it is made",
}

# By class: entries of observations that are codes of things. Coordinates and counts are numbers.
CODES: Mapping[str, tuple[str, ...]] = {
    "CVRP": ("position", "trajectory"),
    "Cleaner": ("grid",),
    "FlatPack": ("grid", "blocks"),
    "GraphColoring": ("colors", "current_node_index"),
    "JobShop": ("ops_machine_ids", "machines_job_ids"),
    "MMST": ("node_types", "positions"),
    "Minesweeper": ("board",),
    "RubiksCube": ("cube",),
    "SlidingTilePuzzle": ("puzzle",),
    "Sudoku": ("board",),
    "TSP": ("trajectory",),
}

# By class: tasks whose masks are joint, with one entry for each combination of an action's numbers.
JOINT = ("BinPack", "FlatPack", "Minesweeper", "Sudoku", "Tetris")

# By class: for tasks without a time limit, the number of steps within which every episode ends by itself. Of 2048,
# where this number has six digits, 10,000 steps, in which a tile of 16,384 appears.
LENGTHS: Mapping[str, Callable[[Any], int]] = {
    "BinPack": lambda task: task.generator.max_num_items,
    "CVRP": lambda task: 2 * task.num_nodes,
    "FlatPack": lambda task: task.num_blocks,
    "Game2048": lambda task: 10_000,
    "GraphColoring": lambda task: task.num_nodes,
    # In every step before the last, a machine works on one of the jobs.
    "JobShop": lambda task: task.num_jobs * task.max_num_ops * task.max_op_duration + 1,
    "Knapsack": lambda task: task.num_items,
    "Minesweeper": lambda task: task.num_rows * task.num_cols - task.num_mines,
    "Sudoku": lambda task: 9 * 9,
    "TSP": lambda task: task.num_cities,
}

# By class: the smallest and the largest return of an episode under the task's own rewards.
RETURNS: Mapping[str, Callable[[Any], tuple[float, float]]] = {
    "GraphColoring": lambda task: (-task.num_nodes, 0),
    "Knapsack": lambda task: (0, task.num_items),
    "Maze": lambda task: (0, 1),
    "Minesweeper": lambda task: (0, LENGTHS["Minesweeper"](task)),
    "RubiksCube": lambda task: (0, 1),
    "SlidingTilePuzzle": lambda task: (-(task.generator.grid_size**2), task.generator.grid_size**2),
    "Snake": lambda task: (0, task.num_rows * task.num_cols - 1),
    "Sudoku": lambda task: (0, 1),
}

# By class: the number of steps within which some policy gets the largest return in every episode. A way through a maze
# enters no cell twice; a cube of 3 x 3 x 3 is at most 20 turns from its solution, where half turns count as one
# (T. Rokicki, H. Kociemba, M. Davidson, J. Dethridge, "The diameter of the Rubik's cube group is twenty", 2014).
SOLVED_WITHIN: Mapping[str, Callable[[Any], int | None]] = {
    "Maze": lambda task: task.num_rows * task.num_cols - 1,
    "RubiksCube": lambda task: 20 if task.generator.cube_size == 3 else None,
}


@struct.dataclass
class CleanerParams(base.EnvParams):
    """The parameters of Cleaner.

    Attributes:
      penalty_per_timestep: Penalty of each step.
      max_steps_in_episode: Time limit.
    """

    penalty_per_timestep: float = 0.5
    max_steps_in_episode: int = 100


@struct.dataclass
class GraphColoringParams(base.EnvParams):
    """The parameters of GraphColoring.

    Attributes:
      edge_probability: Probability that an edge connects two nodes.
      max_steps_in_episode: Time limit.
    """

    edge_probability: float = 0.8
    max_steps_in_episode: int = 20


@struct.dataclass
class KnapsackParams(base.EnvParams):
    """The parameters of Knapsack.

    Attributes:
      total_budget: Weight that the knapsack holds.
      max_steps_in_episode: Time limit.
    """

    total_budget: float = 12.5
    max_steps_in_episode: int = 50


# By class: parameters, and the attribute of the task that has their numbers, "" for the task itself.
PARAMS: Mapping[str, tuple[Callable[..., Any], str]] = {
    "Cleaner": (CleanerParams, ""),
    "GraphColoring": (GraphColoringParams, "generator"),
    "Knapsack": (KnapsackParams, "generator"),
}


def traced(kind: str) -> tuple[str, ...]:
    """Names of the numbers of a class of tasks that are parameters, without the time limit."""
    fields = PARAMS[kind][0].__dataclass_fields__ if kind in PARAMS else ()  # pyright: ignore[reportFunctionMemberAccess]
    return tuple(name for name in fields if name != "max_steps_in_episode")


def holder(task: Any) -> Any:
    """The part of a task that has its traced numbers."""
    return getattr(task, PARAMS[type(task).__name__][1] or "unwrapped")


def with_numbers(task: Any, params: Params) -> Any:
    """A copy of a task with the numbers of these parameters, or the task if it has none."""
    kind = type(task).__name__
    if kind not in PARAMS:
        return task
    task, place = copy.copy(task), PARAMS[kind][1]
    if place:
        setattr(task, place, copy.copy(getattr(task, place)))
    for name in traced(kind):
        setattr(holder(task), name, getattr(params, name))
    return task
