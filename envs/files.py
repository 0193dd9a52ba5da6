"""Files that are there whole or not at all."""

import contextlib
import os
import platform
from collections.abc import Callable, Iterator
from pathlib import Path

from envs.errors import UserValueError

__all__ = ["replacing", "unfinished"]


@contextlib.contextmanager
def replacing(file: Path, error: Callable[[str], Exception] | None = UserValueError) -> Iterator[Path]:
    """Another file to write beside this one, which becomes this one once the block has ended well.

    Args:
      file: File to write; its directories are made where there are none.
      error: Kind of the error where it cannot be written; None leaves the system's own.

    Raises:
      UserValueError: The file cannot be written.
    """
    part = unfinished(file)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield part
            os.replace(part, file)
        finally:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
    except OSError as reason:
        if error is None:
            raise
        raise error(f"{file} cannot be written: {reason.strerror or reason}.") from None


def unfinished(file: Path) -> Path:
    """Where a process writes a file until it is whole; containers share the numbers of processes."""
    return file.with_name(f".{platform.node()}-{os.getpid()}-{file.name}")
