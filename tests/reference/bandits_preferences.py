"""Slow policies for comparisons in NumPy: double Thompson sampling, the fit of rewards, and probabilities of pairs."""

from typing import Any

import numpy as np
from scipy import optimize


def sigmoid(x: Any) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def double_thompson(generator: np.random.Generator, wins: np.ndarray, time: int, alpha: float) -> tuple[int, int]:
    """One pair, arm by arm as in the paper's algorithm; `time` includes the next comparison."""
    k = len(wins)
    upper, lower = np.full((k, k), 0.5), np.full((k, k), 0.5)
    for i in range(k):
        for j in range(k):
            if i == j:
                continue
            n = wins[i, j] + wins[j, i]
            share, width = (wins[i, j] / n, np.sqrt(alpha * np.log(time) / n)) if n else (1.0, 1.0)
            upper[i, j], lower[i, j] = share + width, share - width
    copeland = [sum(upper[i, j] > 0.5 for j in range(k) if j != i) / (k - 1) for i in range(k)]
    candidates = [i for i in range(k) if copeland[i] == max(copeland)]
    sample = np.full((k, k), 0.5)
    for i in range(k):
        for j in range(i + 1, k):
            sample[i, j] = generator.beta(wins[i, j] + 1, wins[j, i] + 1)
            sample[j, i] = 1 - sample[i, j]
    beaten = [sum(sample[i, j] > 0.5 for j in range(k) if j != i) for i in range(k)]
    first = max(candidates, key=lambda i: (beaten[i], -i))
    again = [0.5 if i == first else generator.beta(wins[i, first] + 1, wins[first, i] + 1) for i in range(k)]
    second = max((i for i in range(k) if lower[i, first] <= 0.5), key=lambda i: (again[i], -i))
    return first, second


def fit(wins: np.ndarray, scale: float) -> np.ndarray:
    """The most probable rewards, by a general minimiser in float64."""

    def loss(rewards: np.ndarray) -> tuple[float, np.ndarray]:
        gaps = rewards[:, None] - rewards
        surprise = np.sum(wins * np.logaddexp(0, -gaps)) + np.sum(rewards**2) / (2 * scale**2)
        missed = wins * sigmoid(-gaps)
        return surprise, -np.sum(missed - missed.T, axis=1) + rewards / scale**2

    actual = optimize.minimize(loss, np.zeros(len(wins)), jac=True, method="BFGS", options={"gtol": 1e-9})
    return actual.x


def uncertainty(wins: np.ndarray, rewards: np.ndarray, scale: float) -> np.ndarray:
    """Standard deviation `[K]` of every reward in the normal approximation to the posterior."""
    chances = sigmoid(rewards[:, None] - rewards)
    weights = (wins + wins.T) * chances * (1 - chances)
    curvature = np.diag(weights.sum(axis=1) + 1 / scale**2) - weights
    return np.sqrt(np.diag(np.linalg.inv(curvature)))


def pairs(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Probabilities `[K, K]` of two independent draws, from weights, given that they differ."""
    joint = np.outer(first, second)
    np.fill_diagonal(joint, 0)
    return joint / joint.sum()


def pilaf_pairs(rewards: np.ndarray, beta: float) -> np.ndarray:
    """Probabilities of pairs from the definitions: pi from its optimum, then pi exp(r) and pi exp(-r)."""
    policy = np.exp(rewards / beta)
    implied = beta * np.log(policy / policy.sum() * len(policy))
    return (pairs(policy, policy) + pairs(policy * np.exp(implied), policy * np.exp(-implied))) / 2


def weighted_pairs(rewards: np.ndarray, beta: float) -> np.ndarray:
    """Probabilities of pairs in proportion to pi(a) pi(b) / sigmoid'(r_a - r_b)."""
    policy = np.exp(rewards / beta)
    chances = sigmoid(rewards[:, None] - rewards)
    joint = np.outer(policy, policy) / (chances * (1 - chances))
    np.fill_diagonal(joint, 0)
    return joint / joint.sum()


def information(joint: np.ndarray, rewards: np.ndarray) -> np.ndarray:
    """Fisher information `[K, K]` of an answer to a pair of these probabilities."""
    chances = sigmoid(rewards[:, None] - rewards)
    matrix = np.zeros_like(joint)
    for a in range(len(rewards)):
        for b in range(len(rewards)):
            gap = np.zeros(len(rewards))
            gap[a] += 1
            gap[b] -= 1
            matrix += joint[a, b] * chances[a, b] * (1 - chances[a, b]) * np.outer(gap, gap)
    return matrix
