"""Comparing results: whether they can be compared, and by which rule."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from envs.errors import UserValueError
from envs.spelling import near, near_or_all
from jaxrl.report.alignment import common_step
from jaxrl.report.benchmark_arguments import BENCHMARK, benchmark_of, check_metric, references_of_benchmark
from jaxrl.report.comparison import Comparison
from jaxrl.report.data import common_metrics, directions
from jaxrl.report.entries import Entry, Source, Sources, entries_of, runs_on
from jaxrl.report.runs import Run, differences
from jaxrl.results.dataset import RETURN_RANGE, ResultError, main_metric
from jaxrl.results.storage import metrics_of_runs

if TYPE_CHECKING:
    from jaxrl.benchmark.data import Benchmark


DEFAULTS = "defaults"  # the attribute `settings_from` of results without a preset
RETURNS = ("return", "discounted_return")

__all__ = ["compared", "warn_of_presets"]


def compared(
    results: Source | Sources,
    *,
    baseline: str | None,
    metric: str | None,
    env_steps: int | None,
    better: str | None,
    normalise: Mapping[str, tuple[float, float]] | Literal["benchmark"] | Benchmark | None,
    confidence: float,
    trust: bool,
    benchmark: Literal["benchmark"] | Benchmark | None = None,
) -> Comparison:
    """The comparison of results; see `jaxrl.compare`, which checks the arguments that this does not."""
    entries = entries_of(results, trust=trust)
    left_out_lines: list[str] = []
    if benchmark is not None:
        tasks = _tasks_of(entries)
        own = [run for task in tasks for run in runs_on(entries, task)]
        check_metric(normalise, _metric(metric, own))  # before data are downloaded
        added, left_out_lines = _of_benchmark(benchmark_of(benchmark), entries, tasks, trust)
        entries += added
    if len(entries) < 2:
        raise UserValueError(
            f"results has one result with one setting, {entries[0].label!r}; compare takes at least two."
        )
    every = list(dict.fromkeys(task for entry in entries for task in entry.parts))
    tasks = _common_tasks(entries, every)
    runs = [run for task in tasks for run in runs_on(entries, task)]
    metric = _metric(metric, runs)
    check_metric(normalise, metric)
    wanted = {better: [metric]} if better else {}
    direction = directions([metric], runs, wanted.get("higher", []), wanted.get("lower", []))[metric]
    for task in tasks:
        _check_meanings(runs_on(entries, task), task, metric, direction)
        warn_of_presets(
            {run.name: run.attributes.get("settings_from") for run in runs_on(entries, task)},
            task,
            "comparison.differences",
        )
    steps = {task: common_step(runs_on(entries, task), task, env_steps) for task in tasks}
    stated = "0 and 1 at " + (
        "the values of normalise=" if normalise else "the lowest and highest compared run of each task"
    )
    if normalise is not None and not isinstance(normalise, Mapping):
        parts = {task: runs_on(entries, task) for task in tasks}
        normalise, stated = references_of_benchmark(benchmark_of(normalise), parts, trust)
    return Comparison(
        metric=metric,
        direction=direction,
        baseline=_baseline(baseline, entries),
        confidence=confidence,
        entries=tuple(entries),
        steps=steps,
        left_out=tuple(task for task in every if task not in tasks),
        references=_references(normalise, entries, metric, steps),
        references_text=stated,
        left_out_lines=tuple(left_out_lines),
    )


def _tasks_of(entries: Sequence[Entry]) -> list[str]:
    """The tasks that all lines have, in the order of their first occurrence."""
    return _common_tasks(entries, list(dict.fromkeys(task for entry in entries for task in entry.parts)))


def _of_benchmark(
    benchmark: Benchmark, entries: Sequence[Entry], tasks: Sequence[str], trust: bool
) -> tuple[list[Entry], list[str]]:
    """Lines of the benchmark on the tasks that all lines of the caller have, and names of those on some of these."""
    results = benchmark.results(*tasks, trust=trust)
    some = dict.fromkeys(each.algorithm for each in benchmark.cells if each.environment in tasks)
    named = {f"{BENCHMARK} {name}": own for name, own in results.items()}
    for entry in entries:
        if entry.name in named or entry.label in named:
            raise UserValueError(f"results has the name {entry.label!r}, which is that of a line of the benchmark.")
    return entries_of(named, trust=trust), [f"{BENCHMARK} {name}" for name in some if name not in results]


def _common_tasks(entries: Sequence[Entry], every: Sequence[str]) -> list[str]:
    """The tasks that all lines have."""
    tasks = [task for task in every if all(task in entry.parts for entry in entries)]
    if not tasks:
        listing = ", ".join(f"{entry.label!r} is on {' and '.join(entry.parts)}" for entry in entries[:4])
        raise UserValueError(
            f"results has no task that all have ({listing}): give results of one algorithm on several tasks one name, "
            "{'ppo': [on_cartpole, on_pendulum], ...}, or NAME=RUN in the shell; variants of one task get its name by "
            "{'ppo': {'task': result}, ...}."
        )
    return tasks


def _metric(metric: str | None, runs: Sequence[Run]) -> str:
    """The requested metric, or the main metric of all runs."""
    common, _ = common_metrics(runs)
    if metric is not None:
        if metric not in common:
            left_out_lines = next(run for run in runs if metric not in metrics_of_runs(run.result))
            hint = near(metric, common) or f"; all have {', '.join(common)}."
            raise UserValueError(f"metric is {metric!r}, which {left_out_lines.name} lacks{hint}")
        return metric
    main = {main_metric(run.result.metrics): run.name for run in reversed(runs)}
    if len(main) > 1:
        listing = " and ".join(f"{name} of {run}" for name, run in main.items())
        raise ResultError(
            f"The results have different metrics, the {listing}; metric= takes one that all have: {', '.join(common)}."
        )
    return next(iter(main))


def _check_meanings(runs: Sequence[Run], task: str, metric: str, direction: int) -> None:
    """Reject returns on different scales, and warn where the environments of a task differ."""
    plain = metric.removesuffix("_sampled")
    if plain not in RETURNS:
        return
    if plain == "discounted_return" and not direction:
        raise UserValueError(
            f"metric is {metric!r}, which is under different discounts here, without a common scale; compare their "
            "'return', or evaluate all under one discount, with evaluate_result(discount=)."
        )
    rows = differences(runs)
    paths = [path for path in rows if path.partition(".")[0] in ("environment", "env_params")]
    stated = [run for run in reversed(runs) if all(end in run.attributes for end in RETURN_RANGE)]
    ranges = {tuple(run.attributes[end] for end in RETURN_RANGE): run for run in stated}
    if len(ranges) > 1:
        listing = " and ".join(f"[{low:g}, {high:g}] of {run.name}" for (low, high), run in ranges.items())
        where = f", whose environments differ in {', '.join(paths[:5])}" if paths else ""
        raise UserValueError(f"The returns on {task} have different meanings: their ranges are {listing}{where}.")
    if paths and len({run.environment for run in runs}) == 1:  # others have the name of one task on purpose
        warnings.warn(
            f"the environments of {task} differ in {', '.join(paths[:5])}, so that their returns may have different "
            "meanings",
            RuntimeWarning,
            stacklevel=4,
        )


def warn_of_presets(origins: Mapping[str, str | None], task: str, differences: str) -> None:
    """Warn where some runs start from a preset and others from defaults; older results do not record it.

    Args:
      origins: Attribute `settings_from` of runs by name.
      task: Name of the task.
      differences: Expression that lists the settings.
    """
    tuned = [f"{name} from the {origin}" for name, origin in origins.items() if origin not in (None, DEFAULTS)]
    untuned = [name for name, origin in origins.items() if origin == DEFAULTS]
    if tuned and untuned:
        verb = "starts" if len(untuned) == 1 else "start"
        warnings.warn(
            f"on {task} {', '.join(untuned)} {verb} from defaults, and {', '.join(tuned)}: they differ in more than "
            f"their algorithm ({differences} lists the settings)",
            RuntimeWarning,
            stacklevel=4,
        )


def _baseline(baseline: str | None, entries: Sequence[Entry]) -> str:
    """The label of the baseline: by itself, or by the name of its results, of which the first setting is taken."""
    if baseline is None:
        return entries[0].label
    labels = {entry.name: entry.label for entry in reversed(entries)} | {entry.label: entry.label for entry in entries}
    if baseline not in labels:
        hint = near(str(baseline), labels) or f"; it takes {', '.join(entry.label for entry in entries)}."
        raise UserValueError(f"baseline is {baseline!r}{hint}")
    return labels[baseline]


def _references(
    normalise: Mapping[str, tuple[float, float]] | None, entries: Sequence[Entry], metric: str, steps: Mapping[str, int]
) -> dict[str, tuple[float, float]]:
    """The values that count as 0 and as 1 on each task; empty for values as they are."""
    if normalise is not None:
        ends = {task: _ends(normalise, task, steps) for task in steps}
        for task in normalise:
            if task not in steps:
                raise UserValueError(f"normalise has {task!r}{near_or_all(str(task), steps, 'the tasks are')}")
        return ends
    if len(steps) == 1:
        return {}
    references = {}
    for task, step in steps.items():
        values = np.concatenate([entry.scores(task, metric, step).values for entry in entries])
        low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 1.0)
        references[task] = (low, high) if low < high else (low - 1.0, low)
    return references


def _ends(normalise: Mapping[str, tuple[float, float]], task: str, tasks: Collection[str]) -> tuple[float, float]:
    """The values that count as 0 and as 1 on a task."""
    takes = f"it takes two numbers for each task ({', '.join(tasks)}), such as {{{task!r}: (0.0, 100.0)}}"
    if task not in normalise:
        raise UserValueError(f"normalise lacks {task!r}; {takes}.")
    ends = np.asarray(normalise[task], np.float64)
    if ends.shape != (2,) or not ends[0] < ends[1]:
        raise UserValueError(f"normalise has {normalise[task]!r} for {task!r}; {takes}, of which the second is larger.")
    return float(ends[0]), float(ends[1])
