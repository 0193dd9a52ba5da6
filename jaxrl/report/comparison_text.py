"""A comparison as text and as HTML: its tables, the matrix of probabilities, and sentences."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Sequence

import numpy as np

from jaxrl.presets.registry import env_steps_of
from jaxrl.report.compared import Compared
from jaxrl.report.entries import runs_on
from jaxrl.report.runs import Run
from jaxrl.results.tables import Table

MOST_ROWS = 12  # settings that the text lists

__all__ = ["as_html", "as_text", "notes_on"]


def as_text(comparison: Compared) -> str:
    """The tables, the matrix of more than two lines, the first settings that differ, and the notes."""
    parts = [str(table) for table in _tables(comparison)]
    if comparison.direction and len(comparison.entries) > 2:
        parts.append(str(_matrix_table(comparison)))
    table, more = comparison.differences, len(comparison.differences.rows) - MOST_ROWS
    if table.rows:
        first = dataclasses.replace(table, rows=table.rows[:MOST_ROWS])
        parts.append(f"{first}\n... and {more} more (comparison.differences)" if more > 0 else str(first))
    return "\n\n".join([*parts, "\n".join(comparison.notes)]).rstrip()


def as_html(comparison: Compared) -> str:
    """The same for a notebook, with all settings that differ."""
    tables = _tables(comparison)
    tables += [_matrix_table(comparison)] if comparison.direction else []
    notes = "".join(f"<p>{html.escape(note)}</p>" for note in comparison.notes)
    return "".join(table._repr_html_() for table in (*tables, comparison.differences)) + notes


def notes_on(comparison: Compared) -> list[str]:
    """Sentences on what was aligned, normalised or left out."""
    sentences, several = [], len(comparison.tasks) > 1
    for task, step in comparison.steps.items():
        runs = runs_on(comparison.entries, task)
        on = f" on {task}" if several else ""
        if any(step not in run.steps for run in runs):
            rule = "interpolated linearly within each run between two evaluations"
            sentences.append(f"Values{on} are those at {step:,} environment steps, {rule}.")
        longer = [f"{run.name} to {run.last_step:,}" for run in runs if (run.steps > step).sum() > 1]
        if longer:
            sentences.append(f"Some results{on} are longer than is compared ({', '.join(longer)}).")
        if shorter := _shorter_than_presets(runs):
            sentences.append(f"Some results{on} have fewer environment steps than their preset ({', '.join(shorter)}).")
    if comparison.references:
        ends = [f"{low:.5g} and {high:.5g} on {task}" for task, (low, high) in comparison.references.items()]
        sentences.append(f"Normalised values are {comparison.references_text}: {', '.join(ends)}.")
    if comparison.left_out:
        sentences.append(f"Left out, since not all have results on them: {', '.join(comparison.left_out)}.")
    if comparison.left_out_lines:
        sentences.append(
            f"Left out, since they lack data on some of the tasks: {', '.join(comparison.left_out_lines)}."
        )
    if several and comparison.has_unequal_numbers:
        sentences.append("Means over all tasks, and profiles, take equally many runs of each, of the first seeds.")
    if not comparison.direction:
        sentences.append(f"It is unknown whether higher or lower values of {comparison.metric} are better (better=).")
    return sentences


def _shorter_than_presets(runs: Sequence[Run]) -> list[str]:
    """Runs that end before the number of environment steps for which their preset is tuned."""
    parts = []
    for run in runs:
        origin = str(run.attributes.get("settings_from", ""))
        tuned_for = env_steps_of(origin) if origin.startswith("preset ") else None
        if tuned_for is not None and run.last_step < tuned_for:
            parts.append(f"{run.name} {run.last_step:,} of {tuned_for:,}")
    return parts


def _tables(comparison: Compared) -> list[Table]:
    tasks = comparison.tasks if len(comparison.tasks) > 1 else []
    return [comparison.table(), *map(comparison.table, tasks)]


def _matrix_table(comparison: Compared) -> Table:
    """The matrix of probabilities, each row against each column."""
    matrix, names = comparison.matrix(), comparison.names
    rows = []
    for name, *parts in zip(names, *(matrix[part].values for part in ("better", "low", "high")), strict=True):
        rows.append((name, *(_cell(*each) for each in zip(*parts, strict=True))))
    title = "probability that a run of the row is better than a run of the column"
    return Table(title, ("name", *(f"than {name}" for name in names)), tuple(rows), 1 + len(names), ())


def _cell(value: float, low: float, high: float) -> str:
    if not np.isfinite(value):
        return ""
    return f"{value:.2f} [{low:.2f}, {high:.2f}]" if np.isfinite(low) else f"{value:.2f}"
