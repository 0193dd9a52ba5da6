"""Files that are written completely or not at all."""

import contextlib
import errno
import os
import platform
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from envs.errors import UserError, UserValueError

__all__ = ["absolute", "appending", "block_size", "refuse_links", "replacing", "require_room", "unfinished", "writing"]


def absolute(path: str | Path) -> Path:
    """A path from the root, which stays the same where the process changes its directory later.

    Args:
      path: Path, relative to the current directory or absolute.

    Raises:
      UserValueError: The current directory does not exist any more.
    """
    try:
        return Path(path).absolute()
    except FileNotFoundError:
        raise UserValueError(f"{path} is relative to the current directory, which does not exist any more.") from None


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
    with contextlib.nullcontext() if error is None else writing(file, error):
        file.parent.mkdir(parents=True, exist_ok=True)
        part.unlink(missing_ok=True)  # of a process that was killed, or a link that somebody put there
        try:
            yield part
            os.replace(part, file)
        finally:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)


@contextlib.contextmanager
def writing(path: Path, error: Callable[[str], Exception] = UserValueError) -> Iterator[None]:
    """Turn errors of the system into one sentence, such as those of a read-only or full file system.

    Args:
      path: File or directory that is written within the context.
      error: Class of the error where it cannot be written.

    Raises:
      UserValueError: It cannot be written.
    """
    try:
        yield
    except UserError:  # of which some are errors of the system too
        raise
    except OSError as reason:
        raise error(f"{path} cannot be written: {reason.strerror or reason}.") from None


@contextlib.contextmanager
def appending(file: Path, newline: str | None = None) -> Iterator[IO[str]]:
    """Open a text file to append to it, which is created if it is missing.

    Args:
      file: File; its directory must exist.
      newline: Argument of `open`.

    Raises:
      UserValueError: The file cannot be written, or is a link, which would be followed.
    """
    refuse_links(file)
    with writing(file):
        handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
        with open(handle, "a", newline=newline, encoding="utf-8") as stream:
            yield stream


def block_size(directory: Path) -> int:
    """Bytes of a block of the file system of a directory; 4,096 where the system does not report them."""
    return os.statvfs(directory).f_frsize if hasattr(os, "statvfs") else 4096


def require_room(directory: Path, num_bytes: int) -> None:
    """Raise the system's error for a full disk, for libraries that report it late, at length, or never.

    Args:
      directory: Directory to write to.
      num_bytes: Number of bytes that must be free.

    Raises:
      OSError: There is too little space.
    """
    if not hasattr(os, "posix_fallocate"):
        return
    with tempfile.TemporaryFile(dir=directory) as file:
        try:
            os.posix_fallocate(file.fileno(), 0, num_bytes)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
                raise


def refuse_links(*paths: Path) -> None:
    """Raise an error for a path that is a link, or that is neither a file nor a directory, such as a named pipe.

    Args:
      *paths: Files and directories to write to, which may be missing.

    Raises:
      UserValueError: A path is a link, or of another kind.
    """
    for path in paths:
        if path.is_symlink():
            raise UserValueError(f"{path} is a link, through which nothing is written: name its target, or delete it.")
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise UserValueError(f"{path} is neither a file nor a directory, such as a named pipe: choose another one.")


def unfinished(file: Path) -> Path:
    """The path to which a process writes a file until it is complete; containers share process ids."""
    return file.with_name(f".{platform.node()}-{os.getpid()}-{file.name}")
