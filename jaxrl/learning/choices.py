"""Choices in observations, of `Discrete` and `MultiDiscrete` spaces, which networks take as one-hot vectors.

A number that names one of several choices has no order, and as an input of a network it makes neighbouring numbers
alike. The shapes of an observation therefore say which of its leaves are choices, networks replace those by one-hot
vectors, and running statistics leave them out. A custom network gets the numbers themselves.
"""

from typing import Any

import jax
import jax.numpy as jnp

from envs.abstract_checking import agent_axes
from envs.base import Environment, spaces
from envs.choices import Columns, columns_of, one_hot

# For each leaf of an observation, the choices of its entries, or None for plain numbers; `()` if all are plain.
Choices = tuple[Columns | None, ...]

__all__ = ["ChoiceShape", "Choices", "choices_of", "encoded", "one_hot_note", "with_choices"]


class ChoiceShape(jax.ShapeDtypeStruct):
    """Shape of a leaf of choices.

    Args:
      shape: Shape, `[]` for a `Discrete` space.
      dtype: Integer type.
      columns: Choices of each entry along the last axis.
    """

    def __init__(self, shape: tuple[int, ...], dtype: Any, columns: Columns):
        super().__init__(shape, dtype)
        self.columns = columns


def with_choices(space: Any, shapes: Any) -> Any:
    """Shapes of an observation in which the leaves of choices are `ChoiceShape`.

    Parts that differ from their space, or that have a single choice, which says nothing, stay as they are; so does
    "neighbours_present", which networks of neighbours read as a flag.

    Args:
      space: Observation space of one agent.
      shapes: Shapes of one observation.
    """
    if isinstance(space, spaces.Dict):
        if not isinstance(shapes, dict):
            return shapes
        parts = space.spaces
        return {
            name: with_choices(parts[name], leaf) if name in parts and name != "neighbours_present" else leaf
            for name, leaf in shapes.items()
        }
    if isinstance(space, spaces.Tuple):
        if not isinstance(shapes, tuple) or len(shapes) != len(space.spaces):
            return shapes
        return type(shapes)(with_choices(part, leaf) for part, leaf in zip(space.spaces, shapes, strict=True))
    columns = columns_of(space)
    alike = getattr(shapes, "shape", None) == tuple(getattr(space, "shape", ()))
    if columns is None or not alike or not jnp.issubdtype(shapes.dtype, jnp.integer):
        return shapes
    return ChoiceShape(shapes.shape, shapes.dtype, columns) if max(count for _, count in columns) > 1 else shapes


def choices_of(shapes: Any) -> Choices:
    """The choices of each leaf of an observation, from its shapes by `with_choices`."""
    columns = tuple(leaf.columns if isinstance(leaf, ChoiceShape) else None for leaf in jax.tree.leaves(shapes))
    return columns if any(columns) else ()


def encoded(obs: Any, choices: Choices) -> Any:
    """One observation whose choices are one-hot vectors.

    Args:
      obs: Observation, a pytree.
      choices: Choices of each of its leaves, `()` for none.
    """
    if not choices:
        return obs
    leaves, structure = jax.tree.flatten(obs)
    return structure.unflatten(
        [
            leaf if columns is None else one_hot(leaf if jnp.ndim(leaf) else leaf[None], columns)
            for leaf, columns in zip(leaves, choices, strict=True)
        ]
    )


def one_hot_note(env: Environment) -> str | None:
    """Note for a result on the choices in observations that networks take as one-hot vectors; None without any."""
    obs, _ = jax.eval_shape(env.reset_env, jax.random.key(0), env.default_params)
    space = env.observation_space(env.default_params)
    axes = len(agent_axes(space, obs))
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[axes:], leaf.dtype), obs)
    notes = []
    for path, leaf in jax.tree.leaves_with_path(with_choices(space, shapes)):
        if isinstance(leaf, ChoiceShape):
            name = jax.tree_util.keystr(path, simple=True, separator=".") or "observation"
            counts = list(dict.fromkeys(count for _, count in leaf.columns))
            notes.append(f"{name}: {', '.join(map(str, counts))} choices")
    return "; ".join(notes) or None
