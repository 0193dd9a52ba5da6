"""Sides of a comparison: processes that compile once and then run by turns, and the interpreters of the peers."""

import argparse
import json
import shutil
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PEERS = {
    "rejax": (ROOT / ".venv-rejax/bin/python", "rejax 0.1.3"),
    "sb3": (ROOT / ".venv-sb3/bin/python", "Stable-Baselines3"),
    "peers": (ROOT / ".venv-peers/bin/python", "the peers of crowds and bandits"),
}


def add_peers(parser: argparse.ArgumentParser, *names: str) -> None:
    """Options for the interpreters of some peers."""
    for name in names:
        default, has = PEERS[name]
        parser.add_argument(f"--{name}", metavar="PYTHON", default=str(default), help=f"interpreter that has {has}")


def find_peer(parser: argparse.ArgumentParser, name: str, interpreter: str) -> str | None:
    """The interpreter's path; None, with a line that says so, where the usual one is not there.

    A missing one that the command line names ends the program with a sentence.
    """
    default, has = PEERS[name]
    path = shutil.which(interpreter)
    if path is not None:
        return str(Path(path).absolute())
    if interpreter != str(default):
        parser.error(f"--{name}: there is no {interpreter}; name one that has {has}")
    print(f"Missing: {has}, which `make bench` installs; what is measured is measured without it.", flush=True)
    return None


def whole(result: Any) -> Any:
    """A result as it is: one that a signal cut short took a time that is no measurement.

    Raises:
      KeyboardInterrupt: it was.
    """
    if result.metrics.attrs["interrupted"]:
        raise KeyboardInterrupt("a signal ended the call early, so that its time is no measurement")
    return result


def require_same_device(ours: "Side", theirs: "Side") -> None:
    """Ends the program with a sentence where one side computes on another kind of device than the other."""
    mine, other = ours.compiled["device"], theirs.compiled["device"]
    if mine != other:
        raise SystemExit(f"both sides must run on the same kind of device, got {mine} for ours and {other} for theirs")


class Side:
    """One side's process: compiled, waiting to be told to run.

    Args:
      command: of a process that writes a JSON line when it is ready, and one for each line that it reads.
      environment: of that process, this one's if None.
      folder: in which it runs, this one's if None.

    Attributes:
      compiled: the first line.
      runs: the others.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None, folder: str | None = None):
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=folder
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
