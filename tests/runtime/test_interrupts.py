"""Interrupts: one that the collection of garbage or a library swallows ends the command all the same."""

import contextlib
import signal

import pytest

from jaxrl.cli import main as cli
from jaxrl.runtime.interrupts import hearing_interrupts
from jaxrl.runtime.progress import stop_on_signals


def swallowed() -> None:
    with contextlib.suppress(BaseException):  # as where garbage is collected
        signal.raise_signal(signal.SIGINT)


def test_an_interrupt_raises_as_ever_and_the_handler_is_set_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), hearing_interrupts():
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("it goes on")
    assert signal.getsignal(signal.SIGINT) is before


def test_one_that_was_swallowed_ends_the_block_and_is_then_forgotten() -> None:
    with pytest.raises(KeyboardInterrupt), hearing_interrupts():
        swallowed()
    with hearing_interrupts(), stop_on_signals() as stop:
        assert not stop


def test_one_that_was_swallowed_begins_no_training() -> None:
    with pytest.raises(KeyboardInterrupt), hearing_interrupts():
        swallowed()
        with stop_on_signals():
            raise AssertionError("it trains")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_one_while_garbage_is_collected_ends_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    class Garbage:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    def command(args: object) -> int:
        Garbage()
        return 0

    monkeypatch.setitem(cli._COMMANDS, "envs", command)
    assert cli.main(["envs"]) == 130
