"""A CSV file to which rows are appended while a call runs."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from envs.errors import ExistsError
from envs.files import appending, refuse_links, replacing, writing
from jaxrl.results.text_tables import spreadsheet_cell
from jaxrl.tracking.runs import Points, Tracked


class Table:
    """A sink that appends a row per point.

    Args:
      path: File to write.
      force: Whether a call that does not resume replaces an existing file.
    """

    def __init__(self, path: Path, force: bool) -> None:
        self._path, self._force = path, force

    def open(self, tracked: Tracked, resuming: bool) -> np.ndarray:
        """See `Sink.open`; raises FileExistsError if the file exists and the call does not resume."""
        with writing(self._path):
            return self._open(tracked, resuming)

    def _open(self, tracked: Tracked, resuming: bool) -> np.ndarray:
        self._runs = tracked.runs
        last = np.full(len(tracked.runs), -1)
        refuse_links(self._path)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if not self._path.exists():
            return last
        if not resuming:
            if not self._force:
                raise ExistsError(
                    f"{self._path} exists already: choose another file, or replace it with force=True (--force)."
                )
            self._path.unlink()
            return last
        places = {spreadsheet_cell(run.name): i for i, run in enumerate(tracked.runs)}
        try:
            whole, _, _ = self._path.read_text(encoding="utf-8").rpartition("\n")  # drops an incomplete last line
            for row in csv.DictReader(whole.splitlines()):
                i = places[row["run"]]
                last[i] = max(last[i], int(row["env_step"]))
        except (KeyError, ValueError, TypeError, csv.Error):
            raise ExistsError(
                f"{self._path} exists already, with runs of another call or with other content: choose another file."
            ) from None
        with replacing(self._path) as part:
            part.write_text(f"{whole}\n" if whole else "", encoding="utf-8")
        return last

    def write(self, points: Points) -> None:
        """See `Sink.write`."""
        with appending(self._path, newline="") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            first = self._runs[0]
            if not stream.tell():
                seed = [] if first.seed is None else ["seed"]
                names = ["run", *first.coordinates, *seed, "env_step", *points.names]
                writer.writerow(map(spreadsheet_cell, names))
            for i, values in zip(points.runs.tolist(), points.values.tolist(), strict=True):
                run = self._runs[i]
                seed = [] if run.seed is None else [run.seed]
                labels = map(spreadsheet_cell, [run.name, *run.coordinates.values()])
                writer.writerow([*labels, *seed, points.env_step, *values])

    def close(self, ends: list[str]) -> None:
        """See `Sink.close`; does nothing."""
