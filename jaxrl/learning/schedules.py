"""Schedules: the share of a number that is in force after so many environment steps."""

from typing import Any

import chex
import jax
import jax.numpy as jnp

__all__ = ["linear_share", "tenth_share"]


def linear_share(env_steps: jax.Array, end: Any, anneal_env_steps: Any) -> jax.Array:
    """The share of a number that falls linearly from 1 to `end`, and stays there.

    Args:
      env_steps: Environment steps so far, `[]`, traced.
      end: Share at the end, `[]`, traced.
      anneal_env_steps: Environment steps over which it falls, `[]`, traced; infinite keeps 1.
    """
    chex.assert_rank([env_steps, end, anneal_env_steps], 0, custom_message="env_steps, end, anneal_env_steps")
    return 1 + (end - 1) * jnp.minimum(env_steps / anneal_env_steps, 1.0)


def tenth_share(env_steps: jax.Array, decay_env_steps: Any) -> jax.Array:
    """The share of a number that falls exponentially.

    Args:
      env_steps: Environment steps so far, `[]`, traced.
      decay_env_steps: Environment steps in which it falls to a tenth, `[]`, traced; infinite keeps 1.
    """
    chex.assert_rank([env_steps, decay_env_steps], 0, custom_message="env_steps, decay_env_steps")
    return 0.1 ** (env_steps / decay_env_steps)
