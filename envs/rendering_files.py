"""Files that are there whole or not at all."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["replacing"]


@contextlib.contextmanager
def replacing(file: Path) -> Iterator[Path]:
    """Another file to write beside this one, which becomes this one once the block has ended well.

    Args:
      file: its directories are made where there are none.

    Raises:
      ValueError: it cannot be written.
    """
    part = file.with_name(f".{os.getpid()}-{file.name}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield part
            os.replace(part, file)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise ValueError(f"{file} cannot be written: {error.strerror or error}.") from None
