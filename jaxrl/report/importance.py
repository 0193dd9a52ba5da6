"""Importance of the hyper-parameters of a sweep: their shares of the variance between settings."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.stats

if TYPE_CHECKING:
    from jaxrl.results.result import Result

FEWEST = 5  # minimum number of settings of a random design for a rank correlation

__all__ = ["Importance", "importance"]


@dataclass(frozen=True)
class Importance:
    """Shares of the variance between the settings' means.

    Attributes:
      method: Method: "anova" on a whole grid, where the shares of hyper-parameters and of their pairs add up to at
        most 1; "association" otherwise, where each share is independent of the others.
      shares: Share of each path, `{path: share}`, the largest first; nan if it cannot be computed.
      pairs: Share of the interaction of each pair, `{(path, path): share}`, the largest first.
      noise: Share expected from the seeds alone; nan if no setting has two seeds.
      settings: Number of settings.
      left_out: Number of settings of which all runs failed.
    """

    method: str
    shares: dict[str, float]
    pairs: dict[tuple[str, str], float]
    noise: float
    settings: int
    left_out: int


def importance(result: Result, metric: str) -> Importance | None:
    """The importance of every swept hyper-parameter for a metric at the last point.

    On a grid: a functional analysis of variance, that is the variance of the means over all other
    hyper-parameters. In a random design: for a number the squared rank correlation with the
    settings' means, which detects monotonic effects only; for a non-numeric value
    the share of variance between its values (epsilon squared, which is 0 in expectation without an effect).

    Args:
      result: Result of a sweep.
      metric: Name of a metric with a single number per run.

    Returns:
      The importance, or None for one setting, equal means, or too few settings for the method.

    Source: Hutter, Hoos and Leyton-Brown (2014), "An efficient approach for assessing
    hyperparameter importance", for the decomposition, here of the grid itself and not of a model.
    """
    final, failed = result.values(metric)[:, :, -1].astype(np.float64), result.failed_runs()
    good = [runs[~bad] for runs, bad in zip(final, failed, strict=True)]
    means = np.array([runs.mean() if runs.size else np.nan for runs in good])
    known = np.isfinite(means)
    settings = result.settings
    paths = [path for path in settings[0] if len({setting[path] for setting in settings}) > 1]
    if not paths or known.sum() < 2 or np.ptp(means[known]) == 0:
        return None
    errors = [runs.var(ddof=1) / runs.size for runs in good if runs.size > 1]
    noise = float(np.mean(errors) / means[known].var()) if errors else float("nan")
    dims = [dim for dim in result.dims if result.metrics.sizes[dim] > 1]
    grid = [result.metrics.sizes[dim] for dim in dims] if known.all() and dims == paths else None
    pairs: dict[tuple[str, str], float] = {}
    if grid is not None:
        shares, pairs = _anova(means.reshape(grid), paths)
    elif known.sum() < FEWEST:
        return None
    else:
        columns = {
            path: [setting[path] for setting, knows in zip(settings, known, strict=True) if knows] for path in paths
        }
        shares = {path: _association(column, means[known]) for path, column in columns.items()}
    return Importance(
        method="association" if grid is None else "anova",
        shares=dict(sorted(shares.items(), key=lambda item: -np.nan_to_num(item[1], nan=-1.0))),
        pairs=dict(sorted(pairs.items(), key=lambda item: -item[1])),
        noise=min(noise, 1.0),
        settings=len(settings),
        left_out=int((~known).sum()),
    )


def _anova(means: np.ndarray, paths: list[str]) -> tuple[dict[str, float], dict[tuple[str, str], float]]:
    total, axes = means.var(), range(means.ndim)

    def variance(*kept: int) -> float:
        return float(means.mean(axis=tuple(axis for axis in axes if axis not in kept)).var() / total)

    alone = [variance(axis) for axis in axes]
    both = {(paths[i], paths[j]): variance(i, j) - alone[i] - alone[j] for i, j in itertools.combinations(axes, 2)}
    return dict(zip(paths, alone, strict=True)), {pair: max(share, 0.0) for pair, share in both.items()}


def _association(values: list[Any], means: np.ndarray) -> float:
    levels = list(dict.fromkeys(values))
    if len(levels) < 2:
        return float("nan")
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return float(np.asarray(scipy.stats.spearmanr(values, means))[0]) ** 2
    if len(levels) == len(values):
        return float("nan")
    group = np.array([levels.index(value) for value in values])
    within = sum(((means[group == level] - means[group == level].mean()) ** 2).sum() for level in range(len(levels)))
    between = 1 - within / (len(values) * means.var()) * (len(values) - 1) / (len(values) - len(levels))
    return max(float(between), 0.0)
