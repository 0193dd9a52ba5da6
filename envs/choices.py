"""Spaces of choices, whose numbers have no order, and their one-hot vectors."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnax.environments import spaces

from envs.errors import UserValueError

# The smallest number and the number of choices of each entry along the last axis.
Columns = tuple[tuple[int, int], ...]

__all__ = ["Columns", "MultiDiscrete", "columns_of", "one_hot"]


class MultiDiscrete(spaces.Box):
    """An array of whole numbers without an order, each of which is a choice, as observations of Gymnasium have them.

    It is a box, so that whatever takes an integer `Box` takes it; networks read its numbers as one-hot vectors.

    Args:
      counts: Number of choices of each entry, at least 1, `[...]` with one or several axes.
      low: Smallest choice of each entry, a whole number, `[]` or of the shape of `counts`.
      dtype: Integer type of the numbers.

    Raises:
      ValueError: A count is not a whole number of at least 1, or there is none.
    """

    def __init__(self, counts: Any, low: Any = 0, dtype: Any = np.int32):
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
