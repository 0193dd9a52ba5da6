"""Beta and gamma variates, from which bandits draw their instances too, and computations done only if needed."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from envs.bandits.variates import beta, gamma

__all__ = ["beta", "gamma", "once_if"]


def once_if(needed: jax.Array, body: Callable[[jax.Array, jax.Array], jax.Array], value: jax.Array) -> jax.Array:
    """The value of `body` if needed, else the value unchanged.

    A loop of one iteration or none. Under `vmap` it takes none if no lane needs one, where a
    condition would always compute both branches. The body receives the index of the iteration, uint32 0, and its
    results must depend on that, or they would be computed ahead of the loop.
    """
    carry = (jnp.zeros((), jnp.uint32), value)
    return jax.lax.while_loop(
        lambda carry: needed & (carry[0] == 0), lambda carry: (carry[0] + 1, body(carry[1], carry[0])), carry
    )[1]
