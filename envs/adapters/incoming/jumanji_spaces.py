"""Observations of Jumanji as dictionaries, and their spaces."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from envs.base import spaces
from envs.choices import MultiDiscrete

MASK = "action_mask"  # the entry of an observation


def space_of(name: str, spec: Any, codes: tuple[str, ...]) -> Any:
    """The space of a specification of Jumanji.

    Numbers of steps are bounded below only, as the time limit is a parameter.

    Args:
      name: Name of the entry, "" for the whole observation.
      spec: Specification.
      codes: Names of entries that are choices.
    """
    if spec._specs:
        return spaces.Dict({each: space_of(each, part, codes) for each, part in spec._specs.items() if each != MASK})
    low, high = getattr(spec, "minimum", None), getattr(spec, "maximum", None)
    if name in codes:
        low, high = int(np.min(np.asarray(low))), int(np.max(np.asarray(high)))
        choices = np.full(spec.shape, high - low + 1)
        return MultiDiscrete(choices, low, spec.dtype) if spec.shape else spaces.Discrete(int(choices))
    if low is None or name == "step_count":
        ends = jnp.iinfo(spec.dtype)
        low, high = (0 if name == "step_count" else ends.min), ends.max
    return spaces.Box(np.asarray(low), np.asarray(high), spec.shape, spec.dtype)  # pyright: ignore[reportArgumentType]
