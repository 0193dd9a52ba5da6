"""Exact choosers in small trees of decisions, by enumeration in float64: precommitted, naive, sophisticated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

Rewards = tuple[tuple[int, float], ...]

__all__ = [
    "Branch",
    "Chosen",
    "Decision",
    "naive",
    "own_heads",
    "plans",
    "precommitted",
    "sophisticated",
    "value_of",
    "walk",
]


class Branch(NamedTuple):
    """One action of a decision.

    Attributes:
      name: Name of the action.
      rewards: Pairs of a delay, in steps from the decision, and a reward, up to the next decision.
      after: Delay of the next decision, in steps.
      then: Next decision, None where there is none.
    """

    name: str
    rewards: Rewards
    after: int = 0
    then: Decision | None = None


class Decision(NamedTuple):
    """A decision in a deterministic task.

    Attributes:
      index: Position of the decision among those of the task.
      branches: Branches, one for each action.
    """

    index: int  # pyright: ignore[reportIncompatibleMethodOverride]
    branches: tuple[Branch, ...]


class Chosen(NamedTuple):
    """Behaviour of a chooser.

    Attributes:
      path: Actions that it takes, one for each decision on its way.
      value: Value of the path under the discount, from the first decision.
      believed: Value that the chooser assigns to its first action when it takes it.
    """

    path: tuple[int, ...]
    value: float
    believed: float


def precommitted(first: Decision, curve: np.ndarray) -> Chosen:
    """The chooser that keeps to the plan that is best at the first decision.

    Args:
      first: First decision.
      curve: Discount curve, Gamma(0), Gamma(1), ..., float64 `[T]`.
    """
    path = _best_plan(first, curve)
    value = float(value_of(first, curve, path))
    return Chosen(path, value, value)


def naive(first: Decision, curve: np.ndarray) -> Chosen:
    """The chooser that begins the best plan at every decision, as if it would keep to it; arguments as above."""
    path = walk(first, lambda decision: _best_plan(decision, curve)[0])
    return Chosen(path, float(value_of(first, curve, path)), precommitted(first, curve).value)


def sophisticated(first: Decision, curve: np.ndarray) -> Chosen:
    """The chooser that foresees its later choices, by backward induction; arguments as above."""

    def choose(decision: Decision) -> int:
        return int(np.argmax([value_of(decision, curve, path) for path in followed(decision)]))

    def followed(decision: Decision) -> list[tuple[int, ...]]:
        """The path behind each action, with its own choices later."""
        return [
            (action, *(() if branch.then is None else walk(branch.then, choose)))
            for action, branch in enumerate(decision.branches)
        ]

    path = walk(first, choose)
    value = float(value_of(first, curve, path))
    return Chosen(path, value, value)


def own_heads(first: Decision, curve: np.ndarray, rates: np.ndarray, weights: np.ndarray) -> Chosen:
    """The chooser that adds up values of several rates, each of which assumes the plan that is best for itself.

    Args:
      first: First decision.
      curve: Discount curve that the value of the path is measured by, float64 `[T]`.
      rates, weights: Rates and weights of the mixture that it acts by, `[K]`.
    """

    def values(decision: Decision) -> np.ndarray:
        powers = rates ** np.arange(len(curve))[:, None]
        best = np.full((len(decision.branches), len(rates)), -np.inf)
        for path in plans(decision):
            best[path[0]] = np.maximum(best[path[0]], value_of(decision, powers, path))
        return best @ weights

    path = walk(first, lambda decision: int(np.argmax(values(decision))))
    return Chosen(path, float(value_of(first, curve, path)), float(np.max(values(first))))


def walk(first: Decision, choose: Callable[[Decision], int]) -> tuple[int, ...]:
    """The actions of a policy `(decision) -> action`, one for each decision on its way."""
    path: list[int] = []
    decision: Decision | None = first
    while decision is not None:
        path.append(choose(decision))
        decision = decision.branches[path[-1]].then
    return tuple(path)


def value_of(first: Decision, curve: np.ndarray, path: tuple[int, ...]) -> Any:
    """The value of a path from its first decision on.

    Args:
      first: First decision.
      curve: Discount curve `[T]`, or several, `[T, K]`.
      path: Actions, one for each decision on the way.

    Returns:
      float64 `[]` or `[K]`.
    """
    return sum((curve[delay] * reward for delay, reward in _rewards(first, path)), start=np.zeros(curve.shape[1:]))


def plans(decision: Decision) -> Iterator[tuple[int, ...]]:
    """All paths from a decision to the end."""
    for action, branch in enumerate(decision.branches):
        for rest in ((),) if branch.then is None else plans(branch.then):
            yield (action, *rest)


def _rewards(decision: Decision, path: tuple[int, ...]) -> Rewards:
    branch = decision.branches[path[0]]
    if branch.then is None:
        return branch.rewards
    later = _rewards(branch.then, path[1:])
    return (*branch.rewards, *((branch.after + delay, reward) for delay, reward in later))


def _best_plan(decision: Decision, curve: np.ndarray) -> tuple[int, ...]:
    return max(plans(decision), key=lambda path: value_of(decision, curve, path))
