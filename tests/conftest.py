"""Settings of all tests: one CPU device of two, compiled programs cached on disk, plots written to files."""

import os

# Set before anything imports JAX or matplotlib, and inherited by the processes that tests start.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["MPLBACKEND"] = "Agg"
os.environ["NO_COLOR"] = "1"
os.environ["COLUMNS"] = "120"

import ctypes
import gc
import time
from pathlib import Path

import jax
import pytest
from hypothesis import settings

from jaxrl.runtime.machine.processors import processor

# Compiled programs are kept for the next run of the suite, apart for every kind of processor, and shared by its
# processes; one that is read computes the same bit for bit. Delete the directory to time compilation.
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), "jaxrl", "tests", processor())
for name, value in {"compilation_cache_dir": str(CACHE), "persistent_cache_min_compile_time_secs": 0.05}.items():
    os.environ[f"JAX_{name.upper()}"] = str(value)
    jax.config.update(f"jax_{name}", value)

# Processor time of a test that is not marked slow. A test that takes 3 s on an idle machine took 9 s on a loaded one.
MOST_SECONDS = {"compiled before": 10, "compiled now": 20}
SECONDS_OF_LOOP = 0.68  # of `slowness`, where the limits were set: an AMD EPYC whose cores nobody shares
# Whether the run began with an empty cache, so that the second limit holds for all tests; known to all its processes.
COLD = os.environ.setdefault("JAXRL_TESTS_COLD", str(not CACHE.exists() or not any(CACHE.iterdir()))) == "True"
_over_time = []  # of those that took longer: name, seconds, the limit, and which of the two it is

MOST_GROWTH = 2 * 2**30  # bytes
_STARTED = pytest.StashKey[tuple[float, int]]()
_level = [0]  # resident bytes after programs were last forgotten

# Layouts over devices are tested wherever the suite runs, however many cores there are; see `_default_device`.
jax.config.update("jax_num_cpu_devices", 2)

# The same examples at every run, and no limit on the time of the first, which compiles.
settings.register_profile("jaxrl", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("jaxrl")


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
    """Notes when a test starts, its fixtures included."""
    item.stash[_STARTED] = (processor_seconds(), last_compiled())
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    """Adds to the report of a test that is not marked slow the processor time over its limit, if it took longer.

    The mark `seconds_to_compile` of a test replaces the limit with programs compiled now. The limit is higher on a
    machine that is slower at that moment.
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


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Collects the tests over their limit, in the process that the others report to."""
    if hasattr(report, "over_time"):
        _over_time.append((report.nodeid, *report.over_time))


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fails a run in which a test took longer than its limit."""
    if _over_time and session.exitstatus == pytest.ExitCode.OK and not hasattr(session.config, "workerinput"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Names the tests over their limit."""
    for name, seconds, most, limit in sorted(_over_time, key=lambda row: -row[1]):
        terminalreporter.write_line(
            f"TOO SLOW {name}: {seconds:.1f} s of processor time, {most} s allowed with its programs "
            f"{limit}; make it cheaper or mark it slow",
            red=True,
        )


@pytest.hookimpl(tryfirst=True)  # before those marked slow are left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks as slow the rows of a test that its mark `slow_rows` names, or that `fast_rows` does not name."""
    for item in items:
        fast, slow = item.get_closest_marker("fast_rows"), item.get_closest_marker("slow_rows")
        row = item.callspec.id if isinstance(item, pytest.Function) and hasattr(item, "callspec") else ""
        if (fast and not any(name in item.name for name in fast.args)) or (slow and row in slow.args):
            item.add_marker("slow")


@pytest.fixture(autouse=True, scope="module")
def _default_device(request: pytest.FixtureRequest):
    """Calls without `devices` use the first device, which compiles once; both in modules marked `two_devices`."""
    with pytest.MonkeyPatch.context() as patch:
        if request.node.get_closest_marker("two_devices") is None:
            from jaxrl.runtime import layout

            cores = len(layout.default_devices())
            patch.setattr(layout, "default_devices", lambda: (jax.local_devices()[0],) * cores)
        yield


@pytest.fixture(autouse=True)
def _close_figures():
    """No test leaves a figure behind for the next one."""
    yield
    import sys

    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


def resident() -> int:
    """Bytes of memory of this process; 0 where the system does not report them."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * 4096 if statm.exists() else 0


@pytest.fixture(autouse=True)
def _forget_programs():
    """No test process keeps the programs of all tests: they take gigabytes, and as many memory maps as it may have."""
    yield
    if resident() > _level[0] + MOST_GROWTH:
        from jaxrl.runtime import programs

        programs.forget()
        jax.clear_caches()
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        _level[0] = resident()


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory):
    """A headless Chromium without a network, which selenium drives; skips where there is none."""
    from bench.browser import MissingError, start

    try:
        driver = start(tmp_path_factory.mktemp("browser"))
    except MissingError as reason:
        pytest.skip(str(reason))
    yield driver
    driver.quit()


@pytest.fixture
def key() -> jax.Array:
    """A random key, the same in every test."""
    return jax.random.key(0)
