"""What every test runs under: two CPU devices, plots that go to files, no colours, no display."""

import os

# Set before anything imports JAX or matplotlib, and inherited by the processes that tests start.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["MPLBACKEND"] = "Agg"
os.environ["NO_COLOR"] = "1"
os.environ["COLUMNS"] = "120"

import jax
import pytest
from hypothesis import settings

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


@pytest.fixture
def key() -> jax.Array:
    """A random key, the same in every test."""
    return jax.random.key(0)
