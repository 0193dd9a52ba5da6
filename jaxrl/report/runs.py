"""Runs of a report: their names, facts and differences."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from envs.errors import UserTypeError, UserValueError
from jaxrl.report.search import Search, holds_search, read_search, search_facts, search_note
from jaxrl.report.text import NOTHING, cell, ranges
from jaxrl.results.dataset import UNKNOWN, ResultError
from jaxrl.results.description import config_of
from jaxrl.results.format import counted, duration, short
from jaxrl.results.json_values import to_json
from jaxrl.results.loading import load_best_returns, load_metrics
from jaxrl.results.result import Result
from jaxrl.results.statistics import iqm

# Attributes of a call that are measured, or shown elsewhere; all others are compared between runs.
MEASURED = (
    "algorithm",
    "environment",
    "compile_seconds",
    "run_seconds",
    "env_steps_per_second",
    "interrupted",
    "stopped_by_signal",
    "whole",
    UNKNOWN,
)

MOST_SETTINGS = 8  # most settings listed in one fact

__all__ = ["Run", "described", "differences", "facts", "notes", "plain_config", "runs_of", "runs_of_each"]


@dataclass(frozen=True)
class Run:
    """One result of a report.

    Attributes:
      name: Name, unique in the report.
      path: Directory as named by the user, or that a result was loaded from or saved in; None for one in memory.
      result: Result with the metrics.
      config: Contents of `config.json`, also for a result that was not saved.
      search: Search of which this is the incumbent or the trials; None for any other run.
    """

    name: str
    path: str | None
    result: Result
    config: dict[str, Any]
    search: Search | None = None

    @property
    def attributes(self) -> dict[str, Any]:
        """Attributes of the whole call."""
        attrs = self.result.metrics.attrs
        return {str(name): value.item() if isinstance(value, np.generic) else value for name, value in attrs.items()}

    @cached_property
    def finite(self) -> np.ndarray:
        """Whether every metric that has a value is finite, bool `[settings, seeds, points]`."""
        each = [self.finite_of(str(name)) for name in self.result.metrics.data_vars]
        return np.all([values.all(axis=tuple(range(3, values.ndim))) for values in each], axis=0)

    def finite_of(self, metric: str) -> np.ndarray:
        """Where a metric is finite, or no run has it yet: bool `[settings, seeds, points, ...]`."""
        values = self.result.values(metric)
        before = np.asarray(self.result.metrics["env_step"].values) == 0
        missing = before & np.isnan(values).all(axis=(0, 1, *range(3, values.ndim)))
        return np.isfinite(values) | missing.reshape(-1, *[1] * (values.ndim - 3))

    @property
    def algorithm(self) -> str:
        """Name of the algorithm."""
        return _name(self.attributes.get("algorithm") or self.config.get("name") or self.config.get("algorithm"))

    @property
    def environment(self) -> str:
        """Name of the environment."""
        return _name(self.attributes.get("environment") or self.config.get("environment"))

    @cached_property
    def program(self) -> str | None:
        """The parts of the configuration with which equal seeds give a run equal random keys; None if unknown."""
        parts = {name: self.config.get(name) for name in ("algorithm", "environment", "config")}
        if parts["algorithm"] is None:
            return None
        parts |= {"start": self.attributes.get("start"), "jax": self.config.get("versions", {}).get("jax")}
        return json.dumps(to_json(parts), sort_keys=True)

    @property
    def is_of_benchmark(self) -> bool:
        """Whether this is a result of the benchmark as stored."""
        return "benchmark" in self.config and self.path is None

    @property
    def search_name(self) -> str:
        """Name of the run's search."""
        return self.name.removesuffix("/incumbent")

    @property
    def steps(self) -> np.ndarray:
        """Number of environment steps, or pulls, at the points."""
        return self.result.metrics["env_step"].values

    @property
    def last_step(self) -> int:
        """Number of environment steps, or pulls, at the last point."""
        return int(self.steps[-1])

    @cached_property
    def setting_texts(self) -> list[str]:
        """The values in which the settings differ, as texts; empty for a single setting."""
        settings = self.result.settings
        varying = [path for path in settings[0] if len({setting[path] for setting in settings}) > 1]
        return [", ".join(f"{path} {short(setting[path])}" for path in varying) for setting in settings]


def runs_of(sources: Sequence[str | Path | Result] | Mapping[str, object], *, trust: bool = False) -> list[Run]:
    """The runs of a report, with unique names.

    Args:
      sources: Run directories, directories of searches or results; the keys of a mapping are their names, otherwise a
        directory is named after itself and a result after its algorithm. A search has as runs the default setting and
        the incumbent on its test seeds, or its complete trials if it has no results there.
      trust: Whether to read files that do not match their checksums, as in `load_metrics`.

    Raises:
      ValueError: There are no sources, one has another type, or a directory or result is listed twice.
      ResultError: A directory holds no result.
    """
    if isinstance(sources, str | Path | Result):
        sources = [sources]
    items = list(sources.values()) if isinstance(sources, Mapping) else list(sources)
    names = list(sources) if isinstance(sources, Mapping) else None
    return [run for runs in runs_of_each(items, names, trust=trust) for run in runs]


def runs_of_each(
    items: Sequence[Any], names: Sequence[str] | None, *, trust: bool = False, argument: str = "runs"
) -> list[list[Run]]:
    """The runs of each source; see `runs_of`.

    Args:
      items: Run directories, directories of searches or results.
      names: Their names, which need not be unique; None names a directory after itself, a result after its algorithm.
      trust: Whether to read files that do not match their checksums.
      argument: Name of the argument, for errors.
    """
    if not items:
        raise UserValueError(f"{argument} is empty; it takes at least one run directory or result.")
    seen: dict[Any, str | Path | Result] = {}
    for item in items:
        if not isinstance(item, str | Path | Result):
            raise UserTypeError(f"{argument} takes run directories and results, got {item!r}.")
        identity = id(item) if isinstance(item, Result) else Path(item).resolve()
        if identity in seen:
            again = "the same result" if isinstance(item, Result) else str(item)
            same = "" if isinstance(item, Result) or str(seen[identity]) == again else f", which is {seen[identity]}"
            raise UserValueError(f"{argument} has {again} twice{same}; a comparison takes different runs.")
        seen[identity] = item
    runs = []
    for name, item in zip(_names(items) if names is None else names, items, strict=True):
        if not isinstance(item, Result) and holds_search(item):
            runs.append(_of_search(name, Path(item), read_search(item, trust=trust)))
            continue
        result = item if isinstance(item, Result) else load_metrics(item, trust=trust)
        run = _run(name, result.directory if isinstance(item, Result) else item, result)
        runs.append([run])
        if run.attributes.get("interrupted"):
            warnings.warn(f"{name} was interrupted: it ends at {run.last_step:,} steps", RuntimeWarning, stacklevel=5)
    return runs


def _run(name: str, path: str | Path | None, result: Result, search: Search | None = None) -> Run:
    config = config_of(result.description()) | (result.loaded or {})
    return Run(name, None if path is None else str(path), result, config, search)


def _of_search(name: str, path: Path, search: Search) -> list[Run]:
    """The default setting and the incumbent on the test seeds, or the complete trials; the last has `search` set."""
    if not search.tests:
        return [_run(name, path, search.trials, search)]
    return [
        _run(f"{name}/{which}", path / which, result, search if which == "incumbent" else None)
        for which, result in search.tests.items()
    ]


def facts(run: Run) -> dict[str, str]:
    """The facts about a run for the reader, by name."""
    attributes, result = run.attributes, run.result
    versions = run.config.get("versions", {})
    settings, seeds = len(result.settings), len(result.seeds)
    seconds = [attributes[name] for name in ("compile_seconds", "run_seconds") if name in attributes]
    rate, precision = attributes.get("env_steps_per_second"), attributes.get("precision")
    rows = {
        "Algorithm": run.algorithm,
        "Environment": run.environment,
        "Runs": f"{counted(settings, 'setting')} x {counted(seeds, 'seed')}",
        "Steps": f"{run.last_step:,} each",
        "Episodes of an evaluation": f"{attributes['eval_episodes']:,}" if "eval_episodes" in attributes else NOTHING,
        "Time": f"{duration(sum(seconds))}, of which {duration(seconds[0])} compiling"
        if len(seconds) == 2
        else NOTHING,
        "Steps per second": f"{rate:,.0f} of all runs together" if rate else NOTHING,
        "Devices": f"{attributes.get('num_devices', len(run.config['devices']))} x "
        f"{attributes.get('device_kind') or ', '.join(run.config['devices'])}"
        if run.config["devices"]
        else NOTHING,
        "Precision": NOTHING if precision is None else f"float32, matrix products at {precision} precision",
        "Best policies": _best_policies(run),
        "jaxrl": str(versions.get("jaxrl", NOTHING)),
        "JAX": str(versions.get("jax", NOTHING)),
        "Python": str(versions.get("python", NOTHING)),
        "Directory": run.path or "in memory, not saved",
    }
    rows |= {} if run.search is None else search_facts(run.search)
    return {name: text for name, text in rows.items() if text != NOTHING}


def _best_policies(run: Run) -> str:
    """Returns of the last and of the best policies in further episodes, of each setting."""
    try:
        best = run.result.best or load_best_returns(run.result)
    except ResultError as error:
        return f"not shown: {error}"
    if best is None or not np.any(np.isfinite(best.return_again)):
        return NOTHING
    texts = run.setting_texts
    sound = np.isfinite(best.return_again) & np.isfinite(best.return_of_last) & ~run.result.failed_runs()
    parts = []
    for at, text in enumerate(texts[:MOST_SETTINGS]):
        both = [values[at][sound[at]] for values in (best.return_again, best.return_of_last)]
        numbers = [f"{float(iqm(values)):.4g}" if values.size else "failed" for values in both]
        parts.append(f"{text}{': ' * bool(text)}best {numbers[0]}, last {numbers[1]}")
    more = f"; and {len(texts) - MOST_SETTINGS} more settings" if len(texts) > MOST_SETTINGS else ""
    return f"return in further episodes, interquartile mean: {'; '.join(parts)}{more}"


def differences(runs: Sequence[Run]) -> dict[str, list[str]]:
    """`{path: [value of each run]}` of all configuration values that differ between runs."""
    columns = [described(run) for run in runs]
    paths = list(dict.fromkeys(path for column in columns for path in column))
    rows = {path: [cell(column[path]) if path in column else NOTHING for column in columns] for path in paths}
    return {path: row for path, row in rows.items() if len(set(row)) > 1}


def notes(runs: Sequence[Run]) -> list[str]:
    """Notes for the reader on comparing these runs."""
    sentences = []
    environments = dict.fromkeys(run.environment for run in runs)
    if len(environments) > 1:
        sentences.append(f"The runs are of different environments ({', '.join(environments)}) without a common scale.")
    if len({run.last_step for run in runs}) > 1:
        last = ", ".join(f"{run.last_step:,} of {run.name}" for run in runs)
        sentences.append(f"The runs have different lengths: every final value is at the last step of its run ({last}).")
    for run in runs:
        if run.search is not None:
            sentences.append(search_note(run.search_name, run.search))
        if run.attributes.get("interrupted"):
            sentences.append(f"{run.name} was interrupted: it ends at {run.last_step:,} steps.")
        if "one_hot" in run.attributes:
            sentences.append(f"Networks of {run.name} read choices as one-hot vectors ({run.attributes['one_hot']}).")
        if "shard" in run.attributes:
            sentences.append(
                f"{run.name} is the shard {run.attributes['shard']} of a run (jaxrl merge joins the shards)."
            )
    few = [run.name for run in runs if len(run.result.seeds) < 10]
    if few:
        sentences.append(f"Fewer than 10 seeds in {', '.join(few)}: intervals of so few seeds are too narrow.")
    return sentences


def _names(items: Sequence[str | Path | Result]) -> list[str]:
    """The last parts of the paths, as many as needed to distinguish them."""
    paths = [None if isinstance(item, Result) else Path(item).resolve() for item in items]
    algorithms = [_name(item.metrics.attrs.get("algorithm")) if isinstance(item, Result) else "" for item in items]
    names = []
    for depth in range(1, 1 + max((len(path.parts) for path in paths if path), default=1)):
        names = [
            algorithm if path is None else "/".join(path.parts[-depth:])
            for path, algorithm in zip(paths, algorithms, strict=True)
        ]
        of_paths = [name for name, path in zip(names, paths, strict=True) if path]
        if len(set(of_paths)) == len(of_paths):
            break
    return [f"{name} ({names[:i].count(name) + 1})" if names.count(name) > 1 else name for i, name in enumerate(names)]


def _name(value: Any) -> str:
    """The name in a description from `config.json`."""
    if isinstance(value, Mapping):
        value = value.get("name") or value.get("type") or next(iter(value.values()), None)
    return NOTHING if value in (None, "") else str(value)


def described(run: Run) -> dict[str, Any]:
    """The complete configuration, `{path: value}`.

    Args:
      run: Run.
    """
    config = run.config
    values: dict[str, Any] = {"algorithm": run.algorithm, "environment": run.environment}
    if isinstance(config.get("environment"), Mapping):
        values |= _flat({name: value for name, value in config["environment"].items() if name != "name"}, "environment")
    for part in ("config", "hparams", "env_params"):
        if isinstance(config.get(part), Mapping):
            values |= _flat(config[part], part)
        elif config.get(part) is not None:
            values[part] = config[part]
    for path, coord in config["sweep"]["coords"].items():
        name = f"env_params.{path.removeprefix('env.')}" if path.startswith("env.") else f"hparams.{path}"
        values[name] = coord["values"]
    values["seeds"] = ranges(run.result.seeds)
    values["env_steps"] = run.last_step
    values |= {
        name: value
        for name, value in run.attributes.items()
        if name not in MEASURED and not name.startswith("version_") and name != "shard"
    }
    values["devices"] = config["devices"]
    return values | {f"versions.{name}": value for name, value in config.get("versions", {}).items()}


def _flat(tree: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    values = {}
    for name, value in tree.items():
        path = f"{prefix}.{name}"
        values |= _flat(value, path) if isinstance(value, Mapping) else {path: value}
    return values


def plain_config(run: Run) -> dict[str, Any]:
    """The configuration as plain values of JSON, for the page."""
    attributes = (run.result.loaded or {}).get("attributes", run.attributes)
    return to_json(run.config | {"attributes": attributes})
