"""Observations that a user passes to a policy: arrays, or lists of numbers, of one observation or of a batch."""

from typing import Any

import jax
import numpy as np

from envs.arguments import described
from envs.errors import UserTypeError, UserValueError
from jaxrl.checks import is_concrete
from jaxrl.pytrees import Observation, PyTree

__all__ = ["checked_observation"]


def checked_observation(
    obs: Observation, shapes: PyTree, like: str = "like the environment's"
) -> tuple[Any, tuple[int, ...]]:
    """An observation whose lists are arrays, and its further leading axes.

    Args:
      obs: Observation of an environment, or observations with further leading axes; its arrays may be lists or tuples
        of numbers.
      shapes: Shapes of one observation.
      like: Words for the error message on what an observation must be.

    Raises:
      ValueError: The structure or a shape is different, or a number is a nan.
    """
    expected, structure = jax.tree.flatten(shapes)
    try:
        got = [_array(leaf, one) for leaf, one in zip(structure.flatten_up_to(obs), expected, strict=True)]
    except (TypeError, ValueError):
        got = []
    if not got or any(jax.tree.structure(leaf) != jax.tree.structure(0) for leaf in got):
        raise UserValueError(f"obs must be {like}, {described(shapes)}, got {described(obs)}")
    each = [np.shape(leaf) for leaf in got]
    batch = each[0][: max(len(each[0]) - len(expected[0].shape), 0)]
    for shape, leaf in zip(each, expected, strict=True):
        if shape != (*batch, *leaf.shape):
            raise UserValueError(
                f"obs has the shape {shape}; the environment's is {leaf.shape}, with any further leading axes."
            )
    if is_concrete(got):
        numbers = [np.asarray(leaf) for leaf in got]
        count = sum(int(np.isnan(leaf).sum()) for leaf in numbers if np.issubdtype(leaf.dtype, np.inexact))
        if count:
            raise UserValueError(f"obs holds {count} nan among {sum(leaf.size for leaf in numbers)} numbers.")
    return structure.unflatten(got), tuple(batch)


def _array(leaf: PyTree, like: PyTree) -> Any:
    """A list of numbers, or labelled ones, as an array of the environment's type; an array of numbers unchanged."""
    if isinstance(leaf, jax.Array) or (isinstance(leaf, np.ndarray | np.generic) and leaf.dtype.kind not in "OUSMm"):
        return leaf
    if not is_concrete(leaf):
        return jax.numpy.asarray(leaf, like.dtype)
    array = np.asarray(leaf)  # of unequal lengths: ValueError
    whole = array.dtype.kind in "iub" or np.issubdtype(like.dtype, np.inexact)
    if array.dtype.kind not in "iubf" or not whole:
        raise UserTypeError(f"{array.dtype} is not {like.dtype}")
    return array.astype(like.dtype)
