"""Files that are written completely or not at all."""

import contextlib
import os
import platform
from collections.abc import Callable, Iterator
from pathlib import Path

from envs.errors import UserValueError

__all__ = ["replacing", "unfinished"]


@contextlib.contextmanager
def replacing(file: Path, error: Callable[[str], Exception] | None = UserValueError) -> Iterator[Path]:
    """Yield a temporary path next to `file`, which replaces `file` if the block ends without an error.

    Args:
      file: File to write; missing directories are created.
      error: Class of the error where the file cannot be written; None keeps the system's own.

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
    """The path to which a process writes a file until it is complete; containers share process ids."""
    return file.with_name(f".{platform.node()}-{os.getpid()}-{file.name}")
