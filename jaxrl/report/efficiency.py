"""Sample efficiency: environment steps until runs reach a level."""

from __future__ import annotations

import math

import numpy as np

from jaxrl.report.entries import Entry

__all__ = ["first_steps", "median_interval", "steps_of"]


def first_steps(values: np.ndarray, finite: np.ndarray, steps: np.ndarray, level: float, direction: int) -> np.ndarray:
    """The environment step at which each run first reaches a level.

    Between two evaluations a run is interpolated linearly.

    Args:
      values: Values at the evaluations, `[runs, points]`; nan at the first ones for a metric that begins later, such as
        one of training before the first update.
      finite: Whether a run had not failed there, bool `[runs, points]`.
      steps: Environment steps of the evaluations, `[points]`, increasing.
      level: Value to reach.
      direction: 1 if higher values are better, -1 if lower values are.

    Returns:
      Environment steps `[runs]`; infinite for a run that does not reach the level, or fails before it does.
    """
    first = np.full(len(values), np.inf)
    for run, (own, good) in enumerate(zip(np.asarray(values, np.float64) * direction, finite, strict=True)):
        ended = int(np.argmin(good)) if not good.all() else len(own)
        reached = np.flatnonzero(own[:ended] >= level * direction)
        if not len(reached):
            continue
        at, begun = int(reached[0]), int(np.argmax(np.isfinite(own)))
        first[run] = steps[at]
        if at > begun:
            share = (level * direction - own[at - 1]) / (own[at] - own[at - 1])
            first[run] = steps[at - 1] + share * (steps[at] - steps[at - 1])
    return first


def median_interval(values: np.ndarray, confidence: float) -> tuple[float, float, float]:
    """The median and its exact interval between two order statistics, which may be infinite.

    The number of values below the median is binomial, whatever their distribution is.

    Args:
      values: Values `[n]`, of which some may be infinite.
      confidence: Least probability with which the interval holds the median.

    Returns:
      The median, and the ends of the interval; nan where there are too few values for one.

    Source: David and Nagaraja (2003), "Order statistics", section 7.1.
    """
    ordered, count = np.sort(values), len(values)
    if not count:
        return math.nan, math.nan, math.nan
    middle = ordered[(count - 1) // 2], ordered[count // 2]
    median = float(middle[0]) if middle[0] == middle[1] else float(sum(middle) / 2)
    below, rank = 0.0, 0  # probability of fewer than `rank` values below the median
    while below + math.comb(count, rank) / 2**count <= (1 - confidence) / 2:
        below += math.comb(count, rank) / 2**count
        rank += 1
    if not rank:
        return median, math.nan, math.nan
    return median, float(ordered[rank - 1]), float(ordered[count - rank])


def steps_of(entry: Entry, task: str, metric: str, level: float, direction: int, last: int) -> np.ndarray:
    """The environment steps at which the runs of a line first reach a level on a task, infinite for those that do not.

    Args:
      entry: Line of a comparison.
      task: Task.
      metric: Name of the metric.
      level: Value to reach.
      direction: 1 if higher values are better, -1 if lower values are.
      last: Environment step after which a run no longer counts.
    """
    each = [
        first_steps(run.result.values(metric)[index], run.finite[index], run.steps, level, direction)
        for run, index in entry.parts[task]
    ]
    first = np.concatenate(each)
    return np.where(first <= last, first, np.inf)
