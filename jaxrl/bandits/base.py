"""What a bandit policy is: a name, what it needs to know of a bandit, and four pure functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from envs.bandits.lanes import first_highest

__all__ = ["BanditAlgorithm", "Task", "View", "argmax"]

State = Any


class Task(NamedTuple):
    """What is static about a bandit, as far as a policy may know it.

    Attributes:
      num_arms: K.
      num_features: d, of each arm's features; 0 without contexts.
      env: the bandit, for policies that plan with a known model; those that learn leave it alone.
    """

    num_arms: int
    num_features: int
    env: Any


class View(NamedTuple):
    """What a policy sees before a pull.

    Attributes:
      time: int32 `[]`, pulls so far; 0 before the first.
      horizon: int32 `[]`, pulls of the whole run.
      mask: bool `[K]`, the arms that may be pulled; None for all.
      context: what the bandit shows: None, or features float32 `[K, d]`; for a restless bandit
        what is known of the arms' states.
      params: the bandit's parameters.
    """

    time: jax.Array
    horizon: jax.Array
    mask: jax.Array | None
    context: Any
    params: Any


class BanditAlgorithm(NamedTuple):
    """A policy for bandits, ready for `run_bandit`; the functions are pure and of one run.

    Attributes:
      name: lower case, the name of the command line.
      hparams: the default hyper-parameters, a `flax.struct` dataclass of scalars, traced.
      init: `(key, task, params, hparams) -> State`, before the first pull; `task` is static,
        `params` are the bandit's, a restless bandit's with the instance in them.
      choose: `(key, State, View, hparams) -> action`, int32 `[]`, or as the bandit takes it.
      update: `(State, View, action, reward, hparams) -> State`, after a pull; the view is that
        of before it. Called for each reward that arrives; with a delay the view is one of later.
      recommend: `(State, hparams) -> arm`, int32 `[]`, the arm that it takes for the best.
      check: `(task) -> None`, raises ValueError with one sentence for a bandit that it cannot serve.
      measure: `(State) -> {name: []}`, what it says of itself at each checkpoint, as metrics.
    """

    name: str
    hparams: Any
    init: Callable[..., State]
    choose: Callable[..., jax.Array]
    update: Callable[..., State]
    recommend: Callable[..., jax.Array]
    check: Callable[[Task], None]
    measure: Callable[[State], dict[str, jax.Array]] = lambda state: {}

    def __repr__(self) -> str:
        return f"BanditAlgorithm({self.name}; {self.hparams!r})"


def argmax(index: jax.Array, mask: jax.Array | None = None) -> jax.Array:
    """The first of the arms with the highest index among those that may be pulled: int32 `[]`."""
    allowed = index if mask is None else jnp.where(mask, index, -jnp.inf)
    return first_highest(allowed)
