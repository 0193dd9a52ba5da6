"""Populations of partners as parameters of a task: defaults, checks, draws, and behaviours that are revealed."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from envs.base import spaces
from envs.cooperation.partners import Partner
from envs.errors import UserValueError
from envs.pytrees import Number, PyTree

__all__ = ["check_population", "default_population", "draw", "revealed", "revealed_space"]


def default_population(partner: Partner, task: Any) -> dict[str, Any]:
    """The default members of a partner and their weights, all 1, as the fields `population` and `weights`."""
    population = partner.population(task)
    leaves = jax.tree.leaves(partner.rows(population))
    return {"population": population, "weights": np.ones(len(leaves[0]) if leaves else 0, np.float32)}


def check_population(partner: Partner, task: Any, population: PyTree, weights: Number) -> None:
    """Reject an empty population, one that does not fit the task, and weights by which no partner is drawn.

    Args:
      partner: Partner inside the task.
      task: Any.
      population, weights: Parameters, concrete; every leaf may have a leading axis of settings.
    """
    default = partner.population(task)
    expected, got = jax.tree.leaves_with_path(default), jax.tree.leaves(population)
    if jax.tree.structure(default) != jax.tree.structure(population):
        raise UserValueError(
            f"env.population must be that of {type(partner).__name__} in {task.name}, with the parts "
            f"{_parts(default)}, got {type(population).__name__} with the parts {_parts(population)}"
        )
    weights = np.asarray(weights)
    if weights.ndim == 0 or weights.shape[-1] == 0:
        raise UserValueError("env.population must have at least one partner, got none")
    of_members = [path for path, _ in jax.tree.leaves_with_path(partner.rows(default))]
    for (path, leaf), other in zip(expected, got, strict=True):
        each = (weights.shape[-1], *np.shape(leaf)[1:])
        shape, takes = np.shape(other)[weights.ndim - 1 :], each if path in of_members else np.shape(leaf)
        if shape != takes:
            raise UserValueError(
                f"env.population{jax.tree_util.keystr(path)} must have the shape {takes} for {each[0]} weights, "
                f"got {shape}"
            )
    if np.any(~(weights >= 0)) or np.any(~np.isfinite(weights)) or np.any(weights.sum(axis=-1) <= 0):
        raise UserValueError("env.weights must be at least 0 and finite, and one of them above 0")
    partner.check(task, population)


def draw(key: jax.Array, weights: Number) -> jax.Array:
    """The index of a member, int32 `[]`, drawn in proportion to the weights `[P]`."""
    return jax.random.categorical(key, jnp.log(jnp.asarray(weights, jnp.float32))).astype(jnp.int32)


def revealed(space: spaces.Tuple, behaviour: tuple[jax.Array, ...]) -> jax.Array:
    """A behaviour vector as one float32 vector, with discrete parts one-hot."""
    pairs = zip(space.spaces, behaviour, strict=True)
    shown = [jnp.arange(part.n) == value if isinstance(part, spaces.Discrete) else value for part, value in pairs]
    return jnp.concatenate([value.astype(jnp.float32) for value in shown])


def revealed_space(space: spaces.Tuple) -> spaces.Box:
    """The space of `revealed`, with the bounds of its widest part."""
    low, high, width = 0.0, 1.0, 0
    parts: tuple[Any, ...] = tuple(space.spaces)
    for part in parts:
        if isinstance(part, spaces.Discrete):
            width += part.n
        else:
            low, high = min(low, float(np.min(part.low))), max(high, float(np.max(part.high)))
            width += part.shape[0]
    return spaces.Box(low, high, (width,), jnp.float32)


def _parts(population: PyTree) -> str:
    paths = [jax.tree_util.keystr(path) or "array" for path, _ in jax.tree.leaves_with_path(population)]
    return ", ".join(paths) or "none"
