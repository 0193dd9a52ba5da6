"""Learners of theta: evolution strategies, and ascent along derivatives."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from jaxrl.algorithms.strategies import Strategy
from jaxrl.pytrees import PyTree, State
from jaxrl.tuning.outer.fitness import constant, fitness_of
from jaxrl.tuning.outer.inner_task import Outcome

__all__ = ["Ascent", "Evolution", "Learner", "OuterHParams"]


class OuterHParams(NamedTuple):
    """Hyper-parameters of an evolution strategy.

    Attributes:
      lr: Step size of its optimiser.
      std: Standard deviation of a population around its mean.
      std_decay: Factor of the standard deviation per generation.
    """

    lr: float
    std: float
    std_decay: float


class Learner(Protocol):
    """A learner of theta in one outer run; all functions but `lessons` and `check` are pure, to be vmapped.

    Attributes:
      members: Number of thetas of a generation.
    """

    members: int

    def begin(self, key: jax.Array, initial: PyTree) -> Any:
        """State before the first generation."""
        ...

    def ask(self, key: jax.Array, state: State) -> tuple[Any, Any]:
        """Thetas of a generation, leaves `[members, ...]`, and the state after it."""
        ...

    def lessons(self, outcome: Outcome) -> np.ndarray:
        """Argument of `tell` from outcomes `[members, num_trainings]`, each column with one task and seed."""
        ...

    def tell(self, key: jax.Array, thetas: PyTree, lessons: jax.Array, state: State) -> Any:
        """State after the outcomes of a generation."""
        ...

    def solution(self, state: State) -> Any:
        """The learned theta."""
        ...

    def check(self, outcome: Outcome) -> str | None:
        """Reason why nothing can be learned from outcomes `[num_seeds, members, num_trainings]`; None if it can."""
        ...


class Evolution:
    """An evolution strategy of evosax.

    Args:
      strategy: Strategy on the structure of theta.
      hparams: Hyper-parameters of the strategy.
      members: Number of thetas of a generation.
      shaping: Name of the shaping of fitness, see `fitness.fitness_of`.
    """

    def __init__(self, strategy: Strategy, hparams: OuterHParams, members: int, shaping: str) -> None:
        self.members = members
        self._strategy, self._hparams, self._shaping = strategy, hparams, shaping

    def begin(self, key: jax.Array, initial: PyTree) -> Any:
        return self._strategy.init(key, initial, None, None, self._hparams)

    def ask(self, key: jax.Array, state: State) -> tuple[Any, Any]:
        return self._strategy.ask(key, state, self._hparams)

    def lessons(self, outcome: Outcome) -> np.ndarray:
        return fitness_of(outcome.value, self._shaping)

    def tell(self, key: jax.Array, thetas: PyTree, lessons: jax.Array, state: State) -> Any:
        return self._strategy.tell(key, thetas, lessons, state, self._hparams)

    def solution(self, state: State) -> Any:
        return self._strategy.solution(state)

    def check(self, outcome: Outcome) -> str | None:
        if not all(map(constant, outcome.value)):
            return None
        return (
            f"the objective must tell thetas apart, got equal values for all {self.members} members of the first "
            f"generation, such as {outcome.value.flat[0]:g}: raise inner_steps or std"
        )


class Ascent:
    """Ascent by Adam along the mean of the derivatives of a generation, whose one member is theta itself.

    Args:
      lr: Step size of Adam.
    """

    members = 1

    def __init__(self, lr: float) -> None:
        self._adam = optax.adam(lr)

    def begin(self, key: jax.Array, initial: PyTree) -> Any:
        del key
        return initial, self._adam.init(initial)

    def ask(self, key: jax.Array, state: State) -> tuple[Any, Any]:
        del key
        return jax.tree.map(lambda leaf: leaf[None], state[0]), state

    def lessons(self, outcome: Outcome) -> np.ndarray:
        gradient = outcome.gradient[0]
        sound = np.isfinite(outcome.value[0])
        total = gradient.sum(axis=0, where=sound[:, None], dtype=np.float64)
        return (total / max(int(sound.sum()), 1)).astype(np.float32)

    def tell(self, key: jax.Array, thetas: PyTree, lessons: jax.Array, state: State) -> Any:
        del key, thetas
        theta, moments = state
        downhill = ravel_pytree(theta)[1](-lessons)
        updates, moments = self._adam.update(downhill, moments, theta)
        return optax.apply_updates(theta, updates), moments

    def solution(self, state: State) -> Any:
        return jax.tree.map(jnp.asarray, state[0])

    def check(self, outcome: Outcome) -> str | None:
        sound = np.isfinite(outcome.value)[..., None]
        if np.any(np.where(sound, outcome.gradient, 0.0) != 0):
            return None
        return (
            "the objective must have derivatives by theta for strategy='gradient', got 0 for all of them; "
            "strategy='open-es' needs none"
        )
