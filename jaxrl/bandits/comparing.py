"""Policies beside each other: what they regret in the mean, as lines and as a table, and what holds for a bandit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.stats

from jaxrl.bandits.lower_bounds import lai_robbins, minimax
from jaxrl.bandits.prior_bounds import lai
from jaxrl.statistics import Interval
from jaxrl.tables import Table

if TYPE_CHECKING:
    from envs.bandits.base import Bandit
    from jaxrl.results import Result

SUMS = ("regret", "realised_regret", "fixed_regret")
# Rewards by the bandit's name, as `lai_robbins` takes them.
FAMILIES = MappingProxyType({f"bandit/{name}": name for name in ("bernoulli", "gaussian", "poisson", "exponential")})

__all__ = ["Line", "bounds_of", "headline", "lines_of", "mean_interval", "regret_table"]


@dataclass(frozen=True)
class Line:
    """A metric of one policy under one setting.

    Attributes:
      label: of the policy.
      setting: `{path: value}` of the sweep, empty for a single setting.
      metric: its name.
      steps: pulls at each point, `[P]`.
      mean: over runs, with its interval, each `[P]`.
      runs, failed: how many runs count, and how many have a metric that is not finite at the end.
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
        """The label, the setting and the number of runs left out."""
        parts = [self.label, *(f"{path.rpartition('.')[2]} {_short(value)}" for path, value in self.setting.items())]
        total = self.runs + self.failed
        return ", ".join(parts) + (f" ({self.failed} of {total} failed)" if self.failed else "")


def lines_of(results: Mapping[str, Result], metric: str = "regret", confidence: float = 0.95) -> list[Line]:
    """The mean of a metric over runs, for every policy and setting.

    Args:
      results: `{label: result of run_bandit}`.
      metric: one with a number for each run.
      confidence: of the intervals.

    Raises:
      ValueError: no results, or a metric that a result has not.
    """
    if not results:
        raise ValueError("results is empty; it takes at least one result of run_bandit with its label.")
    lines = []
    for label, result in results.items():
        if metric not in result.metrics or "arm" in result.metrics[metric].dims:
            known = ", ".join(str(name) for name, array in result.metrics.items() if "arm" not in array.dims)
            raise ValueError(f"metric is {metric!r}; the result of {label} has {known}.")
        steps = result.metrics["env_step"].values.astype(np.float64)
        for setting, runs, bad in zip(result.settings, result.values(metric), result.failed_runs(), strict=True):
            good = runs[~bad]
            mean = mean_interval(good, confidence)
            lines.append(Line(label, setting, metric, steps, mean, len(good), int(bad.sum())))
    return lines


def mean_interval(runs: npt.ArrayLike, confidence: float = 0.95) -> Interval:
    """The mean over runs and its Student-t interval, which costs nothing for a hundred thousand runs.

    Args:
      runs: `[N, ...]`.
      confidence: between 0 and 1.

    Returns:
      Each `[...]`; the ends are nan below two runs, and so is the mean of none.

    Raises:
      ValueError: a confidence out of range.
    """
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence is {confidence!r}; it takes a number between 0 and 1, such as 0.95.")
    values = np.asarray(runs, np.float64)
    nothing, count = np.full(values.shape[1:], np.nan), values.shape[0]
    mean = values.mean(axis=0) if count else nothing
    if count < 2:
        return Interval(mean, nothing, nothing)
    half = scipy.stats.t.ppf(0.5 + confidence / 2, count - 1) * values.std(axis=0, ddof=1) / np.sqrt(count)
    return Interval(mean, mean - half, mean + half)


def regret_table(results: Mapping[str, Result], *, confidence: float = 0.95) -> Table:
    """A row for every policy and setting: mean regret at the end and its interval, optimal pulls, simple regret.

    Args:
      results: `{label: result of run_bandit}`.
      confidence: of the interval of the mean.

    Returns:
      A table that prints well and has `to_pandas()`. Runs that failed are left out and counted.
      Of bandits that have no regret it tells the reward of a pull.

    Raises:
      ValueError: no results, or some that have a regret and some that have none.
    """
    first = headline(results)
    others = [
        name for name in ("optimal", "simple_regret") if all(name in result.metrics for result in results.values())
    ]
    lines = lines_of(results, first, confidence)
    beside = [lines_of(results, name, confidence) for name in others]
    paths = list(dict.fromkeys(path for line in lines for path in line.setting))
    rows = []
    for line, *rest in zip(lines, *beside, strict=True):
        numbers = [float(part[-1]) for part in (*line.mean, *(other.mean.value for other in rest))]
        labels = [line.label, *(line.setting.get(path, "") for path in paths)]
        rows.append((*labels, *numbers, line.runs, line.failed))
    told = [{"optimal": "optimal pulls"}.get(name, name.replace("_", " ")) for name in others]
    names = ("policy", *paths, first, "low", "high", *told, "runs", "failed")
    if not any(line.failed for line in lines):
        names, rows = names[:-1], [row[:-1] for row in rows]
    pulls = " or ".join(f"{last:,}" for last in sorted({int(line.steps[-1]) for line in lines}))
    title = f"{first} after {pulls} pulls: mean over runs, {confidence:.0%} interval of the mean"
    return Table(title, names, tuple(rows), 1 + len(paths))


def headline(results: Mapping[str, Result]) -> str:
    """What results are compared by: `regret`, or `reward` where the bandit has no regret."""
    return "regret" if any("regret" in result.metrics for result in results.values()) else "reward"


def bounds_of(env: Bandit, env_params: Any = None) -> dict[str, Callable[[np.ndarray], np.ndarray]]:
    """The lower bounds that hold for a bandit, as `jaxrl.plotting.regret_curves` draws them.

    Args:
      env: the bandit.
      env_params: one setting of its parameters, its defaults if None.

    Returns:
      `{label: function of the numbers of pulls}`: the line that the regret on a given instance of
      known rewards cannot be below for long (Lai and Robbins), or, of Bernoulli arms, that of its
      mean over the prior (Lai), and the regret that every policy has on some instance (minimax).
      Empty where none is known, or none above 0.
    """
    family = FAMILIES.get(env.name)
    if family is None:
        return {}
    params = env.default_params if env_params is None else env_params
    found: dict[str, Callable[[np.ndarray], np.ndarray]] = {}
    if params.means is not None:
        sigma = float(params.sigma) if family == "gaussian" else 1.0
        proper = sigma > 0 and (family not in ("poisson", "exponential") or np.all(np.asarray(params.means) > 0))
        slope = float(lai_robbins(params.means, family, sigma)) if proper else 0.0
        if slope > 0:
            found["Lai-Robbins, for many pulls"] = lambda steps: slope * np.log(steps)
    elif family == "bernoulli":
        over_prior = lai(env.num_arms, float(params.alpha), float(params.beta))
        found["Lai, mean over the prior, for many pulls"] = lambda steps: over_prior * np.log(steps) ** 2
    if family == "bernoulli":
        found["minimax, on some instance"] = lambda steps: minimax(env.num_arms, steps)
    return found


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
