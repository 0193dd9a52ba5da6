"""Conversion of Gymnasium's spaces and values to those of `envs`, for adapted environments.

In observations, `MultiDiscrete` becomes that of `envs`, and `MultiBinary` a box of zeros and ones. In actions, they
become tuples of choices, and an integer box of one number becomes one choice.

Numbers of 64 bits become numbers of 32 bits. Integer bounds that need more than 32 bits are rejected, except for the
smallest and the largest number of their type, which mean that there is no bound; an observation on the host that needs
more than 32 bits raises an error when it occurs.
"""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from gymnasium import spaces as theirs

from envs.base import spaces
from envs.choices import MultiDiscrete
from envs.errors import UserValueError
from envs.pytrees import Action, PyTree

__all__ = ["action_space", "action_value", "observation_space", "observation_value"]

_TAKES = "Discrete, Box, MultiDiscrete, MultiBinary, and Dict and Tuple of these"


def observation_space(space: Any, name: str) -> spaces.Space:
    """The observation space of a Gymnasium environment as a space of `envs`.

    Args:
      space: Gymnasium's space.
      name: Name of the environment, for the error message.

    Raises:
      ValueError: The space has no fixed shape, or integers need more than 32 bits.
    """
    if isinstance(space, theirs.Discrete):
        return _discrete(int(space.n), name)
    if isinstance(space, theirs.Box):
        return _box(space.low, space.high, space.dtype, name)
    if isinstance(space, theirs.MultiDiscrete):
        box = _box(space.start, space.start + space.nvec - 1, space.dtype, name)
        return MultiDiscrete(space.nvec, space.start, box.dtype)
    if isinstance(space, theirs.MultiBinary):
        return _box(np.zeros(space.shape), np.ones(space.shape), space.dtype, name)
    if isinstance(space, theirs.Tuple):
        return spaces.Tuple([observation_space(part, name) for part in space.spaces])
    if isinstance(space, theirs.Dict):
        return spaces.Dict({key: observation_space(part, name) for key, part in space.spaces.items()})
    raise UserValueError(f"{name}: the observation space is a {type(space).__name__}; supported spaces are {_TAKES}.")


def observation_value(space: Any, value: PyTree, module: Any = np) -> Any:
    """An observation as an element of the space of `envs`.

    Args:
      space: Gymnasium's space.
      value: Observation.
      module: Array module: `numpy`, or `jax.numpy` inside a program.

    Raises:
      ValueError: An integer needs more than 32 bits, on the host.
    """
    if isinstance(space, theirs.Discrete):
        return module.asarray(value - space.start, np.int32).reshape(())
    if isinstance(space, theirs.Tuple):
        return tuple(observation_value(part, one, module) for part, one in zip(space.spaces, value, strict=True))
    if isinstance(space, theirs.Dict):
        return {key: observation_value(part, value[key], module) for key, part in space.spaces.items()}
    dtype = _narrow(space.dtype)
    if module is np and dtype != space.dtype and np.issubdtype(dtype, np.integer):
        limits = np.iinfo(dtype)
        for number in (np.min(value, initial=0), np.max(value, initial=0)):
            if not limits.min <= number <= limits.max:
                raise UserValueError(f"An observation holds {number}; its integers are taken as {dtype}.")
    return module.asarray(value, dtype).reshape(space.shape or ())


def action_space(space: Any, name: str) -> spaces.Space:
    """The action space of a Gymnasium environment as a space of `envs`.

    Args:
      space: Gymnasium's space.
      name: Name of the environment, for the error message.

    Raises:
      ValueError: The space has no fixed shape, or integers need more than 32 bits.
    """
    if isinstance(space, theirs.Discrete):
        return _discrete(int(space.n), name)
    if isinstance(space, theirs.MultiDiscrete | theirs.MultiBinary):
        return spaces.Tuple([_discrete(count, name) for count in _counts(space)])
    if isinstance(space, theirs.Box):
        if _is_choice(space):
            return _discrete(_choices(space), name)
        return _box(space.low, space.high, space.dtype, name)
    if isinstance(space, theirs.Tuple):
        return spaces.Tuple([action_space(part, name) for part in space.spaces])
    if isinstance(space, theirs.Dict):
        return spaces.Dict({key: action_space(part, name) for key, part in space.spaces.items()})
    raise UserValueError(f"{name}: the action space is a {type(space).__name__}; supported spaces are {_TAKES}.")


def action_value(space: Any, action: Action, module: Any = np) -> Any:
    """An action of `envs` in the form that the Gymnasium environment takes.

    Args:
      space: Gymnasium's space.
      action: Action in the space of `envs`.
      module: Array module: `numpy`, or `jax.numpy` inside a program.
    """
    if isinstance(space, theirs.Discrete):
        return action + space.start if module is jnp else int(action) + int(space.start)
    if isinstance(space, theirs.MultiDiscrete | theirs.MultiBinary):
        start = space.start if isinstance(space, theirs.MultiDiscrete) else 0
        return (module.stack(action).reshape(space.shape) + start).astype(_narrow(space.dtype))
    if isinstance(space, theirs.Box):
        if _is_choice(space):
            return module.asarray(action + space.low.item(), _narrow(space.dtype)).reshape(space.shape)
        return action if module is jnp else np.asarray(action, space.dtype)
    if isinstance(space, theirs.Tuple):
        return tuple(action_value(part, one, module) for part, one in zip(space.spaces, action, strict=True))
    return {key: action_value(part, action[key], module) for key, part in space.spaces.items()}


def _counts(space: Any) -> list[int]:
    if isinstance(space, theirs.MultiDiscrete):
        return [int(count) for count in space.nvec.ravel()]
    return [2] * math.prod(space.shape)


def _is_choice(space: theirs.Box) -> bool:
    return bool(np.issubdtype(space.dtype, np.integer)) and math.prod(space.shape) == 1


def _choices(space: theirs.Box) -> int:
    return int(space.high.item()) - int(space.low.item()) + 1


def _discrete(count: int, name: str) -> spaces.Discrete:
    most = int(np.iinfo(np.int32).max)
    if count > most:
        raise UserValueError(f"{name}: a space has {count} choices; supported spaces have at most {most}.")
    return spaces.Discrete(count)


def _box(low: npt.ArrayLike, high: npt.ArrayLike, dtype: Any, name: str) -> spaces.Box:
    own, dtype = np.dtype(dtype), _narrow(dtype)
    bounds = [np.asarray(bound) for bound in (low, high)]
    if np.issubdtype(dtype, np.integer):
        limits, ends = np.iinfo(dtype), np.iinfo(own)
        for bound in bounds:
            beyond = (bound < limits.min) | (bound > limits.max)
            # Gymnasium writes infinities as the ends of the type, or as the values next to them.
            refused = bound[beyond & (bound > ends.min + 2) & (bound < ends.max - 2)]
            if refused.size:
                raise UserValueError(
                    f"{name}: a space has the bound {refused[0]}; its integers are adapted as {dtype}."
                )
        bounds = [np.clip(bound, limits.min, limits.max) for bound in bounds]
    return spaces.Box(*(jnp.asarray(bound.astype(dtype)) for bound in bounds), bounds[0].shape, jnp.dtype(dtype))


def _narrow(dtype: Any) -> np.dtype:
    """A dtype that JAX has in its default mode."""
    return np.dtype({"float64": np.float32, "int64": np.int32, "uint64": np.uint32}.get(np.dtype(dtype).name, dtype))
