"""Returns over two parameters of an environment, as a map of colours."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from envs.errors import UserTypeError, UserValueError
from envs.spelling import near_or_all
from jaxrl.results.format import short
from jaxrl.results.held_out import HELD_OUT, of_runs, places
from jaxrl.results.plotting.style import new_figure, require_picture, write_picture
from jaxrl.results.statistics import iqm

if TYPE_CHECKING:
    from matplotlib.axes import Axes

if TYPE_CHECKING:
    import matplotlib.figure
    import xarray

MOST_PANELS = 12
MOST_CELLS_WITH_NUMBERS = 150
MOST_TICKS = 20
COLUMNS = 3
FAILED = "0.85"  # grey of cells without a number

__all__ = ["heat_map"]


def heat_map(
    episodes: xarray.Dataset | Mapping[str, xarray.Dataset],
    metric: str = "return",
    *,
    x: str | None = None,
    y: str | None = None,
    path: str | Path | None = None,
) -> matplotlib.figure.Figure:
    """Map of a metric over one or two parameters of the environment, a panel for each setting, on one scale of colours.

    Args:
      episodes: Episodes of `jaxrl.evaluate` with `env_params=`; or several of these by name, one panel or more each.
      metric: Name of the metric.
      x, y: Names of the parameters along the axes, such as "length"; by default the first two with several values.
      path: File to write the figure to; None for none.

    Returns:
      Figure with the interquartile mean over the seeds of each run's mean over its episodes.

    Raises:
      TypeError: `episodes` is of another type.
      ValueError: There is no such metric or parameter, a further parameter has several values, or there are too many
        panels.
    """
    if path is not None:
        require_picture(path)
    import xarray

    several = isinstance(episodes, Mapping) and not isinstance(episodes, xarray.Dataset)  # datasets are mappings too
    named = dict(episodes) if several else {"": episodes}
    if not named:
        raise UserTypeError("episodes must be those of jaxrl.evaluate(result, ...), or several by name, got none")
    panels: list[tuple[str, xarray.DataArray]] = []
    axes: tuple[str, ...] = ()
    for name, each in named.items():
        means = of_runs(each, metric)
        parameters = [str(dim) for dim in means.dims if str(dim).startswith(HELD_OUT)]
        chosen = _chosen(parameters, x, y, means)
        axes = axes or chosen
        if chosen != axes:
            raise UserValueError(f"episodes must have equal axes of parameters, got {axes} and {chosen} of {name!r}")
        for text, one in _settings(means, chosen):
            panels.append((", ".join(part for part in (str(name), text) if part), one))
    if len(panels) > MOST_PANELS:
        raise UserValueError(
            f"{len(panels)} settings make as many panels, at most {MOST_PANELS}: choose some by .sel()"
        )
    seeds = {array.sizes["seed"] for _, array in panels}
    runs = f"interquartile mean of {', '.join(map(str, sorted(seeds)))} {'run' if seeds == {1} else 'runs'}"
    return _draw([(text, _of_seeds(array)) for text, array in panels], axes, f"{metric}, {runs}", path)


def _chosen(parameters: list[str], x: str | None, y: str | None, means: xarray.DataArray) -> tuple[str, ...]:
    """Names of the axes for x and, unless there is one parameter, for y."""
    if not parameters:
        raise UserValueError(
            "episodes must have axes of parameters, as of jaxrl.evaluate(..., env_params={'length': [0.5, 1.0]})"
        )
    plain = [name.removeprefix(HELD_OUT) for name in parameters]
    for argument, name in (("x", x), ("y", y)):
        if name is not None and name.removeprefix(HELD_OUT) not in plain:
            raise UserValueError(f"{argument} is {name!r}{near_or_all(name, plain, 'the parameters are')}")
    asked = [None if name is None else f"{HELD_OUT}{name.removeprefix(HELD_OUT)}" for name in (x, y)]
    if asked[0] is not None and asked[0] == asked[1]:
        raise UserValueError(f"x and y must be two parameters, got {x!r} twice")
    rest = sorted((name for name in parameters if name not in asked), key=lambda name: means.sizes[name] == 1)
    if asked[0] is None and not rest:
        raise UserValueError(f"y takes a second parameter, and {plain[0]} is the only one; x takes it")
    chosen = [name or (rest.pop(0) if rest else None) for name in asked]
    several = [name.removeprefix(HELD_OUT) for name in rest if means.sizes[name] > 1]
    if several:
        raise UserValueError(
            f"{several[0]} has several values and is neither x nor y: choose one, such as "
            f"episodes.sel({{'{HELD_OUT}{several[0]}': {means.coords[HELD_OUT + several[0]].values[0]}}})"
        )
    return tuple(name for name in chosen if name is not None)


def _settings(means: xarray.DataArray, axes: tuple[str, ...]) -> list[tuple[str, xarray.DataArray]]:
    """Text and values of each setting, the values with the axes of parameters and the seeds."""
    every = places(means, [str(dim) for dim in means.dims if dim not in (*axes, "seed")])
    varied = [name for name in every[0].labels if len({str(place.labels[name]) for place in every}) > 1]
    return [
        (", ".join(f"{name} {short(place.labels[name])}" for name in varied), means.isel(place.at)) for place in every
    ]


def _of_seeds(array: xarray.DataArray) -> xarray.DataArray:
    """Interquartile means over the seeds that have not failed."""

    def estimate(runs: np.ndarray) -> float:
        good = runs[np.isfinite(runs)]
        return float(iqm(good)) if good.size else float("nan")

    values = array.transpose(..., "seed").values
    flat = [estimate(runs) for runs in values.reshape(-1, values.shape[-1])]
    return array.isel(seed=0).copy(data=np.reshape(flat, values.shape[:-1]))


def _draw(
    panels: list[tuple[str, xarray.DataArray]], axes: tuple[str, ...], title: str, path: str | Path | None
) -> matplotlib.figure.Figure:
    finite = np.concatenate([array.values[np.isfinite(array.values)] for _, array in panels])
    low, high = (finite.min(), finite.max()) if finite.size else (0.0, 1.0)
    columns = min(COLUMNS, len(panels))
    lines = -(-len(panels) // columns)
    figure = new_figure(path, (1.2 + 3.6 * columns, 0.8 + 3.0 * lines))
    grid = np.asarray(figure.subplots(lines, columns, squeeze=False))
    across, upwards = axes[0], axes[1] if len(axes) > 1 else None
    image: Any = None
    for ax, (text, array) in zip(grid.flat, panels, strict=False):
        values = array.transpose(*axes[::-1]).values.reshape(-1, array.sizes[across])
        image = ax.imshow(values, vmin=low, vmax=high, cmap="viridis", origin="lower", aspect="auto")
        ax.set_facecolor(FAILED)
        _label(ax.xaxis, array, across)
        _label(ax.yaxis, array, upwards)
        ax.set_title(text, fontsize="medium")
        if values.size <= MOST_CELLS_WITH_NUMBERS:
            _write_numbers(ax, values, low, high)
    for ax in grid.flat[len(panels) :]:
        ax.set_visible(False)
    figure.colorbar(image, ax=list(grid.flat[: len(panels)]), label=title)
    write_picture(figure, path)
    return figure


def _label(axis: Any, array: xarray.DataArray, name: str | None) -> None:
    """The values of a parameter along an axis of the picture, and its name; neither where there is no parameter."""
    values = [] if name is None else array.coords[name].values
    shown = range(0, len(values), -(-len(values) // MOST_TICKS) or 1)
    axis.set_ticks(list(shown), [f"{values[at]:.4g}" for at in shown])
    axis.set_label_text("" if name is None else name.removeprefix(HELD_OUT))


def _write_numbers(ax: Axes, values: np.ndarray, low: float, high: float) -> None:
    """A number in each cell, black on light colours and white on dark ones; "failed" where no run has one."""
    for (line, column), value in np.ndenumerate(values):
        failed = not np.isfinite(value)
        light = failed or (value - low) > 0.6 * (high - low)
        text = "failed" if failed else f"{value:.3g}" if abs(value) < 999.5 else f"{value:.0f}"
        ax.text(column, line, text, ha="center", va="center", color="black" if light else "white", fontsize="small")
