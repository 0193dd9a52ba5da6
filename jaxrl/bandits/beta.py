"""Beta and gamma variates, with which bandits also draw their instances, and conditional computation."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from envs.bandits.variates import beta, gamma

__all__ = ["beta", "gamma", "once_if"]


def once_if(needed: jax.Array, body: Callable[[jax.Array, jax.Array], jax.Array], value: jax.Array) -> jax.Array:
    """The result of `body` if needed, otherwise the value unchanged.

    It is a loop of at most one iteration. Under `vmap` it has no iteration if no lane needs one, whereas a condition
    would always compute both branches. The body receives the index of the iteration, uint32 0, and its results must
    depend on that, because they would otherwise be computed before the loop.
    """
    carry = (jnp.zeros((), jnp.uint32), value)
    return jax.lax.while_loop(
        lambda carry: needed & (carry[0] == 0), lambda carry: (carry[0] + 1, body(carry[1], carry[0])), carry
    )[1]
