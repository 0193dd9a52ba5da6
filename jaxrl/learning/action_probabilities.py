"""Probabilities of discrete actions, of any actor that has log-probabilities."""

from typing import Any

import jax
import jax.numpy as jnp

from envs.base import Environment, spaces
from jaxrl.learning.actor import Actor, Scores
from jaxrl.pytrees import Memory

__all__ = ["has_probabilities", "probabilities"]


def has_probabilities(env: Environment, actor: Actor) -> bool:
    """Whether an actor has probabilities of actions: those of a `Discrete` space or of a `Tuple` of them."""
    space = env.action_space(env.default_params)
    parts = list(space.spaces) if isinstance(space, spaces.Tuple) else [space]
    return actor.log_prob is not None and all(isinstance(part, spaces.Discrete) for part in parts)


def probabilities(env: Environment, actor: Actor, scores: Scores, memory: Memory, mask: Any) -> Any:
    """Probabilities of all actions when they are sampled, `[*B, num_actions]`.

    Args:
      env: Environment with a `Discrete` action space, or a `Tuple` of them, whose parts are independent.
      actor: Actor with log-probabilities.
      scores: Scores of the actions, `{name: [*B, ...]}`.
      memory: Memory by which the scores were computed, leaves `[*B, ...]`.
      mask: Action mask, or None.

    Returns:
      Array `[*B, num_actions]` that sums to 1 over the last axis; for a `Tuple`, one for each part.
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

    space: Any = env.action_space(env.default_params)
    if isinstance(space, spaces.Tuple):
        sizes = [part.n for part in space.spaces if isinstance(part, spaces.Discrete)]
        return tuple(over(size, index) for index, size in enumerate(sizes))
    return over(space.n, None)
