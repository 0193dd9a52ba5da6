"""The error of a process whose collectives fail because another process of the run is lost."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import sys
from collections.abc import Iterator

import jax

from envs.errors import UserError

__all__ = ["LostProcessError", "abandon", "in_step"]

STATUS = 1  # exit status of a process that ends because another one is lost
_OF_ANOTHER = re.compile(r"(?i)gloo|nccl|unavailable|coordination|heartbeat|connection (reset|closed|refused)")


class LostProcessError(UserError, ConnectionError):
    """Error raised when another process of the run is lost, which ends the run."""


def abandon() -> None:
    """End this process later without waiting for the others, which may be waiting for it elsewhere."""
    atexit.register(_leave)  # after JAX's own, so that it comes before


@contextlib.contextmanager
def in_step() -> Iterator[None]:
    """Turn the error of a collective in which another process is missing into a message.

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


def _leave() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(STATUS)
