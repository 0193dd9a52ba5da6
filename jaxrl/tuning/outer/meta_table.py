"""The table of the held-out tasks of a meta-training, and the results in its directory from which it is made."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxrl.pytrees import PyTree
from jaxrl.results.dataset import ResultError, range_of
from jaxrl.results.file_names import IDENTITY
from jaxrl.results.loading import load_result
from jaxrl.results.result import Result
from jaxrl.results.statistics import bootstrap_interval, iqm, mean
from jaxrl.results.tables import Table, estimates
from jaxrl.runtime.checkpoints.identity import difference
from jaxrl.tuning.outer.fitness import objective_of
from jaxrl.tuning.outer.probes import digest

HELD_OUT = "held-out"  # directory of the results on held-out tasks
START = "start"
_CLAUSES = {"final": "", "area": ", mean over the evaluations of a training,"}  # of the title, by objective
# Attributes of a meta-training that its shards share.
_SHARED = ("algorithm", "theta_initial", "tasks", "strategy", "objective", "discount", "population", "lr", "std")
_SHARED += ("std_decay", "shaping", "inner_steps", "inner_seeds", "evals", "eval_episodes")

__all__ = ["HELD_OUT", "START", "digest_of", "folders_in", "load_held_out", "numbered", "table_of"]


def digest_of(learned: Sequence[PyTree]) -> str:
    """Checksum of the learned thetas of all outer seeds."""
    return digest([[np.asarray(leaf, np.float32) for leaf in jax.tree.leaves(each)] for each in learned])


def folders_in(directory: Path) -> list[Path]:
    """Directories of results on held-out tasks, in the order of the tasks."""
    if not directory.is_dir():
        return []
    names = {folder: re.fullmatch(r"(\d+)-.+", folder.name) for folder in directory.iterdir()}
    own = {folder: int(match[1]) for folder, match in names.items() if match and not folder.is_symlink()}
    return sorted((folder for folder in own if (folder / IDENTITY).is_file()), key=lambda folder: own[folder])


def load_held_out(paths: Sequence[Path]) -> dict[str, list[Result]]:
    """Results that the shards of a meta-training saved, by the names of the held-out tasks.

    Args:
      paths: Run directories of the shards, or of a whole meta-training.

    Raises:
      ResultError: A directory has no held-out results or not all of them, or those of other thetas than its own;
        another meta-training, other held-out tasks or other test seeds than the first one; or two have the same outer
        seed.
    """
    loaded = [_of_directory(path) for path in paths]
    seeds: list[int] = []
    for path, (outer, results) in zip(paths, loaded, strict=True):
        first, others = loaded[0]
        if (differing := difference(_described(first, others), _described(outer, results))) is not None:
            raise ResultError(f"{path} is not a shard of the meta-training in {paths[0]}: {differing}")
        if twice := sorted({*seeds}.intersection(outer.seeds)):
            raise ResultError(f"paths takes each outer seed once, but two directories have seed {twice[0]}")
        seeds += outer.seeds
    names = numbered([result.metrics.attrs["environment"] for result in loaded[0][1]])
    return {name: [results[i] for _, results in loaded] for i, name in enumerate(names)}


def _of_directory(path: Path) -> tuple[Result, list[Result]]:
    """Outer curves of a meta-training, and its results on held-out tasks."""
    if not path.is_dir():
        raise ResultError(f"there is no such directory: {path}")
    if not (folders := folders_in(path / HELD_OUT)):
        raise ResultError(
            f"{path} has no held-out results: it is not a directory of jaxrl.meta with test seeds, was stopped before "
            "the comparison, or was merged (pass the directories of the shards)"
        )
    try:
        results = [load_result(folder) for folder in folders]
    except ResultError as error:
        raise ResultError(f"{path} has an incomplete comparison on held-out tasks, resume it: {error}") from error
    outer = load_result(path)
    count = results[0].metrics.attrs.get("held_out_tasks", len(results))
    if len(results) != count or any(result.metrics.attrs["interrupted"] for result in results):
        raise ResultError(
            f"{path} has results of {len(results)} of {count} held-out tasks, or incomplete ones: resume it"
        )
    learned = [[leaf[0, i] for leaf in outer.policies.values()] for i in range(len(outer.seeds))]
    if any(result.metrics.attrs.get("learned_thetas") != digest_of(learned) for result in results):
        raise ResultError(f"{path} has held-out results of other thetas than it has learned: resume it")
    return outer, results


def _described(outer: Result, results: Sequence[Result]) -> dict[str, Any]:
    """Attributes that shards share."""
    shared = {name: outer.metrics.attrs[name] for name in _SHARED if name in outer.metrics.attrs}
    shared["generations"] = outer.metrics.sizes["env_step"]
    shared["held_out"] = [result.metrics.attrs["environment"] for result in results]
    shared["test_seeds"] = results[0].seeds
    return shared | {"test_steps": [int(result.metrics["env_step"][-1]) for result in results]}


def numbered(names: Sequence[str]) -> list[str]:
    """Names of tasks, with a number where two have one name."""
    return [f"{name} {names[:i].count(name) + 1}" if names.count(name) > 1 else name for i, name in enumerate(names)]


def table_of(results: Mapping[str, Sequence[Result]], metric: str, confidence: float) -> Table:
    """Table of held-out tasks: theta at its start, and as it was learned.

    The value of a training is that of the objective: its last evaluation for "final", the mean over its evaluations for
    "area". A row "learned" has the mean over outer seeds of the interquartile mean over test seeds, and the interval of
    that mean over outer seeds: the outer loop is repeated, not only its last trainings.

    Args:
      results: Results by the names of tasks, of `held_out.Comparison.results`: one, or those of the shards.
      metric: Metric of an evaluation.
      confidence: Confidence level of the intervals.
    """
    rows: list[tuple[Any, ...]] = []
    objective = "final"
    for name, shards in results.items():
        objective = shards[0].metrics.attrs.get("objective", objective)
        limits = range_of(shards[0].metrics.attrs, metric)
        each = [_values(shard, metric, objective) for shard in shards]
        start, learned = each[0][0], np.concatenate([values[1:] for values in each])
        finite = start[np.isfinite(start)]
        rows.append((name, START, *estimates(finite, confidence, limits), len(start) - len(finite)))
        good = [run[np.isfinite(run)] for run in learned]
        iqms = np.asarray([float(iqm(run)) for run in good if len(run)])
        interval = bootstrap_interval(mean, iqms, confidence=confidence).within(*limits) if len(iqms) > 1 else None
        ends = (np.nan, np.nan) if interval is None else (float(interval.low), float(interval.high))
        centre = float(iqms.mean()) if len(iqms) else np.nan
        count = sum(map(len, good))
        overall = float(np.concatenate(good).mean()) if count else np.nan
        rows.append((name, "learned", centre, *ends, overall, count, learned.size - count))
    title = (
        f"{metric}{_CLAUSES[objective]} on test seeds: interquartile mean, {confidence:.0%} bootstrap interval, over "
        "test seeds for the start and over outer seeds for learned thetas"
    )
    return Table(title, ("task", "theta", "iqm", "low", "high", "mean", "runs", "failed"), tuple(rows), 2)


def _values(result: Result, metric: str, objective: str) -> np.ndarray:
    """Value of each training, `[thetas, test_seeds]`, nan for one that failed."""
    values = objective_of(np.moveaxis(result.values(metric), -1, 0), objective)
    return np.where(result.failed_runs(), np.nan, values)
