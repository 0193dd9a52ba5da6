"""The part of a comparison that its texts, figures and files use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

import numpy as np

from jaxrl.report.entries import Entry
from jaxrl.results.tables import Table

if TYPE_CHECKING:
    import xarray

__all__ = ["Compared"]


class Compared(Protocol):
    """The members of `jaxrl.Comparison` on which texts, figures and files depend; see there for each."""

    @property
    def metric(self) -> str: ...

    @property
    def direction(self) -> int: ...

    @property
    def confidence(self) -> float: ...

    @property
    def entries(self) -> tuple[Entry, ...]: ...

    @property
    def steps(self) -> Mapping[str, int]: ...

    @property
    def left_out(self) -> tuple[str, ...]: ...

    @property
    def references(self) -> Mapping[str, tuple[float, float]]: ...

    @property
    def references_text(self) -> str: ...

    @property
    def left_out_lines(self) -> tuple[str, ...]: ...

    @property
    def names(self) -> list[str]: ...

    @property
    def tasks(self) -> list[str]: ...

    @property
    def notes(self) -> list[str]: ...

    @property
    def differences(self) -> Table: ...

    @property
    def has_unequal_numbers(self) -> bool: ...

    def table(self, task: str | None = None) -> Table: ...

    def steps_to(self, level: float, task: str | None = None) -> Table: ...

    def matrix(self, task: str | None = None) -> xarray.Dataset: ...

    def scores(self, task: str | None = None) -> dict[str, np.ndarray]: ...
