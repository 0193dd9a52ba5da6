"""Slow bandit policies: one run, one pull at a time, in double precision, from the formulas of the papers.

Each takes the rewards of every arm at every pull, `[T, K]`, and returns the pulled arms, `[T]`.
"""

import math

import numpy as np
from scipy import optimize, special, stats


def play(table, index):
    """Pull the first arm of the highest `index(time, pulls, sums, rewards of each arm)`, untried arms first."""
    steps, arms = table.shape
    seen = [[] for _ in range(arms)]
    actions = []
    for time in range(steps):
        values = [math.inf if not rewards else index(time, rewards) for rewards in seen]
        action = int(np.argmax(values))
        seen[action].append(float(table[time, action]))
        actions.append(action)
    return actions


def ucb1(table, exploration):
    return play(table, lambda time, seen: np.mean(seen) + math.sqrt(exploration * math.log(time) / len(seen)))


def ucb_v(table, exploration, correction, width):
    def index(time, seen):
        level = exploration * math.log(time)
        # In this form arms that paid the same 0s and 1s in different orders tie exactly.
        variance = max(np.mean(np.square(seen)) - np.mean(seen) ** 2, 0)
        spread = math.sqrt(2 * variance * level / len(seen))
        return np.mean(seen) + spread + 3 * width * correction * level / len(seen)

    return play(table, index)


def moss(table, exploration):
    steps, arms = table.shape

    def index(time, seen):
        count = len(seen)
        return np.mean(seen) + exploration * math.sqrt(max(math.log(steps / (arms * count)), 0) / count)

    return play(table, index)


def kl(p, q):
    """The relative entropy of Bernoulli distributions."""
    return sum(0.0 if x == 0 else x * math.log(x / y) for x, y in ((p, q), (1 - p, 1 - q)))


def kl_upper(mean, level):
    """The largest q for which kl(mean, q) is at most the level."""
    top = 1 - 1e-16
    if mean >= top or level >= kl(mean, top):
        return 1.0
    return root(lambda q: kl(mean, q) - level, max(mean, 1e-300), top) if level > 0 else mean


def root(function, low, high):
    """The point at which a function crosses zero."""
    return float(np.asarray(optimize.brentq(function, low, high, xtol=1e-15)))


def kl_ucb(table, log_log):
    def index(time, seen):
        log = math.log(time)
        level = log + (log_log * math.log(log) if log > 1 else 0.0)
        return kl_upper(min(np.mean(seen), 1.0), level / len(seen))

    return play(table, index)


def bayes_ucb(table, log_power, alpha, beta):
    steps, arms = table.shape
    wins, losses = np.full(arms, float(alpha)), np.full(arms, float(beta))
    actions = []
    for time in range(steps):
        tail = 1 / ((time + 1) * max(math.log(steps), 1.0) ** log_power)
        action = int(np.argmax(stats.beta.isf(tail, wins, losses)))
        wins[action] += table[time, action]
        losses[action] += 1 - table[time, action]
        actions.append(action)
    return actions


def log_odds_mode(pulls, sums, mean, scale):
    """The most probable log-odds after a number of rewards of 0 and 1, under a normal prior."""
    return root(lambda x: pulls * special.expit(x) + (x - mean) / scale**2 - sums, -60, 60)


def greedy(table):
    return play(table, lambda time, seen: np.mean(seen))


def gradient(pulls, sums, step, baseline):
    """Preferences from the number of pulls and the sum of rewards of each arm, pulled in turn."""
    preference, rewards = np.zeros(len(pulls)), []
    for arm, (count, total) in enumerate(zip(pulls, sums, strict=True)):
        for _ in range(count):
            reward = total / count
            surplus = reward - baseline * (np.mean(rewards) if rewards else reward)
            chances = np.exp(preference) / np.exp(preference).sum()
            for other in range(len(pulls)):
                preference[other] += step * surplus * ((other == arm) - chances[other])
            rewards.append(reward)
    return preference


def explore_then_commit(table, pulls_per_arm):
    steps, arms = table.shape
    first = [time % arms for time in range(min(steps, pulls_per_arm * arms))]
    sums = np.zeros(arms)
    for time, action in enumerate(first):
        sums[action] += table[time, action]
    return first + [int(np.argmax(sums))] * (steps - len(first))


def sliding_window_ucb(table, window, exploration):
    steps, arms = table.shape
    actions = []
    for time in range(steps):
        recent = range(max(0, time - window), time)
        values = []
        for arm in range(arms):
            seen = [table[t, arm] for t in recent if actions[t] == arm]
            bonus = math.sqrt(exploration * math.log(min(time, window)) / len(seen)) if seen else math.inf
            values.append(np.mean(seen) + bonus if seen else bonus)
        actions.append(int(np.argmax(values)))
    return actions


def discounted_ucb(table, discount, exploration):
    steps, arms = table.shape
    actions = []
    for time in range(steps):
        pulls, sums = np.zeros(arms), np.zeros(arms)
        for t in range(time):
            pulls[actions[t]] += discount ** (time - 1 - t)
            sums[actions[t]] += discount ** (time - 1 - t) * table[t, actions[t]]
        with np.errstate(divide="ignore", invalid="ignore"):
            values = sums / pulls + np.sqrt(exploration * np.log(pulls.sum()) / pulls)
        actions.append(int(np.argmax(np.where(pulls > 0, values, np.inf))))
    return actions
