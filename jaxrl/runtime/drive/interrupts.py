"""Interrupts that are not lost in garbage collection, imports or libraries."""

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

_heard: list[int] = []


@contextlib.contextmanager
def hearing_interrupts() -> Iterator[None]:
    """Record Ctrl-C, which raises KeyboardInterrupt as usual, and raise it again at the end if it was lost.

    Python drops an exception that a signal raises during garbage collection, and prints it unless it is
    KeyboardInterrupt; a library may catch it, or convert it to another error.

    Raises:
      KeyboardInterrupt: After an interrupt the block ended normally or with another error.
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

    def dropped(unraisable: Any) -> None:
        if not (_heard and isinstance(unraisable.exc_value, KeyboardInterrupt)):
            shown(unraisable)

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
    """Raise an interrupt again that was lost.

    Raises:
      KeyboardInterrupt: An interrupt has arrived.
    """
    if _heard:
        raise KeyboardInterrupt(_heard[-1])
