"""A comparison of results: a table, the matrix of probabilities, figures, and the settings that differ."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from envs.errors import UserValueError
from envs.spelling import near
from jaxrl.report.comparison_text import as_html, as_text, notes_on
from jaxrl.report.efficiency import median_interval, steps_of
from jaxrl.report.entries import SETTINGS, Entry, runs_on
from jaxrl.report.pairs import Chance, Scores, chance_of, p_value_of, rectangle
from jaxrl.report.runs import Run, differences
from jaxrl.report.text import NOTHING
from jaxrl.results.format import counted
from jaxrl.results.optima import BOUNDS, OPTIMA
from jaxrl.results.p_values import corrected
from jaxrl.results.statistics import normalise
from jaxrl.results.tables import Table, estimate_over_tasks, estimates, with_gaps

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure
    import xarray

COMPARED = ("better", "better_low", "better_high", "p_value")  # columns about the baseline
CALL = ("settings_from", "seeds", "env_steps", "eval_episodes", "start", "precision")  # compared besides the settings

__all__ = ["Comparison"]


@dataclass(frozen=True, repr=False)
class Comparison:
    """Results side by side; see `jaxrl.compare`, which makes it.

    Attributes:
      metric: Name of the metric.
      direction: 1 if higher values are better, -1 if lower values are, 0 if that is unknown.
      baseline: Label with which the others are compared.
      confidence: Confidence level of every interval.
      entries: Lines of the comparison.
      steps: Environment step at which values are compared, for each task that all lines have.
      left_out: Tasks that only some of the lines have.
      references: Values that count as 0 and as 1 on each task; empty for values as they are.
      references_text: Phrase that describes these values.
      left_out_lines: Names of lines of the benchmark that have data on only some of the tasks.
    """

    metric: str
    direction: int
    baseline: str
    confidence: float
    entries: tuple[Entry, ...]
    steps: Mapping[str, int]
    left_out: tuple[str, ...]
    references: Mapping[str, tuple[float, float]]
    references_text: str
    left_out_lines: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """Labels of the lines."""
        return [entry.label for entry in self.entries]

    @property
    def tasks(self) -> list[str]:
        """Tasks that all lines have."""
        return list(self.steps)

    def table(self, task: str | None = None) -> Table:
        """A row for each line: interquartile mean, its interval, and the probability to be better than the baseline.

        Args:
          task: Task, with its own values; None for all tasks, with normalised values if there are several or
            `normalise` is passed.

        Returns:
          A table with a text form and `to_pandas()`. `seeds` is the number of runs that did not fail, of each task,
          `failed` that of the others, and `steps` the number of environment steps of the training, of all tasks.
          `p_value` is that of the hypothesis that the runs of a line and of the baseline that did not fail have one
          distribution of values or, of pairs, that an exchange of the two runs of a pair leaves their joint
          distribution unchanged, by permutations, corrected by Holm's method: over all tasks together for the number of
          lines compared with the baseline, and of a named task for the number of these lines times that of the tasks,
          so that the tables of all tasks may be read together. Values of a task whose optimum is known for a line have
          the columns `optimum`, `gap` and `gap_percent` of `Result.table`, or `bound` where a bound alone is known.

        Raises:
          ValueError: There is no such task.
        """
        tasks, scaled = self._tasks(task), self._is_scaled(task)
        scores = self._scores(tasks, scaled)
        base = self.names.index(self.baseline)
        rows, failed = [], []
        for at, (entry, own) in enumerate(zip(self.entries, scores, strict=True)):
            values = rectangle([each.values for each in own])
            row: list[Any] = [entry.label, *self._estimates(entry, values, tasks, scaled)]
            failed.append(sum(len(each.trained) - len(each.values) for each in own))
            row += [failed[-1], sum(map(entry.last_step, tasks))]
            chance = None if at == base else self._chance(own, scores[base])
            rows.append([*row, *((None,) * 3 if chance is None else chance[:3])])
        p_values = corrected(self._single_p_values(self.tasks, 1)) if task is None else self._p_values_of_tasks[task]
        for row, p_value in zip(rows, p_values, strict=True):
            row.append(p_value if np.isfinite(p_value) else None)
        columns = ["name", "iqm", "low", "high", "seeds", "failed", "steps", *COMPARED]
        kept = [name for name in columns if (any(failed) or name != "failed")]
        kept = [name for name in kept if self.direction or name not in COMPARED]
        at = [columns.index(name) for name in kept]
        cells = [tuple(row[column] for column in at) for row in rows]
        single = None if len(tasks) > 1 or scaled else tasks[0]
        best, most = (None if single is None else self._attainable(single, kind) for kind in (OPTIMA, BOUNDS))
        names, cells, decimals = with_gaps(best, most, tuple(kept), cells)
        intervals = (("low", "high"), ("better_low", "better_high"))[: 2 if self.direction else 1]
        decimals = {**decimals, **dict.fromkeys(COMPARED[:3], 2), "p_value": 4}
        return Table(self._title(tasks, scaled), names, tuple(cells), 1, intervals, decimals)

    def matrix(self, task: str | None = None) -> xarray.Dataset:
        """The probability that a run of each line is better than a run of every other, ties counting one half.

        Args:
          task: Task; None for the mean over all tasks.

        Returns:
          A dataset with the dims `("name", "than")` and the variables `better`, its interval `low` and `high`, and
          `paired`, whether runs of equal seeds were compared; nan on the diagonal.

        Raises:
          ValueError: There is no such task, or it is unknown whether higher values are better.
        """
        import xarray

        self._require_direction()
        scores, count = self._scores(self._tasks(task), self._is_scaled(task)), len(self.entries)
        parts = np.full((3, count, count), np.nan)
        paired = np.zeros((count, count), bool)
        for one in range(count):
            for other in range(one):
                if (chance := self._chance(scores[one], scores[other])) is not None:
                    parts[:, one, other], parts[:, other, one] = chance[:3], chance.of_the_other[:3]
                    paired[one, other] = paired[other, one] = chance.paired
        dims = ("name", "than")
        variables = {name: (dims, part) for name, part in zip(("better", "low", "high"), parts, strict=True)}
        return xarray.Dataset(variables | {"paired": (dims, paired)}, dict.fromkeys(dims, self.names))

    def steps_to(self, level: float, task: str | None = None) -> Table:
        """A row for each line: the environment steps after which half of its runs have reached a level.

        Args:
          level: Value of the metric to reach; the smallest number that counts where higher values are better.
          task: Task; None for the only one.

        Returns:
          A table with the median over runs of the first environment step at the level, interpolated within each run,
          its exact interval, and the share of the runs that reach it within the steps that all lines have. A median is
          infinite where half of them do not. A run at the level in its first evaluation has the step of that one.

        Raises:
          ValueError: There is no such task, there are several and none is named, the level is not finite, or it is
            unknown whether higher values are better.
        """
        if task is None and len(self.tasks) > 1:
            raise UserValueError(f"task takes one of the tasks, {', '.join(self.tasks)}, got None")
        self._require_direction()
        if isinstance(level, bool) or not isinstance(level, int | float | np.number) or not np.isfinite(level):
            raise UserValueError(f"level takes a finite value of {self.metric}, got {level!r}")
        (on,) = self._tasks(task) if task is not None else self.tasks
        rows = []
        for entry in self.entries:
            first = steps_of(entry, on, self.metric, float(level), self.direction, self.steps[on])
            share = float(np.isfinite(first).mean())
            rows.append((entry.label, *median_interval(first, self.confidence), share, len(first)))
        what = f"environment steps until {self.metric} on {on} is {level:g}, within {self.steps[on]:,}"
        title = f"{what}: median with its {self.confidence:.0%} interval"
        columns = ("name", "median", "low", "high", "reached", "seeds")
        return Table(title, columns, tuple(rows), 1, decimals={"median": 0, "high": 0, "reached": 2})

    @property
    def differences(self) -> Table:
        """The settings that differ, a row for each and a column for each result; those that all have come first."""
        several = len(self.tasks) > 1
        runs, names = [], []
        for task in self.tasks:
            for run in runs_on(self.entries, task):
                name = f"{run.name} on {task}" if several else run.name
                runs.append(run)
                names.append(f"{name} ({names.count(name) + 1})" if name in names else name)
        rows = {path: row for path, row in differences(runs).items() if path.partition(".")[0] in (*CALL, *SETTINGS)}
        order = sorted(rows, key=lambda path: (path != "settings_from", NOTHING in rows[path]))
        return Table(
            "settings that differ",
            ("setting", *names),
            tuple((path, *rows[path]) for path in order),
            1 + len(names),
            (),
        )

    @property
    def runs(self) -> list[Run]:
        """The results on the tasks that all lines have."""
        return [run for task in self.tasks for run in runs_on(self.entries, task)]

    @property
    def notes(self) -> list[str]:
        """Sentences on what was aligned, normalised or left out."""
        return notes_on(self)

    def plot(self, path: str | Path | None = None) -> matplotlib.figure.Figure:
        """Learning curves of all lines in one figure, a panel for each task, each with its own evaluations.

        Args:
          path: Picture file to write in addition: .png, .pdf or .svg.
        """
        from jaxrl.report.pictures import draw_curves

        return draw_curves(self, path)

    def profiles(
        self, path: str | Path | None = None, *, ax: matplotlib.axes.Axes | None = None
    ) -> matplotlib.axes.Axes:
        """Performance profiles over all tasks: the share of runs above each value; at most as high, if lower is better.

        Args:
          path: Picture file to write in addition: .png, .pdf or .svg.
          ax: Axes to draw on; None creates a figure.
        """
        from jaxrl.report.pictures import draw_profiles

        return draw_profiles(self, path, ax)

    def save(self, path: str | Path, *, level: float | Mapping[str, float] | None = None) -> Path:
        """Write figures (.png, .pdf, .svg) and tables (.csv) into a directory, or the learning curves into one file.

        Args:
          path: Directory, new or with an earlier comparison alone; or the name of a picture.
          level: Value of the metric, or values by the names of tasks, whose table of `steps_to` is written to
            `steps.csv`; None for no such table.

        Returns:
          The path.

        Raises:
          FileExistsError: The directory holds other files.
          ValueError: A level is of no task, or is passed with the name of a picture.
        """
        from jaxrl.report.saving import save

        return save(self, Path(path), level)

    def normalised(self, task: str, values: np.ndarray) -> np.ndarray:
        """Values on the scale of a task's references; as they are without any."""
        return normalise(values, *self.references[task]) if values.size and self.references else values

    def scores(self, task: str | None = None) -> dict[str, np.ndarray]:
        """The compared values of the runs that did not fail, by label.

        Args:
          task: Task, with its own values, `[runs]`; None for all tasks, normalised if there are several or `normalise`
            is passed: `[runs]` of the only task, otherwise `[tasks, runs]`, with as many runs of each task as there are
            of the one with the fewest.
        """
        tasks = self._tasks(task)
        arrays = [rectangle([each.values for each in own]) for own in self._scores(tasks, self._is_scaled(task))]
        pairs = zip(self.names, arrays, strict=True)
        return {name: array if len(tasks) > 1 else array[0] for name, array in pairs}

    @property
    def has_unequal_numbers(self) -> bool:
        """Whether a line has different numbers of runs on different tasks."""
        return any(len({len(each.values) for each in own}) > 1 for own in self._scores(self.tasks, False))

    def _require_direction(self) -> None:
        """Reject a metric of which it is unknown whether higher values are better."""
        if not self.direction:
            raise UserValueError(
                f"metric is {self.metric!r}, of which it is unknown whether higher values are better; "
                "pass better='higher' or better='lower'."
            )

    def _tasks(self, task: str | None) -> list[str]:
        if task is not None and task not in self.steps:
            hint = near(task, self.steps) or f"; it takes {', '.join(self.steps)}."
            raise UserValueError(f"task is {task!r}{hint}")
        return self.tasks if task is None else [task]

    def _scores(self, tasks: Sequence[str], scaled: bool) -> list[list[Scores]]:
        """The scores of every line on every task, normalised or as they are."""
        scores = []
        for entry in self.entries:
            own = [entry.scores(task, self.metric, self.steps[task]) for task in tasks]
            if scaled:
                own = [
                    each._replace(values=self.normalised(task, each.values))
                    for task, each in zip(tasks, own, strict=True)
                ]
            scores.append(own)
        return scores

    def _is_scaled(self, task: str | None) -> bool:
        """Whether values are normalised: those of all tasks together, if there are several or `normalise` is passed."""
        return bool(self.references) and task is None

    def _single_p_values(self, tasks: Sequence[str], tables: int) -> list[float]:
        """The p-value of each line against the baseline, one of a number of tables that are corrected together.

        It is not corrected itself, and nan of the baseline and without a direction.
        """
        scores, base = self._scores(tasks, False), self.names.index(self.baseline)
        if not self.direction:
            return [float("nan")] * len(scores)
        comparisons, others = tables * (len(scores) - 1), [at for at in range(len(scores)) if at != base]
        p_values = {at: p_value_of(scores[at], scores[base], comparisons) for at in others}
        return [p_values.get(at, float("nan")) for at in range(len(scores))]

    @functools.cached_property
    def _p_values_of_tasks(self) -> dict[str, list[float]]:
        """The p-value of each line on each task, corrected for all of these."""
        lines, count = len(self.entries), len(self.tasks)
        single = [self._single_p_values([task], count) for task in self.tasks]
        values = corrected([value for row in single for value in row])
        return {task: values[at * lines : (at + 1) * lines] for at, task in enumerate(self.tasks)}

    def _attainable(self, task: str, kind: str) -> np.ndarray | None:
        """The optimum or the bound of each line on a task, nan where it is not known; None without any."""
        values = np.array([entry.attainable(task, self.metric, kind) for entry in self.entries])
        return values if np.any(np.isfinite(values)) else None

    def _chance(self, ours: Sequence[Scores], theirs: Sequence[Scores]) -> Chance | None:
        if not self.direction:
            return None
        return chance_of(ours, theirs, self.direction, self.confidence)

    def _estimates(self, entry: Entry, values: np.ndarray, tasks: Sequence[str], scaled: bool) -> list[Any]:
        """IQM, the ends of its interval, and the number of runs of each task."""
        ends = [np.asarray(entry.limits(task, self.metric)) for task in tasks]
        if scaled:
            ends = [normalise(end, *self.references[task]) for task, end in zip(tasks, ends, strict=True)]
        limits = min(end[0] for end in ends), max(end[1] for end in ends)
        if len(tasks) == 1:
            value, low, high, _, count = estimates(values[0], self.confidence, limits)
            return [value, low, high, count]
        return [*map(float, estimate_over_tasks(values, self.confidence, limits)), values.shape[1]]

    def _title(self, tasks: Sequence[str], scaled: bool) -> str:
        what = f"normalised {self.metric}" if scaled else self.metric
        where = f"on {tasks[0]} at {self.steps[tasks[0]]:,} environment steps"
        where = where if len(tasks) == 1 else f"over {counted(len(tasks), 'task')}"
        better = f", and the probability to be better than {self.baseline}" if self.direction else ""
        return f"{what} {where}: interquartile mean with its {self.confidence:.0%} interval{better}"

    def __str__(self) -> str:
        return as_text(self)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return as_html(self)
