"""Successive elimination, sequential halving and top-two Thompson sampling, slowly, in float64."""

import math

import numpy as np
from scipy.special import rel_entr


def successive_elimination(table, delta=0.05, sigma=0.5):
    """All remaining arms in every round: actions `[T]`, and the arms that remain at the end."""
    steps, num_arms = table.shape
    left, actions, rewards = list(range(num_arms)), [], [[] for _ in range(num_arms)]
    while True:
        for arm in left:
            if len(actions) == steps:
                return np.array(actions), left
            rewards[arm].append(table[len(actions), arm])
            actions.append(arm)
        t = len(rewards[left[0]])
        radius = sigma * math.sqrt(2 * math.log(4 * num_arms * t**2 / delta) / t)
        best = max(np.mean(rewards[arm]) for arm in left)
        left = [arm for arm in left if np.mean(rewards[arm]) > best - 2 * radius]


def sequential_halving(table):
    """Actions `[T]`, and the arms that remain at the end."""
    steps, num_arms = table.shape
    left, actions = list(range(num_arms)), []
    rounds = math.ceil(math.log2(num_arms))
    while len(left) > 1:
        sums = dict.fromkeys(left, 0.0)
        for _ in range(max(steps // (len(left) * rounds), 1)):
            for arm in left:
                if len(actions) == steps:
                    return np.array(actions), left
                sums[arm] += table[len(actions), arm]
                actions.append(arm)
        ranked = sorted(left, key=lambda arm: (-sums[arm], arm))
        left = sorted(ranked[: math.ceil(len(left) / 2)])
    return np.array(actions + left * (steps - len(actions))), left


def top_two(alpha, beta, resamples, draws, rng, leader_share=0.5):
    """Number of pulls of each arm, `[K]`, in a number of draws from a posterior."""
    counts, num_arms = np.zeros(len(alpha)), len(alpha)
    for _ in range(draws):
        leader = int(np.argmax(rng.beta(alpha, beta)))
        if rng.uniform() < leader_share:
            counts[leader] += 1
            continue
        for _ in range(resamples):
            challenger = int(np.argmax(rng.beta(alpha, beta)))
            if challenger != leader:
                break
        else:
            others = [arm for arm in range(num_arms) if arm != leader]
            challenger = min(others, key=lambda arm: cost(alpha, beta, leader, arm))
        counts[challenger] += 1
    return counts / draws


def cost(alpha, beta, leader, arm):
    """Cost of the alternative in which an arm is as good as the leader."""
    weights = np.array([alpha[leader] + beta[leader], alpha[arm] + beta[arm]])
    means = np.array([alpha[leader], alpha[arm]]) / weights
    if means[1] >= means[0]:
        return 0.0
    both = np.sum(weights * means) / np.sum(weights)
    return float(np.sum(weights * (rel_entr(means, both) + rel_entr(1 - means, 1 - both))))
