"""Output during training, and the end by a signal."""

import io
import os
import signal
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from jaxrl.runtime.drive import progress
from jaxrl.runtime.drive.progress import Progress, stop_on_signals


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=clock.monotonic))
    return clock


def test_without_a_terminal_there_is_a_line_a_minute(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    shown = Progress(total=10_000)
    shown.phase("compiling")
    assert capsys.readouterr().err == "jaxrl: compiling\n"
    clock.now += 500
    shown.start()
    clock.now += 59
    shown.advance(2000)
    assert capsys.readouterr().err == ""
    clock.now += 1
    shown.advance(1000)
    assert capsys.readouterr().err == "jaxrl: 30 %, 50 env steps/s, 60 s elapsed, 140 s left\n"
    shown.report("return 12.5")
    clock.now += 40
    shown.advance(2000)
    assert capsys.readouterr().err == ""
    clock.now += 20
    shown.advance(1000)
    assert capsys.readouterr().err == "jaxrl: 60 %, 50 env steps/s, 120 s elapsed, 80 s left, return 12.5\n"
    clock.now += 80
    shown.advance(4000)
    shown.close()
    captured = capsys.readouterr()
    assert captured.err.splitlines()[-1] == "jaxrl: 100 %, 50 env steps/s, 200 s elapsed, 0 s left, return 12.5"
    assert captured.out == ""
    assert shown.done == 10_000


def test_rates_are_written_with_separators(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    shown = Progress(total=4_000_000)
    shown.start()
    clock.now += 2
    shown.advance(3_000_000)
    shown.close()
    assert capsys.readouterr().err == "jaxrl: 75 %, 1,500,000 env steps/s, 2 s elapsed, 1 s left\n"


def test_nothing_done_divides_by_nothing(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    shown = Progress(total=0)
    shown.start()
    shown.close()
    assert capsys.readouterr().err == "jaxrl: 0 %, 0 s elapsed, 0 s left\n"


def test_nothing_is_shown_of_a_run_that_never_started(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    Progress(total=10).close()
    assert capsys.readouterr().err == ""


def test_nothing_is_shown_when_disabled(clock: Clock, capfd: pytest.CaptureFixture[str]) -> None:
    shown = Progress(total=100, enabled=False)
    shown.phase("compiling")
    shown.start()
    clock.now += 1000
    shown.advance(50)
    shown.report("return 1")
    shown.close()
    assert capfd.readouterr() == ("", "")
    assert shown.done == 50


class Terminal(io.StringIO):
    """A stream that reports to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_has_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    shown = Progress(total=2000)
    shown.phase("compiling")
    assert "compiling" in terminal.getvalue()
    shown.start()
    shown.advance(1500)
    shown.report("return 12.5")
    shown.advance(500)
    shown.close()
    last = terminal.getvalue().rstrip().rpartition("\r")[2]
    assert "training: 100%" in last and "2.00k/2.00k" in last and "return 12.5" in last and "env steps/s" in last
    assert "jaxrl:" not in terminal.getvalue()


# --- signals -----------------------------------------------------------------------------

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def handlers() -> list[object]:
    return [signal.getsignal(number) for number in SIGNALS]


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_asks_to_end(number: signal.Signals) -> None:
    before = handlers()
    with stop_on_signals() as stop:
        assert not stop and stop.signal is None
        os.kill(os.getpid(), number)
        assert stop and stop.signal == number
    assert handlers() == before


@pytest.mark.parametrize("first", SIGNALS)
@pytest.mark.parametrize("second", SIGNALS)
def test_the_second_signal_ends_at_once(first: signal.Signals, second: signal.Signals) -> None:
    before = handlers()
    with pytest.raises(KeyboardInterrupt), stop_on_signals() as stop:
        os.kill(os.getpid(), first)
        assert stop.signal == first
        os.kill(os.getpid(), second)
    assert handlers() == before


@pytest.mark.parametrize("say", [True, False])
def test_a_request_to_end_is_confirmed(capfd: pytest.CaptureFixture[str], say: bool) -> None:
    with stop_on_signals(say):
        os.kill(os.getpid(), signal.SIGINT)
    reported = capfd.readouterr().err
    assert ("ends after the current chunk" in reported and "ends at once" in reported) is say


def test_handlers_come_back_after_an_error() -> None:
    before = handlers()
    with pytest.raises(RuntimeError, match="mine"), stop_on_signals():
        assert handlers() != before
        raise RuntimeError("mine")
    assert handlers() == before


def test_another_thread_leaves_the_handlers_alone() -> None:
    before, seen = handlers(), []

    def work() -> None:
        with stop_on_signals() as stop:
            seen.extend([handlers(), bool(stop)])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before, False]


def test_a_process_ends_cleanly_on_sigterm() -> None:
    code = (
        "from jaxrl.runtime.drive.progress import stop_on_signals; import time\n"
        "with stop_on_signals() as stop:\n"
        "    print('ready', flush=True)\n"
        "    while not stop: time.sleep(0.01)\n"
        "print('saved', stop.signal)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
    assert out == f"saved {int(signal.SIGTERM)}\n" and process.returncode == 0
