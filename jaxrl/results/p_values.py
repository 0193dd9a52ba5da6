"""P-values of differences between algorithms, by permutations, and their correction for several comparisons."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import scipy.stats

NUM_PERMUTATIONS = 9_999

__all__ = ["NUM_PERMUTATIONS", "corrected", "improvement_p_value"]


def improvement_p_value(
    x: Sequence[npt.ArrayLike], y: Sequence[npt.ArrayLike], *, paired: bool = False, seed: int = 0
) -> float:
    """P-value of the hypothesis that x and y have one distribution of scores on each task, two-sided, by permutations.

    The statistic is the distance of `probability_of_improvement` from one half. Scores are exchanged between x and y
    within each task, or within each pair, `NUM_PERMUTATIONS` times. The level is exact at any number of runs, since the
    observed order counts among the permuted ones.

    Args:
      x, y: Scores of each task, `[seeds]`, whose numbers may differ; the number of tasks is the same.
      paired: Whether run i of x is compared with run i of y only, as by `probability_of_improvement`.
      seed: Random seed of the permutations.

    Returns:
      The p-value, at least 1 / (1 + `NUM_PERMUTATIONS`).
    """
    draws = np.random.default_rng(seed)
    observed, permuted = 0.0, np.zeros(NUM_PERMUTATIONS)
    for first, second in zip(map(np.asarray, x), map(np.asarray, y), strict=True):
        if paired:
            wins = np.sign(first - second) / (2 * len(first))
            observed += wins.sum()
            permuted += draws.choice((-1.0, 1.0), (NUM_PERMUTATIONS, len(wins))) @ wins
            continue
        # The probability is linear in the sum of the ranks of x among all scores.
        ranks = scipy.stats.rankdata(np.concatenate([first, second]))
        centred = (ranks - ranks.mean()) / (len(first) * len(second))
        observed += centred[: len(first)].sum()
        orders = draws.permuted(np.broadcast_to(centred, (NUM_PERMUTATIONS, len(ranks))), axis=1)
        permuted += orders[:, : len(first)].sum(axis=1)
    # Sums of one permutation in another order differ by rounding.
    reached = np.abs(permuted) >= abs(observed) - 1e-9
    return float((1 + reached.sum()) / (1 + NUM_PERMUTATIONS))


def corrected(p_values: Sequence[float]) -> list[float]:
    """P-values of several comparisons, corrected so that the smallest of them holds for all together.

    Args:
      p_values: P-value of each comparison; nan is kept and is not counted.

    Returns:
      P-values of which, with a probability of at most alpha, any that belongs to a true hypothesis is at most alpha.

    Source: Holm (1979), "A simple sequentially rejective multiple test procedure".
    """
    values = np.asarray(p_values, np.float64)
    (at,) = np.nonzero(np.isfinite(values))
    order = at[np.argsort(values[at], kind="stable")]
    raised = values[order] * np.arange(len(order), 0, -1)
    values[order] = np.minimum(np.maximum.accumulate(raised), 1.0)
    return values.tolist()
