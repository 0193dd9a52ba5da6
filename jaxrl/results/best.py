"""The policy of the best evaluation of each run, beside the last one."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl.pytrees import Policy

KEPT = ("last", "best")  # policies that a result can hold of a run
PREFIX = "best:"  # of the names of the arrays in `policies.npz`

__all__ = ["KEPT", "PREFIX", "Best", "Kept", "better", "unmeasured"]


class Best(NamedTuple):
    """The policy of the best evaluation of a run, the earliest of equal ones; leaves `[num_settings, num_seeds, ...]`.

    A maximum over noisy evaluations is biased: `return_then` is too high by chance, which `return_again` is not.

    Attributes:
      policy: Policy.
      iteration: Number of iterations before its evaluation, int32.
      return_then: Its return in that evaluation, float32; -inf where no evaluation was finite.
      return_again: Its return in a further evaluation at the end of training with other keys, float32; NaN where there
        was none, such as after a signal.
      return_of_last: Return of the last policy in the same episodes.
    """

    policy: Policy
    iteration: Any
    return_then: Any
    return_again: Any
    return_of_last: Any


class Kept(NamedTuple):
    """Policies that a result keeps of a run: the last one, and the best one."""

    last: Policy
    best: Best


def unmeasured(policy: Policy) -> Best:
    """The best policy of one run before the first evaluation, which any finite return replaces."""
    nothing = jnp.full((), jnp.nan)
    return Best(policy, jnp.zeros((), jnp.int32), jnp.full((), -jnp.inf), nothing, nothing)


def better(best: Best, policy: Policy, value: jax.Array, iteration: jax.Array) -> Best:
    """The best policy of one run after another evaluation.

    Args:
      best: Best policy so far.
      policy: Policy that was evaluated.
      value: Its return, float32 `[]`; NaN for a failed run, which is never better.
      iteration: Number of iterations before, int32 `[]`.
    """
    new = best._replace(policy=policy, iteration=jnp.asarray(iteration, jnp.int32), return_then=value)
    return jax.tree.map(lambda one, other: jnp.where(value > best.return_then, one, other), new, best)
