"""Resets and steps that other processes import by name."""

from typing import Any

import jax
import jax.numpy as jnp


def reset(key: jax.Array) -> Any:
    """A level of 0."""
    del key
    return jnp.zeros(1), jnp.float32(0)


def step(key: jax.Array, level: jax.Array, action: jax.Array) -> Any:
    """The level rises by 0.1 with the action 1, and ends an episode above 0.65."""
    del key
    level = level + 0.1 * action
    return level[None], level, level, level > 0.65


def leaky_reset(key: jax.Array, params: Any) -> Any:
    """A level of 0."""
    del params
    return reset(key)


def leaky_step(key: jax.Array, level: jax.Array, action: jax.Array, params: Any) -> Any:
    """The level loses the share `leak` and gains `gain` with the action 1."""
    del key
    level = (1 - params.leak) * level + params.gain * action
    return level[None], level, level, level > 5


def allowed(level: jax.Array, params: Any) -> jax.Array:
    """The action 1 above a level of 0 only."""
    del params
    return jnp.array([True, False]) | jnp.array([False, True]) & (level > 0)
