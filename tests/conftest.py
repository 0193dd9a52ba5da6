"""What every test runs under: two CPU devices, plots that go to files, no colours, no display."""

import os

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

MOST_GROWTH = 2 * 2**30  # bytes
_level = [0]  # resident bytes after programs were last forgotten

# Layouts over devices are tested wherever the suite runs, however many cores there are.
jax.config.update("jax_num_cpu_devices", 2)

# The same examples at every run, and no limit on the time of the first, which compiles.
settings.register_profile("jaxrl", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("jaxrl")


@pytest.fixture(autouse=True)
def _close_figures():
    """No test leaves a figure behind for the next one."""
    yield
    import sys

    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


def resident() -> int:
    """Bytes of memory that this process has; 0 where the system does not say."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * 4096 if statm.exists() else 0


@pytest.fixture(autouse=True)
def _forget_programs():
    """No test process keeps the programs of all tests: they take gigabytes, and as many memory maps as it may have."""
    yield
    if resident() > _level[0] + MOST_GROWTH:
        from jaxrl import programs

        programs._COMPILED.clear()
        jax.clear_caches()
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        _level[0] = resident()


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory):
    """A headless Chromium without a network, which selenium drives; skips where there is none."""
    from browser import start

    driver = start(tmp_path_factory.mktemp("browser"))
    yield driver
    driver.quit()


@pytest.fixture
def key() -> jax.Array:
    """A random key, the same in every test."""
    return jax.random.key(0)
