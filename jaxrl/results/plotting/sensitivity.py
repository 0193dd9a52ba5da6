"""Final values of a metric by the value of a hyper-parameter."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from envs.errors import UserValueError
from envs.spelling import near_or_all
from jaxrl.results.format import short
from jaxrl.results.plotting.style import axes, band, describe, finish, label_of, lines_on, require_few, style
from jaxrl.results.statistics import Interval, bootstrap_interval, iqm

if TYPE_CHECKING:
    import matplotlib.axes
    import xarray

LOGARITHMIC = 20.0  # ratio of the largest to the smallest value from which on the axis is logarithmic

__all__ = ["draw_sensitivity"]


def draw_sensitivity(
    array: xarray.DataArray,
    x: str,
    *,
    hue: str | None,
    ax: matplotlib.axes.Axes | None,
    path: str | Path | None,
    label: str | None,
    named: bool,
    confidence: float,
    text: str,
    limits: tuple[float, float],
) -> matplotlib.axes.Axes:
    """The interquartile mean at the end of training against a coordinate, with a bootstrap band.

    Args:
      array: Metric with the dims `(..., "seed", "env_step")`, nan where a run has failed.
      x: Coordinate of numbers along the axis; labels, such as discounts, are spread evenly.
      hue: Coordinate in which the lines differ; runs that differ in others are pooled. None draws one line.
      ax, path, label, confidence: As for `learning_curves`.
      named: Whether a line without others has a legend.
      text: Text of the vertical axis.
      limits: Smallest and largest possible value of the metric.

    Raises:
      ValueError: There is no such coordinate, or the axes have other labels along it.
    """
    last = array.isel(env_step=-1)
    dims = [dim for dim in last.dims if dim != "seed"]
    names = [str(name) for name in last.coords if name not in ("seed", "env_step")]
    for argument, name in (("x", x), ("hue", hue)):
        if name is not None and name not in names:
            raise UserValueError(f"{argument} is {name!r}{near_or_all(name, names, 'the coordinates are')}")
    values = last.transpose(*dims, "seed").values.reshape(-1, last.sizes["seed"])
    labels = {
        name: last.coords[name].broadcast_like(last.isel(seed=0)).transpose(*dims).values.ravel() for name in names
    }
    hues = np.zeros(len(values)) if hue is None else labels[hue]
    lines = list(dict.fromkeys(hues.tolist()))
    first = lines_on(ax)
    require_few(first + len(lines), "choose another hue=")
    ax = axes(ax, path)
    numbers = labels[x].dtype.kind in "iuf"
    places = np.unique(labels[x]) if numbers else np.asarray(list(dict.fromkeys(labels[x].tolist())))
    at = places if numbers else np.arange(len(places))
    ticks = [text.get_text() for text in ax.get_xticklabels()] if first and not numbers else []
    if ticks and ticks != [str(place) for place in places]:
        raise UserValueError(f"x is {x!r}, and the axes have other labels, {', '.join(ticks)}; draw on other axes.")
    for index, line in enumerate(lines, start=first):
        of_line = hues == line
        estimates = [_estimate(values[of_line & (labels[x] == place)], confidence) for place in places]
        interval = Interval(*(np.asarray(part) for part in zip(*estimates, strict=True))).within(*limits)
        name = label_of(ax, label, None if hue is None else short(line)) or None
        ax.plot(at, interval.value, label=name, marker="o", markersize=4, **style(index))
        band(ax, index, at, interval.low, interval.high, first + len(lines))
    if not numbers:
        ax.set_xticks(at, [str(place) for place in places])
    elif places[0] > 0 and places[-1] >= LOGARITHMIC * places[0]:
        ax.set_xscale("log")
    ax.set_xlabel(x)
    pooled = [name for name in names if name not in (x, hue) and len(set(labels[name].tolist())) > 1]
    over = f" over {' and '.join(pooled)}" if pooled else ""
    steps = f"{int(array['env_step'].values[-1]):,} environment steps"
    describe(ax, first, text, f"after {steps}: interquartile mean{over}, {confidence:.0%} interval")
    return finish(ax, path, None if first else hue, legend=named or first + len(lines) > 1)


def _estimate(values: np.ndarray, confidence: float) -> Interval:
    """The estimate of the runs that have not failed; an interval takes two."""
    good = values[np.isfinite(values)]
    if len(good) > 1:
        return bootstrap_interval(iqm, good, confidence=confidence)
    return Interval(*np.full(3, good[0] if len(good) else np.nan))
