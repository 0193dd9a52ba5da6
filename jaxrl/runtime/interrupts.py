"""Interrupts that nothing swallows: neither the collection of garbage, nor an import, nor a library."""

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

_heard: list[int] = []

__all__ = ["hearing_interrupts", "raise_if_interrupted"]


@contextlib.contextmanager
def hearing_interrupts() -> Iterator[None]:
    """Remembers a Ctrl-C, which raises KeyboardInterrupt as ever, and raises it again at the end if it was swallowed.

    Python drops an exception that a signal raises while garbage is collected, and prints it unless it is this one; a
    library may catch it, or turn it into an error of its own.

    Raises:
      KeyboardInterrupt: nothing else ended the block after an interrupt, or another error did.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) in (
        signal.SIG_IGN,
        None,
    ):
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        del frame
        _heard.append(number)
        raise KeyboardInterrupt(number)

    def dropped(told: Any) -> None:
        if not (_heard and isinstance(told.exc_value, KeyboardInterrupt)):
            shown(told)

    before, shown = signal.signal(signal.SIGINT, handle), sys.unraisablehook
    sys.unraisablehook = dropped
    try:
        yield
        raise_if_interrupted()
    except Exception:
        raise_if_interrupted()
        raise
    finally:
        _heard.clear()
        sys.unraisablehook = shown
        signal.signal(signal.SIGINT, before)


def raise_if_interrupted() -> None:
    """Ends where an interrupt came and was swallowed.

    Raises:
      KeyboardInterrupt: it was.
    """
    if _heard:
        raise KeyboardInterrupt(_heard[-1])
