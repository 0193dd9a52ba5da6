"""Sides of a comparison: processes that compile once and then run alternately, and the interpreters of the peers."""

import argparse
import contextlib
import json
import shutil
import statistics
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PEERS = {
    "rejax": (ROOT / ".venv-rejax/bin/python", "rejax 0.1.3"),
    "rejax012": (ROOT / ".venv-rejax012/bin/python", "rejax 0.1.2"),
    "sbx": (ROOT / ".venv-sbx/bin/python", "SBX 0.28.0"),
    "sb3": (ROOT / ".venv-sb3/bin/python", "Stable-Baselines3"),
    "gem": (ROOT / ".venv-suite-electric_motor/bin/python", "gym-electric-motor 3.0.3"),
    "peers": (ROOT / ".venv-peers/bin/python", "the peers of crowds and bandits"),
}


def add_peers(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add options for the interpreters of the named peers."""
    for name in names:
        default, has = PEERS[name]
        parser.add_argument(f"--{name}", metavar="PYTHON", default=str(default), help=f"interpreter that has {has}")


def find_peer(parser: argparse.ArgumentParser, name: str, interpreter: str) -> str | None:
    """The path of the interpreter; None, with a line of output, if the default one is missing.

    A missing interpreter that the command line names ends the program with a message.
    """
    default, has = PEERS[name]
    path = shutil.which(interpreter)
    if path is not None:
        return str(Path(path).absolute())
    if interpreter != str(default):
        parser.error(f"--{name}: there is no {interpreter}; name one that has {has}")
    print(f"Missing: {has}, which `make bench` installs; the benchmark runs without it.", flush=True)
    return None


def whole(result: Any) -> Any:
    """Return the result unless a signal ended the call early, because its time is then not a measurement.

    Raises:
      KeyboardInterrupt: A signal ended the call early.
    """
    if result.metrics.attrs["interrupted"]:
        raise KeyboardInterrupt("a signal ended the call early, so that its time is not a measurement")
    return result


def require_same_device(ours: "Side", theirs: "Side") -> None:
    """End the program with a message if the two sides run on different kinds of device."""
    our_device, their_device = ours.compiled["device"], theirs.compiled["device"]
    if our_device != their_device:
        raise SystemExit(
            f"both sides must run on the same kind of device, got {our_device} for ours and {their_device} for theirs"
        )


class Side:
    """The process of one side: compiled, and waiting for a line that starts a run.

    Args:
      command: Command of a process that writes a JSON line when it is ready, and one for each line that it reads.
      environment: Environment variables of the process; None for those of this process.
      folder: Working directory of the process; None for that of this process.
      seconds: Time after which the process is killed; None for no limit.

    Attributes:
      compiled: Values of the first line.
      runs: Values of the other lines.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        folder: str | None = None,
        seconds: float | None = None,
    ) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=folder
        )
        self._late = False
        self._timer = threading.Timer(seconds or 0.0, self._kill)
        self._timer.daemon = True
        if seconds is not None:
            self._timer.start()
        self.runs: list[dict[str, Any]] = []
        try:
            self.compiled = self._read()
        except SystemExit:
            self.close()
            raise

    def run(self) -> None:
        """Start one timed run and read its line."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # of a process that has ended, which `_read` reports
            self._process.stdin.write("run\n")
            self._process.stdin.flush()
        self.runs.append(self._read())

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._wait()

    def finish(self) -> dict[str, Any]:
        """End the process and return the values of its last line."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        last = self._read()
        self._wait()
        return last

    def figures(self, name: str) -> list[float]:
        """One figure of all runs."""
        return [run[name] for run in self.runs]

    def median(self, name: str) -> float:
        """The median of one figure over the runs."""
        return statistics.median(self.figures(name))

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            how = "was stopped, because its time was over" if self._late else "ended early: see its error above"
            raise SystemExit(f"{self._process.args} {how}.")
        return json.loads(line)

    def _wait(self) -> None:
        assert self._process.stdout is not None
        self._process.wait()
        self._process.stdout.close()
        self._timer.cancel()

    def _kill(self) -> None:
        self._late = True
        self._process.kill()
