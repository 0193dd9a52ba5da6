"""Results on disk: a directory whose files open without jaxrl."""

from __future__ import annotations

import contextlib
import csv
import importlib.util
import json
import os
import platform
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxrl.results.dataset import RUN_DIMS, UNKNOWN, ResultError
from jaxrl.results.description import Labelled, attribute, config_of
from jaxrl.results.plain import to_json, versions

METRICS, TABLE, PARQUET, POLICIES, CONFIG = FILES = (
    "metrics.nc",
    "metrics.csv",
    "metrics.parquet",
    "policies.npz",
    "config.json",
)

SEARCH = "search.json"  # what a directory holds that is a search's
LOCK = ".lock"
_WITHOUT_LOCKS: set[int] = set()  # file systems that have been told of

__all__ = [
    "claim_directory",
    "exclusive",
    "finished",
    "holds_result",
    "save",
    "unfinished",
    "versions",
]


def claim_directory(path: str | Path, force: bool = False) -> Path:
    """Makes sure, before the work starts, that a result can be saved in a directory.

    Args:
      path: the directory, made where it is missing.
      force: accept a directory that holds a result already.

    Returns:
      The directory.

    Raises:
      FileExistsError: there is a result already, and no `force`.
      ResultError: the path is an empty string, or the directory cannot be written.
    """
    if path == "":
        raise ResultError("out, the directory to save in, is an empty string; it takes a name, such as runs/first.")
    directory = Path(path)
    _refuse_result(directory, force)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise ResultError(f"{directory} cannot be written: {error.strerror or error}.") from None
    return directory


@contextlib.contextmanager
def exclusive(directory: Path | None, force: bool = False) -> Iterator[None]:
    """Keeps every other training call out of a directory; a process that dies lets go of it.

    Where the system or the file system has no locks, nobody is kept out; of the latter a warning tells. A
    directory that is left empty is removed.

    Args:
      directory: as `claim_directory` returned it; None does nothing.
      force: accept that a result has come into it since.

    Raises:
      FileExistsError: another call is training into it, or has saved a result there.
      ResultError: the directory cannot be written.
    """
    if directory is None or sys.platform == "win32":
        yield
        return
    handle = _lock(directory)
    try:
        _refuse_result(directory, force)
        yield
    finally:
        with contextlib.suppress(OSError):
            (directory / LOCK).unlink()  # before it is let go of: who waits for it finds another file there
        os.close(handle)
        with contextlib.suppress(OSError):
            directory.rmdir()


def _lock(directory: Path) -> int:
    """Locks a file of the directory, which other hosts see too where a directory's own lock would be this host's."""
    import fcntl

    file = directory / LOCK
    while True:
        try:
            directory.mkdir(parents=True, exist_ok=True)  # another call may have left it empty, and removed it
            handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise ResultError(f"{directory} cannot be written: {error.strerror or error}.") from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise FileExistsError(
                f"{directory} is being written by another run that is still training: choose another directory."
            ) from None
        except OSError as error:
            file_system = os.fstat(handle).st_dev
            if file_system not in _WITHOUT_LOCKS:
                _WITHOUT_LOCKS.add(file_system)
                warnings.warn(
                    f"the file system of {directory} has no locks ({error.strerror or error}): nothing keeps another "
                    f"call from training into the same directory",
                    RuntimeWarning,
                    stacklevel=5,
                )
            return handle
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(handle), os.stat(file)):
                return handle
        os.close(handle)  # another call has just ended, and deleted the file


def holds_result(directory: Path) -> bool:
    """Whether a directory holds a file of a result."""
    return any((directory / name).exists() for name in FILES)


def finished(directory: Path) -> bool:
    """Whether a directory holds a result that came to its end."""
    return not _attributes(directory).get("interrupted", True)


def _attributes(directory: Path) -> dict[str, Any]:
    """Of the result in a directory; none where there is no result, or one that cannot be read."""
    try:
        return dict(json.loads((directory / CONFIG).read_text(encoding="utf-8"))["attributes"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _refuse_result(directory: Path, force: bool) -> None:
    if not force and holds_result(directory):
        stopped = _attributes(directory).get("interrupted")
        go_on = ", of a run that was stopped: go on with it by --resume (resume=True)," if stopped else ":"
        raise FileExistsError(
            f"{directory} holds a result already{go_on} choose another directory, or overwrite it with --force "
            "(force=True)."
        )


def unfinished(file: Path) -> Path:
    """Where a process writes a file until it is whole; containers share the numbers of processes."""
    return file.with_name(f".{platform.node()}-{os.getpid()}-{file.name}")


def save(result: Labelled, path: str | Path, force: bool = False) -> Path:
    """Writes a result; see `Result.save`. A file is complete or not there."""
    directory = claim_directory(path, force)
    dataset = result.metrics.assign_attrs({name: attribute(value) for name, value in result.metrics.attrs.items()})
    leaves = result.policies  # of an unknown algorithm they are still as they were read
    if UNKNOWN not in result.metrics.attrs:
        leaves = {jax.tree_util.keystr(at): np.asarray(leaf) for at, leaf in jax.tree.leaves_with_path(result.policies)}
    config = json.dumps(to_json(config_of(result.description())), indent=2, default=str, allow_nan=False) + "\n"

    def write_policies(file: Path) -> None:
        with file.open("wb") as stream:
            np.savez(stream, allow_pickle=False, **leaves)

    writers: dict[str, Callable[[Path], Any]] = {
        METRICS: lambda file: dataset.to_netcdf(file, engine="h5netcdf"),
        TABLE: lambda file: _write_csv(result, file),
        PARQUET: lambda file: _write_parquet(result, file),
        POLICIES: write_policies,
        CONFIG: lambda file: file.write_text(config, encoding="utf-8"),
    }
    if importlib.util.find_spec("pyarrow") is None:  # the extra "parquet": the same table, which is then there as CSV
        del writers[PARQUET]
        (directory / PARQUET).unlink(missing_ok=True)
    written = []
    try:
        for name, write in writers.items():
            file = unfinished(directory / name)
            written.append((file, directory / name))
            write(file)
        for file, final in written:
            os.replace(file, final)
    except OSError as error:
        raise ResultError(f"{directory} cannot be written: {error.strerror or error}.") from None
    finally:
        for file, _ in written:
            file.unlink(missing_ok=True)
    return directory


def _numbers(result: Labelled) -> list[str]:
    """The metrics that are one number of a run."""
    return [str(name) for name, metric in result.metrics.items() if set(metric.dims) <= {*result.dims, *RUN_DIMS}]


def _write_parquet(result: Labelled, file: Path) -> None:
    """The table of `_write_csv`, with numbers as they were computed."""
    import pyarrow
    import pyarrow.parquet

    settings, seeds, env_steps = result.settings, result.seeds, result.metrics["env_step"].values
    points = len(env_steps)
    columns: dict[str, Any] = {
        path: np.repeat([setting[path] for setting in settings], len(seeds) * points) for path in settings[0]
    }
    columns["seed"] = np.tile(np.repeat(seeds, points), len(settings))
    columns["env_step"] = np.tile(env_steps, len(settings) * len(seeds))
    columns |= {name: result.values(name).reshape(-1) for name in _numbers(result)}
    table = pyarrow.table(
        {
            name: pyarrow.array(column.tolist() if column.dtype.kind == "U" else column)
            for name, column in columns.items()
        }
    )
    pyarrow.parquet.write_table(table, file)


def _write_csv(result: Labelled, file: Path) -> None:
    settings, seeds = result.settings, result.seeds
    env_steps = [int(step) for step in result.metrics["env_step"].values]
    names = _numbers(result)
    columns = np.stack([result.values(name) for name in names], axis=-1)
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow([*settings[0], *RUN_DIMS, *names])
        for setting, of_setting in zip(settings, columns, strict=True):
            labels = list(setting.values())
            for seed, of_seed in zip(seeds, of_setting, strict=True):
                for env_step, numbers in zip(env_steps, of_seed, strict=True):
                    writer.writerow([*labels, seed, env_step, *numbers])
