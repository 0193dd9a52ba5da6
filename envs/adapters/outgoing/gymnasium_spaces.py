"""Spaces, actions and observations in Gymnasium's form, for all interfaces to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from envs import base
from envs.adapters.outgoing.agents import known_params
from envs.base import agent_axes, spaces
from envs.choices import MultiDiscrete
from envs.errors import UserTypeError, UserValueError
from envs.pytrees import Action, Params, PyTree

__all__ = ["METADATA", "checked_action", "native_action", "settled", "shown", "to_gymnasium"]

METADATA: dict[str, Any] = {"render_modes": ["human", "rgb_array"], "render_fps": 30}


def to_gymnasium(space: Any, what: str = "space") -> gymnasium.Space:
    """Gymnasium's counterpart of a space.

    Args:
      space: `MultiDiscrete`, or `Discrete`, `Box`, `Tuple` or `Dict` of `envs.spaces`, with concrete bounds.
      what: Description of the space, for the error message.

    Returns:
      The same space, except that a `Tuple` of `Discrete` spaces becomes a `MultiDiscrete`, whose values are vectors.

    Raises:
      TypeError: The space is of another kind, or a box of numbers that NumPy does not have.
    """
    if isinstance(space, spaces.Discrete):
        return gymnasium.spaces.Discrete(int(space.n))
    if isinstance(space, MultiDiscrete):
        return gymnasium.spaces.MultiDiscrete(space.counts, np.dtype(space.dtype).type, start=np.asarray(space.low))
    if isinstance(space, spaces.Box) and np.dtype(space.dtype).kind in "iufb":
        low, high = (
            np.array(np.broadcast_to(np.asarray(bound, space.dtype), space.shape)) for bound in (space.low, space.high)
        )
        return gymnasium.spaces.Box(low, high, tuple(space.shape), np.dtype(space.dtype).type)
    if isinstance(space, spaces.Tuple) and _multi_discrete(space):
        return gymnasium.spaces.MultiDiscrete(_choices(space))
    if isinstance(space, spaces.Tuple) and len(space.spaces):
        return gymnasium.spaces.Tuple([to_gymnasium(part, what) for part in space.spaces])
    if isinstance(space, spaces.Dict) and isinstance(space.spaces, Mapping) and space.spaces:
        return gymnasium.spaces.Dict({name: to_gymnasium(part, what) for name, part in space.spaces.items()})
    raise UserTypeError(
        f"the {what} is {space!r}, which Gymnasium has no counterpart of; it takes Discrete, Box, Tuple and Dict of "
        "envs.spaces, with numbers that NumPy has."
    )


def shown(space: Any, value: PyTree) -> Any:
    """A value of a space in Gymnasium's form, traced; leaves may have any leading axes."""
    if _multi_discrete(space):
        return jnp.stack([shown(part, leaf) for part, leaf in zip(space.spaces, value, strict=True)], axis=-1)
    if isinstance(space, spaces.Tuple):
        return tuple(shown(part, leaf) for part, leaf in zip(space.spaces, value, strict=True))
    if isinstance(space, spaces.Dict):
        return {name: shown(part, value[name]) for name, part in space.spaces.items()}
    return jnp.asarray(value, space.dtype)  # in JAX's 64-bit mode values may have more bits than their space


def native_action(space: Any, action: Action) -> Any:
    """A Gymnasium action in the form that the environment takes, traced; leaves may have any leading axes."""
    if _multi_discrete(space):
        return tuple(action[..., i].astype(part.dtype) for i, part in enumerate(space.spaces))
    if isinstance(space, spaces.Tuple):
        return tuple(native_action(part, leaf) for part, leaf in zip(space.spaces, action, strict=True))
    if isinstance(space, spaces.Dict):
        return {name: native_action(part, action[name]) for name, part in space.spaces.items()}
    return action.astype(space.dtype)


def checked_action(space: Any, action: Action, front: tuple[int, ...] = ()) -> Any:
    """An action from outside as NumPy arrays of at most 32 bits, after a check of its shapes and choices.

    Args:
      space: Space of `envs`.
      action: Action in Gymnasium's form.
      front: Leading axes, `()` or `(num_envs,)`.

    Raises:
      ValueError: The structure or a shape is different, or a choice is out of range.
    """
    if isinstance(space, spaces.Dict):
        if not isinstance(action, Mapping) or set(action) != set(space.spaces):
            raise UserValueError(f"action is {action!r}; it takes a dictionary with the keys {sorted(space.spaces)}.")
        return {name: checked_action(part, action[name], front) for name, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple) and not _multi_discrete(space):
        if not isinstance(action, tuple) or len(action) != len(space.spaces):
            raise UserValueError(f"action is {action!r}; it takes a tuple of {len(space.spaces)} parts.")
        return tuple(checked_action(part, leaf, front) for part, leaf in zip(space.spaces, action, strict=True))
    array = np.asarray(action)
    shape = front + ((len(space.spaces),) if isinstance(space, spaces.Tuple) else tuple(space.shape))
    if array.shape != shape:
        raise UserValueError(f"action has the shape {array.shape}; it takes {shape}, of {space!r}.")
    if isinstance(space, MultiDiscrete) and array.dtype.kind in "iu":
        if np.any(outside := (array < space.low) | (array > np.asarray(space.high))):
            raise UserValueError(f"action is {int(array[outside].flat[0])}; it takes a choice of {space!r}.")
        return array.astype(space.dtype)
    if isinstance(space, spaces.Box) and not isinstance(space, MultiDiscrete):
        return array.astype(space.dtype)
    if array.dtype.kind not in "iu":
        raise UserValueError(f"action has numbers of the type {array.dtype}; it takes whole numbers, of {space!r}.")
    most = np.asarray(_choices(space)) if isinstance(space, spaces.Tuple) else cast(Any, space).n
    # As unsigned numbers, negative ones exceed all others.
    highest = array.view(f"u{array.itemsize}").max(axis=tuple(range(len(front))), initial=0)
    if np.any(highest >= most):
        wrong = array[(array < 0) | (array >= most)]
        raise UserValueError(f"action is {int(wrong.flat[0])}; it takes a choice of {space!r}, from 0.")
    return array.astype(np.int32)


def settled(env: Any, params: Params, name: str) -> Any:
    """The parameters of an environment with one agent: concrete arrays of strong types.

    Args:
      env: Argument of the calling function.
      params: Parameters of the environment; None for the defaults.
      name: Name of the calling function, for the error messages.

    Raises:
      TypeError: `env` is not an environment, or `params` belong to another environment.
      ValueError: Parameters are out of range, or `env` has several agents.
    """
    if not isinstance(env, base.Environment):
        raise UserTypeError(f"{name} takes an environment, such as envs.make('cartpole'), got {type(env).__name__}.")
    params = known_params(env, params, name)
    obs, _ = jax.eval_shape(env.reset_env, jax.eval_shape(lambda: jax.random.key(0)), params)
    several = agent_axes(env.observation_space(params), obs)
    if several:
        raise UserValueError(
            f"{env.name} has {several[0]} agents, but Gymnasium's environments have one; {name} takes a "
            "single-agent environment, and as_pettingzoo adapts crowds."
        )
    return jax.tree.map(lambda leaf: np.asarray(jnp.asarray(leaf)), params)


def _multi_discrete(space: Any) -> bool:
    return (
        isinstance(space, spaces.Tuple)
        and bool(space.spaces)
        and all(isinstance(part, spaces.Discrete) for part in space.spaces)
    )


def _choices(space: Any) -> list[int]:
    return [part.n for part in space.spaces]
