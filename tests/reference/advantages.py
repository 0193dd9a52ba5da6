"""UGAE by its definition: a double loop in float64, one column of a rollout at a time."""

import numpy as np


def curve(family, steps, **p):
    """Gamma(0) ... Gamma(steps) of a family in float64, from closed forms and plain products."""
    t = np.arange(steps + 1, dtype=np.float64)
    if family == "exp":
        return p["gamma"] ** t
    if family == "quasi":
        return np.where(t == 0, 1.0, p["beta"] * p["gamma"] ** t)
    if family == "hyperbolic":
        return 1.0 / (1.0 + p["k"] * t)
    if family == "beta":
        weights = [1.0]
        for step in range(steps):
            spread = step * p["eta"] * (1.0 - p["mu"])
            weights.append(weights[-1] * (p["mu"] + spread) / (1.0 + spread))
        return np.asarray(weights)
    if family == "fixed":
        return np.where(t < p["horizon"], 1.0, 0.0)
    if family == "table":
        padded = np.zeros(max(steps + 1, len(p["curve"])))
        padded[: len(p["curve"])] = p["curve"]
        return padded[: steps + 1]
    raise ValueError(family)


def ugae(gamma, lam, reward, value, next_value, terminated, done):
    """(advantage, target) along one column: `gamma` is Gamma(0) ... Gamma(T), everything else `[T]`."""
    reward, value, next_value = (np.asarray(x, np.float64) for x in (reward, value, next_value))
    horizon = len(reward)
    advantage = np.zeros(horizon)
    for t in range(horizon):
        total = 0.0
        for lag in range(horizon - t):
            j = t + lag
            ends = bool(terminated[j]) or bool(done[j]) or j == horizon - 1
            weight = lam**lag
            total += weight * gamma[lag] * reward[j]
            if not terminated[j]:
                total += weight * (1.0 if ends else 1.0 - lam) * gamma[lag + 1] * next_value[j]
            if ends:
                break
        advantage[t] = total - value[t]
    return advantage, advantage + np.asarray(value, np.float64)


def estimators(gamma, reward, next_value, terminated, done):
    """R_1 ... R_N of each step of one column, float64: n rewards and the value after them, up to the end."""
    reward, next_value = np.asarray(reward, np.float64), np.asarray(next_value, np.float64)
    rows = []
    for t in range(len(reward)):
        row, paid = [], 0.0
        for j in range(t, len(reward)):
            paid += gamma[j - t] * reward[j]
            row.append(paid + (0.0 if terminated[j] else gamma[j - t + 1] * next_value[j]))
            if terminated[j] or done[j]:
                break
        rows.append(np.array(row))
    return rows


def finite_time(gamma, lam, reward, next_value, terminated, done):
    """Targets of finite-time weights: the mean of the estimators R_n of a step, weighted by lam^(n-1)."""
    rows = estimators(gamma, reward, next_value, terminated, done)
    return np.array([np.average(row, weights=np.float64(lam) ** np.arange(len(row))) for row in rows])


def gae(gamma, lam, reward, value, next_value, terminated, done):
    """GAE by its recursion over temporal differences, one column, float64."""
    reward, value, next_value = (np.asarray(x, np.float64) for x in (reward, value, next_value))
    advantage = np.zeros(len(reward))
    following = 0.0
    for t in reversed(range(len(reward))):
        if terminated[t] or done[t]:
            following = 0.0
        delta = reward[t] + gamma * (0.0 if terminated[t] else next_value[t]) - value[t]
        following = delta + gamma * lam * following
        advantage[t] = following
    return advantage


def ugae_by_lags(gamma, lam, reward, next_value, terminated, done, power=None):
    """The targets of `ugae` along one column, a lag at a time for all steps, float64: fast enough for long rollouts.

    With `power`, every term counts (its lag + 1)^power times and in absolute value, as bounds of roundings add up.
    """
    reward, next_value = np.asarray(reward, np.float64), np.asarray(next_value, np.float64)
    horizon = len(reward)
    ends = np.asarray(terminated, bool) | np.asarray(done, bool)
    ends[-1] = True
    bootstrap = np.where(terminated, 0.0, next_value) * np.where(ends, 1.0, 1.0 - lam)
    if power is not None:
        reward, bootstrap = np.abs(reward), np.abs(bootstrap)
    target, alive = np.zeros(horizon), np.ones(horizon, bool)
    for lag in range(horizon):
        here = np.arange(horizon - lag)
        weight = lam**lag * (lag + 1.0) ** (power or 0) * alive[here]
        target[here] += weight * (gamma[lag] * reward[here + lag] + gamma[lag + 1] * bootstrap[here + lag])
        alive = alive[: horizon - lag] & ~ends[here + lag]
    return target
