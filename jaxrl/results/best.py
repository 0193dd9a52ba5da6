"""The policy of the best evaluation of each run, beside the last one."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.pytrees import Policy

KEPT = ("last", "best")  # policies that a result can hold of a run
PREFIX = "best:"  # of the names of the arrays in `policies.npz`

__all__ = ["KEPT", "PREFIX", "Best", "Kept", "better", "complete", "unevaluated"]


class Best(NamedTuple):
    """The policy of the best evaluation of a run, the earliest of equal ones; leaves `[num_settings, num_seeds, ...]`.

    A maximum over noisy evaluations is biased: `return_then` is too high by chance, which `return_again` is not.

    Attributes:
      policy: Policy.
      iteration: Number of iterations before its evaluation, int32.
      return_then: Its return in that evaluation, float32; -inf where no evaluation was finite.
      return_again: Its return in a further evaluation at the end of training with other keys, float32; NaN where there
        was none, such as after a signal, and where no evaluation was finite. None in the state of a run, as is
        `return_of_last`.
      return_of_last: Return of the last policy in the same episodes; NaN if its parameters are.
    """

    policy: Policy
    iteration: Any
    return_then: Any
    return_again: Any = None
    return_of_last: Any = None

    def __repr__(self) -> str:
        returns = {name: getattr(self, name) for name in ("return_then", "return_again", "return_of_last")}
        numbers = ", ".join(f"{name}={value}" for name, value in {"iteration": self.iteration, **returns}.items())
        return f"Best({numbers}; policy of {len(jax.tree.leaves(self.policy))} arrays)"


class Kept(NamedTuple):
    """Policies that a result keeps of a run: the last one, and the best one, None where only the last one is kept."""

    last: Policy
    best: Best | None


def unevaluated(policy: Policy) -> Best:
    """The best policy of one run before the first evaluation, which any finite return replaces."""
    return Best(policy, jnp.zeros((), jnp.int32), jnp.full((), -jnp.inf))


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


def complete(policies: Policy) -> Kept:
    """Policies of a result, in which returns of a further evaluation are NaN where there was none.

    Args:
      policies: `Kept`, or the last policies alone; leaves `[num_settings, num_seeds, ...]`.
    """
    if not isinstance(policies, Kept):
        return Kept(policies, None)
    best = policies.best
    if best is None or best.return_again is not None:
        return policies
    nothing = np.full(np.shape(best.return_then), np.nan, np.float32)
    return policies._replace(best=best._replace(return_again=nothing, return_of_last=nothing))
