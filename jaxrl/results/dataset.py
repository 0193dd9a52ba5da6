"""Metrics of a call as a labelled dataset: its dimensions, its names, and the error of a result."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from envs.errors import UserValueError

if TYPE_CHECKING:
    import xarray

    from jaxrl.sweeps.sweep import Sweep

__all__ = ["MAIN_METRICS", "RUN_DIMS", "UNKNOWN", "ResultError", "main_metric", "metrics_dataset", "unmeasured"]

RUN_DIMS = ("seed", "env_step")
MAIN_METRICS = ("return", "regret", "reward")
UNKNOWN = "algorithm_unknown"  # the attribute that says why a loaded result has no algorithm


class ResultError(UserValueError):
    """A result is missing, damaged, or does not hold what is asked of it."""


def unmeasured(metrics: xarray.Dataset) -> xarray.Dataset:
    """Where metrics have no value yet: before training those of an algorithm, which no run has; bool, of its dims."""
    missing = {}
    for name, array in metrics.data_vars.items():
        of_runs = [dim for dim in array.dims if dim != "env_step"]
        missing[name] = ((array["env_step"] == 0) & array.isnull().all(of_runs)).broadcast_like(array)
    return metrics.assign(missing)


def main_metric(metrics: xarray.Dataset) -> str:
    """What a result is about: the return of an agent, the regret of a bandit, or the reward where it has none."""
    names = [str(name) for name in metrics.data_vars]
    return next((name for name in MAIN_METRICS if name in names), names[0])


def metrics_dataset(
    values: Mapping[str, Any],
    *,
    seeds: Sequence[int],
    env_steps: Sequence[int],
    sweep: Sweep | None = None,
    attrs: Mapping[str, Any] | None = None,
    last_dims: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
) -> xarray.Dataset:
    """Metrics with named axes.

    Args:
      values: `{name: [num_settings, num_seeds, num_points]}`, settings row-major over the sweep.
      seeds: the seeds' labels, `[num_seeds]`.
      env_steps: environment steps at each point, `[num_points]`.
      sweep: names and coordinates of the settings, or None for a single setting.
      attrs: strings and numbers about the whole call.
      last_dims: `{name: dims}` of metrics that are arrays: their values have these axes behind.

    Returns:
      A Dataset with the dims `(*sweep.dims, "seed", "env_step")`, and the `last_dims` behind.

    Raises:
      ValueError: an array of another shape.
    """
    import xarray

    shape = () if sweep is None else tuple(sweep.shape)
    dims = () if sweep is None else tuple(sweep.dims)
    wanted = (math.prod(shape), len(seeds), len(env_steps))
    variables = {}
    for name, value in values.items():
        array = np.asarray(value)
        behind = tuple(last_dims.get(name, ()))
        if array.shape[:3] != wanted or array.ndim != 3 + len(behind):
            raise UserValueError(
                f"values[{name!r}] has shape {array.shape}; it takes (settings, seeds, points) = {wanted}."
            )
        variables[name] = ((*dims, *RUN_DIMS, *behind), array.reshape(*shape, *array.shape[1:]))
    coords: dict[str, Any] = {"seed": np.asarray(seeds, np.int64), "env_step": np.asarray(env_steps, np.int64)}
    if sweep is not None:
        coords = {path: (on, np.asarray(at)) for path, (on, at) in sweep.coords.items()} | coords
    return xarray.Dataset(variables, coords, dict(attrs or {}))
