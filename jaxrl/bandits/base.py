"""The interface of bandit policies: a name, requirements on the bandit, and four pure functions."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from envs.bandits.batched_last import first_highest
from jaxrl.pytrees import EnvParams, HParams

__all__ = ["BanditAlgorithm", "Task", "View", "argmax", "masked"]

State = Any


class Task(NamedTuple):
    """The static properties of a bandit that a policy may know.

    Attributes:
      num_arms: Number of arms, K.
      num_features: Number of features of each arm, d; 0 without contexts.
      env: Bandit, for policies that plan with a known model; those that learn do not use it.
    """

    num_arms: int
    num_features: int
    env: Any


class View(NamedTuple):
    """The information that a policy has before a pull.

    Attributes:
      time: Number of pulls so far, int32 `[]`; 0 before the first.
      horizon: Number of pulls of the whole run, int32 `[]`.
      mask: Arms that may be pulled, bool `[K]`; None for all.
      context: Context shown by the bandit: None, or features float32 `[K, d]`; for a restless bandit the known states
        of the arms.
      params: Parameters of the bandit.
    """

    time: jax.Array
    horizon: jax.Array
    mask: jax.Array | None
    context: Any
    params: EnvParams


class BanditAlgorithm(NamedTuple):
    """A policy for bandits, ready for `run_bandit`; its functions are pure and apply to one run.

    Attributes:
      name: Name on the command line, in lower case.
      hparams: Default hyper-parameters, a `flax.struct` dataclass of scalars, traced.
      init: Function `(key, task, params, hparams) -> State`, called before the first pull; `task` is static,
        `params` are the bandit's parameters, for a restless bandit including the instance.
      choose: Function `(key, State, View, hparams) -> action`, int32 `[]`, or in the form that the bandit takes.
      update: Function `(State, View, action, reward, hparams) -> State`, called for each reward that arrives; the view
        is the one before the pull, or a later one for a delayed reward.
      recommend: Function `(State, hparams) -> arm`, int32 `[]`, the arm that the policy considers the best.
      check: Function `(task) -> None` that raises ValueError with one sentence for an unsuitable bandit.
      measure: Function `(State) -> {name: []}` that returns metrics of the policy itself at each checkpoint.
    """

    name: str
    hparams: HParams
    init: Callable[..., State]
    choose: Callable[..., jax.Array]
    update: Callable[..., State]
    recommend: Callable[..., jax.Array]
    check: Callable[[Task], None]
    measure: Callable[[State], dict[str, jax.Array]] = lambda state: {}

    def __repr__(self) -> str:
        return f"BanditAlgorithm({self.name}; {self.hparams!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Builder of `jaxrl.bandits` and the hyper-parameters, for pickle; the parts of any other policy."""
        builder = getattr(importlib.import_module("jaxrl.bandits"), self.name.replace("-", "_"), None)
        if builder is not None and self == builder()._replace(hparams=self.hparams):
            return _unpickled, (builder, self.hparams)
        return BanditAlgorithm, tuple(self)


def _unpickled(builder: Callable[[], BanditAlgorithm], hparams: HParams) -> BanditAlgorithm:
    return builder()._replace(hparams=hparams)


def argmax(index: jax.Array, mask: jax.Array | None = None) -> jax.Array:
    """The first arm with the highest index among those that may be pulled: int32 `[]`."""
    return first_highest(masked(index, mask))


def masked(index: jax.Array, mask: jax.Array | None) -> jax.Array:
    """The indices, -inf for arms that may not be pulled."""
    return index if mask is None else jnp.where(mask, index, -jnp.inf)
