"""Contents of a report's page over several tasks: each line over its own tasks, each pair over those of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from envs.errors import UserValueError
from jaxrl.report.alignment import values_at
from jaxrl.report.content import MADE, citation, line_width, look
from jaxrl.report.data import Line, failures, plain, rounded
from jaxrl.report.pairs import Chance, Scores, chance_of, chance_rows, rectangle
from jaxrl.report.runs import Run, runs_of
from jaxrl.report.text import NOTHING
from jaxrl.results.dataset import range_of
from jaxrl.results.format import counted
from jaxrl.results.mean_curves import mean_interval
from jaxrl.results.plotting.style import MOST_LINES
from jaxrl.results.result import Result
from jaxrl.results.statistics import Interval, normalise, performance_profile
from jaxrl.results.tables import estimate_over_tasks
from jaxrl.results.text_tables import spreadsheet_cell

METRIC = "return"
PER_CENT = tuple(range(5, 101, 5))  # points of a curve, of a run's environment steps
RESAMPLES, CURVE_RESAMPLES = 2000, 200
THRESHOLDS = np.linspace(-0.25, 1.25, 61)
TASKS_DIFFER = (
    "Each setting is shown over the tasks on which it has runs: estimates of settings with different tasks cannot be "
    "compared. P(better) and the matrix compare two settings over the tasks of both, each at the end of its own runs, "
    "whose numbers of steps may differ (see the runs by task)."
)

__all__ = ["report_over_tasks"]


def report_over_tasks(
    tasks: Mapping[str, Mapping[str, Result]],
    references: Mapping[str, tuple[float, float]],
    *,
    note: str = "",
    confidence: float = 0.95,
) -> dict[str, Any]:
    """The data of a page with a report on normalised returns over tasks, ready for JSON.

    Args:
      tasks: Results of one setting by name, by task.
      references: Returns that count as 0 and as 1 on each task; tasks without them are left out.
      note: Sentence that describes these returns.
      confidence: Confidence level of every interval, in (0, 1).

    Raises:
      ValueError: No task has references, or a result has several settings.
    """
    kept = {task: results for task, results in tasks.items() if task in references}
    every = {task: {run.name: run for run in runs_of(results)} for task, results in kept.items()}
    if not every:
        raise UserValueError(f"references takes returns of at least one of {', '.join(tasks) or 'no task'}, got none")
    by_name: dict[str, dict[str, Run]] = {}
    for task, runs in every.items():
        for name, run in runs.items():
            if len(run.result.settings) > 1:
                raise UserValueError(f"tasks takes results of one setting, and {name} on {task} has several")
            by_name.setdefault(name, {})[task] = run
    names = list(by_name)
    bands = [_bands(runs, references, confidence) for runs in by_name.values()]
    ends = [{task: _scores(run, 100, references[task]) for task, run in runs.items()} for runs in by_name.values()]
    numbers = [[*band["iqm"][:, -1], *band["mean"][:, -1]] for band in bands]
    cells = [(name, task) for name, runs in by_name.items() for task in runs]
    flat = [by_name[name][task] for name, task in cells]
    listed, total = failures(flat, [Line(f"{name} on {task}", at, 0) for at, (name, task) in enumerate(cells)])
    left_out = [task for task in tasks if task not in references]
    without = f"Tasks without returns that count as 0 and as 1 are left out: {', '.join(left_out)}."
    entry = {
        "curves": {name: [[rounded(part) for part in band[name]] for band in bands] for name in ("iqm", "mean")},
        "numbers": [
            [*map(plain, row), min(len(each.values) for each in own.values()), _failed(own)]
            for row, own in zip(numbers, ends, strict=True)
        ],
        "cells": [_texts(row) for row in numbers],
        "optima": None,
        **_pairs(ends, confidence),
        "common": {str(base): [len(own.keys() & other.keys()) for own in ends] for base, other in enumerate(ends)},
        "tasks": [len(own) for own in ends],
        "profile": {"tau": rounded(THRESHOLDS), "lines": [_profile(own, confidence) for own in ends]},
        "importance": [],
        "direction": 1,
        "note": "",
        "text": "normalised return",
    }
    return {
        "percent": f"{100 * confidence:g} %",
        "unit": "% of a run's environment steps",
        "first": "normalised_return",
        "estimate": "iqm",
        "baseline": 0,
        "shown": list(range(len(names))),
        "looks": MOST_LINES,
        "lines": [
            {"label": name, "cell": spreadsheet_cell(name), "run": at}
            | look(at, line_width(next(iter(by_name[name].values())), flat))
            for at, name in enumerate(names)
        ],
        "left_out": 0,
        "steps": [list(PER_CENT)] * len(names),
        "metrics": {"normalised_return": entry},
        "swept": 0,
        "notes": [*filter(None, [note]), TASKS_DIFFER, *([without] if left_out else [])],
        "runs": [_described(name, runs) for name, runs in by_name.items()],
        "differences": {task: [_training(runs.get(name)) for name in names] for task, runs in every.items()},
        "failures": {
            "listed": listed,
            "total": total,
            "runs": sum(len(run.result.seeds) for run in flat),
            "unit": "environment steps",
        },
        "cite": citation(),
        "made": MADE,
    }


def _scores(run: Run, per_cent: int, ends: tuple[float, float]) -> Scores:
    """Normalised returns of the runs that had not failed after a share of their environment steps.

    There are none before the first evaluation.
    """
    step, seeds = round(run.last_step * per_cent / 100), np.asarray(run.result.seeds)
    if step < run.steps[0]:
        return Scores(np.empty(0), seeds[:0], frozenset(run.result.seeds), run)
    values, good = values_at(run.result.values(METRIC)[0], run.finite[0], run.steps, step)
    values = normalise(values[good], *ends) if good.any() else values[good]
    return Scores(values, seeds[good], frozenset(run.result.seeds), run)


def _bands(
    runs: Mapping[str, Run], references: Mapping[str, tuple[float, float]], confidence: float
) -> dict[str, np.ndarray]:
    """Estimates over the tasks of a line, with the ends of their intervals, `[3, points]`."""
    bands: dict[str, list[Interval]] = {"iqm": [], "mean": []}
    lows, highs = zip(
        *(normalise(range_of(run.result.metrics.attrs, METRIC), *references[task]) for task, run in runs.items()),
        strict=True,
    )
    for per_cent in PER_CENT:
        values = rectangle([_scores(run, per_cent, references[task]).values for task, run in runs.items()])
        resamples = RESAMPLES if per_cent == 100 else CURVE_RESAMPLES
        bands["iqm"].append(estimate_over_tasks(values, confidence, (min(lows), max(highs)), resamples))
        # Runs of different tasks are independent, so that any of them may be added up to one observation.
        bands["mean"].append(mean_interval(values.mean(axis=0), confidence).within(np.mean(lows), np.mean(highs)))
    return {name: np.asarray([[float(part) for part in each] for each in band]).T for name, band in bands.items()}


def _pairs(ends: Sequence[Mapping[str, Scores]], confidence: float) -> dict[str, Any]:
    """For every baseline, the probability that each line is better, over the tasks of both."""

    def chance(line: int, base: int) -> Chance | None:
        tasks = [task for task in ends[line] if task in ends[base]]
        ours, theirs = ([ends[at][task] for task in tasks] for at in (line, base))
        return chance_of(ours, theirs, 1, confidence) if tasks else None

    count = len(ends) if len(ends) > 1 else 0
    return chance_rows(count, range(count), chance)


def _profile(own: Mapping[str, Scores], confidence: float) -> list[list[float | None]] | None:
    values = rectangle([each.values for each in own.values()])
    if not values.size:
        return None
    share = performance_profile(values, THRESHOLDS, confidence=confidence)
    return [[plain(round(float(number), 4)) for number in part] for part in share]


def _failed(own: Mapping[str, Scores]) -> int:
    return sum(len(each.trained) - len(each.values) for each in own.values())


def _texts(row: Sequence[float]) -> list[str]:
    """The texts of a table's estimates."""
    texts = []
    for value, low, high in (row[:3], row[3:]):
        finite = np.isfinite([low, high]).all()
        texts += [f"{value:.3f}", f"[{low:.3f}, {high:.3f}]" if finite else "\N{EN DASH}"]
    return texts


def _training(run: Run | None) -> str:
    """Number of seeds of a line on a task, and of environment steps of each."""
    return NOTHING if run is None else f"{counted(len(run.result.seeds), 'seed')} x {run.last_step:,} steps"


def _described(name: str, runs: Mapping[str, Run]) -> dict[str, Any]:
    """The description of a line for the reader."""
    steps = sum(run.last_step * len(run.result.seeds) for run in runs.values())
    facts = {"Tasks": str(len(runs)), "Environment steps of all runs": f"{steps:,}"}
    return {
        "name": name,
        "facts": facts,
        "config": {"tasks": list(runs)},
        "again": "The reports on single tasks, which can be selected above, say how to repeat each run.",
        "code": "",
    }
