"""Pictures of bandits: the regret of several policies, with lower bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from jaxrl.results.mean_curves import Line, lines_of
from jaxrl.results.plotting.style import (
    COLOURS,
    band,
    finish,
    new_figure,
    require_few,
    require_picture,
    style,
    write_picture,
)

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

    from jaxrl.results.description import Labelled

Bound = Callable[[np.ndarray], np.ndarray]

NAMES = {
    "regret": "regret (mean of runs)",
    "realised_regret": "realised regret (mean of runs)",
    "simple_regret": "simple regret (mean of runs)",
    "fixed_regret": "regret against the best fixed arm (mean of runs)",
    "optimal": "fraction of optimal pulls",
    "reward": "reward of a pull (mean)",
}
DECADES = 5  # number of decades that the logarithmic panel shows below its highest number
CURVE_POINTS = 200

__all__ = ["regret_curves"]


def regret_curves(
    results: Mapping[str, Labelled],
    metric: str = "regret",
    *,
    bounds: Mapping[str, Bound] = MappingProxyType({}),
    confidence: float = 0.95,
    figure: matplotlib.figure.Figure | None = None,
    path: str | Path | None = None,
) -> np.ndarray:
    """The mean regret of policies against pulls, on linear axes and on logarithmic ones.

    Args:
      results: Results by label, `{label: result of run_bandit}`; a result with several settings gets a line for each.
      metric: Name of the metric, such as `regret`, `realised_regret`, `simple_regret`, `fixed_regret`, `optimal`.
      bounds: Bounds by label, `{label: function of the numbers of pulls}`, drawn in black;
        `jaxrl.bandits.bounds_of` returns those that hold for a bandit.
      confidence: Confidence level of the bands, which are intervals of the mean over runs.
      figure: Figure to draw on; None creates one.
      path: Picture file to write in addition.

    Returns:
      The two axes, linear and logarithmic. Runs with a metric that is not finite are excluded and
      counted in the legend. Logarithmic axes omit means that are not above 0.

    Raises:
      ValueError: `results` is empty, the metric is unknown, or there are more lines than can be distinguished.
    """
    if path is not None:
        require_picture(path)
    lines = lines_of(results, metric, confidence)
    require_few(len(lines), "draw fewer policies or settings")
    figure = new_figure(path, (10.4, 4.2)) if figure is None else figure
    linear, logarithmic = pair = figure.subplots(1, 2)
    for ax in pair:
        for index, line in enumerate(lines):
            _draw(ax, index, line, len(lines), ax is logarithmic)
        ax.set_xlabel("pulls")
        ax.set_ylabel(NAMES.get(metric, metric.replace("_", " ")))
    top = linear.get_ylim()[1]
    first, last = (edge(line.steps[at] for line in lines) for edge, at in ((min, 0), (max, -1)))
    for index, (label, bound) in enumerate(bounds.items()):
        steps = np.geomspace(max(first, 1), last, CURVE_POINTS)
        look = {"color": COLOURS[-1], "linestyle": ("--", ":", "-.")[index % 3], "linewidth": 1.2}
        for ax in pair:
            ax.plot(steps, bound(steps), label=label, **look)
    _scale(linear, logarithmic, lines, last, top)
    fewest, most = min(line.runs for line in lines), max(line.runs for line in lines)
    runs = f"{most:,}" if fewest == most else f"{fewest:,} to {most:,}"
    finish(linear, None, None)
    finish(logarithmic, None, None)
    logarithmic.get_legend().remove()
    figure.suptitle(f"{runs} runs, {confidence:.0%} interval of the mean", fontsize="medium")
    write_picture(figure, path)
    return pair


def _draw(ax: matplotlib.axes.Axes, index: int, line: Line, num_lines: int, logarithmic: bool) -> None:
    """A line with its band; it begins at no pulls where the metric is a sum and the axes are linear."""
    mean = line.mean
    steps, value, low, high = line.steps, mean.value, mean.low, mean.high
    if logarithmic:
        low = np.maximum(low, np.where(value > 0, value, 1) * 10.0**-DECADES)
    elif line.is_sum:
        steps, value, low, high = (np.concatenate([[0], part]) for part in (steps, value, low, high))
    ax.plot(steps, value, label=line.label_with_failures, marker="o" if len(line.steps) == 1 else None, **style(index))
    band(ax, index, steps, low, high, num_lines)


def _scale(
    linear: matplotlib.axes.Axes, logarithmic: matplotlib.axes.Axes, lines: list[Line], last: float, top: float
) -> None:
    """Axes that show the policies: a bound far above them leaves the linear panel."""
    from matplotlib.ticker import EngFormatter

    linear.xaxis.set_major_formatter(EngFormatter(sep=""))
    linear.set_xlim(0, last)
    linear.set_ylim(np.fmin.reduce([end for line in lines for end in line.mean.low], initial=0.0), top)
    logarithmic.set_xscale("log")
    positive = np.concatenate([line.mean.value[line.mean.value > 0] for line in lines])
    if not positive.size:
        return
    logarithmic.set_yscale("log")
    lowest, most = positive.min(), positive.max()
    highest = np.fmax.reduce([end for line in lines for end in line.mean.high], initial=most)
    logarithmic.set_ylim(max(lowest / 2, highest * 10.0**-DECADES), highest * 2)
