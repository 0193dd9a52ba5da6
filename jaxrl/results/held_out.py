"""Returns over parameters of an environment, as a table."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from envs.arguments import check_number
from envs.errors import UserTypeError, UserValueError
from envs.spelling import near_or_all
from jaxrl.results.dataset import range_of
from jaxrl.results.format import counted
from jaxrl.results.tables import Table, estimates

if TYPE_CHECKING:
    import xarray

HELD_OUT = "eval."  # prefix of the names of axes of parameters

__all__ = ["HELD_OUT", "Place", "held_out_table", "of_runs", "places"]


def held_out_table(episodes: xarray.Dataset, metric: str = "return", *, confidence: float = 0.95) -> Table:
    """A row for each setting and each combination of the environment's parameters.

    Args:
      episodes: Episodes of `jaxrl.evaluate`, with `env_params=` for axes of parameters.
      metric: Name of the metric.
      confidence: Confidence level of the intervals, in (0, 1).

    Returns:
      Table of interquartile means over the seeds of each run's mean over its episodes, with bootstrap intervals;
      `str(table)` is its text, and `table.to_pandas()` a DataFrame.

    Raises:
      TypeError: `episodes` is of another type.
      ValueError: There is no such metric, or the confidence level is out of range.
    """
    check_number("confidence", confidence, 0.0, 1.0)
    means = of_runs(episodes, metric)
    limits, every = range_of(episodes.attrs, metric), places(means, [str(dim) for dim in means.dims if dim != "seed"])
    names, rows = list(every[0].labels), []
    for place in every:
        runs = means.isel(place.at).values
        good = runs[np.isfinite(runs)]
        rows.append((*place.labels.values(), *estimates(good, confidence, limits), len(runs) - len(good)))
    plain = [name.removeprefix(HELD_OUT) for name in names]
    names = plain if len(set(plain)) == len(plain) else names
    columns = (*names, "iqm", "low", "high", "mean", "seeds", "failed")
    if not any(row[-1] for row in rows):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    who = f"{counted(means.sizes['seed'], 'seed')}, {counted(episodes.sizes['episode'], 'episode')} each"
    title = f"{metric} of {who}: interquartile mean, {confidence:.0%} bootstrap interval"
    return Table(title, columns, tuple(rows), len(names))


def of_runs(episodes: Any, metric: str) -> xarray.DataArray:
    """The mean over the episodes of each run, with the axes of settings and of parameters, and `seed` as the last one.

    Args:
      episodes: Episodes of `jaxrl.evaluate`.
      metric: Name of the metric.

    Raises:
      TypeError: `episodes` is of another type.
      ValueError: There is no such metric.
    """
    import xarray

    if not isinstance(episodes, xarray.Dataset) or "episode" not in episodes.dims:
        axes = f" with the axes {', '.join(map(str, episodes.dims))}" if isinstance(episodes, xarray.Dataset) else ""
        raise UserTypeError(
            f"episodes must be those of jaxrl.evaluate(result, ...), a dataset with the axis episode, got "
            f"{type(episodes).__name__}{axes}"
        )
    if metric not in episodes:
        raise UserValueError(f"metric is {metric!r}{near_or_all(metric, map(str, episodes.data_vars), 'there are')}")
    means = episodes[metric].mean("episode", skipna=False)
    if "seed" not in means.dims:
        means = means.expand_dims("seed")
    return means.transpose(..., "seed")


class Place(NamedTuple):
    """One combination of positions along some axes.

    Attributes:
      at: Position along each axis.
      labels: Values of all coordinates along these axes, by name.
    """

    at: dict[str, int]
    labels: dict[str, Any]


def places(array: xarray.DataArray, dims: list[str]) -> list[Place]:
    """All combinations of positions along some axes, the last axis varying fastest.

    An axis of a random design has several coordinates, one for each hyper-parameter, and none of its own name.
    """
    names = {dim: [str(name) for name, each in array.coords.items() if each.dims == (dim,)] for dim in dims}
    every = []
    for index in itertools.product(*(range(array.sizes[dim]) for dim in dims)):
        at = dict(zip(dims, index, strict=True))
        labels = {
            name: array.coords[name].values.tolist()[at[dim]] if name in array.coords else at[dim]
            for dim in dims
            for name in names[dim] or [dim]
        }
        every.append(Place(at, labels))
    return every
