"""Settings of all tests: one CPU device of two, compiled programs cached on disk, plots written to files."""

import os
from importlib.metadata import version

# XLA's older kernels for fused operations, compiled in one piece, take two thirds of the processor time to compile, and
# compute the same up to rounding. `XLA_FLAGS= make test` tests with the kernels that users have.
os.environ["JAXRL_TEST_FLAGS"] = (
    "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    if version("jaxlib").startswith("0.10.")
    else "--xla_backend_extra_options=xla_cpu_disable_new_fusion_emitters"
)
os.environ.setdefault("XLA_FLAGS", os.environ["JAXRL_TEST_FLAGS"])

# Set before anything imports JAX or matplotlib, and inherited by the processes that tests start.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["MPLBACKEND"] = "Agg"
os.environ["NO_COLOR"] = "1"
os.environ["COLUMNS"] = "120"

import ctypes
import gc
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

MOST_GROWTH = 2 * 2**30  # bytes
_level = [0]  # resident bytes after programs were last forgotten

# Layouts over devices are tested wherever the suite runs, however many cores there are; see `_default_device`.
jax.config.update("jax_num_cpu_devices", 2)

# The same examples at every run, and no limit on the time of the first, which compiles.
settings.register_profile("jaxrl", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("jaxrl")


def pytest_configure(config: pytest.Config) -> None:
    """Compile with little optimisation where no slow test is chosen: it takes a quarter less time, and runs are short.

    Level 0 would take less still, but computes wrongly: KL-UCB pulls other arms (JAX 0.10.2).
    """
    if config.option.markexpr == "not slow" and os.environ["XLA_FLAGS"] == os.environ["JAXRL_TEST_FLAGS"]:
        os.environ["XLA_FLAGS"] += " --xla_backend_optimization_level=1"


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Search for no garbage while tests are collected, never among what that made, and less often from then on.

    Searching a million objects that stay takes a third of the time of the collection and a tenth of that of the tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(5000, 20, 20)
        gc.enable()


pytest_plugins = ["suite.rows", "suite.parts", "suite.skips", "suite.limits"]


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
