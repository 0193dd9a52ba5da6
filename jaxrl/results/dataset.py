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


RUN_DIMS = ("seed", "env_step")
MAIN_METRICS = ("return", "regret", "reward")
RETURN_RANGE = ("return_low", "return_high")  # attributes
NO_RANGE = (-np.inf, np.inf)  # of values without known bounds
# Ranges of other metrics; the regret is against the best expected reward, which no expected reward exceeds.
RANGES = MappingProxyType(
    {"length": (1.0, np.inf), "optimal": (0.0, 1.0), "regret": (0.0, np.inf), "simple_regret": (0.0, np.inf)}
)
EVAL_DISCOUNT = "eval_discount"  # attribute: discount of `discounted_return` in place of that of the training
UNKNOWN = "algorithm_unknown"  # attribute with the reason why a loaded result has no algorithm


class ResultError(UserValueError):
    """Error for a result that is missing or damaged, or that lacks the requested item."""


def unknown_algorithm(metrics: xarray.Dataset) -> ResultError:
    """Error for a result whose algorithm is needed and is not known, with the remedy for the reason."""
    reason = metrics.attrs.get(UNKNOWN, "the result was made without one")
    remedy = "" if "--allow" in reason else ": pass algo= to load_result in Python"
    return ResultError(f"This result's algorithm is unknown ({reason}){remedy}.")


def unmeasured(metrics: xarray.Dataset) -> xarray.Dataset:
    """Mask of metrics that no run has before training, such as those of the algorithm: bool, with the metrics' dims."""
    missing = {}
    for name, array in metrics.data_vars.items():
        of_runs = [dim for dim in array.dims if dim != "env_step"]
        missing[name] = ((array["env_step"] == 0) & array.isnull().all(of_runs)).broadcast_like(array)
    return metrics.assign(missing)


def main_metric(metrics: xarray.Dataset) -> str:
    """The main metric of a result: the return of an agent, the regret of a bandit, or the reward without either."""
    names = [str(name) for name in metrics.data_vars]
    return next((name for name in MAIN_METRICS if name in names), names[0])


def range_of(attrs: Mapping[str, Any], name: str) -> tuple[float, float]:
    """The smallest and the largest value that a metric of a run can have; infinite where that is not known.

    Args:
      attrs: Attributes of the result, which hold the range of its returns where the environment states one.
      name: Name of the metric.
    """
    plain = name.removesuffix("_sampled")
    if plain == "return":
        low, high = (attrs.get(end, limit) for end, limit in zip(RETURN_RANGE, NO_RANGE, strict=True))
        return float(low), float(high)
    return RANGES.get(plain, NO_RANGE)


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
      values: Metrics `{name: [num_settings, num_seeds, num_points]}`, settings row-major over the sweep.
      seeds: Labels of the seeds, `[num_seeds]`.
      env_steps: Environment steps at each point, `[num_points]`.
      sweep: Names and coordinates of the settings, or None for a single setting.
      attrs: Strings and numbers that describe the whole call.
      last_dims: Names of the trailing axes of array-valued metrics, `{name: dims}`.

    Returns:
      A Dataset with the dims `(*sweep.dims, "seed", "env_step")`, followed by the `last_dims`.

    Raises:
      ValueError: An array has the wrong shape.
    """
    import xarray

    shape = () if sweep is None else tuple(sweep.shape)
    dims = () if sweep is None else tuple(sweep.dims)
    expected = (math.prod(shape), len(seeds), len(env_steps))
    variables = {}
    for name, value in values.items():
        array = np.asarray(value)
        behind = tuple(last_dims.get(name, ()))
        if array.shape[:3] != expected or array.ndim != 3 + len(behind):
            raise UserValueError(
                f"values[{name!r}] has shape {array.shape}; it takes (settings, seeds, points) = {expected}."
            )
        variables[name] = ((*dims, *RUN_DIMS, *behind), array.reshape(*shape, *array.shape[1:]))
    coords: dict[str, Any] = {"seed": np.asarray(seeds, np.int64), "env_step": np.asarray(env_steps, np.int64)}
    if sweep is not None:
        coords = {path: (on, np.asarray(at)) for path, (on, at) in sweep.coords.items()} | coords
    return xarray.Dataset(variables, coords, dict(attrs or {}))
