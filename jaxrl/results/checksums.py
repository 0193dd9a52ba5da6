"""Checksums (CRC-32) that detect damage to files: either of the content of a file, or stored within the file itself."""

from __future__ import annotations

import json
import re
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxrl.pytrees import PyTree
from jaxrl.results.dataset import ResultError
from jaxrl.results.json_values import parsed, to_json

CHECKSUM = "checksum"  # key of the checksum that a file stores of itself
TRUST = "--trust (trust=True) ignores this"  # remedy of a damaged file where one can pass it
UNSEALED = "crc32-of-this-file:00000000"
_SEAL = re.compile(rb"crc32-of-this-file:[0-9a-f]{8}")


def checksum(content: PyTree) -> str:
    """The checksum of bytes, or of an array.

    Args:
      content: Bytes, or an array in C order.
    """
    return f"{zlib.crc32(content):08x}"


def checksum_of_file(file: Path) -> str:
    """The checksum of a file; for an archive (.npz), of its directory.

    The directory of an archive holds a checksum of each member, which is verified when the member is read.

    Raises:
      OSError: The file cannot be read.
      zipfile.BadZipFile: The archive has no directory.
    """
    if file.suffix == ".npz":
        with zipfile.ZipFile(file) as archive:
            return checksum(repr([(at.filename, at.file_size, at.CRC) for at in archive.infolist()]).encode())
    total, buffer = 0, memoryview(bytearray(1 << 20))
    with file.open("rb", buffering=0) as stream:
        while count := stream.readinto(buffer):
            total = zlib.crc32(buffer[:count], total)
    return f"{total:08x}"


def sealed(content: bytes) -> bytes:
    """The content of a file with its checksum in place of `UNSEALED`, which must occur once."""
    if len(_SEAL.findall(content)) != 1:
        raise AssertionError(f"a file takes its checksum in one place, and has {len(_SEAL.findall(content))}")
    return _SEAL.sub(UNSEALED[:-8].encode() + checksum(_SEAL.sub(UNSEALED.encode(), content)).encode(), content)


def check_seal(file: Path, content: bytes, *, trust: bool = False, remedy: str = TRUST) -> None:
    """Raise an error if the content of a file does not match its checksum; a file without one is from an older version.

    Args:
      file: Path of the file, for the error message.
      content: Content of the file.
      trust: Whether to skip the check.
      remedy: Last words of the error message.

    Raises:
      ResultError: The file is damaged.
    """
    seals = _SEAL.findall(content)
    if trust or (not seals and CHECKSUM.encode() not in content):
        return
    plain = _SEAL.sub(UNSEALED.encode(), content)
    if len(seals) != 1 or seals[0][-8:].decode() != checksum(plain):
        raise ResultError(
            f"{file} is damaged, or was changed by hand: its content does not match the checksum that it records; "
            f"{remedy}."
        )


def sealed_json(values: Mapping[str, Any]) -> bytes:
    """Values as the content of a JSON file that records its own checksum."""
    text = json.dumps(
        to_json({**values, CHECKSUM: UNSEALED}), indent=2, default=str, allow_nan=False, ensure_ascii=True
    )
    return sealed(f"{text}\n".encode())


def read_sealed(file: Path, *, trust: bool = False, remedy: str = TRUST) -> Any:
    """The values of a JSON file without its checksum, which is verified.

    Args:
      file: Path of the file.
      trust: Whether to skip the check.
      remedy: Last words of the error message.

    Raises:
      OSError, ValueError: The file cannot be read.
      ResultError: The file is damaged.
    """
    content = file.read_bytes()
    check_seal(file, content, trust=trust, remedy=remedy)
    values = parsed(content.decode("utf-8"))
    if isinstance(values, dict):
        values.pop(CHECKSUM, None)
    return values
