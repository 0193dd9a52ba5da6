"""The optimiser of all algorithms that follow gradients, and schedules: factors by number of environment steps."""

from typing import Any

import chex
import jax
import jax.numpy as jnp
import optax

from jaxrl.pytrees import HParams

__all__ = ["adam", "linear_share", "tenth_share"]


def adam(hparams: HParams, lr: Any) -> optax.GradientTransformation:
    """Adam with gradients clipped by their global norm.

    It runs on one long vector instead of many small arrays: a third of the operations of a minibatch on a CPU.

    Args:
      hparams: Hyper-parameters with `max_grad_norm`, `adam_b1`, `adam_b2` and `adam_eps`, traced.
      lr: Step size, `[]`, traced.
    """
    return optax.flatten(
        optax.chain(
            optax.clip_by_global_norm(hparams.max_grad_norm),
            optax.scale_by_adam(hparams.adam_b1, hparams.adam_b2, hparams.adam_eps),
            optax.scale_by_learning_rate(lr),
        )
    )


def linear_share(env_steps: jax.Array, end: Any, anneal_env_steps: Any) -> jax.Array:
    """Factor that falls linearly from 1 to `end`, and stays there.

    Args:
      env_steps: Number of environment steps so far, `[]`, traced.
      end: Final factor, `[]`, traced.
      anneal_env_steps: Number of environment steps over which the factor falls, `[]`, traced; infinity keeps 1.
    """
    chex.assert_rank([env_steps, end, anneal_env_steps], 0, custom_message="env_steps, end, anneal_env_steps")
    return 1 + (end - 1) * jnp.minimum(env_steps / anneal_env_steps, 1.0)


def tenth_share(env_steps: jax.Array, decay_env_steps: Any) -> jax.Array:
    """Factor that falls exponentially from 1.

    Args:
      env_steps: Number of environment steps so far, `[]`, traced.
      decay_env_steps: Number of environment steps in which the factor falls to a tenth, `[]`, traced; infinity keeps 1.
    """
    chex.assert_rank([env_steps, decay_env_steps], 0, custom_message="env_steps, decay_env_steps")
    return 0.1 ** (env_steps / decay_env_steps)
