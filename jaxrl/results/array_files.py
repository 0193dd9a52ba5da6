"""Arrays in files that others may have written: plain arrays only, stored in the file itself and no larger than it."""

from __future__ import annotations

import math
import tokenize
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np

from envs.errors import UserValueError

if TYPE_CHECKING:
    import h5py
    import xarray

_KINDS = "biufS"  # kinds of NumPy: numbers, and strings of a fixed length
_DIMENSION = b"This is a netCDF dimension but not a netCDF variable."  # such arrays hold no numbers and are not read
_FEW_BYTES = 1 << 28  # of strings that are not counted one by one

__all__ = ["Header", "difference_of_headers", "npz_headers", "read_netcdf", "read_npz"]


class Header(NamedTuple):
    """Shape and type of an array in a file."""

    shape: tuple[int, ...]
    dtype: np.dtype


def npz_headers(file: Path) -> dict[str, Header]:
    """Shapes and types of the arrays of an `.npz` file, none of which is read.

    Args:
      file: File, as written by `numpy.savez`.

    Raises:
      ValueError, OSError, zipfile.BadZipFile: The file holds anything but plain arrays, or is compressed.
    """
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        if any(member.compress_type != zipfile.ZIP_STORED for member in members):
            raise UserValueError("it is compressed, and jaxrl writes arrays without compression")
        if sum(member.file_size for member in members) > file.stat().st_size:
            raise UserValueError("it declares more bytes than it has")
        return {_array_name(member): _header(archive, member) for member in members}


def read_npz(file: Path, names: Collection[str] | None = None) -> dict[str, np.ndarray]:
    """The arrays of an `.npz` file, by name.

    Args:
      file: File, as written by `numpy.savez`.
      names: Names of the arrays to read; None reads all.

    Raises:
      ValueError, OSError, zipfile.BadZipFile: The file is damaged, or holds anything but plain arrays.
      KeyError: The file has no array of a name.
    """
    npz_headers(file)
    with file.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
        return {name: archive[name] for name in (archive.files if names is None else names)}


def read_netcdf(file: Path) -> xarray.Dataset:
    """The variables of a netCDF file in HDF5's format.

    Only arrays of numbers or strings in its root are read, of which every number is in the file: neither links to
    other places, files or groups, nor arrays that are stored in other files, composed of other arrays, or compressed.

    Args:
      file: File.

    Raises:
      ValueError, OSError: The file is damaged, or holds anything but plain arrays.
    """
    import h5py
    import xarray

    with h5py.File(file) as stream:  # on damaged files h5netcdf leaves the file half open and prints a message
        list(stream.attrs.values())
        total = sum(_plain_bytes(stream, name, file.stat().st_size) for name in map(str, stream))
    if total > file.stat().st_size:
        raise UserValueError("it declares more bytes than it has")
    dataset = xarray.load_dataset(file.absolute(), engine="h5netcdf")
    if empty := [str(dim) for dim, size in dataset.sizes.items() if not size]:
        raise UserValueError(f"its dimension {empty[0]!r} has the length 0")
    return dataset


def difference_of_headers(headers: Mapping[str, Header], expected: Mapping[str, Header]) -> str | None:
    """The first difference of arrays from the expected ones, in words; None if they agree.

    Args:
      headers: Shapes and types of the arrays of a file.
      expected: Shapes and types that they must have.
    """
    for name, takes in expected.items():
        if name not in headers:
            return f"it has no array {name}"
        if headers[name] != takes:
            got, right = (f"{each.dtype}{list(each.shape)}" for each in (headers[name], takes))
            return f"{name} is {got}, not {right}"
    if extra := [name for name in headers if name not in expected]:
        return f"it holds {len(headers)} arrays, and takes {len(expected)}, without {extra[0]!r}"
    return None


def _array_name(member: zipfile.ZipInfo) -> str:
    if not member.filename.endswith(".npy"):
        raise UserValueError(f"{member.filename!r} is not an array")
    return member.filename.removesuffix(".npy")


def _header(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Header:
    with archive.open(member) as stream:
        header = _declared(stream, member.filename)
        rest = member.file_size - stream.tell()
    num_bytes = math.prod(header.shape) * header.dtype.itemsize
    if header.dtype.hasobject:
        raise UserValueError(f"{member.filename!r} holds objects, which are not read")
    if min(header.shape, default=0) < 0 or num_bytes != rest:
        raise UserValueError(
            f"{member.filename!r} declares {header.dtype}{list(header.shape)}, which is not the {rest:,} bytes it has"
        )
    return header


def _declared(stream: IO[bytes], name: str) -> Header:
    readers: dict[tuple[int, int], Any] = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    try:
        shape, _, dtype = readers[np.lib.format.read_magic(stream)](stream)
    except (ValueError, SyntaxError, KeyError, TypeError, RecursionError, tokenize.TokenError):
        raise UserValueError(f"the header of {name!r} is damaged") from None
    return Header(shape, dtype)


def _plain_bytes(stream: h5py.File, name: str, file_size: int) -> int:
    """Number of bytes of an array in memory; 0 for a dimension without numbers."""
    import h5py

    if not isinstance(stream.get(name, getlink=True), h5py.HardLink):
        raise UserValueError(f"{name!r} is a link to another place, and only arrays of the file itself are read")
    array = stream[name]
    if not isinstance(array, h5py.Dataset) or array.shape is None:
        raise UserValueError(f"{name!r} is not an array")
    how = array.id.get_create_plist()
    if how.get_external_count() or how.get_layout() == h5py.h5d.VIRTUAL:
        raise UserValueError(f"{name!r} is stored in other files, and only arrays of the file itself are read")
    if how.get_nfilters():
        raise UserValueError(f"{name!r} is compressed, and jaxrl writes arrays without compression")
    text = array.dtype.kind == "O" and h5py.check_string_dtype(array.dtype) is not None
    if not text and array.dtype.kind not in _KINDS:
        raise UserValueError(f"{name!r} holds {array.dtype}, neither numbers nor strings")
    named = array.attrs.get("NAME", b"")
    if _DIMENSION in (named.encode() if isinstance(named, str) else named):
        return 0
    num_bytes = array.size * array.dtype.itemsize
    if num_bytes > max(array.id.get_storage_size(), 0):
        raise UserValueError(f"{name!r} declares {array.dtype}{list(array.shape)}, of which it has no numbers")
    return _bytes_of_strings(array, file_size) if text else num_bytes


def _bytes_of_strings(array: h5py.Dataset, file_size: int) -> int:
    """Number of bytes of strings, counted only where they could be many: several may share one place of the file."""
    total = 0
    if math.prod(array.shape) * file_size > _FEW_BYTES:
        for at in np.ndindex(array.shape):
            total += len(array[at])
            if total > file_size:
                break
    return total
