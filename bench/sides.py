"""Sides of a comparison: processes that compile once and then run by turns."""

import json
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any


class Side:
    """One side's process: compiled, waiting to be told to run.

    Args:
      command: of a process that writes a JSON line when it is ready, and one for each line that it reads.
      environment: of that process, this one's if None.

    Attributes:
      compiled: the first line.
      runs: the others.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None):
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.compiled = self._read()
        self.runs: list[dict[str, Any]] = []

    def run(self) -> None:
        """One timed run."""
        assert self._process.stdin is not None
        self._process.stdin.write("run\n")
        self._process.stdin.flush()
        self.runs.append(self._read())

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def finish(self) -> dict[str, Any]:
        """Ends the process, and gives what it tells last."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        last = self._read()
        self._process.wait()
        return last

    def figures(self, name: str) -> list[float]:
        """Of all runs."""
        return [run[name] for run in self.runs]

    def median(self, name: str) -> float:
        """Over the runs."""
        return statistics.median(self.figures(name))

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self._process.args} ended before its time: see its error above.")
        return json.loads(line)
