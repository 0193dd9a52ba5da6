"""Compilation cache on disk, separate for every kind of processor."""

import atexit
import contextlib
import os
import uuid
import zlib
from pathlib import Path

from envs.errors import UserValueError
from jaxrl.runtime.machine.processors import processor

__all__ = ["VARIABLE", "delete_truncated", "use_compilation_cache"]

# Environment variable with the directory for the command line.
VARIABLE = "JAXRL_COMPILATION_CACHE"
# Folder of the cache with a file for each process that uses it, locked until the process ends.
USERS = ".users"


def use_compilation_cache(directory: str | Path) -> Path:
    """Enable JAX's compilation cache on disk.

    A cached program computes the same bit for bit as one compiled again. Programs for a CPU contain its
    instructions, and crash on a CPU that lacks some of them, which JAX's own cache key does not fully cover.
    Every kind of processor therefore has its own directory, so that a home directory may be shared. Programs that a
    killed process wrote in part are deleted when the next process starts, because JAX would neither read nor replace
    them. Nothing else is ever deleted: delete the directory to empty the cache.

    Args:
      directory: Parent directory of the cache; created if missing.

    Returns:
      Directory for this machine's processor.

    Raises:
      ValueError: The directory is not writable.
    """
    import jax

    cache = Path(directory).expanduser() / processor()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        probe = cache / ".writable"
        probe.touch()
        probe.unlink(missing_ok=True)
        _register(cache)
    except OSError as error:
        raise UserValueError(f"The compilation cache {cache} cannot be written: {error.strerror or error}.") from None
    jax.config.update("jax_compilation_cache_dir", str(cache))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)  # the default, 1, excludes some programs
    return cache


def delete_truncated(cache: Path, since: float = 0.0) -> list[str]:
    """Delete programs of a cache that were written in part.

    JAX compresses programs by zstandard where that is installed; these cannot be checked and are deleted, too.

    Args:
      cache: Directory of the cache.
      since: Time in seconds since the epoch; programs that were last written before it are not read.

    Returns:
      Names of the deleted files.
    """
    deleted = []
    for file in sorted(cache.glob("*-cache")):
        with contextlib.suppress(FileNotFoundError):  # deleted by another process
            if file.stat().st_mtime >= since and not _is_whole(file.read_bytes()):
                file.unlink()
                deleted.append(file.name)
    return deleted


def _register(cache: Path) -> None:
    """Lock a file for this process, after deleting what processes that were killed have left."""
    from filelock import FileLock, Timeout

    users = cache / USERS
    users.mkdir(exist_ok=True)
    left = []
    for file in users.iterdir():
        with contextlib.suppress(FileNotFoundError):
            started, lock = file.stat().st_mtime, FileLock(file, timeout=0)
            try:
                lock.acquire()
            except Timeout:  # its process is alive
                continue
            left.append(started)
            file.unlink(missing_ok=True)
            lock.release()
    if left:
        delete_truncated(cache, min(left))
    own = FileLock(users / f"{os.getpid()}-{uuid.uuid4().hex}")
    own.acquire()

    def leave() -> None:
        Path(own.lock_file).unlink(missing_ok=True)
        own.release()

    atexit.register(leave)


def _is_whole(program: bytes) -> bool:
    """Whether zlib can decompress a program."""
    try:
        zlib.decompress(program)
    except zlib.error:
        return False
    return True
