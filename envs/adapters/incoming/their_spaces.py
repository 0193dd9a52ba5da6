"""Spaces of other libraries' environments, recognised by their attributes, as spaces of `envs`."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from envs.base import spaces
from envs.choices import MultiDiscrete
from envs.errors import UserTypeError

__all__ = ["as_space"]


def as_space(space: Any, name: str) -> spaces.Space:
    """A space or a specification of another library as a space of `envs`.

    Taken are a number of choices; spaces with `n`, with `nvec` or `num_categories`, with `low`, `high` and `shape`, or
    with parts in `spaces`, as those of gymnax and Gymnasium; and specifications with `num_values`, or with `minimum`
    and `maximum`, as those of dm_env and jumanji.

    Args:
      space: Space or specification.
      name: Name of the environment, for the error message.

    Raises:
      TypeError: It is none of these.
    """
    if isinstance(space, spaces.Space):
        return space
    if isinstance(space, int | np.integer):
        return spaces.Discrete(int(space))
    for attribute in ("n", "nvec", "num_categories", "num_values"):
        if hasattr(space, attribute):
            counts = np.asarray(getattr(space, attribute))
            return MultiDiscrete(counts) if counts.ndim else spaces.Discrete(int(counts))
    if hasattr(space, "spaces"):
        parts = space.spaces
        if isinstance(parts, Mapping):
            return spaces.Dict({key: as_space(part, name) for key, part in parts.items()})
        return spaces.Tuple(tuple(as_space(part, name) for part in parts))
    for low, high in (("low", "high"), ("minimum", "maximum")):
        if hasattr(space, low) and hasattr(space, high) and hasattr(space, "shape"):
            dtype = jnp.int32 if jnp.issubdtype(space.dtype, np.integer) else jnp.float32
            return spaces.Box(getattr(space, low), getattr(space, high), tuple(space.shape), dtype)
    raise UserTypeError(
        f"{name}: the action space {space!r} is not recognised; pass actions=, a number of actions or a space of "
        "envs.spaces."
    )
