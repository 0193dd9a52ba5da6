"""Observations of one agent, as the networks of all algorithms take them: their shapes, and whether they are scaled."""

from typing import Any

import jax
import jax.numpy as jnp

from envs.base import Environment
from envs.errors import UserValueError

SCALED_SLOTS = (
    "normalise_observation would scale every slot of 'neighbours' differently; "
    "use own_scale and neighbour_scale instead"
)

__all__ = ["SCALED_SLOTS", "check_normalised", "has_mask", "leading_axes", "observation_shapes", "zeros"]


def observation_shapes(env: Environment, agents: tuple[int, ...]) -> Any:
    """Shapes of the observation of one agent.

    Args:
      env: Environment with its default parameters.
      agents: Axes of its agents.
    """
    obs = jax.eval_shape(env.reset_env, jax.random.key(0), env.default_params)[0]
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[len(agents) :], leaf.dtype), obs)


def has_mask(env: Environment) -> bool:
    """Whether the environment forbids actions by a mask."""
    state = jax.eval_shape(env.reset_env, jax.random.key(0), env.default_params)[1]
    return jax.eval_shape(env.action_mask, state, env.default_params) is not None


def zeros(shapes: Any) -> Any:
    """Arrays of zeros, to initialise a network with."""
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


def leading_axes(obs: Any, shapes: Any) -> int:
    """Number of leading axes of observations, from the shapes of one."""
    return jax.tree.leaves(obs)[0].ndim - len(jax.tree.leaves(shapes)[0].shape)


def check_normalised(normalised: bool, shapes: Any) -> None:
    """Rejects `normalise_observation` for observations with neighbours, whose slots have no separate statistics.

    Args:
      normalised: Whether observations are normalised.
      shapes: Shapes of one observation.

    Raises:
      ValueError: Observations are normalised, and have the entry "neighbours".
    """
    if normalised and isinstance(shapes, dict) and "neighbours" in shapes:
        raise UserValueError(SCALED_SLOTS)
