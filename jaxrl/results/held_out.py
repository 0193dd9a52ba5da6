"""Returns over parameters of an environment, as a table."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from envs.arguments import check_number
from envs.errors import UserTypeError, UserValueError
from envs.spelling import near_or_all
from jaxrl.results.dataset import range_of
from jaxrl.results.tables import Table, estimates

if TYPE_CHECKING:
    import xarray

HELD_OUT = "eval."  # how the names of axes of parameters begin

__all__ = ["HELD_OUT", "held_out_table", "of_runs"]


def held_out_table(episodes: xarray.Dataset, metric: str = "return", *, confidence: float = 0.95) -> Table:
    """A row for each setting and each combination of the environment's parameters.

    Args:
      episodes: Episodes of `jaxrl.evaluate`, with `env_params=` for axes of parameters.
      metric: Name of the metric.
      confidence: Confidence level of the intervals.

    Returns:
      Table of interquartile means over the seeds of each run's mean over its episodes, with bootstrap intervals;
      `str(table)` is its text, and `table.to_pandas()` a DataFrame.

    Raises:
      TypeError: `episodes` is of another type.
      ValueError: There is no such metric.
    """
    check_number("confidence", confidence, 0.0, 1.0)
    means = of_runs(episodes, metric)
    dims = [str(dim) for dim in means.dims if dim != "seed"]
    labels = [means.coords[dim].values.tolist() for dim in dims]
    values = means.values.reshape(-1, means.sizes["seed"])
    limits = range_of(episodes.attrs, metric)
    rows, failed = [], 0
    for names, runs in zip(itertools.product(*labels), values, strict=True):
        good = runs[np.isfinite(runs)]
        failed = max(failed, len(runs) - len(good))
        rows.append((*names, *estimates(good, confidence, limits)))
    count = means.sizes["seed"]
    who = f"of {count} {'run' if count == 1 else 'runs'}" + f", of which {failed} failed" * bool(failed)
    title = f"{metric} {who}, {episodes.sizes['episode']} episodes each: interquartile mean"
    columns = (*(dim.removeprefix(HELD_OUT) for dim in dims), "iqm", "low", "high", "mean", "seeds")
    return Table(f"{title}, {confidence:.0%} bootstrap interval", columns, tuple(rows), len(dims))


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
        raise UserTypeError(
            f"episodes must be those of jaxrl.evaluate(result, ...), a dataset with the axis 'episode', got "
            f"{type(episodes).__name__}"
        )
    if metric not in episodes:
        raise UserValueError(f"metric is {metric!r}{near_or_all(metric, map(str, episodes.data_vars), 'there are')}")
    means = episodes[metric].mean("episode", skipna=False)
    if "seed" not in means.dims:
        means = means.expand_dims("seed")
    return means.transpose(..., "seed")
