"""Beta and gamma variates, which the bandits draw their instances from too, and work that is done only if needed."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from envs.bandits.variates import beta, gamma

__all__ = ["beta", "gamma", "once_if"]


def once_if(needed: jax.Array, body: Callable[[jax.Array, jax.Array], jax.Array], value: jax.Array) -> jax.Array:
    """What the body makes of a value if needed, else the value.

    A loop of one turn or none, which under `vmap` takes none if no lane needs one, where a
    condition would always take both branches. The body is given the turn, uint32 0, and what it
    computes must follow from that, or it would be computed ahead of the loop.
    """
    carry = (jnp.zeros((), jnp.uint32), value)
    return jax.lax.while_loop(
        lambda carry: needed & (carry[0] == 0), lambda carry: (carry[0] + 1, body(carry[1], carry[0])), carry
    )[1]
