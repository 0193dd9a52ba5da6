"""Progress display and interruption of training."""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType

import tqdm.auto

from jaxrl.runtime.drive.interrupts import raise_if_interrupted

SECONDS_BETWEEN_LINES = 60.0
# Batch systems send SIGTERM, or SIGUSR1 if configured to warn before the time limit.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, *([signal.SIGUSR1] if hasattr(signal, "SIGUSR1") else []))


class Progress:
    """A progress bar on a terminal or in a notebook, a line a minute elsewhere, or nothing.

    Args:
      total: Total number of environment steps of all runs.
      enabled: Whether to show anything.
    """

    def __init__(self, total: int, enabled: bool = True) -> None:
        self.total = total
        self.done = self._before = 0
        self._enabled = enabled
        self._note = ""
        self._start = self._last_line = time.monotonic()
        self._started = False
        self._bar: tqdm.auto.tqdm | None = None
        if enabled and (sys.stderr.isatty() or "ipykernel" in sys.modules):
            self._bar = tqdm.auto.tqdm(total=total, unit=" env steps", unit_scale=True, dynamic_ncols=True)

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def phase(self, text: str) -> None:
        """Show the current phase, such as "compiling"."""
        if self._bar is not None:
            self._bar.set_description(text)
        elif self._enabled:
            say(text)

    def start(self, done: int = 0) -> None:
        """Start the clock of training, with `done` environment steps of an earlier call."""
        self._start = self._last_line = time.monotonic()
        self._started = True
        self.done = self._before = done
        if self._bar is not None:
            self._bar.reset(self.total)
            self._bar.update(done)
            self._bar.set_description("training")

    def advance(self, env_steps: int) -> None:
        """Count environment steps of all runs together."""
        self.done += env_steps
        if self._bar is not None:
            self._bar.update(env_steps)
        elif self._enabled and time.monotonic() - self._last_line >= SECONDS_BETWEEN_LINES:
            self._line()

    def report(self, note: str) -> None:
        """Show the latest evaluation."""
        self._note = note
        if self._bar is not None:
            self._bar.set_postfix_str(note)

    def close(self) -> None:
        """Leave the final state on the screen."""
        if self._bar is not None:
            self._bar.close()
        elif self._enabled and self._started:
            self._line()

    def _line(self) -> None:
        self._last_line = time.monotonic()
        seconds = max(self._last_line - self._start, 1e-9)
        rate = (self.done - self._before) / seconds
        left = max(self.total - self.done, 0)
        parts = [f"{100 * min(self.done / max(self.total, 1), 1):.0f} %"]
        if rate > 0 or left == 0:
            parts += [f"{rate:,.0f} env steps/s"] if rate > 0 else []
            parts += [f"{seconds:.0f} s elapsed", f"{left / max(rate, 1e-9):.0f} s left"]
        say(", ".join([*parts, self._note] if self._note else parts))


def say(text: str) -> None:
    """Print a line on standard error."""
    print(f"jaxrl: {text}", file=sys.stderr, flush=True)


class StopRequest:
    """Request to stop after the current chunk; true once a signal has arrived."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __bool__(self) -> bool:
        return self.signal is not None


@contextlib.contextmanager
def stop_on_signals(say: bool = False) -> Iterator[StopRequest]:
    """Turn the first Ctrl-C, SIGTERM or SIGUSR1 into a request to stop; a second one stops immediately.

    Args:
      say: Whether to confirm the request on standard error.
    """
    stop = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def handle(number: int, frame: FrameType | None) -> None:
        del frame
        if stop:
            raise KeyboardInterrupt(number)
        stop.signal = number
        if say:  # not through Python's buffers, which the signal may have interrupted
            with contextlib.suppress(OSError):
                os.write(2, b"\njaxrl: ends after the current chunk, and keeps it; a second signal ends at once\n")

    previous = {number: signal.signal(number, handle) for number in _SIGNALS}
    try:
        raise_if_interrupted()
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
