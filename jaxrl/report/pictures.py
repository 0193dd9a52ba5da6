"""Figures of a comparison: learning curves and performance profiles."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from envs.errors import UserValueError
from jaxrl.report.alignment import values_at
from jaxrl.report.compared import Compared
from jaxrl.report.entries import Entry
from jaxrl.results.dataset import metrics_dataset
from jaxrl.results.plotting.curves import UNITS, learning_curves, performance_profiles
from jaxrl.results.plotting.style import new_figure, require_few, require_picture, write_picture
from jaxrl.results.result import Result

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

PANEL = (6.4, 4.2)  # inches
COLUMNS = 3  # most panels side by side
EMPHASISED = 3.4  # points, about twice the width of other lines

__all__ = ["draw_curves", "draw_profiles"]


def draw_curves(comparison: Compared, path: str | Path | None) -> matplotlib.figure.Figure:
    """A panel for each task with a line for each label; see `Comparison.plot`."""
    require_few(len(comparison.entries), "compare fewer results or settings")
    if path is not None:
        require_picture(path)
    tasks = comparison.tasks
    columns = min(len(tasks), COLUMNS)
    rows = -(-len(tasks) // columns)
    figure = new_figure(path, (PANEL[0] if columns == 1 else 4.6 * columns, PANEL[1] if rows == 1 else 3.4 * rows))
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for ax, task in zip(panels, tasks, strict=False):
        first = []  # line of each entry
        for entry in comparison.entries:
            first.append(len(ax.get_lines()))
            result = _joined(entry, task, comparison.metric)
            learning_curves(result, comparison.metric, ax=ax, label=entry.label, confidence=comparison.confidence)
        _emphasise(ax, comparison.entries, first)
        counts = [sum(len(run.result.seeds) for run, _ in entry.parts[task]) for entry in comparison.entries]
        runs = " to ".join(dict.fromkeys(map(str, (min(counts), max(counts)))))
        what = f": interquartile mean of {runs} runs, {comparison.confidence:.0%} interval" if len(tasks) == 1 else ""
        ax.set_title(f"{task}{what}", fontsize="medium")
    for ax in panels[len(tasks) :]:
        ax.remove()
    if len(tasks) > 1:
        _share_legend(figure, list(panels[: len(tasks)]), comparison)
    write_picture(figure, path)
    return figure


def draw_profiles(
    comparison: Compared, path: str | Path | None, ax: matplotlib.axes.Axes | None
) -> matplotlib.axes.Axes:
    """A line for each label over all tasks; see `Comparison.profiles`."""
    scores = {name: values for name, values in comparison.scores().items() if values.size}
    if not scores:
        raise UserValueError("results has no run that did not fail, so that there is no performance profile.")
    unit = UNITS.get(comparison.metric, comparison.metric.replace("_", " "))
    if path is not None:
        require_picture(path)
    ax = new_figure(path, PANEL).subplots() if ax is None else ax
    before = len(ax.get_lines())
    performance_profiles(
        scores,
        better="lower" if comparison.direction < 0 else "higher",
        ax=ax,
        label=f"normalised {comparison.metric}" if comparison.references else unit,
        confidence=comparison.confidence,
    )
    drawn = [entry for entry in comparison.entries if entry.label in scores]
    _emphasise(ax, drawn, range(before, before + len(drawn)))
    write_picture(ax.figure, path)
    return ax


def _emphasise(ax: matplotlib.axes.Axes, entries: Sequence[Entry], first: Sequence[int]) -> None:
    """Draw results thick that are not of the benchmark, among results that are.

    Args:
      ax: Axes, whose legend ends with the entries.
      entries: Lines of the comparison that are drawn.
      first: Position of the first line of each.
    """
    if not any(entry.is_of_benchmark for entry in entries):
        return
    lines, legend = ax.get_lines(), ax.get_legend()
    handles = [] if legend is None else legend.get_lines()[-len(entries) :]
    for i, entry in enumerate(entries):
        if not entry.is_of_benchmark:
            for line in (lines[first[i]], *handles[i : i + 1]):
                line.set_linewidth(EMPHASISED)


def _joined(entry: Entry, task: str, metric: str) -> Result:
    """A metric of all runs of a line on a task, nan where a run had failed.

    Several results have the evaluations of the first one up to the end of the shortest.
    """
    parts = entry.parts[task]
    begin, end = max(run.steps[0] for run, _ in parts), min(run.last_step for run, _ in parts)
    steps = parts[0].run.steps
    steps = np.union1d(steps[(steps >= begin) & (steps <= end)], [end]).astype(np.int64)
    runs = []
    for run, index in parts:
        each = [values_at(run.result.values(metric)[index], run.finite[index], run.steps, int(step)) for step in steps]
        runs.append(np.stack([np.where(good, values, np.nan) for values, good in each], axis=-1))
    seeds = [seed for run, _ in parts for seed in run.result.seeds]
    attrs = parts[0].run.attributes
    return Result(
        metrics_dataset({metric: np.concatenate(runs)[None]}, seeds=seeds, env_steps=steps.tolist(), attrs=attrs), {}
    )


def _share_legend(figure: matplotlib.figure.Figure, panels: list[matplotlib.axes.Axes], comparison: Compared) -> None:
    """One legend below the panels; a panel keeps its own where that names failed runs."""
    figure.suptitle(f"interquartile mean, {comparison.confidence:.0%} interval", fontsize="medium")
    lines = panels[0].get_lines()
    inches = 0.75 + 0.085 * max(map(len, comparison.names))  # of a line's sample and name
    columns = max(1, min(len(lines), 5, int(figure.get_figwidth() / inches)))
    looks = {"loc": "outside lower center", "ncols": columns, "frameon": False, "handlelength": 3}
    figure.legend(lines, comparison.names, **looks)
    for ax in panels:
        legend = ax.get_legend()
        if legend is not None and [text.get_text() for text in legend.get_texts()] == comparison.names:
            legend.remove()
