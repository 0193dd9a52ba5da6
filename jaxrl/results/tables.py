"""Tables that read well in a terminal."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from envs.terminal import printable
from jaxrl.results.dataset import ResultError, range_of
from jaxrl.results.optima import bounds, optima
from jaxrl.results.statistics import Interval, bootstrap_interval, iqm
from jaxrl.results.text_tables import aligned, decimals_of, plain_lines

if TYPE_CHECKING:
    import pandas

    from jaxrl.results.description import Labelled

NO_INTERVAL = "\N{EN DASH}"

__all__ = ["Table", "estimate_table", "estimates", "with_gaps"]


@dataclass(frozen=True, repr=False)
class Table:
    """Rows of estimates.

    Attributes:
      title: Heading of the table.
      columns: Names of the columns.
      rows: Plain values, `[num_rows]` of `[num_columns]`.
      num_labels: Number of leading columns that name the row.
      intervals: Pairs of names of neighbouring columns that are printed together as `[low, high]`, or as a dash where
        they are nan.
      decimals: Number of decimals by column; other columns have as many as give their largest number about four digits.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    num_labels: int
    intervals: tuple[tuple[str, str], ...] = (("low", "high"),)
    decimals: Mapping[str, int] = field(default_factory=dict)

    def to_pandas(self) -> pandas.DataFrame:
        """The rows as a DataFrame."""
        import pandas

        return pandas.DataFrame(list(self.rows), columns=list(self.columns))

    def __str__(self) -> str:
        numbers = self.columns[self.num_labels :]
        decimals = {name: decimals_of(self._column(name)) for name in numbers} | dict(self.decimals)
        ends = dict(self.intervals)
        shown = [name for name in self.columns if name not in ends.values()]
        lines = [["interval" if name in ends else printable(name) for name in shown]]
        for row in self.rows:
            values = dict(zip(self.columns, row, strict=True))
            line = []
            for name in shown:
                if name not in ends:
                    line.append(_text(values[name], decimals.get(name)))
                    continue
                two = [values[name], values[ends[name]]]
                texts = [_text(value, decimals[ends[name]]) for value in two]
                line.append(f"[{', '.join(texts)}]" if all(map(_is_number, two)) else NO_INTERVAL)
            lines.append(line)
        right = [name not in self.columns[: self.num_labels] for name in shown]
        return "\n".join([printable(self.title), "", *plain_lines(aligned(lines, right))])

    def _column(self, name: str) -> list[Any]:
        at = self.columns.index(name)
        return [row[at] for row in self.rows]

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(self.title)}</p>{self.to_pandas().to_html(index=False)}"


def estimate_table(result: Labelled, metric: str, confidence: float) -> Table:
    """A row per setting of a result; see `Result.table`."""
    values, failed = result.values(metric)[:, :, -1], result.failed_runs()
    if values.ndim > 2:
        behind = result.metrics[metric].dims[-1]
        raise ResultError(
            f"metric is {metric!r}, which has a number for each {behind}; choose one, such as "
            f"result.metrics[{metric!r}].isel({behind}=0)."
        )
    settings, limits = result.settings, range_of(result.metrics.attrs, metric)
    paths = tuple(settings[0])
    rows = []
    for setting, runs, bad in zip(settings, values, failed, strict=True):
        rows.append((*setting.values(), *estimates(runs[~bad], confidence, limits), int(bad.sum())))
    columns = (*paths, "iqm", "low", "high", "mean", "seeds", "failed")
    if not failed.any():
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    columns, rows, decimals = with_gaps(optima(result, metric), bounds(result, metric), columns, rows)
    if metric == "return" and result.best is not None and np.any(np.isfinite(result.best.return_again)):
        return _with_best(result, columns, rows, decimals, confidence, limits)
    last = int(result.metrics["env_step"].values[-1])
    when = "of the policies of the best evaluations" if result.metrics.attrs.get("measured") == "best" else ""
    when = when or f"after {last:,} environment steps"
    title = f"{metric} {when}: interquartile mean, {confidence:.0%} bootstrap interval"
    return Table(title, columns, tuple(rows), len(paths), decimals=decimals)


def with_gaps(
    best: np.ndarray | None, most: np.ndarray | None, columns: tuple[str, ...], rows: list[tuple[Any, ...]]
) -> tuple[tuple[str, ...], list[tuple[Any, ...]], dict[str, int]]:
    """Columns, rows and decimals of a table with the optimum of every row and the gap to it, or the bound.

    Args:
      best: Optima of the rows, nan for an unknown one; None, which adds no column, if none is known.
      most: Upper bounds of rows without a known optimum, likewise.
      columns: Names of the columns.
      rows: Rows of the table.
    """
    middle = [row[columns.index("iqm")] for row in rows]
    added: dict[str, np.ndarray] = {}
    if best is not None:
        gaps = best - np.array(middle)
        shares = 100 * gaps / np.where(best != 0, np.abs(best), np.nan)
        added = {"optimum": best, "gap": gaps} | ({"gap_percent": shares} if np.any(np.isfinite(shares)) else {})
    if most is not None:
        added["bound"] = most
    cells = [
        [float(values[at]) if np.isfinite(values[at]) else None for values in added.values()] for at in range(len(rows))
    ]
    decimals = {name: 2 if name == "gap_percent" else decimals_of(middle) for name in added}
    return (*columns, *added), [(*row, *more) for row, more in zip(rows, cells, strict=True)], decimals


def _with_best(
    result: Labelled,
    columns: tuple[str, ...],
    rows: list[tuple[Any, ...]],
    decimals: Mapping[str, int],
    confidence: float,
    limits: Any,
) -> Table:
    """The table of returns, with those of the last and the best policies in further episodes."""
    assert result.best is not None
    last = int(result.metrics["env_step"].values[-1])
    sound = ~result.failed_runs() & np.isfinite(result.best.return_again) & np.isfinite(result.best.return_of_last)
    further = {"last_again": result.best.return_of_last, "best_again": result.best.return_again}
    for name, values in further.items():
        columns = (*columns, name, f"{name}_low", f"{name}_high")
        each = [estimates(runs[good], confidence, limits)[:3] for runs, good in zip(values, sound, strict=True)]
        rows = [(*row, *numbers) for row, numbers in zip(rows, each, strict=True)]
    title = (
        f"return after {last:,} environment steps: interquartile mean, {confidence:.0%} bootstrap interval; again: in "
        "further episodes, since the return by which a policy is the best of several is too high by chance"
    )
    intervals = (("low", "high"), *((f"{name}_low", f"{name}_high") for name in further))
    return Table(title, columns, tuple(rows), len(result.settings[0]), intervals, decimals)


def estimates(
    runs: np.ndarray, confidence: float, limits: tuple[float, float]
) -> tuple[float, float, float, float, int]:
    """IQM of runs, the ends of its interval, their mean and their number; nan where there are too few.

    Args:
      runs: Values of the runs that did not fail, `[num_runs]`.
      confidence: Confidence level, in (0, 1).
      limits: Smallest and largest possible value, see `range_of`.
    """
    value, mean = (float(iqm(runs)), float(runs.mean())) if runs.size else (float("nan"), float("nan"))
    low = high = float("nan")
    if runs.size > 1:  # resampling a single run would give an interval of width 0
        interval = bootstrap_interval(iqm, runs, confidence=confidence).within(*limits)
        low, high = float(interval.low), float(interval.high)
    return value, low, high, mean, int(runs.size)


def estimate_over_tasks(
    runs: np.ndarray, confidence: float, limits: tuple[float, float], num_resamples: int = 2000
) -> Interval:
    """IQM of the runs of all tasks with its stratified interval; nan where there are too few.

    Args:
      runs: Values of the runs that did not fail, `[tasks, num_runs]`.
      confidence: Confidence level, in (0, 1).
      limits: Smallest and largest possible value.
      num_resamples: Number of bootstrap resamples.
    """
    nothing, count = np.full((), np.nan), runs.shape[1]
    if count < 2:
        return Interval(np.asarray(iqm(runs, (-2, -1))) if count else nothing, nothing, nothing)
    interval = bootstrap_interval(iqm, runs, tasks=True, confidence=confidence, num_resamples=num_resamples)
    return interval.within(*limits)


def _is_number(value: object) -> bool:
    return isinstance(value, float | int) and not np.isnan(value)


def _text(value: object, decimals: int | None) -> str:
    if value is None and decimals is not None:
        return NO_INTERVAL
    if not isinstance(value, float):
        return printable(str(value))
    return f"{value:g}" if decimals is None else f"{value:.{decimals}f}"
