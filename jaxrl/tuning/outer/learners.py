"""Learners of theta: evolution strategies, and ascent along derivatives."""

from __future__ import annotations

import math
import numbers
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from envs.errors import UserValueError
from jaxrl.algorithms.strategies import Strategy, make_strategy
from jaxrl.checks import check_choice, check_count
from jaxrl.pytrees import PyTree, State
from jaxrl.tuning.learned.theta import Theta
from jaxrl.tuning.outer.fitness import SHAPINGS, constant, fitness_of
from jaxrl.tuning.outer.inner_task import Outcome

LR = 0.03  # of Adam on theta
POPULATION = 32
GRADIENT = "gradient"  # name of the strategy of `Ascent`
NONE_FINITE = "the objective must be finite, got nan for all trainings of the first generation: "

__all__ = ["GRADIENT", "Ascent", "Evolution", "Learner", "OuterHParams", "learner_of"]


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
        if not np.isfinite(outcome.value).any():
            return NONE_FINITE + "lower std, or start elsewhere"
        if not all(map(constant, outcome.value)):
            return None
        finite = outcome.value[np.isfinite(outcome.value)]
        return (
            f"the objective must tell thetas apart, got equal values for all {self.members} members of the first "
            f"generation, such as {finite[0]:g}: raise inner_steps or std"
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
        if not sound.any():
            return NONE_FINITE + "start elsewhere, or lower inner_steps"
        if np.any(np.where(sound, outcome.gradient, 0.0) != 0):
            return None
        return (
            "the objective must have derivatives by theta for strategy='gradient', got 0 for all of them; "
            "strategy='open-es' needs none"
        )


def learner_of(name: str, theta: Theta, values: dict[str, Any]) -> tuple[Learner, dict[str, Any]]:
    """Learner of a strategy, and its settings with defaults in place of None.

    Args:
      name: Name of the strategy, as in `jaxrl.meta`.
      theta: Theta.
      values: Arguments `population`, `lr`, `std`, `std_decay` and `shaping` of `jaxrl.meta`.

    Raises:
      ValueError: A setting is out of range, or has no effect on this strategy.
    """
    for each in ("lr", "std", "std_decay"):
        value = values[each]
        number = isinstance(value, numbers.Real) and not isinstance(value, bool)
        if value is not None and not (number and 0 < float(value) < math.inf):
            raise UserValueError(f"{each} must be a finite number above 0, got {value!r}")
    if values["shaping"] is not None:
        check_choice("shaping", values["shaping"], SHAPINGS)
    if values["population"] is not None:
        check_count("population", values["population"], 2)

    def refuse_without_effect(*names: str) -> None:
        for each in names:
            if values[each] is not None:
                raise UserValueError(f"{each} has no effect with strategy={name!r}; leave it out")

    if name == GRADIENT:
        refuse_without_effect("population", "std", "std_decay", "shaping")
        lr = LR if values["lr"] is None else values["lr"]
        return Ascent(lr), {"lr": lr}
    members = POPULATION if values["population"] is None else values["population"]
    try:
        strategy = make_strategy(name, members, theta.initial, raw=values["shaping"] == "raw")
    except UserValueError as error:
        raise UserValueError(str(error).replace("population_size=", "population=")) from error
    if strategy.evaluates_first:
        raise UserValueError(
            f"strategy must be 'gradient' or one with a mean, such as 'open-es', got {name!r}, without one"
        )
    has = {"lr": strategy.has_lr, "std": strategy.has_std, "std_decay": strategy.has_decay}
    refuse_without_effect(*(each for each, there in has.items() if not there))
    defaults = {
        "population": members,
        "lr": 1.0 if strategy.natural else LR,
        "std": 0.1,
        "std_decay": 1.0,
        "shaping": "ranks",
    }
    settings = {each: default if values[each] is None else values[each] for each, default in defaults.items()}
    hparams = OuterHParams(settings["lr"], settings["std"], settings["std_decay"])
    effective = {each: value for each, value in settings.items() if has.get(each, True)}
    return Evolution(strategy, hparams, members, settings["shaping"]), effective
