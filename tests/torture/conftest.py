"""Signals as a terminal leaves them."""

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def python_hears_interrupts() -> Iterator[None]:
    """A handler of SIGINT, in processes of tests too: one that a shell starts in the background ignores the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
