"""Upper bounds of the regret of individual policies."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxrl.bandits.bounds.lower import checked_steps, gaps_of, means_and_gaps

__all__ = [
    "BOUNDS",
    "exp3_bound",
    "exp3_ix_bound",
    "exp3_s_bound",
    "explore_then_commit_bound",
    "lin_ucb_bound",
    "lin_ucb_radius",
    "moss_bound",
    "sequential_halving_bound",
    "thompson_bound",
    "tsallis_inf_bound",
    "ucb1_bound",
    "ucb_v_bound",
]

Array = Any


def ucb1_bound(means: Array, steps: Array) -> np.ndarray:
    """Upper bound of the mean regret of UCB1 with `exploration=2`.

    Args:
      means: Means `[*B, K]` of instances with rewards in [0, 1].
      steps: Number of steps, T, of a shape that broadcasts with `[*B]`.

    Returns:
      8 ln T times the sum of 1 / gap, plus (1 + pi^2 / 3) times the sum of gaps.

    Source: Auer, Cesa-Bianchi and Fischer (2002), theorem 1.
    """
    gaps = gaps_of(means)
    return 8 * np.log(checked_steps(steps)) * _inverse(gaps).sum(-1) + (1 + math.pi**2 / 3) * gaps.sum(-1)


def ucb_v_bound(means: Array, steps: Array) -> np.ndarray:
    """Upper bound of the mean regret of UCB-V with zeta = 1.2 and c = 1 on Bernoulli arms.

    Args:
      means, steps: Arguments as in `ucb1_bound`.

    Returns:
      10 ln T times the sum over worse arms of variance / gap + 2.

    Source: Audibert, Munos and Szepesvari (2009), theorem 4.
    """
    means, _, gaps = means_and_gaps(means)
    terms = np.where(gaps > 0, means * (1 - means) * _inverse(gaps) + 2, 0)
    return 10 * np.log(checked_steps(steps)) * terms.sum(-1)


def moss_bound(means: Array, steps: Array) -> np.ndarray:
    """Upper bound of the mean regret of MOSS with a known horizon: 39/2 sqrt(K T) plus the sum of gaps.

    Args:
      means, steps: Arguments as in `ucb1_bound`.

    Source: Lattimore and Szepesvari (2020), theorem 9.1; rewards in [0, 1] are twice as narrow as theirs.
    """
    gaps = gaps_of(means)
    return 19.5 * np.sqrt(gaps.shape[-1] * checked_steps(steps)) + gaps.sum(-1)


def explore_then_commit_bound(means: Array, steps: Array, pulls: Array) -> np.ndarray:
    """Upper bound of the mean regret of explore-then-commit for rewards in [0, 1].

    Args:
      means, steps: Arguments as in `ucb1_bound`.
      pulls: Number of pulls of each arm before the policy commits, m, at most T / K.

    Returns:
      The sum over arms of gap (m + (T - m K) exp(-m gap^2)).

    Source: Lattimore and Szepesvari (2020), theorem 6.1; rewards in [0, 1] are twice as narrow as theirs.
    """
    gaps = gaps_of(means)
    rest = checked_steps(steps) - np.asarray(pulls) * gaps.shape[-1]
    each = np.asarray(pulls)[..., None]
    return np.sum(gaps * (each + rest[..., None] * np.exp(-each * gaps**2)), axis=-1)


def thompson_bound(num_arms: int, steps: Array) -> np.ndarray:
    """Upper bound of the regret of Thompson sampling, averaged over the prior that it assumes.

    Args:
      num_arms: Number of arms, K.
      steps: Number of steps, T, of any shape.

    Returns:
      sqrt(K T ln(K) / 2), for rewards in [0, 1].

    Source: Russo and Van Roy (2016), propositions 1 and 3.
    """
    return np.sqrt(num_arms * checked_steps(steps) * math.log(num_arms) / 2)


def exp3_bound(num_arms: int, steps: Array, rate: float = 1.0) -> np.ndarray:
    """Upper bound of the mean regret of EXP3 against the best fixed arm, for any rewards in [0, 1].

    Args:
      num_arms: Number of arms, K.
      steps: Number of steps, T, of any shape.
      rate: Parameter of `Exp3HParams`, without additional exploration.

    Returns:
      (rate + 1 / rate) sqrt(K T ln K).

    Source: Bubeck and Cesa-Bianchi (2012), theorem 3.1.
    """
    return (rate + 1 / rate) * np.sqrt(num_arms * checked_steps(steps) * math.log(num_arms))


def exp3_ix_bound(num_arms: int, steps: Array, delta: float = 0.05) -> np.ndarray:
    """Upper bound of the regret of EXP3-IX against the best fixed arm, with probability 1 - delta.

    Args:
      num_arms: Number of arms, K.
      steps: Number of steps, T, of any shape.
      delta: Probability in (0, 1).

    Returns:
      4 sqrt(K T ln K) + (2 sqrt(K T / ln K) + 1) ln(2 / delta).

    Source: Neu (2015), theorem 1.
    """
    steps, log_arms = checked_steps(steps), math.log(num_arms)
    sure = (2 * np.sqrt(num_arms * steps / log_arms) + 1) * math.log(2 / delta)
    return 4 * np.sqrt(num_arms * steps * log_arms) + sure


def exp3_s_bound(num_arms: int, steps: Array, stretches: Array = 1) -> np.ndarray:
    """Upper bound of the mean regret of EXP3.S against the best sequence of arms with a number of stretches.

    Args:
      num_arms: Number of arms, K.
      steps: Horizon, T.
      stretches: Number of stretches of one arm each, the same as the policy's parameter.

    Returns:
      2 sqrt((e - 1) K T (stretches ln(K T) + e)).

    Source: Auer, Cesa-Bianchi, Freund and Schapire (2002), corollary 8.2.
    """
    cells = num_arms * checked_steps(steps)
    return 2 * np.sqrt((math.e - 1) * cells * (np.asarray(stretches) * np.log(cells) + math.e))


def tsallis_inf_bound(num_arms: int, steps: Array) -> np.ndarray:
    """Upper bound of the mean regret of Tsallis-INF against the best fixed arm, for any rewards in [0, 1].

    Args:
      num_arms: Number of arms, K.
      steps: Number of steps, T, of any shape.

    Returns:
      4 sqrt(K T) + 1, for losses weighted by importance alone (`rate=2`, `baseline=0`).

    Source: Zimmert and Seldin (2021), theorem 1.
    """
    return 4 * np.sqrt(num_arms * checked_steps(steps)) + 1


def lin_ucb_radius(
    num_features: int, steps: Array, sigma: float, delta: float = 0.05, ridge: float = 1.0, norm: float = 1.0
) -> np.ndarray:
    """The `exploration` for which LinUCB's intervals hold for all arms up to T with probability 1 - delta.

    Args:
      num_features: Number of features, d.
      steps: Number of steps, T, of any shape.
      sigma: Scale of the sub-Gaussian noise.
      delta: Probability in (0, 1).
      ridge: Parameter of `LinUCBHParams`.
      norm: Largest length of a vector of features, and of coefficients.

    Source: Abbasi-Yadkori, Pal and Szepesvari (2011), theorem 2.
    """
    growth = num_features * np.log1p(checked_steps(steps) * norm**2 / (ridge * num_features))
    return math.sqrt(ridge) * norm + sigma * np.sqrt(2 * math.log(1 / delta) + growth)


def lin_ucb_bound(
    num_features: int, steps: Array, exploration: Array, ridge: float = 1.0, norm: float = 1.0
) -> np.ndarray:
    """Upper bound of the regret of LinUCB where its `exploration` covers the truth and gaps are at most 2.

    Args:
      num_features: Number of features, d.
      steps: Number of steps, T, of any shape.
      exploration: Exploration, at least 1, such as `lin_ucb_radius`.
      ridge: Parameter of `LinUCBHParams`.
      norm: Largest length of a vector of features.

    Returns:
      exploration sqrt(8 d T ln(1 + T norm^2 / (d ridge))).

    Source: Lattimore and Szepesvari (2020), theorem 19.2.
    """
    steps = checked_steps(steps)
    growth = num_features * np.log1p(steps * norm**2 / (ridge * num_features))
    return np.asarray(exploration) * np.sqrt(8 * steps * growth)


def sequential_halving_bound(means: Array, steps: Array) -> np.ndarray:
    """Upper bound of the probability that sequential halving ends with a worse arm, for rewards in [0, 1].

    Args:
      means: Means `[*B, K]` of instances, each with one best arm.
      steps: Horizon, T, of a shape that broadcasts with `[*B]`.

    Returns:
      3 L exp(-T / (8 H L)), at most 1, where L is log2 K rounded up, the number of rounds, and H is
      the largest i / gap_i^2, with gaps sorted and i counting from 2.

    Source: Karnin, Koren and Somekh (2013), theorem 4.1.
    """
    gaps = np.sort(gaps_of(means), axis=-1)[..., 1:]
    rounds = math.ceil(math.log2(gaps.shape[-1] + 1))
    smallest = (gaps**2 / np.arange(2, gaps.shape[-1] + 2)).min(-1)
    return np.minimum(1, 3 * rounds * np.exp(-checked_steps(steps) * smallest / (8 * rounds)))


def _inverse(gaps: np.ndarray) -> np.ndarray:
    """1 / gap, 0 for a best arm."""
    return np.where(gaps > 0, 1 / np.where(gaps > 0, gaps, 1), 0)


def _of_arms(bound: Callable[..., np.ndarray]) -> Callable[[Array, Array], np.ndarray]:
    return lambda means, steps: bound(np.shape(means)[-1], steps)


# By name of a policy: function (means [*B, K], steps) that returns its bound of the mean regret at default settings.
BOUNDS: dict[str, Callable[[Array, Array], np.ndarray]] = {
    "ucb1": ucb1_bound,
    "ucb-v": ucb_v_bound,
    "moss": moss_bound,
    "exp3": _of_arms(exp3_bound),
    "exp3-s": _of_arms(exp3_s_bound),
    "tsallis-inf": _of_arms(tsallis_inf_bound),
}
