"""Probabilities of discrete actions, of any actor that has log-probabilities."""

from typing import Any

import jax
import jax.numpy as jnp

from envs.base import Environment, spaces
from envs.choices import choice_sizes
from jaxrl.learning.actor import Actor, Scores
from jaxrl.pytrees import Mask, Memory

__all__ = ["has_probabilities", "probabilities"]


def has_probabilities(env: Environment, actor: Actor) -> bool:
    """Whether an actor has probabilities of actions: those of one choice or of several."""
    return actor.log_prob is not None and bool(choice_sizes(env.action_space(env.default_params)))


def probabilities(env: Environment, actor: Actor, scores: Scores, memory: Memory, mask: Mask) -> Any:
    """Probabilities of all actions when they are sampled, `[*B, num_actions]`.

    Args:
      env: Environment with discrete actions, of which an actor chooses several independently.
      actor: Actor with log-probabilities.
      scores: Scores of the actions, `{name: [*B, ...]}`.
      memory: Memory by which the scores were computed, leaves `[*B, ...]`.
      mask: Action mask, or None.

    Returns:
      Array `[*B, num_actions]` that sums to 1 over the last axis; for several choices, a tuple with one for each.
    """
    assert actor.log_prob is not None
    log_prob = actor.log_prob
    best = actor.choose(None, scores, memory, True, mask)[1]

    def over(size: int, index: int | None) -> jax.Array:
        def of_choice(choice: jax.Array) -> jax.Array:
            raw = jnp.full_like(best, choice) if index is None else best.at[..., index].set(choice)
            return log_prob(scores, mask, raw)

        logs = jnp.moveaxis(jax.vmap(of_choice)(jnp.arange(size, dtype=best.dtype)), 0, -1)
        # The other parts keep their most likely choices, whose share is a constant that the normalisation removes.
        return jnp.exp(logs) if index is None else jax.nn.softmax(logs, axis=-1)

    space = env.action_space(env.default_params)
    if isinstance(space, spaces.Discrete):
        return over(space.n, None)
    return tuple(over(size, index) for index, size in enumerate(choice_sizes(space)))
