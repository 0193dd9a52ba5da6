"""EXP3, EXP3-IX, EXP3.S and Tsallis-INF, slowly, in float64, one pull from a given state.

A loss that is divided by a probability feeds back on it, so that rounding grows by exp(sum of
learning rates), e^18 in 1,000 pulls: two versions are compared pull by pull from equal states.
"""

import math

import numpy as np


def exp3(losses, time, rate=1.0, exploration=0.0, bias=0.0):
    """Probabilities of EXP3 or EXP3-IX at a pull, and the divisors of losses, both `[K]`."""
    num_arms = len(losses)
    eta = rate * math.sqrt(math.log(num_arms) / (num_arms * (time + 1)))
    weights = np.exp(-eta * (losses - losses.min()))
    chances = (1 - exploration) * weights / weights.sum() + exploration / num_arms
    return chances, chances + bias * eta


def exp3_after(losses, time, action, reward, **settings):
    """Losses `[K]` after a pull."""
    after = losses.copy()
    after[action] += (1 - reward) / exp3(losses, time, **settings)[1][action]
    return after


def exp3_s(weights, horizon, stretches=1.0):
    """Probabilities of EXP3.S with the parameters of its corollary, and the share that is random."""
    num_arms = len(weights)
    inside = num_arms * (stretches * math.log(num_arms * horizon) + math.e) / ((math.e - 1) * horizon)
    gamma = min(1, math.sqrt(inside))
    return (1 - gamma) * weights / weights.sum() + gamma / num_arms, gamma


def exp3_s_after(weights, horizon, action, reward, **settings):
    """Weights `[K]` after a pull, their sum 1."""
    num_arms = len(weights)
    chances, gamma = exp3_s(weights, horizon, **settings)
    gains = np.zeros(num_arms)
    gains[action] = reward / chances[action]
    after = weights * np.exp(gamma * gains / num_arms) + math.e / horizon / num_arms * weights.sum()
    return after / after.sum()


def tsallis_probabilities(distances):
    """4 / (distance + z)^2 with the z that makes them sum to 1, by bisection."""
    low, high = 2.0, 2 * math.sqrt(len(distances))
    for _ in range(60):
        middle = (low + high) / 2
        if np.sum(4 / (distances + middle) ** 2) > 1:
            low = middle
        else:
            high = middle
    return 4 / (distances + low) ** 2


def tsallis_inf(losses, time, rate=2.0):
    """Probabilities `[K]` of Tsallis-INF at a pull."""
    return tsallis_probabilities(rate / math.sqrt(time + 1) * (losses - losses.min()))


def tsallis_inf_after(losses, time, action, reward, rate=2.0, baseline=0.0):
    """Losses `[K]` after a pull."""
    chances, after = tsallis_inf(losses, time, rate), losses.copy()
    for arm, chance in enumerate(chances):
        offset = baseline if chance >= rate**2 / (time + 1) else 0.0
        after[arm] += offset
        if arm == action:
            after[arm] += (1 - reward - offset) / chance
    return after
