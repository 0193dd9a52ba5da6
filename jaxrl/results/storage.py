"""Results on disk: a directory whose files open without jaxrl."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from filelock import FileLock, Timeout

from envs.errors import ExistsError
from envs.files import replacing
from jaxrl.results.checksums import checksum_of_file, sealed_json
from jaxrl.results.dataset import RUN_DIMS, UNKNOWN, ResultError
from jaxrl.results.description import Labelled, attribute, config_of
from jaxrl.results.plain import versions

if TYPE_CHECKING:
    import pandas

METRICS, TABLE, PARQUET, POLICIES, CONFIG = FILES = (
    "metrics.nc",
    "metrics.csv",
    "metrics.parquet",
    "policies.npz",
    "config.json",
)

VERIFIED = (METRICS, POLICIES)  # files by whose checksums in `config.json` a result is known to be of one piece
CHECKSUMS = "files"  # the name of those in `config.json`

CSV_NEWLINE = "\r\n"  # of RFC 4180

SEARCH = "search.json"  # what a directory holds that is a search's
LOCK = ".lock"
PATIENCE = 0.2  # seconds to try for a lock that another call may be just releasing
_WITHOUT_LOCKS: set[int] = set()  # file systems that a warning has named

__all__ = [
    "claim_directory",
    "exclusive",
    "finished",
    "holds_result",
    "save",
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

    The lock is on a file of the directory, which other hosts see too where a directory's own lock would be this host's.
    Where the file system has no locks, a warning says so and nobody is kept out. A directory that is left empty is
    removed.

    Args:
      directory: as `claim_directory` returned it; None does nothing.
      force: accept that a result has come into it since.

    Raises:
      FileExistsError: another call is training into it, or has saved a result there.
      ResultError: the directory cannot be written.
    """
    if directory is None:
        yield
        return
    lock = _lock(directory)
    try:
        _refuse_result(directory, force)
        yield
    finally:
        with contextlib.suppress(OSError):
            (directory / LOCK).unlink()  # before its release: filelock tries again where a locked file was deleted
        lock.release()
        with contextlib.suppress(OSError):
            directory.rmdir()


def _lock(directory: Path) -> FileLock:
    """The lock of a directory, held unless the file system has none."""
    # No marker file in place of a lock: it would outlive a process that is killed.
    lock = FileLock(
        directory / LOCK, timeout=PATIENCE, poll_interval=PATIENCE / 10, thread_local=False, fallback_to_soft=False
    )
    try:
        directory.mkdir(parents=True, exist_ok=True)  # another call may have left it empty, and removed it
        lock.acquire()
    except Timeout:
        raise ExistsError(
            f"{directory} is being written by another run that is still training: choose another directory."
        ) from None
    except OSError as error:
        if error.filename is not None:  # errors of opening name the file, those of locking do not
            raise ResultError(f"{directory} cannot be written: {error.strerror or error}.") from None
        file_system = directory.stat().st_dev
        if file_system not in _WITHOUT_LOCKS:
            _WITHOUT_LOCKS.add(file_system)
            warnings.warn(
                f"the file system of {directory} has no locks ({error.strerror or error}): nothing keeps another "
                f"call from training into the same directory",
                RuntimeWarning,
                stacklevel=5,
            )
    return lock


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
        raise ExistsError(
            f"{directory} holds a result already{go_on} choose another directory, or overwrite it with --force "
            "(force=True)."
        )


def save(result: Labelled, path: str | Path, force: bool = False) -> Path:
    """Writes a result; see `Result.save`. A file is complete or not there."""
    directory = claim_directory(path, force)
    dataset = result.metrics.assign_attrs({name: attribute(value) for name, value in result.metrics.attrs.items()})
    leaves = result.policies  # of an unknown algorithm they are still as they were read
    if UNKNOWN not in result.metrics.attrs:
        leaves = {jax.tree_util.keystr(at): np.asarray(leaf) for at, leaf in jax.tree.leaves_with_path(result.policies)}
    config, table = config_of(result.description()), _table(result)

    def write_policies(file: Path) -> None:
        with file.open("wb") as stream:
            np.savez(stream, allow_pickle=False, **leaves)

    def write_config(file: Path) -> None:
        checksums = {name: checksum_of_file(parts[name]) for name in VERIFIED}
        file.write_bytes(sealed_json(config | {CHECKSUMS: checksums}))

    writers: dict[str, Callable[[Path], Any]] = {
        # By way of memory: the library leaves files open where there is no room left for them.
        METRICS: lambda file: file.write_bytes(dataset.to_netcdf(None, engine="h5netcdf")),
        TABLE: lambda file: table.to_csv(file, index=False, na_rep="nan", lineterminator=CSV_NEWLINE),
        PARQUET: lambda file: table.to_parquet(file, index=False, engine="pyarrow"),
        POLICIES: write_policies,
        CONFIG: write_config,
    }
    if importlib.util.find_spec("pyarrow") is None:  # the extra "parquet": the same table, which is then there as CSV
        del writers[PARQUET]
        (directory / PARQUET).unlink(missing_ok=True)
    try:
        with contextlib.ExitStack() as files:  # which come into their places in the order of the writers
            parts = {name: files.enter_context(replacing(directory / name, None)) for name in reversed(writers)}
            for name, write in writers.items():
                write(parts[name])
    except OSError as error:
        raise ResultError(f"{directory} cannot be written: {error.strerror or error}.") from None
    return directory


def _numbers(result: Labelled) -> list[str]:
    """The metrics that are one number of a run."""
    return [str(name) for name, metric in result.metrics.items() if set(metric.dims) <= {*result.dims, *RUN_DIMS}]


def _table(result: Labelled) -> pandas.DataFrame:
    """A row for each setting, seed and evaluation, with the metrics as they were computed."""
    import pandas

    settings, seeds, env_steps = result.settings, result.seeds, result.metrics["env_step"].values
    points = len(env_steps)
    columns: dict[str, Any] = {
        path: np.repeat([setting[path] for setting in settings], len(seeds) * points) for path in settings[0]
    }
    columns["seed"] = np.tile(np.repeat(seeds, points), len(settings))
    columns["env_step"] = np.tile(env_steps, len(settings) * len(seeds))
    columns |= {name: result.values(name).reshape(-1) for name in _numbers(result)}
    return pandas.DataFrame(columns)
