"""Numbers and values as text of a report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

NOTHING = "\N{EN DASH}"


def cell(value: Any) -> str:
    """A value as the text of a cell: one value for all settings, or the different values of a sweep."""
    if isinstance(value, list | tuple):
        texts = list(dict.fromkeys(cell(item) for item in value))
        return ", ".join(texts) if len(texts) <= 8 else f"{', '.join(texts[:7])}, ... ({len(texts)} in all)"
    if isinstance(value, float | np.floating):
        return f"{value:.7g}"
    return NOTHING if value is None else str(value)


def ranges(seeds: Sequence[int]) -> str:
    """Consecutive seeds as a range, others one by one."""
    whole = list(seeds) == list(range(seeds[0], seeds[0] + len(seeds)))
    return f"{seeds[0]} to {seeds[-1]}" if whole and len(seeds) > 1 else cell(list(seeds))
