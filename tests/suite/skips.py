"""The skips that the suite allows. Any other skip is reported, and fails a run where the variable CI is set."""

import os
import re
from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Allowed:
    """Tests that may be skipped.

    Attributes:
      tests: Regular expression that matches the start of their ids.
      message: Regular expression that matches the start of the message of the skip.
      reason: Statement of why they may be skipped, and of what runs them.
    """

    tests: str
    message: str
    reason: str


ALLOWED = (
    Allowed(
        "tests/laws/test_checkpoints.py",
        r"\w+ takes no ",
        "pairs of an algorithm and an environment of which there is nothing to test, such as DQN and forces",
    ),
    Allowed(
        "tests/algorithms/test_golden_programs.py",
        "programs were recorded by JAX ",
        "programs are compared as text, which another version of JAX prints in another way",
    ),
    Allowed(
        "tests/runtime/test_compilers.py",
        "no compiler: ",
        "tests that take the compilers for GPUs and TPUs, of gigabytes; make accelerators runs them",
    ),
    Allowed("tests/", "no browser: ", "25 tests of pages take Chromium, which .ci/run installs where it may"),
    Allowed(
        "tests/envs/test_stable_baselines.py",
        "takes Stable-Baselines3: ",
        "slow tests that take PyTorch, of gigabytes; make test-sb3 runs them in an environment of their own",
    ),
    Allowed(
        "tests/suites/",
        "takes [^:]+: ",
        "slow tests of suites that the extra test leaves out; make test-suites installs them",
    ),
)


def is_allowed(test: str, message: str) -> bool:
    """Whether a test may be skipped with this message."""
    return any(re.match(each.tests, test) and re.match(each.message, message) for each in ALLOWED)


class Skips:
    """Skips of a run that are not allowed.

    Attributes:
      others: Message of each of them, by the test or the module that is skipped.
    """

    def __init__(self) -> None:
        self.others: dict[str, str] = {}

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            text = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
            message = text.removeprefix("Skipped: ")
            if not is_allowed(report.nodeid, message):
                self.others[report.nodeid] = message

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run in CI that skipped another test."""
        if self.others and os.environ.get("CI") and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Names the other skips."""
        for test, message in self.others.items():
            terminalreporter.write_line(
                f"SKIPPED {test}: {message}; tests/suite/skips.py does not allow it", red=bool(os.environ.get("CI"))
            )


def pytest_configure(config: pytest.Config) -> None:
    """Watch the skips of a run, in the process that the others report to."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Skips(), "skips")
