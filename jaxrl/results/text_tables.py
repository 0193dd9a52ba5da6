"""Tables as text: numbers to about four digits, aligned columns, and rows of Markdown."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

_FORMULAS = ("=", "+", "-", "@", "\t", "\r")  # characters with which a formula begins


def decimals_of(values: Iterable[Any]) -> int:
    """Decimals that give the largest of the numbers about four digits."""
    largest = max((abs(value) for value in values if isinstance(value, float) and np.isfinite(value)), default=0.0)
    return 4 if largest == 0 else int(np.clip(3 - np.floor(np.log10(largest)), 1, 6))


def aligned(rows: Sequence[Sequence[str]], right: Sequence[bool], least: int = 1) -> list[list[str]]:
    """Cells padded with blanks to the widths of their columns.

    Args:
      rows: Text of every cell, including the header row.
      right: Whether each column is aligned to the right.
      least: Minimum width of a column.
    """
    widths = [max(least, *(len(row[column]) for row in rows)) for column in range(len(right))]
    return [
        [
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        ]
        for row in rows
    ]


def spreadsheet_cell(value: object) -> Any:
    """A value of a CSV file; text that a spreadsheet would compute as a formula gets an apostrophe in front.

    Args:
      value: Value of a cell. Only text is changed, and no text that is a number, such as "-1".
    """
    if not isinstance(value, str) or not value.startswith(_FORMULAS):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def plain_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """A line for each row of aligned cells."""
    return ["  ".join(row).rstrip() for row in rows]


def markdown_row(cells: Iterable[str]) -> str:
    """A row of a Markdown table."""
    return f"| {' | '.join(cells)} |"
