"""Restless arms by policy iteration, and coupled bandits by enumeration: slow, in float64, from the definitions."""

import itertools
from collections.abc import Iterable, Sequence

import numpy as np

TIE = 1e-11
NARROW = 1e-6


def advantages(transitions: np.ndarray, rewards: np.ndarray, gamma: float, subsidy: float) -> np.ndarray:
    """Advantage of the active action, under the best policy for a subsidy, `[S]`, by policy iteration."""
    paid = rewards + np.asarray([subsidy, 0.0])[:, None]
    states = np.arange(paid.shape[1])
    pull = np.ones(len(states), int)
    while True:
        values = np.linalg.solve(np.eye(len(states)) - gamma * transitions[pull, states], paid[pull, states])
        quality = paid + gamma * transitions @ values
        better = quality[1 - pull, states] > quality[pull, states] + TIE
        if not better.any():
            return quality[1] - quality[0]
        pull = np.where(better, 1 - pull, pull)


def limits(rewards: np.ndarray, gamma: float) -> tuple[float, float]:
    """Bounds of all indices: beyond them the subsidy outweighs all later rewards."""
    most = 1 + 2 * np.ptp(rewards) / (1 - gamma)
    return -most, most


def is_indexable(transitions: np.ndarray, rewards: np.ndarray, gamma: float) -> bool:
    """Whether the number of states that are left alone only grows with the subsidy.

    A policy that is best at two subsidies is best between them, the values being convex; so
    intervals are halved until the policy is the same at both ends, or they are as good as points.
    """

    def alone(subsidy: float) -> tuple[bool, ...]:
        return tuple(advantages(transitions, rewards, gamma, subsidy) < 0)

    def passing(low: float, high: float, at_low: tuple, at_high: tuple) -> Iterable[tuple]:
        if at_low != at_high and high - low > NARROW:
            middle = (low + high) / 2
            at_middle = alone(middle)
            yield from passing(low, middle, at_low, at_middle)
            yield from passing(middle, high, at_middle, at_high)
        else:
            yield at_low
            yield at_high

    low, high = limits(rewards, gamma)
    sets = list(passing(low, high, alone(low), alone(high)))
    return all(after[s] for before, after in itertools.pairwise(sets) for s in range(len(before)) if before[s])


def whittle_index(transitions: np.ndarray, rewards: np.ndarray, gamma: float) -> np.ndarray:
    """Whittle index of every state of an indexable arm, `[S]`: the root of its advantage, by bisection."""
    index = []
    for state in range(rewards.shape[1]):
        low, high = limits(rewards, gamma)
        while high - low > NARROW:
            middle = (low + high) / 2
            pulled = advantages(transitions, rewards, gamma, middle)[state] > 0
            low, high = (middle, high) if pulled else (low, middle)
        index.append((low + high) / 2)
    return np.asarray(index)


# --- allowed joint actions, by their effects on each arm ------------------------------------


def within_budget(num_arms: int, budget: int) -> set[tuple[int, ...]]:
    return {pulled for pulled in itertools.product((0, 1), repeat=num_arms) if sum(pulled) <= budget}


def interventions(reach: Sequence[Sequence[int]], budget: int, num_levels: int) -> set[tuple[int, ...]]:
    allowed = set()
    for size in range(budget + 1):
        for chosen in itertools.combinations(reach, size):
            allowed.add(tuple(min(sum(row[arm] for row in chosen), num_levels) for arm in range(len(reach[0]))))
    return allowed


def matchings(edges: Sequence[Sequence[int]]) -> set[tuple[int, ...]]:
    num_workers, num_arms = len(edges), len(edges[0])
    allowed = set()
    # Each worker goes to an arm, or stays at home, which is number num_arms.
    for places in itertools.product(range(num_arms + 1), repeat=num_workers):
        busy = [(worker, arm) for worker, arm in enumerate(places) if arm < num_arms]
        if len({arm for _, arm in busy}) == len(busy) and all(edges[worker][arm] for worker, arm in busy):
            allowed.add(tuple({arm: worker + 1 for worker, arm in busy}.get(arm, 0) for arm in range(num_arms)))
    return allowed


def within_capacity(costs: Sequence[int], capacities: Sequence[int]) -> set[tuple[int, ...]]:
    allowed = set()
    for workers in itertools.product(range(len(capacities) + 1), repeat=len(costs)):
        spent = [
            sum(cost for cost, by in zip(costs, workers, strict=True) if by == w + 1) for w in range(len(capacities))
        ]
        if all(hours <= capacity for hours, capacity in zip(spent, capacities, strict=True)):
            allowed.add(workers)
    return allowed


def paths(neighbours: Sequence[Sequence[int]], length: int) -> set[tuple[int, ...]]:
    num_arms = len(neighbours)
    walks = [(start,) for start in range(num_arms)]
    for _ in range(length - 1):
        walks = [
            (*walk, arm) for walk in walks for arm in range(num_arms) if arm == walk[-1] or neighbours[walk[-1]][arm]
        ]
    return {tuple(int(arm in walk) for arm in range(num_arms)) for walk in walks}


# --- all arms as one decision process ---------------------------------------------------------


def joint_process(
    transitions: np.ndarray, expected: np.ndarray, touched: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """The transition matrix `[X, X]` and the rewards `[X]` of all arms together, under the actions `touched`."""
    law, reward = np.ones((1, 1)), np.zeros(1)
    for arm, done in enumerate(touched):
        law = np.kron(law, transitions[arm, done])
        reward = np.add.outer(reward, expected[arm, done]).ravel()
    return law, reward


def solve(
    transitions: np.ndarray, expected: np.ndarray, gamma: float, allowed: set[tuple[int, ...]]
) -> tuple[np.ndarray, np.ndarray]:
    """The best discounted values `[X]` of all joint states, and the best action for each arm, `[X, N]`."""
    choices = sorted(allowed)
    laws, rewards = map(
        np.stack, zip(*(joint_process(transitions, expected, touched) for touched in choices), strict=True)
    )
    states = np.arange(laws.shape[1])
    policy = np.zeros(len(states), int)
    while True:
        values = np.linalg.solve(np.eye(len(states)) - gamma * laws[policy, states], rewards[policy, states])
        quality = rewards + gamma * laws @ values
        best = quality.argmax(0)
        if np.all(quality[best, states] <= quality[policy, states] + TIE):
            return values, np.asarray(choices)[policy]
        policy = best


def value_of(transitions: np.ndarray, expected: np.ndarray, gamma: float, touched: np.ndarray) -> np.ndarray:
    """The discounted values `[X]` of a policy with the actions `touched[x]` in the joint state x."""
    pairs = [joint_process(transitions, expected, done) for done in touched]
    law = np.stack([law[x] for x, (law, _) in enumerate(pairs)])
    reward = np.stack([reward[x] for x, (_, reward) in enumerate(pairs)])
    return np.linalg.solve(np.eye(len(law)) - gamma * law, reward)
