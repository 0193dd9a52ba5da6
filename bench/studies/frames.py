"""Data frames as text, aligned for a terminal and as a Markdown table, and intervals as cells of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from jaxrl.results.statistics import bootstrap_interval, iqm, probability_of_improvement
from jaxrl.results.text_tables import aligned, decimals_of, markdown_row, plain_lines

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas

MISSING = "\N{EN DASH}"

__all__ = ["MISSING", "estimate", "improvement", "interval", "markdown", "plain"]


def interval(
    statistic: Callable[..., Any], values: np.ndarray, decimals: int, limits: tuple[Any, Any] | None = None
) -> str:
    """A statistic of runs with its 95 % bootstrap interval, "value [low, high]"; "failed" for fewer than two runs.

    No interval goes beyond the limits, the smallest and the largest possible value.
    """
    if values.size < 2:
        return "failed"
    estimate = bootstrap_interval(statistic, values).within(*(limits or (-np.inf, np.inf)))
    return f"{estimate.value:.{decimals}f} [{estimate.low:.{decimals}f}, {estimate.high:.{decimals}f}]"


def estimate(values: np.ndarray) -> str:
    """The interquartile mean over the runs that did not fail, with its 95 % interval, rounded to about three digits."""
    good = values[np.isfinite(values)]
    if good.size < 2:
        return MISSING
    decimals = int(np.clip(2 - np.floor(np.log10(max(float(np.abs(good).max()), 1e-9))), 0, 4))
    return interval(iqm, good, decimals)


def improvement(values: np.ndarray, baseline: np.ndarray) -> str:
    """The probability that a run exceeds one of the baseline, with its 95 % interval; a failed run is the lowest."""
    ranked = [np.where(np.isfinite(runs), runs, -np.inf) for runs in (values, baseline)]
    chance = probability_of_improvement(*ranked)
    return f"{chance.value:.2f} [{chance.low:.2f}, {chance.high:.2f}]"


def plain(frame: pandas.DataFrame) -> str:
    """A frame as aligned text: numbers to the right, floats to about four digits, nan as a dash."""
    cells, right = _cells(frame)
    return "\n".join(plain_lines(aligned(cells, right, least=3)))


def markdown(frame: pandas.DataFrame) -> str:
    """A frame as a Markdown table."""
    cells, right = _cells(frame)
    cells = [[cell.replace("|", "\\|") for cell in row] for row in cells]
    head, *rows = aligned(cells, right, least=3)
    rule = ["-" * (len(cell) - 1) + (":" if to_right else "-") for cell, to_right in zip(head, right, strict=True)]
    return "\n".join(map(markdown_row, (head, rule, *rows)))


def _cells(frame: pandas.DataFrame) -> tuple[list[list[str]], list[bool]]:
    """Header and rows as text, and whether each column is numeric."""
    columns = [[str(name), *_column(frame[name].tolist())] for name in frame.columns]
    right = [not any(isinstance(value, str) for value in frame[name]) for name in frame.columns]
    return [list(row) for row in zip(*columns, strict=True)], right


def _column(values: list[Any]) -> list[str]:
    floats = [value for value in values if isinstance(value, float) and np.isfinite(value)]
    typed = all(float(f"{value:.4g}") == value for value in floats)  # like settings, which need no rounding
    decimals = decimals_of(floats)

    def text(value: Any) -> str:
        if not isinstance(value, float):
            return str(value)
        if np.isnan(value):
            return MISSING
        return f"{value:g}" if typed else f"{value:.{decimals}f}"

    return [text(value) for value in values]
