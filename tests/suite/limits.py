"""Limits of the processor time of fast tests.

Processor time hardly depends on what else the machine does, but a shared core is slower while others work: a test that
takes 3 s on an idle machine took 9 s on a loaded one. Where a test is over its limit, the limit is therefore multiplied
by how much slower the machine is at that moment.
"""

import os
import time
from pathlib import Path

import jax
import pytest

# Of a test that is not marked slow.
MOST_SECONDS = {"compiled before": 10, "compiled now": 20}
SECONDS_OF_LOOP = 0.68  # of `slowness`, where the limits were set: an AMD EPYC whose cores nobody shares
CACHE = Path(jax.config.jax_compilation_cache_dir)  # pyright: ignore[reportAttributeAccessIssue]
# Whether the run began with an empty cache, so that the second limit holds for all tests; known to all its processes.
COLD = os.environ.setdefault("JAXRL_TESTS_COLD", str(not CACHE.exists() or not any(CACHE.iterdir()))) == "True"

_STARTED = pytest.StashKey[tuple[float, int]]()


def processor_seconds() -> float:
    """Seconds of processor time of this process, its threads and the processes that it waited for."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def slowness() -> float:
    """Processor time of a loop here and now, as a multiple of that on the machine of the limits; at least 1.

    The loop takes about a second, because the speed of a shared machine varies from one tenth of a second to the next.
    """
    start, total = time.process_time(), 0
    for i in range(10_000_000):
        total += i * i % 7
    return max(1.0, (time.process_time() - start) / SECONDS_OF_LOOP)


def last_compiled() -> int:
    """Time at which a program was last added to the cache."""
    return CACHE.stat().st_mtime_ns if CACHE.exists() else 0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item):
    """Note when a test starts, its fixtures included."""
    item.stash[_STARTED] = (processor_seconds(), last_compiled())
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    """Add to the report of a test that is not marked slow the processor time over its limit, if it took longer.

    The mark `seconds_to_compile` of a test replaces the limit with programs compiled now.
    """
    report = yield
    if call.when == "call" and item.get_closest_marker("slow") is None and item.path.parent.name != "torture":
        seconds, compiled = item.stash[_STARTED]
        limit = "compiled now" if COLD or last_compiled() != compiled else "compiled before"
        own = item.get_closest_marker("seconds_to_compile")
        most = own.args[0] if own and limit == "compiled now" else MOST_SECONDS[limit]
        if (took := processor_seconds() - seconds) > most and took > most * slowness():
            report.over_time = (took, most, limit)
    return report


class OverTime:
    """Tests of a run that took longer than their limit.

    Attributes:
      tests: Seconds, the limit and which of the two limits it is, by test.
    """

    def __init__(self) -> None:
        self.tests: dict[str, tuple[float, float, str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if hasattr(report, "over_time"):
            self.tests[report.nodeid] = report.over_time

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run in which a test took longer than its limit."""
        if self.tests and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Names the tests over their limit."""
        for test, (seconds, most, limit) in sorted(self.tests.items(), key=lambda row: -row[1][0]):
            terminalreporter.write_line(
                f"TOO SLOW {test}: {seconds:.1f} s of processor time, {most} s allowed with its programs {limit}; "
                "make it cheaper or mark it slow",
                red=True,
            )


def pytest_configure(config: pytest.Config) -> None:
    """Collect the tests over their limit, in the process that the others report to."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(OverTime(), "over_time")
