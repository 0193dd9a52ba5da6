"""Trackers of running training calls: TensorBoard, Weights & Biases, MLflow and CSV files.

    jaxrl.train(algo, sweep, seeds=100, env_steps=1e6, trackers=[jaxrl.tracking.tensorboard("runs/tb")])

Each tracker logs one run for each seed, or one for each setting: the estimate over its seeds, the ends
of its interval as further metrics `return/low` and `return/high`, and `failed_seeds`, the number of seeds
excluded from the estimate because one of their metrics is not finite. Runs are named by the coordinates
of their setting and their seed. Hyper-parameters and configuration are logged once; each metric with a
single number is logged under its name against environment steps, between the compiled chunks. A run that
ends with a metric that is not finite is marked as failed. When a call resumes (`resume=True`), so do its
runs, and no point is logged twice.

Any object with `start`, `__call__` and `finish` of `jaxrl.tracking.tracker.Tracker` is also a tracker. An error in a
tracker ends the call after the evaluated metrics have been saved.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from envs.errors import MissingPackageError, UserTypeError, UserValueError, installing
from envs.files import absolute, refuse_links
from envs.spelling import near_or_all
from jaxrl.checks import check_choice, check_flag
from jaxrl.tracking.runs import Grouping, RunTracker

KINDS = ("tensorboard", "wandb", "mlflow", "csv")
# Names in a run directory to which they write.
_PLACES = {"tensorboard": "tensorboard", "wandb": "wandb", "mlflow": "mlflow.db", "csv": "progress.csv"}
MODES = ("online", "offline", "shared", "disabled")

__all__ = ["KINDS", "by_name", "csv", "mlflow", "tensorboard", "wandb"]


def by_name(
    name: str,
    out: Path,
    *,
    by: str = "seed",
    project: str = "jaxrl",
    group: str | None = None,
    tags: Sequence[str] = (),
    force: bool = False,
) -> RunTracker:
    """A tracker that writes into a run directory.

    Args:
      name: One of `KINDS`.
      out: Run directory.
      by: Argument of `tensorboard`.
      project, group, tags: Arguments of `wandb`; the project is the experiment of mlflow.
      force: Argument of `tensorboard`.

    Raises:
      ImportError: The extra of that name is not installed.
      ValueError: There is no such tracker, or a link is in its place.
    """
    if name not in KINDS:
        raise UserValueError(f"there is no tracker {name!r}{near_or_all(name, KINDS, 'there are')}")
    refuse_links(out / _PLACES[name])
    if name == "tensorboard":
        return tensorboard(out / _PLACES[name], by=by, force=force)
    if name == "csv":
        return csv(out / _PLACES[name], by=by, force=force)
    if name == "mlflow":
        store = None if "MLFLOW_TRACKING_URI" in os.environ else out / _PLACES[name]
        return mlflow(store, by=by, experiment=project)
    return wandb(project, by=by, group=group, tags=tags, directory=out)


def tensorboard(
    directory: str | Path, *, by: str = "seed", statistic: str = "iqm", confidence: float = 0.95, force: bool = False
) -> RunTracker:
    """Event files for `tensorboard --logdir`, with a page of hyper-parameters and, by setting, a page of bands.

    Args:
      directory: Directory in which each run gets a subdirectory.
      by: Unit of a run: "seed", or "setting" for the estimate over its seeds with its interval.
      statistic: Estimate of a setting, "iqm" or "mean".
      confidence: Confidence level of its interval, in (0, 1).
      force: Whether to replace existing runs of the same names.

    Raises:
      ImportError: The extra `tensorboard` is not installed.
      ValueError: An argument is invalid.
    """
    from jaxrl.tracking.tensorboard_sink import TensorBoard

    check_flag("force", force)
    grouping = Grouping(by, statistic, confidence)
    _require("tensorboardX", "tensorboard")
    return RunTracker(TensorBoard(_directory("directory", directory), force), grouping)


def wandb(
    project: str,
    *,
    by: str = "seed",
    statistic: str = "iqm",
    confidence: float = 0.95,
    entity: str | None = None,
    group: str | None = None,
    tags: Sequence[str] = (),
    mode: str | None = None,
    directory: str | Path = "runs",
) -> RunTracker:
    """Runs of Weights & Biases.

    Args:
      project, entity, tags: Arguments of `wandb.init`.
      by, statistic, confidence: Grouping of the runs, as in `tensorboard`. A thousand runs are a thousand uploads:
        for many seeds use `by="setting"`.
      group: Group of the runs; None for the algorithm and the environment, such as `ppo-cartpole`.
      mode: Mode "online", "offline", "disabled" or "shared"; None for the library's default, the variable
        WANDB_MODE. `wandb sync` later uploads runs that were logged offline.
      directory: Directory for the files of the library, and for the run ids that this tracker needs to resume.

    Raises:
      ImportError: The extra `wandb` is not installed.
      ValueError, TypeError: An argument is invalid.
    """
    from jaxrl.tracking.wandb_sink import WandB

    grouping = Grouping(by, statistic, confidence)
    _name("project", project)
    check_choice("mode", mode, (None, *MODES))
    if isinstance(tags, str) or not all(isinstance(tag, str) for tag in tags):
        raise UserTypeError(f"tags must be a sequence of strings, such as ['baseline'], got {tags!r}")
    _require("wandb", "wandb")
    return RunTracker(WandB(_directory("directory", directory), project, entity, group, tags, mode), grouping)


def mlflow(
    uri: str | Path | None = None,
    *,
    by: str = "seed",
    statistic: str = "iqm",
    confidence: float = 0.95,
    experiment: str = "jaxrl",
    tags: Mapping[str, str] | None = None,
) -> RunTracker:
    """Runs of MLflow, identified by their tags when a call resumes.

    Args:
      uri: Store: a file such as "runs/mlflow.db" (SQLite), a directory such as "runs/mlruns"
        (which MLflow opens only with MLFLOW_ALLOW_FILE_STORE=true), or a URI that MLflow takes, such
        as "http://localhost:5000"; None for the variable MLFLOW_TRACKING_URI, or else "mlflow.db".
      by, statistic, confidence: Grouping of the runs, as in `tensorboard`. Each point of a run is a request:
        for many seeds use `by="setting"`.
      experiment: Name of the experiment, created if it is missing.
      tags: Tags of every run.

    Raises:
      ImportError: The extra `mlflow` is not installed.
      ValueError: An argument is invalid.
    """
    from jaxrl.tracking.mlflow_sink import MLflow

    grouping = Grouping(by, statistic, confidence)
    _name("experiment", experiment)
    store = os.environ.get("MLFLOW_TRACKING_URI", "mlflow.db") if uri is None else str(uri)
    if "://" not in store and not store.startswith(("file:", "databricks", "uc:")):
        path = _directory("uri", store) if not store.endswith(".db") else absolute(store)
        store = f"sqlite:///{path}" if store.endswith(".db") else path.as_uri()
    _require("mlflow", "mlflow")
    return RunTracker(MLflow(store, experiment, dict(tags or {})), grouping)


def csv(
    path: str | Path, *, by: str = "seed", statistic: str = "iqm", confidence: float = 0.95, force: bool = False
) -> RunTracker:
    """A CSV file to which rows are appended while a call runs; the result always has its own `metrics.csv` at the end.

    Args:
      path: File to write.
      by, statistic, confidence: Grouping of the runs, as in `tensorboard`.
      force: Whether to replace an existing file.

    Raises:
      ValueError: An argument is invalid.
    """
    from jaxrl.tracking.csv_sink import Table

    check_flag("force", force)
    grouping = Grouping(by, statistic, confidence)
    _name("path", path)
    if Path(path).is_dir():
        raise UserValueError(f"path must be a file, such as runs/progress.csv, got the directory {str(path)!r}")
    return RunTracker(Table(absolute(path), force), grouping)


def _require(module: str, extra: str) -> None:
    try:
        importlib.import_module(module)
    except ImportError:
        raise MissingPackageError(f"jaxrl.tracking.{extra} needs the extra: {installing(extra)}") from None


def _name(argument: str, value: str | Path) -> None:
    if not isinstance(value, str | Path) or not str(value):
        raise UserValueError(f"{argument} must be a name, got {value!r}")


def _directory(argument: str, value: str | Path) -> Path:
    _name(argument, value)
    path = absolute(value)
    for place in (path, *path.parents):
        if place.exists() and not place.is_dir():
            raise UserValueError(f"{argument} must be a directory, got {str(value)!r}, where {place} is a file")
    return path
