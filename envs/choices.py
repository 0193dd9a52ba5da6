"""Choices, whose numbers have no order: their spaces, their place in observations, and their one-hot vectors.

As an input of a network, a number that names one of several choices makes neighbouring numbers alike. The shapes of an
observation therefore say which of its leaves are choices, networks replace those by one-hot vectors, and running
statistics leave them out. A custom network gets the numbers themselves.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from envs.base import Environment, agent_axes, entries, spaces
from envs.errors import UserValueError
from envs.pytrees import Action, Observation, PyTree

# The smallest number and the number of choices of each entry along the last axis.
Columns = tuple[tuple[int, int], ...]
# For each leaf of an observation, the choices of its entries, or None for plain numbers; `()` if all are plain.
Choices = tuple[Columns | None, ...]

__all__ = [
    "ChoiceShape",
    "Choices",
    "Columns",
    "MultiDiscrete",
    "choice_sizes",
    "choices_of",
    "columns_of",
    "encoded",
    "in_space",
    "one_hot",
    "one_hot_note",
    "parts_of",
    "with_choices",
]


class MultiDiscrete(spaces.Box):
    """An array of whole numbers without an order, each of which is a choice, as observations of Gymnasium have them.

    It is a box, so that functions of an integer `Box` take it; networks read its numbers as one-hot vectors.

    Args:
      counts: Number of choices of each entry, at least 1, `[...]` with one or several axes.
      low: Smallest choice of each entry, a whole number, `[]` or of the shape of `counts`.
      dtype: Integer type of the numbers.

    Raises:
      ValueError: A count is not a whole number of at least 1, or there is none.
    """

    def __init__(self, counts: Any, low: Any = 0, dtype: DTypeLike = np.int32) -> None:
        self.counts = np.asarray(counts)
        whole = self.counts.dtype.kind in "iu" and self.counts.ndim and self.counts.size
        if not whole or np.any(self.counts < 1):
            raise UserValueError(
                f"counts of MultiDiscrete must be an array of whole numbers of at least 1, got {counts!r}"
            )
        first = np.broadcast_to(np.asarray(low), self.counts.shape)
        ends = first.astype(dtype), (first + (self.counts - 1)).astype(dtype)
        super().__init__(*ends, self.counts.shape, np.dtype(dtype))  # pyright: ignore[reportArgumentType]

    def __repr__(self) -> str:
        """The choices of all entries."""
        return f"MultiDiscrete({self.counts.tolist()})"

    def sample(self, key: jax.Array) -> jax.Array:
        """One choice for each entry, all equally likely."""
        return jax.random.randint(key, self.shape, self.low, np.asarray(self.high, np.int32) + 1).astype(self.dtype)


def columns_of(space: Any) -> Columns | None:
    """The choices of each entry of a `Discrete` or `MultiDiscrete` space; None for other spaces.

    Entries that differ only in their place before the last axis share a column, which has the choices of all of them.
    """
    if isinstance(space, spaces.Discrete):
        return ((0, int(space.n)),)
    if not isinstance(space, MultiDiscrete):
        return None
    before = tuple(range(len(space.shape) - 1))
    low, high = np.min(space.low, axis=before), np.max(space.high, axis=before)
    return tuple((int(first), int(last) - int(first) + 1) for first, last in zip(low, high, strict=True))


def one_hot(values: jax.Array, columns: Columns) -> jax.Array:
    """One-hot vectors of choices, one after another, `[*B, D]`.

    Args:
      values: Whole numbers, `[*B, K]`.
      columns: Choices of each of the K entries, which have D together.
    """
    values = jnp.asarray(values)[..., None].astype(jnp.int32)
    if len(set(columns)) == 1:  # one operation, however many entries there are
        low, count = columns[0]
        hot = (values == low + np.arange(count, dtype=np.int32)).reshape(*values.shape[:-2], len(columns) * count)
    else:
        parts = [values[..., k, :] == low + np.arange(count, dtype=np.int32) for k, (low, count) in enumerate(columns)]
        hot = jnp.concatenate(parts, axis=-1)
    return hot.astype(jnp.float32)


class ChoiceShape(jax.ShapeDtypeStruct):
    """Shape of a leaf of choices.

    Args:
      shape: Shape, `[]` for a `Discrete` space.
      dtype: Integer type.
      columns: Choices of each entry along the last axis.
    """

    def __init__(self, shape: tuple[int, ...], dtype: DTypeLike, columns: Columns) -> None:
        super().__init__(shape, dtype)
        self.columns = columns


def with_choices(space: Any, shapes: PyTree) -> Any:
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


def choices_of(shapes: PyTree) -> Choices:
    """The choices of each leaf of an observation, from its shapes by `with_choices`."""
    columns = tuple(leaf.columns if isinstance(leaf, ChoiceShape) else None for leaf in jax.tree.leaves(shapes))
    return columns if any(columns) else ()


def encoded(obs: Observation, choices: Choices) -> Any:
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


def choice_sizes(space: spaces.Space) -> tuple[int, ...]:
    """Numbers of choices of the parts of an action, in the order of JAX's leaves; empty for spaces of numbers.

    Args:
      space: Action space of one agent. A `Discrete` space is one part; `MultiDiscrete` has one for each of its numbers,
        and `Tuple` and `Dict` have those of their entries.
    """
    if isinstance(space, spaces.Discrete):
        return (int(space.n),)
    if isinstance(space, MultiDiscrete):
        return tuple(int(count) for count in space.counts.ravel())
    sizes = [choice_sizes(part) for part in entries(space).values()]
    return sum(sizes, ()) if all(sizes) else ()


def in_space(space: Any, parts: Sequence[Any]) -> Any:
    """Leaves of several choices as a space has them: an array of a `MultiDiscrete`, a tuple, or a dictionary.

    Args:
      space: Space of several choices, in which a `Discrete` space has one.
      parts: Choices int32 `[*B]` of each part, in the order of `choice_sizes`.
    """
    if isinstance(space, spaces.Discrete):
        return parts[0]
    if isinstance(space, MultiDiscrete):
        stacked = jnp.stack(parts, axis=-1)
        return (stacked.reshape(*stacked.shape[:-1], *space.shape) + space.low).astype(space.dtype)
    whole, begin = {}, 0
    for name, part in entries(space).items():
        end = begin + len(choice_sizes(part))
        whole[name], begin = in_space(part, parts[begin:end]), end
    return whole if isinstance(space, spaces.Dict) else tuple(whole.values())


def parts_of(space: Any, action: Action) -> list[jax.Array]:
    """Choices `[*B]` of each part of an action, in the order of `choice_sizes`: the inverse of `in_space`."""
    if isinstance(space, spaces.Discrete):
        return [action]
    if isinstance(space, MultiDiscrete):
        columns = action - space.low
        columns = columns.reshape(*columns.shape[: columns.ndim - len(space.shape)], -1)
        return [columns[..., i] for i in range(columns.shape[-1])]
    return [choice for name, part in entries(space).items() for choice in parts_of(part, action[name])]
