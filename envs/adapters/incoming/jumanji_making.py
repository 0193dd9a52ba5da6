"""Tasks of Jumanji, made with numbers of their classes and of their generators."""

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from envs.adapters.incoming.jumanji_tasks import traced
from envs.arguments import check_count
from envs.errors import UserValueError

# By class: names of Jumanji's classes of rewards, the first being the task's own.
REWARDS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("BinPack", "CVRP", "Knapsack", "TSP"), ("DenseReward", "SparseReward")),
    "FlatPack": ("CellDenseReward", "BlockDenseReward"),
    "SlidingTilePuzzle": ("DenseRewardFn", "SparseRewardFn"),
}


def fields_of(task: Any) -> tuple[str, ...]:
    """Names of the static fields of a task."""
    kind = type(task).__name__
    names = (*_numbers(task), *_numbers(_generator(task)))
    own = tuple(name for name in names if name not in (*traced(kind), "max_step"))
    return (*own, "reward_fn") if kind in REWARDS else own


def created(make: Callable[..., Any], env_id: str, fields: Mapping[str, Any]) -> Any:
    """A task of Jumanji with these static fields.

    Args:
      make: Jumanji's `make`.
      env_id: Name of the task.
      fields: Static fields.

    Raises:
      ValueError: The task does not take a field's value.
    """
    task, arguments = make(env_id), dict(fields)
    if not arguments:
        return task
    if "time_limit" in fields:
        check_count("time_limit", fields["time_limit"])
    generated = _numbers(_generator(task))
    if "max_step" in generated:  # MMST keeps the nodes that each agent has visited
        arguments["max_step"] = fields.get("time_limit", task.time_limit)
    changed = {name: arguments.pop(name) for name in generated if name in arguments}
    try:
        if "reward_fn" in fields:
            arguments["reward_fn"] = _rewards(task, fields["reward_fn"])
        if changed:
            arguments["generator"] = type(_generator(task))(**generated | changed)
        return make(env_id, **arguments)
    except (AssertionError, TypeError, ValueError) as error:
        given = ", ".join(f"{name}={value!r}" for name, value in fields.items())
        raise UserValueError(f"jumanji/{env_id} cannot be made with {given}: {error}") from error


def _generator(task: Any) -> Any:
    return getattr(task, "generator", None) or getattr(task, "_generator", None)


def _numbers(owner: Any) -> dict[str, Any]:
    """The numbers that a task or a generator has as arguments of its class."""
    names = inspect.signature(type(owner)).parameters if owner is not None else ()
    values = {name: getattr(owner, name, getattr(owner, f"_{name}", None)) for name in names}
    return {name: value for name, value in values.items() if isinstance(value, bool | int | float | tuple)}


def _rewards(task: Any, name: Any) -> Any:
    """The rewards of this name, of the classes of the task's package."""
    names = REWARDS[type(task).__name__]
    if name not in names:
        raise UserValueError(f"reward_fn takes {' or '.join(map(repr, names))}")
    return getattr(importlib.import_module(f"{type(task).__module__.rpartition('.')[0]}.reward"), name)()
