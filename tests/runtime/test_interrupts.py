"""Interrupts: one that is lost in garbage collection or a library still ends the command."""

import contextlib
import importlib.abc
import signal
import sys

import pytest

from jaxrl.cli import console
from jaxrl.cli import main as cli
from jaxrl.runtime.drive.interrupts import hearing_interrupts
from jaxrl.runtime.drive.progress import stop_on_signals


@pytest.fixture(autouse=True)
def _python_hears_interrupts():
    """Python's own handler, also in a process that a shell started in the background, which ignores the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def swallowed() -> None:
    with contextlib.suppress(BaseException):  # as where garbage is collected
        signal.raise_signal(signal.SIGINT)


def test_an_interrupt_raises_as_usual_and_the_handler_is_set_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), hearing_interrupts():
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("it goes on")
    assert signal.getsignal(signal.SIGINT) is before


def test_a_suppressed_interrupt_ends_the_block_and_is_then_forgotten() -> None:
    with pytest.raises(KeyboardInterrupt), hearing_interrupts():
        swallowed()
    with hearing_interrupts(), stop_on_signals() as stop:
        assert not stop


def test_a_suppressed_interrupt_begins_no_training() -> None:
    with pytest.raises(KeyboardInterrupt), hearing_interrupts():
        swallowed()
        with stop_on_signals():
            raise AssertionError("it trains")


def test_one_that_has_become_another_error_is_an_interrupt() -> None:
    with pytest.raises(KeyboardInterrupt), hearing_interrupts():
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt as error:  # as where C++ calls Python
            raise RuntimeError("a callback failed") from error
    with pytest.raises(RuntimeError, match="of its own"), hearing_interrupts():
        raise RuntimeError("of its own")


def test_one_while_garbage_is_collected_ends_the_command_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    hook = sys.unraisablehook

    class Garbage:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    def command(args: object) -> int:
        Garbage()
        return 0

    monkeypatch.setitem(cli._COMMANDS, "envs", command)
    assert cli.main(["envs"]) == 130
    assert sys.unraisablehook is hook


def test_an_interrupt_during_the_import_of_the_command_line_ends_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(importlib.abc.MetaPathFinder):
        def find_spec(self, name: str, *_: object) -> None:
            if name == "jaxrl.cli.main":
                signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    monkeypatch.delitem(sys.modules, "jaxrl.cli.main")
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # of this process
    assert console.main() == 130
