"""Optuna's journal: a study in one file, to which processes on a shared file system append."""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock

from envs.errors import UserValueError

__all__ = ["JournalError", "journal"]

_BEGIN = b'{"op_code"'  # of every line


class JournalError(Exception):
    """A journal cannot be read or written."""


def journal(path: str) -> JournalStorage:
    """A storage in a file, which is created if it is missing.

    The lock is a symbolic link next to the file, which also works on NFS. A process that dies with the lock delays the
    others by half a minute.

    Args:
      path: Path of the file; its folder exists.

    Raises:
      ValueError: There is no path.
      JournalError: The file cannot be read or written, or is not a journal.
    """
    if not path:
        raise UserValueError("storage takes journal:PATH with the path of a file, got 'journal:'")
    try:
        # An absolute path: the link would otherwise be read from its own folder.
        file = Path(path).expanduser().absolute()
        if file.is_file():
            _check_first_line(file)
        return JournalStorage(_Journal(str(file), _Lock(str(file))))
    except OSError as error:
        raise JournalError(error.strerror or str(error)) from error


def _check_first_line(file: Path) -> None:
    """Raise an error for a file that is not a journal, before anything is appended to it.

    Raises:
      JournalError: The first line is not that of a journal.
    """
    with file.open("rb") as lines:
        first = lines.readline()
    if not first.endswith(b"\n") and first[: len(_BEGIN)] == _BEGIN[: len(first)]:
        return  # empty, or torn by a process that died in its first write
    try:
        is_record = "op_code" in json.loads(first)
    except (ValueError, TypeError):
        is_record = False
    if not is_record:
        raise JournalError("the file is not a journal of Optuna")


class _Lock(JournalFileSymlinkLock):
    """Optuna's lock, which removes an incomplete last line, left by a process that was killed or ran out of space."""

    def acquire(self) -> bool:
        locked = super().acquire()
        try:
            with open(self._lock_target_file, "rb+") as file:
                size = end = file.seek(0, os.SEEK_END)
                while end:
                    file.seek(end - 1)
                    if file.read(1) == b"\n":
                        break
                    end -= 1
                if end < size:
                    file.truncate(end)
        except BaseException:
            self.release()
            raise
        return locked


class _Journal(JournalFileBackend):
    """Optuna's file, with one class of errors."""

    def read_logs(self, log_number_from: int) -> Generator[dict[str, Any], None, None]:
        try:
            yield from super().read_logs(log_number_from)
        except OSError as error:
            raise JournalError(error.strerror or str(error)) from error
        except ValueError as error:
            raise JournalError(f"line {log_number_from + 1} of the file, or a later one, is damaged") from error

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        try:
            super().append_logs(logs)
        except OSError as error:
            raise JournalError(error.strerror or str(error)) from error
