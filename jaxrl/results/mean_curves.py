"""The mean of a metric over runs, for every result and setting, as lines of a picture or rows of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.stats

from envs.errors import UserValueError
from jaxrl.results.dataset import range_of
from jaxrl.results.format import short
from jaxrl.results.statistics import Interval

if TYPE_CHECKING:
    from jaxrl.results.description import Labelled

__all__ = ["Line", "lines_of", "mean_interval"]


SUMS = ("regret", "realised_regret", "fixed_regret")


@dataclass(frozen=True)
class Line:
    """A metric of one policy under one setting.

    Attributes:
      label: Label of the policy.
      setting: Coordinates of the setting in the sweep, `{path: value}`; empty for a single setting.
      metric: Name of the metric.
      steps: Number of pulls at each point, `[P]`.
      mean: Mean over runs with its interval, each `[P]`.
      runs: Number of runs in the mean.
      failed: Number of runs with a metric that is not finite at the end.
    """

    label: str
    setting: dict[str, Any]
    metric: str
    steps: np.ndarray
    mean: Interval
    runs: int
    failed: int

    @property
    def is_sum(self) -> bool:
        """Whether the metric adds up over pulls, from 0."""
        return self.metric in SUMS

    @property
    def label_with_failures(self) -> str:
        """The label, the setting and the number of excluded runs."""
        parts = [self.label, *(f"{path.rpartition('.')[2]} {short(value)}" for path, value in self.setting.items())]
        total = self.runs + self.failed
        return ", ".join(parts) + (f" ({self.failed} of {total} failed)" if self.failed else "")


def lines_of(results: Mapping[str, Labelled], metric: str = "regret", confidence: float = 0.95) -> list[Line]:
    """The mean of a metric over runs, for every policy and setting.

    Args:
      results: Results by label, `{label: result of run_bandit}`.
      metric: Name of a metric with a number for each run.
      confidence: Confidence level of the intervals, in (0, 1).

    Raises:
      ValueError: `results` is empty, or a result lacks the metric.
    """
    if not results:
        raise UserValueError("results is empty; it takes at least one result of run_bandit with its label.")
    lines = []
    for label, result in results.items():
        if metric not in result.metrics or "arm" in result.metrics[metric].dims:
            known = ", ".join(str(name) for name, array in result.metrics.items() if "arm" not in array.dims)
            raise UserValueError(f"metric is {metric!r}; the result of {label} has {known}.")
        steps = result.metrics["env_step"].values.astype(np.float64)
        for setting, runs, bad in zip(result.settings, result.values(metric), result.failed_runs(), strict=True):
            good = runs[~bad]
            mean = mean_interval(good, confidence).within(*range_of(result.metrics.attrs, metric))
            lines.append(Line(label, setting, metric, steps, mean, len(good), int(bad.sum())))
    return lines


def mean_interval(runs: npt.ArrayLike, confidence: float = 0.95) -> Interval:
    """The mean over runs and its Student-t interval, which is cheap even for a hundred thousand runs.

    Args:
      runs: Values of the runs, `[N, ...]`.
      confidence: Confidence level, in (0, 1).

    Returns:
      Arrays `[...]`; the ends are nan for fewer than two runs, and so is the mean of no runs.

    Raises:
      ValueError: `confidence` is out of range.
    """
    if not 0.0 < confidence < 1.0:
        raise UserValueError(f"confidence is {confidence!r}; it takes a number between 0 and 1, such as 0.95.")
    values = np.asarray(runs, np.float64)
    nothing, count = np.full(values.shape[1:], np.nan), values.shape[0]
    mean = values.mean(axis=0) if count else nothing
    if count < 2:
        return Interval(mean, nothing, nothing)
    half = scipy.stats.t.ppf(0.5 + confidence / 2, count - 1) * values.std(axis=0, ddof=1) / np.sqrt(count)
    return Interval(mean, mean - half, mean + half)
