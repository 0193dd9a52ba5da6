"""Progress of a test of laws: a bar, and at the end one line with the number of laws."""

import sys
from types import TracebackType
from typing import Self

import tqdm.auto

__all__ = ["Laws"]


class Laws:
    """A context in which laws are tested one after another; it is called with the name of each before its test.

    Args:
      of: Name of the tested object, for the line at the end.
      count: Number of laws.
      progress: Whether to show a bar and the line, on standard error.
    """

    def __init__(self, of: str, count: int, progress: bool) -> None:
        self._of, self._count, self._shown, self._done = of, count, progress, 0
        text = "{desc}: law {n_fmt} of {total_fmt}{postfix}"
        self._bar = tqdm.auto.tqdm(total=count, desc=of, leave=False, disable=not progress, bar_format=text)

    def __enter__(self) -> Self:
        return self

    def __call__(self, law: str) -> None:
        """Advance to a law; the previous one holds."""
        self._done += 1
        self._bar.set_postfix_str(law, refresh=False)
        self._bar.update()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.close()
        if error is None and self._shown:
            print(f"{self._of}: ok: {self._done} laws", file=sys.stderr)
