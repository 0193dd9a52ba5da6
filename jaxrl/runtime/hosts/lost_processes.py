"""Ends a process with a message, instead of an abort by the underlying library, if another process of the run is lost.

JAX's client of the coordination service aborts its process, from its own thread and with pages of text, when another
process is gone; a collective in the main thread may or may not fail first. This module turns the signal of the abort
into one sentence and exit status 1, and suppresses that text.

The client has a hook for this case, `missed_heartbeat_callback`, but `jax.distributed.initialize` does not offer it,
and a Python function that is passed to the client directly is never called: its argument, a status, cannot be
converted, and the process aborts with `std::bad_cast` (jaxlib 0.10.2). A handler of Python's `signal` does not work
either: it only records the signal for the main thread, and the abort ends the process before the main thread sees the
signal.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import jax

from envs.errors import UserError

__all__ = ["LostProcessError", "abandon", "connected", "in_step", "watch"]

STATUS = 1  # exit status of a process that ends because another one is lost
HEAD_START = 2.0  # seconds for the main thread to notice the loss itself
TO_SAVE = 20.0  # seconds that it then has to save its results
_FATAL = re.compile(rb"[EF]\d{4} .*(coordination_service|JAX distributed service)")
_OF_ANOTHER = re.compile(r"(?i)gloo|nccl|unavailable|coordination|heartbeat|connection (reset|closed|refused)")
_KEPT: list[Any] = []  # the handler, which must outlive the function that made it, and the C library


class LostProcessError(UserError, ConnectionError):
    """Error raised when another process of the run is lost, which ends the run."""


class _Watch:
    """State with which this process detects the loss of others."""

    def __init__(self) -> None:
        self.waiting_for = ""  # message while the start is waiting
        self.noticed = threading.Event()  # set when the main thread knows of the loss and ends the process itself
        self.abandoned = False
        self.native = b""  # output of the coordination service's client before it aborts
        self.stderr = 2


_WATCH = _Watch()


def watch(waiting_for: str) -> None:
    """Turns later aborts because of a lost process into a message.

    Args:
      waiting_for: Message if the abort happens before `connected()`.
    """
    _WATCH.waiting_for = waiting_for
    if _KEPT or sys.platform == "win32":
        return
    sys.stderr.flush()
    _WATCH.stderr = os.dup(2)
    out, into = os.pipe()
    os.dup2(into, 2)  # output of C code; Python keeps the terminal
    if sys.stderr is sys.__stderr__:
        sys.stderr = os.fdopen(os.dup(_WATCH.stderr), "w", buffering=1, errors="backslashreplace")
    threading.Thread(target=_forward, args=(out,), name="jaxrl-stderr", daemon=True).start()
    handler_type = ctypes.CFUNCTYPE(None, ctypes.c_int)
    handler, libc = handler_type(_on_abort), ctypes.CDLL(None)
    libc.signal.argtypes, libc.signal.restype = [ctypes.c_int, handler_type], ctypes.c_void_p
    libc.signal(signal.SIGABRT, handler)
    _KEPT.extend([handler, libc])
    atexit.register(_leave)  # after JAX's own, so that it comes before


def connected() -> None:
    """Records that the processes are connected."""
    _WATCH.waiting_for = ""


def abandon() -> None:
    """Ends this process later without waiting for the others, which may be waiting for it elsewhere."""
    _WATCH.noticed.set()
    _WATCH.abandoned = True


@contextlib.contextmanager
def in_step() -> Iterator[None]:
    """Turns the error of a collective in which another process is missing into a message.

    Raises:
      LostProcessError: Another process is missing.
    """
    try:
        yield
    except (ValueError, RuntimeError) as error:
        if jax.process_count() == 1 or not _OF_ANOTHER.search(str(error)):
            raise
        abandon()
        me, count = jax.process_index(), jax.process_count()
        which = f"process {1 - me}" if count == 2 else "another process"
        reason = re.split(r"[:\]] ", str(error).strip().splitlines()[0])[-1].rstrip(".")
        raise LostProcessError(
            f"process {me} of {count} ends because {which} of the run is gone ({reason}); its last checkpoint is whole"
        ) from error


def _forward(out: int) -> None:
    """Forwards output of C code on standard error, up to the last messages of the coordination service's client."""
    with os.fdopen(out, "rb") as lines:
        for line in lines:
            if _WATCH.native or _FATAL.match(line):
                _WATCH.native += line
            else:
                os.write(_WATCH.stderr, line)


def _on_abort(number: int) -> None:
    time.sleep(0.2)  # until the last output is read
    if not _WATCH.native:
        _KEPT[1].signal(number, _KEPT[0].__class__(0))  # a different abort: pass it to the default handler
        return
    if not _WATCH.waiting_for and _WATCH.noticed.wait(HEAD_START):
        time.sleep(TO_SAVE)
    else:
        os.write(_WATCH.stderr, f"jaxrl: {_sentence()}\n".encode())
    os._exit(STATUS)


def _sentence() -> str:
    if _WATCH.waiting_for:
        return _WATCH.waiting_for
    text = _WATCH.native.decode(errors="replace")
    silent = re.search(r"heartbeats\):\s+(\d+)", text)
    which = f"process {silent[1]}" if silent else "process 0" if "leader task" in text else "another process"
    return f"this process ends because {which} of the run is gone; its last checkpoint is whole"


def _leave() -> None:
    if _WATCH.abandoned:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(STATUS)
