"""Spaces of other libraries' environments, recognised by their attributes, as spaces of `envs`."""

from collections.abc import Hashable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from envs.base import spaces
from envs.choices import MultiDiscrete
from envs.errors import UserTypeError

__all__ = ["as_space", "value_of"]


def as_space(space: Any, name: str) -> spaces.Space:
    """A space or a specification of another library as a space of `envs`.

    Taken are a number of choices; spaces with `n`, with `nvec` or `num_categories`, with `low`, `high` and `shape`, or
    with parts in `spaces`, as those of gymnax and Gymnasium; and specifications with `num_values`, or with `minimum`
    and `maximum`, as those of dm_env and jumanji.

    Args:
      space: Space or specification.
      name: Name of the environment, for the error message.

    Raises:
      TypeError: It is none of these, or its choices do not begin with 0.
    """
    if isinstance(space, spaces.Space):
        return space
    if isinstance(space, int | np.integer):
        if isinstance(space, bool) or space < 1:
            raise _unknown(space, name)
        return spaces.Discrete(int(space))
    if type(space).__name__ == "MultiBinary":
        return MultiDiscrete(np.full(space.shape, 2))
    for attribute in ("n", "nvec", "num_categories", "num_values"):
        if hasattr(space, attribute) and not np.any(np.asarray(getattr(space, "start", 0))):
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
    raise _unknown(space, name)


def _unknown(space: Any, name: str) -> UserTypeError:
    return UserTypeError(
        f"{name}: the action space {space!r} is not recognised; pass actions=, a number of actions or a space of "
        "envs.spaces, whose choices begin with 0."
    )


def value_of(space: spaces.Space) -> Hashable:
    """A key that is equal for equal spaces, which gymnax compares by identity.

    Args:
      space: Space of `envs`.
    """
    if isinstance(space, spaces.Dict):
        return "Dict", tuple((name, value_of(part)) for name, part in sorted(space.spaces.items()))
    if isinstance(space, spaces.Tuple):
        return "Tuple", tuple(map(value_of, space.spaces))
    if isinstance(space, spaces.Discrete):
        return "Discrete", int(space.n)
    assert isinstance(space, spaces.Box)
    ends = (np.broadcast_to(np.asarray(end), space.shape).tobytes() for end in (space.low, space.high))
    return type(space).__name__, tuple(space.shape), str(np.dtype(space.dtype)), *ends
