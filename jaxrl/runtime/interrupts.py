"""Interrupts that nothing swallows: neither the collection of garbage, nor an import, nor a library."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_heard: list[int] = []

__all__ = ["hearing_interrupts", "raise_if_interrupted"]


@contextlib.contextmanager
def hearing_interrupts() -> Iterator[None]:
    """Remembers a Ctrl-C, which raises KeyboardInterrupt as ever, and raises it again at the end if it was swallowed.

    Python drops an exception that a signal raises while garbage is collected, and a library may catch it.

    Raises:
      KeyboardInterrupt: nothing else ended the block after an interrupt.
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

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
        raise_if_interrupted()
    finally:
        _heard.clear()
        signal.signal(signal.SIGINT, before)


def raise_if_interrupted() -> None:
    """Ends where an interrupt came and was swallowed.

    Raises:
      KeyboardInterrupt: it was.
    """
    if _heard:
        raise KeyboardInterrupt(_heard[-1])
