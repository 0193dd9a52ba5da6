"""Files in a directory that jaxrl wrote, and that it may therefore replace or delete."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from jaxrl.results.file_names import CHECKPOINTS, CONFIG, FILES, IDENTITY, LOCK, PARTS
from jaxrl.results.json_values import parsed

_SEAL = b"crc32-of-this-file:"  # in every JSON file since the first that have checksums
_CHECKPOINT = re.compile(r"\d+")
_PART = re.compile(r"\d+-of-0*[1-9]\d*")
_UNFINISHED = re.compile(r"\d+\.orbax-checkpoint-tmp.*")  # a checkpoint whose writer was killed or ran out of space


def begun(directory: Path) -> bool:
    """Whether a directory has a checkpoint, or finished parts, of a run of jaxrl."""
    checkpoints = (entry for entry in _entries(directory / CHECKPOINTS) if _CHECKPOINT.fullmatch(entry.name))
    return _is_own(directory / IDENTITY) and bool(next(checkpoints, None) or parts_in(directory))


def parts_in(directory: Path) -> list[Path]:
    """Directories of the parts of a call in its run directory, none behind a link."""
    parts = (entry for entry in _entries(directory / PARTS) if _PART.fullmatch(entry.name))
    return [entry for entry in parts if entry.is_dir() and not entry.is_symlink()]


def unfinished_checkpoints(directory: Path) -> Iterator[Path]:
    """Incomplete checkpoints in a run directory, none behind a link."""
    return (entry for entry in _entries(directory / CHECKPOINTS) if _UNFINISHED.fullmatch(entry.name))


def foreign_files(directory: Path, checkpoints: bool, verified: bool = False) -> list[str]:
    """Files that a call would replace or delete, and that jaxrl did not write.

    Files of a run count as written by jaxrl if they are next to a `run.json` of jaxrl, and files of a result also if
    they are next to a `config.json` of jaxrl; files behind a link never count.

    Args:
      directory: Directory to write to, which may be missing.
      checkpoints: Whether the call also writes `run.json`, checkpoints and parts.
      verified: Whether `run.json` was read already, and is of jaxrl.

    Returns:
      Names of the files and folders, relative to the directory.
    """
    run, result = verified or _is_own(directory / IDENTITY), _is_own(directory / CONFIG)
    foreign = [name for name in FILES if (directory / name).exists() and not (run or result)]
    if not checkpoints:
        return foreign
    foreign += [IDENTITY] if (directory / IDENTITY).exists() and not run else []
    foreign += [LOCK] if (directory / LOCK).is_file() and (directory / LOCK).stat().st_size else []
    for name, own in ((CHECKPOINTS, (_CHECKPOINT, _UNFINISHED)), (PARTS, (_PART,))):
        folder = directory / name
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            foreign.append(name)
            continue
        foreign += [
            f"{name}/{entry.name}"
            for entry in _entries(folder)
            if entry.is_symlink() or not (run and any(kind.fullmatch(entry.name) for kind in own))
        ]
    return foreign


def _entries(folder: Path) -> list[Path]:
    """Contents of a folder, none of a link."""
    return sorted(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else []


def _is_own(file: Path) -> bool:
    """Whether a `run.json` or `config.json` is of jaxrl: it records its checksum, or has names of older versions."""
    if not file.is_file():  # such as a named pipe, which would have to be waited for
        return False
    try:
        content = file.read_bytes()
        if _SEAL in content:
            return True
        values = parsed(content.decode())
    except (OSError, ValueError):
        return False
    return isinstance(values, dict) and ({"algorithm", "points", "sweep"} <= set(values) or "attributes" in values)
