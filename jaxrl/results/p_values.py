"""P-values of differences between algorithms, by permutations, and their correction for several comparisons."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import scipy.stats

from envs.errors import UserValueError

NUM_PERMUTATIONS = 9_999
PERMUTATIONS_OF_EACH = 20  # of each of several comparisons, so that the smallest corrected p-value is below 0.05
MOST_PERMUTED = 4_000_000  # numbers permuted at once, which bounds the working memory

__all__ = ["NUM_PERMUTATIONS", "corrected", "improvement_p_value"]


def improvement_p_value(
    x: Sequence[npt.ArrayLike],
    y: Sequence[npt.ArrayLike],
    *,
    paired: bool = False,
    seed: int = 0,
    comparisons: int = 1,
) -> float:
    """P-value of the hypothesis that x and y have one distribution of scores on each task, two-sided, by permutations.

    The hypothesis on pairs is that an exchange of the two runs of a pair leaves their joint distribution unchanged.
    This says more than equal distributions of both: with x uniform on 1, 2, 3 and y = x mod 3 + 1, both have one
    distribution, and x is higher in a third of the pairs.

    The statistic is the distance of `probability_of_improvement` from one half. Scores are exchanged between x and y
    within each task, or within each pair if there are pairs, `NUM_PERMUTATIONS` times. If the hypothesis is true, the
    p-value is at most alpha with a probability of at most alpha, at any number of runs, since the observed order counts
    among the permuted ones.

    Where no permuted statistic reaches the observed one, and `comparisons` is so large that a correction would leave
    even this p-value above 0.05, further permutations follow. A p-value of at most alpha is then one of the first
    permutations alone if alpha is at least 1 / (1 + `NUM_PERMUTATIONS`), and of all of them otherwise, so that its
    probability is still at most alpha.

    Args:
      x, y: Scores of each task, `[seeds]`, whose numbers may differ; the number of tasks is the same. -inf is the
        lowest score, such as that of a failed run.
      paired: Whether run i of x is compared with run i of y only, as by `probability_of_improvement`.
      seed: Random seed of the permutations.
      comparisons: Number of comparisons for which the p-value is corrected later; 20 permutations of each are drawn
        if that is more than `NUM_PERMUTATIONS`.

    Returns:
      The p-value, at least 1 / (1 + the number of permutations).

    Raises:
      ValueError: A task has no score of x or of y, a score is nan, or the numbers of scores differ with `paired`.
    """
    draws, tasks = np.random.default_rng(seed), list(zip(_scores("x", x), _scores("y", y), strict=True))
    for first, second in tasks:
        if paired and len(first) != len(second):
            raise UserValueError(f"paired=True takes as many scores of y as of x, got {len(second)} and {len(first)}")
    count = NUM_PERMUTATIONS
    reached = _reached(tasks, paired, draws, count)
    if not reached and (more := PERMUTATIONS_OF_EACH * comparisons - count) > 0:
        reached, count = _reached(tasks, paired, draws, more), count + more
    return (1 + reached) / (1 + count)


def _reached(
    tasks: Sequence[tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]],
    paired: bool,
    draws: np.random.Generator,
    count: int,
) -> int:
    """The number of permutations, of so many, whose statistic is at least as far from its mean as the observed one."""
    observed, permuted = 0.0, np.zeros(count)
    for first, second in tasks:
        if paired:
            wins = ((first > second).astype(float) - (first < second)) / (2 * len(first))
            observed += wins.sum()
            for at in _chunks(count, len(wins)):
                permuted[at] += draws.choice((-1.0, 1.0), (len(permuted[at]), len(wins))) @ wins
            continue
        # The probability is linear in the sum of the ranks of x among all scores.
        ranks = scipy.stats.rankdata(np.concatenate([first, second]))
        centred = (ranks - ranks.mean()) / (len(first) * len(second))
        observed += centred[: len(first)].sum()
        for at in _chunks(count, len(ranks)):
            orders = draws.permuted(np.broadcast_to(centred, (len(permuted[at]), len(ranks))), axis=1)
            permuted[at] += orders[:, : len(first)].sum(axis=1)
    # Sums of one permutation in another order differ by rounding.
    reached = np.abs(permuted) >= abs(observed) - 1e-9
    return int(reached.sum())


def corrected(p_values: Sequence[float]) -> list[float]:
    """P-values of several comparisons, corrected for their number.

    Args:
      p_values: P-value of each comparison; nan is kept and is not counted.

    Returns:
      Corrected p-values: the probability that any true hypothesis has one of at most alpha is at most alpha.

    Source: Holm (1979), "A simple sequentially rejective multiple test procedure".
    """
    values = np.asarray(p_values, np.float64)
    (at,) = np.nonzero(np.isfinite(values))
    order = at[np.argsort(values[at], kind="stable")]
    raised = values[order] * np.arange(len(order), 0, -1)
    values[order] = np.minimum(np.maximum.accumulate(raised), 1.0)
    return values.tolist()


def _scores(name: str, scores: Sequence[npt.ArrayLike]) -> list[npt.NDArray[np.float64]]:
    """Scores of each task, of which none is nan."""
    each = [np.asarray(task, np.float64).reshape(-1) for task in scores]
    if not all(task.size for task in each):
        raise UserValueError(f"{name} has a task without a score")
    if any(np.isnan(task).any() for task in each):
        raise UserValueError(f"{name} has a score that is nan; it takes -inf for a failed run, or none")
    return each


def _chunks(count: int, size: int) -> list[slice]:
    """Parts of the permutations that hold a bounded number of scores at once."""
    step = max(1, MOST_PERMUTED // size)
    return [slice(at, min(at + step, count)) for at in range(0, count, step)]
