"""Parts of figures that several studies draw."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from jaxrl.results.statistics import bootstrap_interval, iqm

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["mean_curve", "plain_axes"]


def plain_axes(ax: Axes, grid: Literal["both", "x", "y"] = "both") -> None:
    """Axes with a light grid and without a frame at the top and the right."""
    ax.grid(True, axis=grid, color="0.9", linewidth=0.8)
    ax.spines[["top", "right"]].set_visible(False)


def mean_curve(ax: Axes, steps: np.ndarray, values: np.ndarray, colour: str, label: str) -> None:
    """Interquartile mean of the runs without nan over training, with pointwise intervals; nothing for a single run.

    Args:
      ax: Axes to draw on.
      steps: Environment steps of the evaluations, `[evaluations]`.
      values: Values of the runs, `[seeds, evaluations]`; nan in a failed run.
      colour: Colour of the line and its band.
      label: Label of the line.
    """
    good = values[np.isfinite(values).all(axis=1)]
    if len(good) > 1:
        estimates = [bootstrap_interval(iqm, column) for column in good.T]
        ax.plot(steps, [float(each.value) for each in estimates], color=colour, label=label)
        low, high = ([float(getattr(each, end)) for each in estimates] for end in ("low", "high"))
        ax.fill_between(steps, low, high, color=colour, alpha=0.2, linewidth=0)
