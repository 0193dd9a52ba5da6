"""Exact values of small decision problems over a number of steps, under any discount, in float64."""

import heapq
from typing import NamedTuple

import numpy as np

__all__ = ["FiniteProblem", "Plan", "precommitted", "sophisticated", "stationary", "value"]

MOST_BOUNDS = 5000
TIE = 1e-12  # part of the highest score of a state within which another action counts as equally good
_ROUNDING = 8 * np.finfo(np.float64).eps  # of scores of any state, relative to the largest of a step


class FiniteProblem(NamedTuple):
    """A decision problem with finitely many states, the same in every step.

    Attributes:
      rewards: Expected reward of an action in a state, float64 `[S, A]`.
      allowed: Whether the action is allowed, bool `[S, A]`; at least one is in each state.
      successors: Possible next states, int `[S, A, N]`.
      probabilities: Probabilities of the next states, float64 `[S, A, N]`; with the rest to 1 the episode ends.
      start: Probabilities of the first state, float64 `[S]`.
    """

    rewards: np.ndarray
    allowed: np.ndarray
    successors: np.ndarray
    probabilities: np.ndarray
    start: np.ndarray


class Plan(NamedTuple):
    """A policy that may depend on the time, with its value.

    Attributes:
      value: Expected sum of the rewards of an episode, weighted from its start.
      actions: Action in each step and state, int `[T, S]`.
    """

    value: float
    actions: np.ndarray


def precommitted(problem: FiniteProblem, curve: np.ndarray) -> Plan:
    """The best policy for the first step, which may depend on the time: backward induction with stage weights.

    Args:
      problem: Decision problem.
      curve: Weight of the reward of each step, Gamma(0), ..., Gamma(T - 1), float64 `[T]`.
    """
    values = np.zeros(len(problem.start))
    actions = np.zeros((len(curve), len(problem.start)), int)
    for step in reversed(range(len(curve))):
        scores = curve[step] * problem.rewards + _next(problem, values)
        actions[step] = _best(problem, scores)
        values = np.take_along_axis(scores, actions[step][:, None], 1)[:, 0]
    return Plan(float(problem.start @ values), actions)


def sophisticated(problem: FiniteProblem, curve: np.ndarray) -> Plan:
    """The policy of which no change of a single step pays, where each step weighs the rewards from itself on.

    Backward induction with the expected reward at every later lag. Of equally good actions, the first one counts.

    Args:
      problem, curve: See `precommitted`.

    Returns:
      The policy; its value is weighted from the start of the episode.
    """
    states = np.arange(len(problem.start))
    expected = np.zeros((0, len(states)))  # reward at each lag from the next step on, [lags, S]
    actions = np.zeros((len(curve), len(states)), int)
    for step in reversed(range(len(curve))):
        later = curve[1 : 1 + len(expected)] @ expected
        actions[step] = _best(problem, curve[0] * problem.rewards + _next(problem, later))
        chosen = states, actions[step]
        moved = np.einsum("lsn,sn->ls", expected[:, problem.successors[chosen]], problem.probabilities[chosen])
        expected = np.concatenate([problem.rewards[chosen][None], moved])
    return Plan(float(curve @ expected @ problem.start), actions)


def stationary(problem: FiniteProblem, curve: np.ndarray) -> Plan | None:
    """The best policy that maps states to actions whatever the time, by branch and bound.

    A bound is the precommitted value under some of the actions. Where the policy of the highest bound takes several
    actions in a state, one branch keeps the lower ones and another the higher ones.

    Args:
      problem, curve: See `precommitted`.

    Returns:
      The policy, without randomness; None if `MOST_BOUNDS` bounds do not suffice.
    """
    best = precommitted(problem, curve)
    bounds = [(-best.value, 0, best, problem)]
    for number in range(1, MOST_BOUNDS, 2):
        _, _, best, part = heapq.heappop(bounds)
        taken = _taken(part, best)
        several = np.flatnonzero(np.count_nonzero(taken, axis=1) > 1)
        if not several.size:
            policy = np.where(taken.any(axis=1), taken.argmax(axis=1), best.actions[0])
            return Plan(value(problem, curve, policy), np.tile(policy, (len(curve), 1)))
        state = several[np.argmax(taken[several].sum(axis=1) - taken[several].max(axis=1))]
        usual, highest = taken[state].argmax(), np.flatnonzero(taken[state])[-1]
        lower = np.arange(taken.shape[1]) < (usual if usual == highest else usual + 1)
        for branch, kept in enumerate((lower, ~lower)):
            allowed = part.allowed.copy()
            allowed[state] &= kept
            smaller = part._replace(allowed=allowed)
            bound = precommitted(smaller, curve)
            heapq.heappush(bounds, (-bound.value, number + branch, bound, smaller))
    return None


def value(problem: FiniteProblem, curve: np.ndarray, policy: np.ndarray) -> float:
    """The weighted return of a policy, int `[S]` or `[T, S]`, by the probabilities of the states in each step."""
    states, reached, total = np.arange(len(problem.start)), problem.start, 0.0
    for weight, actions in zip(curve, np.broadcast_to(policy, (len(curve), len(states))), strict=True):
        total += weight * (reached @ problem.rewards[states, actions])
        reached = _moved(problem, reached, actions)
    return float(total)


def _taken(problem: FiniteProblem, plan: Plan) -> np.ndarray:
    """The expected number of times that a policy takes each action in each state, `[S, A]`."""
    states, reached, taken = np.arange(len(problem.start)), problem.start, np.zeros(problem.rewards.shape)
    for actions in plan.actions:
        taken[states, actions] += reached
        reached = _moved(problem, reached, actions)
    return taken


def _moved(problem: FiniteProblem, reached: np.ndarray, actions: np.ndarray) -> np.ndarray:
    chosen = np.arange(len(reached)), actions
    flow = reached[:, None] * problem.probabilities[chosen]
    return np.bincount(problem.successors[chosen].ravel(), flow.ravel(), len(reached))


def _next(problem: FiniteProblem, values: np.ndarray) -> np.ndarray:
    return np.einsum("san,san->sa", problem.probabilities, values[problem.successors])


def _best(problem: FiniteProblem, scores: np.ndarray) -> np.ndarray:
    """The first of the allowed actions whose scores are the highest, to rounding, whatever the size of weights."""
    largest = np.abs(scores[problem.allowed]).max()
    scores = np.where(problem.allowed, scores, -np.inf)
    highest = scores.max(axis=1, keepdims=True)
    return np.argmax(scores >= highest - TIE * np.abs(highest) - _ROUNDING * largest, axis=1)
