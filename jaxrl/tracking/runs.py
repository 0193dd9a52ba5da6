"""Runs of a call as trackers log them: one for each seed, or one for each setting with bands."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from envs.errors import UserValueError
from jaxrl.checks import check_choice
from jaxrl.discounts.parsing import Discount
from jaxrl.learning.composites import Composite
from jaxrl.pytrees import PyTree
from jaxrl.results.dataset import range_of
from jaxrl.results.description import config_of, plain, return_range
from jaxrl.results.format import short
from jaxrl.results.json_values import to_json
from jaxrl.results.optima import DISCOUNTED, NAME_OF_KIND, known_values_of_call
from jaxrl.results.result import Result
from jaxrl.results.statistics import bootstrap_interval, iqm, mean
from jaxrl.sweeps.paths import numbers
from jaxrl.tracking.tracker import FollowedCall

GROUPINGS = ("seed", "setting")
STATISTICS = {"iqm": iqm, "mean": mean}
RESAMPLES = 200  # resamples of a band, enough for a plotted curve; `Result.table` takes ten times as many
LONGEST_NAME = 100

__all__ = ["GROUPINGS", "STATISTICS", "Grouping", "Points", "Run", "RunTracker", "Sink", "Tracked", "tracked"]


@dataclasses.dataclass(frozen=True)
class Grouping:
    """Grouping of the runs of a call into runs of a tracker.

    Attributes:
      by: Unit of a run: "seed", or "setting" for the estimate over its seeds with the ends of its interval.
      statistic: Estimate of a setting, "iqm" or "mean".
      confidence: Confidence level of its interval, in (0, 1).
    """

    by: str = "seed"
    statistic: str = "iqm"
    confidence: float = 0.95

    def __post_init__(self) -> None:
        check_choice("by", self.by, GROUPINGS)
        check_choice("statistic", self.statistic, tuple(STATISTICS))
        number = isinstance(self.confidence, int | float) and not isinstance(self.confidence, bool)
        if not number or not 0 < self.confidence < 1:
            raise UserValueError(f"confidence must be a number between 0 and 1, such as 0.95, got {self.confidence!r}")


class Run(NamedTuple):
    """A run that a tracker logs under one name.

    Attributes:
      name: Name from the coordinates of its setting and its seed, such as `lr=0.001/seed=3`.
      coordinates: Coordinates of its setting.
      seed: Seed of the run; None for a setting.
      hparams: Coordinates, hyper-parameters and seed.
      config: Full configuration of the run before it begins, including `hparams`, and where they are known
        `optimum.return` and `optimum.discounted_return`, or `bound.return` and `bound.discounted_return`.
    """

    name: str
    coordinates: dict[str, Any]
    seed: int | None
    hparams: dict[str, Any]
    config: dict[str, Any]


class Tracked(NamedTuple):
    """The runs of a call.

    Attributes:
      name: Names of the algorithm and the environment, such as `ppo-cartpole`.
      identity: Digest that is equal for a call and its resumption, and differs for another configuration.
      runs: Runs in the order of settings, and of seeds within each setting.
    """

    name: str
    identity: str
    runs: list[Run]


class Points(NamedTuple):
    """One evaluation of some runs.

    Attributes:
      env_step: Environment steps at the evaluation.
      runs: Positions among the runs, int `[num_points]`.
      names: Names of the metrics.
      values: Values of the metrics, float64 `[num_points, num_metrics]`.
    """

    env_step: int
    runs: np.ndarray
    names: tuple[str, ...]
    values: np.ndarray


class Sink(Protocol):
    """The storage behind a tracker, such as the library of a tracking service.

    A sink that shows films has a method `film(run, env_step, path)` as well, for a film of a run at the step of its
    points.
    """

    def open(self, tracked: Tracked, resuming: bool) -> np.ndarray:
        """Prepare for the runs, before any point.

        Args:
          tracked: Runs of the call.
          resuming: Whether to continue the runs that the same call wrote before.

        Returns:
          Environment steps up to which points are already stored, int64 `[num_runs]`; -1 for none.
        """
        ...

    def write(self, points: Points) -> None:
        """Write points, which are later than all earlier points of these runs."""
        ...

    def close(self, ends: list[str]) -> None:
        """Close the runs; each end is "finished", "failed" (a metric is not finite) or "stopped"."""
        ...


class RunTracker:
    """A tracker for `jaxrl.train(..., trackers=[...])` that writes the points of each run to a sink.

    Args:
      sink: Storage of the runs.
      grouping: Grouping of the call's runs into runs of the tracker.
    """

    def __init__(self, sink: Sink, grouping: Grouping) -> None:
        self._sink, self._grouping = sink, grouping
        self._opened = False

    def start(self, call: FollowedCall, resumed: int | None) -> None:
        """See `jaxrl.tracking.tracker.Tracker`."""
        self._waiting: dict[int, np.ndarray] = {}
        self._seeds, self._end = list(call.seeds), call.env_steps
        self._failed = np.zeros(call.shape, bool)
        described = call.description()
        self._limits = return_range(described.algo, described.env_params)
        self._last = self._sink.open(tracked(call, self._grouping.by), resumed is not None)
        self._opened = True

    def __call__(self, env_step: int, metrics: Mapping[str, np.ndarray]) -> None:
        """See `jaxrl.tracking.tracker.Tracker`; runs whose metrics are all nan are not training at present."""
        names, values = _scalars(metrics)
        judged = values[..., _measured(env_step, values)]
        there = np.asarray(~np.isnan(judged).all(axis=-1))
        self._failed = np.where(there, ~np.isfinite(judged).all(axis=-1), self._failed)
        if self._grouping.by == "seed":
            runs = np.flatnonzero(there)
            self._write(Points(env_step, runs, names, values.reshape(-1, len(names))[runs]))
            return
        if not there.all():  # the other seeds of a setting may train later
            values = np.where(there[..., None], values, self._waiting.get(env_step, np.nan))
            there = np.asarray(~np.isnan(values).all(axis=-1))
            self._waiting[env_step] = values
        self._write(self._bands(env_step, names, values, np.flatnonzero(there.all(axis=1))))
        if there.all():
            self._waiting.pop(env_step, None)

    def film(self, env_step: int, setting: int, path: Path) -> None:
        """See `jaxrl.tracking.tracker.Tracker`; the film of a setting is that of its first seed."""
        run = setting * len(self._seeds) if self._grouping.by == "seed" else setting
        show = getattr(self._sink, "film", None)
        if show is not None and self._last[run] >= 0:  # a setting whose seeds train in parts has no points yet
            show(run, env_step, path)

    def finish(self, result: Result | None) -> None:
        """See `jaxrl.tracking.tracker.Tracker`."""
        if not self._opened:
            return
        self._opened = False
        whole = result is not None and not result.metrics.attrs.get("interrupted")
        if result is not None:
            places = [self._seeds.index(seed) for seed in result.seeds]
            self._failed[:, places] |= result.failed_runs()
            if self._waiting and whole:
                self._fill(result)
        failed = self._failed.ravel() if self._grouping.by == "seed" else self._failed.all(axis=1)
        done = (self._last >= self._end) | whole
        ends = np.where(done, np.where(failed, "failed", "finished"), "stopped")
        self._sink.close(ends.tolist())

    def _fill(self, result: Result) -> None:
        """Write the points of settings whose seeds were evaluated in several parts."""
        every = {str(name): result.values(str(name)) for name in result.metrics.data_vars}
        for i, env_step in enumerate(result.metrics["env_step"].values):
            names, values = _scalars({name: of_name[:, :, i] for name, of_name in every.items()})
            self._write(self._bands(int(env_step), names, values, np.arange(len(values))))

    def _write(self, points: Points) -> None:
        new = points.env_step > self._last[points.runs]
        if new.any():
            self._sink.write(points._replace(runs=points.runs[new], values=points.values[new]))
            self._last[points.runs[new]] = points.env_step

    def _bands(self, env_step: int, names: tuple[str, ...], values: np.ndarray, settings: np.ndarray) -> Points:
        """Estimates over the seeds that have not failed, with intervals for two or more seeds."""
        statistic, several = STATISTICS[self._grouping.statistic], values.shape[1] > 1
        settings = settings[env_step > self._last[settings]]
        rows = np.full((len(settings), 3, len(names)), np.nan)
        measured = _measured(env_step, values)
        finite = np.asarray(np.isfinite(values[..., measured]).all(axis=-1))
        low, high = np.transpose([range_of(self._limits, name) for name in names])[:, measured]
        for row, setting in zip(rows, settings, strict=True):
            sound = values[setting][finite[setting]][:, measured].T  # [num_metrics, num_seeds]
            if sound.shape[1] > 1:
                interval = bootstrap_interval(
                    statistic, sound, confidence=self._grouping.confidence, num_resamples=RESAMPLES
                )
                row[:, measured] = interval.within(low, high)
            elif sound.shape[1]:
                row[0, measured] = sound[:, 0]
        failed = (~finite[settings]).sum(axis=1)[:, None]
        if not several:
            return Points(env_step, settings, (*names, "failed_seeds"), np.hstack([rows[:, 0], failed]))
        ends = [f"{name}/{end}" for end in ("low", "high") for name in names]
        return Points(
            env_step, settings, (*names, *ends, "failed_seeds"), np.hstack([*rows.transpose(1, 0, 2), failed])
        )


def tracked(call: FollowedCall, by: str) -> Tracked:
    """The runs of a call, with their names, hyper-parameters and configurations.

    Args:
      call: Call, before or after it ran.
      by: Unit of a run, "seed" or "setting".
    """
    described = call.description()
    content = config_of(described)
    name = "-".join(str(content["attributes"][part]) for part in ("algorithm", "environment"))
    static = {
        **{key: value for key, value in content["attributes"].items() if key != "whole"},
        **_flat("config", content.get("config", {})),
        **_flat("environment", content.get("environment", {})),
        **{f"version.{package}": content["versions"][package] for package in ("jaxrl", "jax")},
    }
    attainable = {
        f"{name}.{metric}": known_values_of_call(described, metric, call.env_steps, kind)
        for kind, name in NAME_OF_KIND.items()
        for metric in DISCOUNTED
    }
    runs = []
    for s, (label, coordinates) in enumerate(zip(labels(described.settings), described.settings, strict=True)):
        hparams = _numbers("", described.hparams, s) | coordinates
        known = {name: float(each[s]) for name, each in attainable.items() if each is not None and np.isfinite(each[s])}
        config = static | known | _numbers("env.", described.env_params, s) | hparams
        if by == "setting":
            runs.append(Run(label or name, coordinates, None, hparams, config | {"seeds": len(described.seeds)}))
            continue
        for seed in described.seeds:
            of_run = {"seed": seed}
            parts = [part for part in (label, f"seed={seed}") if part]
            runs.append(Run("/".join(parts), coordinates, seed, hparams | of_run, config | of_run))
    changing = ("attributes", "devices", "versions")
    identity = {key: value for key, value in content.items() if key not in changing} | {"name": name, "by": by}
    digest = hashlib.sha256(json.dumps(to_json(identity), sort_keys=True, default=str).encode()).hexdigest()
    return Tracked(name, digest[:16], runs)


def _scalars(metrics: Mapping[str, np.ndarray]) -> tuple[tuple[str, ...], np.ndarray]:
    """The metrics with a single number per run: names, and values `[num_settings, num_seeds, num_metrics]`."""
    chosen = {name: np.asarray(values, np.float64) for name, values in metrics.items() if np.ndim(values) == 2}
    return tuple(chosen), np.stack(list(chosen.values()), axis=-1)


def _measured(env_step: int, values: np.ndarray) -> np.ndarray:
    """Which metrics have values, bool `[num_metrics]`: before training no run has those of the algorithm itself."""
    return np.asarray(~np.isnan(values).all(axis=(0, 1))) if env_step == 0 else np.ones(values.shape[-1], bool)


def labels(settings: list[dict[str, Any]]) -> list[str]:
    """A short name of every setting from the varying coordinates; numbered if names are long or coincide."""
    varying = [path for path in settings[0] if any(setting[path] != settings[0][path] for setting in settings)]
    named = [",".join(f"{path}={short(setting[path])}" for path in varying or setting) for setting in settings]
    if len(set(named)) == len(named) and max(map(len, named)) <= LONGEST_NAME:
        return named
    width = len(str(len(named) - 1))
    numbered = [f"setting={s:0{width}}" for s in range(len(named))]
    return [
        number if len(label) > LONGEST_NAME else f"{number},{label}"
        for number, label in zip(numbered, named, strict=True)
    ]


def _numbers(prefix: str, params: PyTree, setting: int) -> dict[str, Any]:
    """The hyper-parameters or parameters of one setting by path: single numbers, and discounts as strings."""
    entries = {}
    for path, value in numbers(params).items():
        if isinstance(value, Discount | Composite):
            name = plain(jax.tree.map(itemgetter(setting), value))
            entries |= {} if name is None else {prefix + path: name}
        elif np.ndim(value) == 1:
            entries[prefix + path] = plain(value[setting])
    return entries


def _flat(prefix: str, value: object) -> dict[str, Any]:
    """Nested dictionaries flattened to paths, with sequences as JSON and without None."""
    if isinstance(value, Mapping):
        return {path: at for name, inner in value.items() for path, at in _flat(f"{prefix}.{name}", inner).items()}
    if isinstance(value, float) and not math.isfinite(value):
        return {prefix: value}
    if value is None or isinstance(value, bool | int | float | str):
        return {} if value is None else {prefix: value}
    return {prefix: json.dumps(to_json(value), default=str)}
