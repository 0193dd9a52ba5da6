"""Runs of tests in processes forked from one that has imported the libraries, but nothing of the copy under test.

Importing them takes most of the time of a run of one small test. None of them starts a device or a thread.
"""

import json
import multiprocessing
import os
import sys
from pathlib import Path

import pytest

LIBRARIES = (
    "jax",
    "scipy.stats",
    "pandas",
    "xarray",
    "matplotlib.pyplot",
    "hypothesis",
    "flax.linen",
    "optax",
    "distrax",
)

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload([*LIBRARIES, __name__])


class Outcomes:
    """A plugin of pytest that notes how each test ended.

    Attributes:
      ended: Outcome by node id: "passed", "failed", "skipped", or "error" for a failure around the test itself.
    """

    def __init__(self):
        self.ended: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the outcome of one part of a test."""
        if report.when == "call" or report.outcome != "passed":
            failed_around = report.when != "call" and report.outcome == "failed"
            self.ended[report.nodeid] = "error" if failed_around else report.outcome


def run_tests(folder: Path, tests: list[str], log: Path, longest: float) -> dict[str, str] | str:
    """Run tests of a copy of the tree in a process of their own.

    Args:
      folder: Root of the copy.
      tests: Node ids.
      log: File for the output.
      longest: Limit of the time in s.

    Returns:
      How each test that ran ended, by node id, or a few words on why none did.
    """
    ended = folder / "ended.json"
    ended.unlink(missing_ok=True)
    os.environ.setdefault("JAX_PLATFORMS", "cpu")  # for the libraries, which are imported before the suite's settings
    os.environ["MPLBACKEND"] = "Agg"
    process = _context.Process(target=_run, args=(str(folder), tests, str(log), str(ended)))
    process.start()
    process.join(longest)
    if process.is_alive():
        process.kill()
        process.join()
        return f"took longer than {longest:.0f} s"
    return json.loads(ended.read_text()) if ended.exists() else f"did not run; see {log}"


def _run(folder: str, tests: list[str], log: str, ended: str) -> None:
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(folder)
    sys.path.insert(0, folder)  # before the tree from which the command runs
    os.environ["PYTHONPATH"] = folder
    outcomes = Outcomes()
    already = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"
    pytest.main(["-q", "-p", "no:cacheprovider", "-W", already, *tests], plugins=[outcomes])
    Path(ended).write_text(json.dumps(outcomes.ended))
