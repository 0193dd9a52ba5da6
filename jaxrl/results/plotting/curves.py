"""Pictures of results: learning curves and performance profiles."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from envs.arguments import check_choice
from envs.errors import UserValueError
from jaxrl.results.dataset import RUN_DIMS, main_metric, range_of, unmeasured
from jaxrl.results.format import short
from jaxrl.results.optima import NAME_OF_KIND, known_values
from jaxrl.results.plotting.sensitivity import draw_sensitivity
from jaxrl.results.plotting.style import (
    axes,
    band,
    describe,
    finish,
    label_of,
    lines_on,
    reference_line,
    require_few,
    style,
)
from jaxrl.results.statistics import Interval, bootstrap_interval, iqm, performance_profile

if TYPE_CHECKING:
    import matplotlib.axes
    import xarray

    from jaxrl.results.description import Labelled

UNITS = {
    "return": "return per episode",
    "return_sampled": "return per episode, sampled actions",
    "discounted_return": "discounted return per episode",
    "discounted_return_sampled": "discounted return per episode, sampled actions",
    "length": "episode length (steps)",
    "length_sampled": "episode length (steps), sampled actions",
    "entropy": "entropy (nats)",
    "approx_kl": "approximate KL divergence (nats)",
}
MOST_OPTIMA = 4  # lines at optima in one picture, and at bounds

__all__ = ["learning_curves", "performance_profiles"]


def learning_curves(
    result: Labelled | xarray.Dataset,
    metric: str | None = None,
    *,
    x: str | None = None,
    hue: str | None = None,
    ax: matplotlib.axes.Axes | None = None,
    path: str | Path | None = None,
    label: str | None = None,
    confidence: float = 0.95,
    num_resamples: int = 500,
) -> matplotlib.axes.Axes:
    """The interquartile mean over seeds against environment steps, with a bootstrap band.

    Calls on the same axes add lines in further colours, with a legend. Thin dashed lines mark
    the optimum of a return of a `Result`, or its bound, where they are known, as in `Result.table`; more than four
    different optima, or bounds, are left out.

    Args:
      result: `Result`, or a Dataset with the dims `(..., "seed", "env_step")`, such as several results that
        `xarray.concat` joined.
      metric: Name of the metric; None for the return, or the regret of a bandit.
      x: Sweep coordinate of the horizontal axis, such as "lr", to draw the metric at the end of training against it,
        with a line for each value of `hue`; None draws the metric against environment steps.
      hue: Sweep coordinate that distinguishes the lines; runs that differ in the other coordinates
        are pooled and resampled within each setting (stratified). None draws a line per setting.
      ax: Axes to draw on, which may have lines of other results; None creates a figure.
      path: Picture file to write in addition.
      label: Label of the result in the legend, in front of its settings; None for the name of the algorithm, in front
        of settings only where the axes already have lines.
      confidence: Confidence level of the band, in (0, 1).
      num_resamples: Number of bootstrap resamples.

    Returns:
      The axes. At points where any metric of a run is not finite, the run is excluded and the others
      are resampled from one pool; the legend counts such runs, as failed if a metric is not finite at
      the last point, like `Result.table`. In a Dataset, points at which a setting has no metric at all are those of
      other results that were joined with it: its line has its own points, and ends at the last of them. Seeds that have
      no metric at any point are counted as runs without values, since other results may have them, or they failed.

    Raises:
      ValueError: The metric or hue is unknown, the metric has several numbers for a run, or there are
        more lines than can be distinguished.
    """
    import xarray

    metrics = result if isinstance(result, xarray.Dataset) else result.metrics
    metric = main_metric(metrics) if metric is None else metric
    if metric not in metrics.data_vars:
        known = ", ".join(sorted(str(name) for name in metrics.data_vars))
        raise UserValueError(f"metric is {metric!r}; there are {known}.")
    behind = [str(dim) for dim in metrics[metric].dims[metrics[metric].dims.index("env_step") + 1 :]]
    if behind:
        raise UserValueError(
            f"metric is {metric!r}, which has a number for each {behind[0]}; "
            f"choose one, such as result.metrics.isel({behind[0]}=0)"
        )
    array, absent = _without_failures(metrics, metric, joined=isinstance(result, xarray.Dataset))
    limits = range_of(metrics.attrs, metric)
    text, first, named = UNITS.get(metric, metric.replace("_", " ")), lines_on(ax), label is not None
    single = hue is None if x is not None else not _coordinates(array)
    if label is None and (first or single):
        label = str(metrics.attrs.get("algorithm", ""))
    if x is not None:
        last = _last_measured(array, absent)
        options: dict[str, Any] = {"hue": hue, "ax": ax, "path": path, "label": label, "confidence": confidence}
        return draw_sensitivity(last, x, **options, named=named or hue is not None, text=text, limits=limits)
    env_steps = np.asarray(array["env_step"].values)
    groups, pooled = _groups(array, hue)
    absences, _ = _groups(absent, hue)
    require_few(first + len(groups), "choose a hue= that pools some, or select from the metrics")
    ax = axes(ax, path)
    noted = False
    for index, (group, values) in enumerate(groups.items(), start=first):
        finite, gone = np.isfinite(values), absences[group]
        at, note = ~gone.all(axis=(0, 1)), _left_out(finite, gone, env_steps)
        name, noted = (label_of(ax, label, group) + note).strip(), noted or bool(note)
        interval = _band(values[..., at], finite[..., at], confidence, num_resamples).within(*limits)
        _line(ax, index, env_steps[at], interval, name or None, first + len(groups))
    _scale_steps(ax, env_steps, first)
    if not isinstance(result, xarray.Dataset):
        _optima(ax, result, metric)
    runs = sorted({int((~gone.all(axis=-1)).sum()) for gone in absences.values()})
    count = " to ".join(dict.fromkeys(map(str, (runs[0], runs[-1]))))
    over = f" over {' and '.join(pooled)}" if pooled else ""
    describe(ax, first, text, f"interquartile mean of {count} runs{over}, {confidence:.0%} interval")
    title = hue if hue is not None else ", ".join(_coordinates(metrics[metric]))
    return finish(ax, path, None if first else title or None, legend=named or noted or first + len(groups) > 1)


def performance_profiles(
    scores: Mapping[str, npt.ArrayLike],
    *,
    thresholds: npt.ArrayLike | None = None,
    better: Literal["higher", "lower"] = "higher",
    ax: matplotlib.axes.Axes | None = None,
    path: str | Path | None = None,
    label: str = "return",
    confidence: float = 0.95,
) -> matplotlib.axes.Axes:
    """The share of runs above each score, or at most as high, a line per algorithm or setting.

    Args:
      scores: Scores by label, `{label: [seeds] or [tasks, seeds]}`.
      thresholds: Thresholds `[num_thresholds]`; None takes 101 over the range of all scores.
      better: Whether higher or lower scores are better: the share above a threshold, or the share at or below it.
      ax, path: Axes and picture file, as for `learning_curves`.
      label: Name of the score, for the axis.
      confidence: Confidence level of the pointwise intervals, in (0, 1).

    Returns:
      The axes.

    Raises:
      ValueError: `scores` is empty or contains a nan, or there are more lines than can be distinguished.
    """
    if not scores:
        raise UserValueError("scores is empty; it takes at least one array of scores with its label.")
    check_choice("better", better, ("higher", "lower"))
    require_few(len(scores), "draw fewer of them")
    if thresholds is None:
        everything = np.concatenate([np.asarray(value, dtype=np.float64).ravel() for value in scores.values()])
        thresholds = np.linspace(everything.min(), everything.max(), 101)
    levels = np.asarray(thresholds, dtype=np.float64)
    ax = axes(ax, path)
    for index, (name, value) in enumerate(scores.items()):
        profile = performance_profile(value, levels, confidence=confidence)
        if better == "lower":
            profile = Interval(1 - profile.value, 1 - profile.high, 1 - profile.low)
        _line(ax, index, levels, profile, name, len(scores))
    ax.set_xlabel(f"threshold ({label})")
    ax.set_ylabel(f"share of runs {'above' if better == 'higher' else 'at or below'} the threshold")
    ax.set_ylim(-0.02, 1.02)
    return finish(ax, path, None)


def _without_failures(
    metrics: xarray.Dataset, metric: str, *, joined: bool
) -> tuple[xarray.DataArray, xarray.DataArray]:
    """A metric, nan wherever any metric of its run is not finite, and where a setting of joined results has no values.

    Args:
      metrics: Metrics of a result, or of several that were joined.
      metric: Name of the metric.
      joined: Whether the metrics may be those of several results.

    Returns:
      The metric, and a mask like it: True where no metric of a run has a value, because other results have this seed,
      or this point.
    """
    array, missing = metrics[metric], unmeasured(metrics)
    before = missing[metric]
    others = {str(name): other for name, other in metrics.data_vars.items() if set(other.dims) == set(array.dims)}
    absent = array.isnull() & joined
    for name, other in others.items():
        if joined:  # a metric of another algorithm
            missing[name] = missing[name] | other.isnull().all(RUN_DIMS)
        absent = absent & other.isnull()
        array = array.where(np.isfinite(other) | missing[name])
    absent = absent & (absent.all("seed") | absent.all("env_step"))
    if before.any():
        array, absent = array.where(~before, drop=True), absent.where(~before, drop=True).astype(bool)
    return array, absent


def _last_measured(array: xarray.DataArray, absent: xarray.DataArray) -> xarray.DataArray:
    """The metric with the values of the last point that a setting has at all later points, which others have."""
    env_steps = array["env_step"]
    ends = env_steps.where(~absent.all("seed"), env_steps[0]).max("env_step")
    return array.where(env_steps <= ends, array.sel(env_step=ends).drop_vars("env_step"))


def _left_out(finite: np.ndarray, absent: np.ndarray, env_steps: np.ndarray) -> str:
    """Legend text on runs that are excluded, and on an early end.

    Args:
      finite: Whether all metrics are finite, `[settings, seeds, points]`.
      absent: Whether there is no metric at all, as in `_without_failures`.
      env_steps: Environment steps of the points.
    """
    measured = np.asarray(~absent.all(axis=1))  # [settings, points]
    there = np.asarray(~absent.all(axis=2))  # [settings, seeds]
    if not measured.any():
        return " (no values)"
    last = np.where(measured, np.arange(len(env_steps)), -1).max(axis=1)
    at_the_end = ~np.take_along_axis(finite, last[:, None, None], axis=-1)[..., 0] & there
    for_a_time = (~finite & measured[:, None]).any(axis=-1) & ~at_the_end & there
    counts = {"failed": at_the_end, "failed for a time": for_a_time, "without values": ~there}
    shown = [f"{runs.sum()} of {runs.size} {how}" for how, runs in counts.items() if runs.any()]
    own = env_steps[measured.any(axis=0)]
    if len(own) > 1 and own[-1] + (own[-1] - own[-2]) <= env_steps[-1]:  # another point of its own would have fitted
        shown.append(f"until {own[-1]:,} steps")
    return f" ({', '.join(shown)})" if shown else ""


def _coordinates(array: xarray.DataArray) -> list[str]:
    return [str(name) for name in array.coords if name not in RUN_DIMS]


def _groups(array: xarray.DataArray, hue: str | None) -> tuple[dict[str, np.ndarray], list[str]]:
    """`{label: [settings pooled, seeds, points]}` and the names of the pooled coordinates."""
    names = _coordinates(array)
    if hue is not None and hue not in names:
        has = ", ".join(names) if names else "none but the seed"
        raise UserValueError(f"hue is {hue!r}; the coordinates are {has}.")
    dims = [str(dim) for dim in array.dims if dim not in RUN_DIMS]
    stacked = array.transpose(*dims, *RUN_DIMS)
    values = stacked.values.reshape(-1, *stacked.shape[-2:])
    shape = stacked.shape[:-2]
    labels = {}
    for name in names:
        coord = array.coords[name].broadcast_like(stacked.isel(seed=0, env_step=0)).transpose(*dims)
        labels[name] = coord.values.reshape(-1)
    shown = names if hue is None else [hue]
    rows: dict[str, list[int]] = {}
    for row in range(int(np.prod(shape))):
        rows.setdefault(", ".join(short(labels[name][row]) for name in shown), []).append(row)
    pooled = [name for name in names if name not in shown and len(set(labels[name].tolist())) > 1]
    return {label: values[at] for label, at in rows.items()}, pooled


def _band(values: np.ndarray, finite: np.ndarray, confidence: float, num_resamples: int) -> Interval:
    """Estimate and interval at every point of [settings, seeds, points]."""

    def interval(scores: np.ndarray) -> Interval:
        return bootstrap_interval(iqm, scores, tasks=True, confidence=confidence, num_resamples=num_resamples)

    if not finite.size:
        return Interval(*np.empty((3, 0)))
    if finite.all():
        return interval(np.moveaxis(values, -1, 0))
    points = []
    for point in range(values.shape[-1]):
        runs, good = values[..., point], finite[..., point]
        runs = runs if good.all() else runs[good][None]
        points.append(interval(runs) if runs.size else Interval(*np.full((3,), np.nan)))
    return Interval(*(np.array(part) for part in zip(*points, strict=True)))


def _line(
    ax: matplotlib.axes.Axes, index: int, x: np.ndarray, interval: Interval, label: str | None, num_lines: int
) -> None:
    look = style(index)
    marker = "o" if len(x) == 1 else None
    ax.plot(x, interval.value, label=label, marker=marker, **look)
    if len(x) == 1:
        half = np.stack([interval.value - interval.low, interval.high - interval.value])
        ax.errorbar(x, interval.value, half, color=look["color"], capsize=3)
    else:
        band(ax, index, x, interval.low, interval.high, num_lines)


def _optima(ax: matplotlib.axes.Axes, result: Labelled, metric: str) -> None:
    """A line at each known optimum and each bound of a result's settings, unless there are too many of either."""
    for kind, name in NAME_OF_KIND.items():
        values = known_values(result, metric, kind)
        labels = {} if values is None else {f"{name} {value:.5g}": value for value in values[np.isfinite(values)]}
        for label, value in labels.items() if len(labels) <= MOST_OPTIMA else ():
            reference_line(ax, value, label)


def _scale_steps(ax: matplotlib.axes.Axes, env_steps: np.ndarray, lines_before: int) -> None:
    from matplotlib.ticker import EngFormatter

    ax.set_xlabel("environment steps")
    ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    if len(env_steps) > 1:
        low, high = ax.get_xlim() if lines_before else (0.0, 0.0)
        ax.set_xlim(min(low, env_steps[0]), max(high, env_steps[-1]))
