"""Results on disk: a directory whose files open without jaxrl."""

from __future__ import annotations

import contextlib
import importlib.util
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from filelock import FileLock, Timeout

from envs.arguments import check_flag
from envs.errors import ExistsError
from envs.files import replacing, writing
from jaxrl.pytrees import PyTree
from jaxrl.results.best import PREFIX
from jaxrl.results.checksums import checksum_of_file, sealed_json
from jaxrl.results.dataset import RUN_DIMS, UNKNOWN, ResultError
from jaxrl.results.description import Labelled, attribute, config_of
from jaxrl.results.file_names import CONFIG, FILES, LOCK, METRICS, PARQUET, POLICIES, SEARCH, TABLE
from jaxrl.results.json_values import parsed
from jaxrl.results.optima import for_config
from jaxrl.results.own_files import begun, foreign_files
from jaxrl.results.parquet import write_parquet
from jaxrl.results.text_tables import spreadsheet_cell

if TYPE_CHECKING:
    import pandas

VERIFIED = (METRICS, POLICIES)  # files whose checksums in `config.json` show that the files of a result belong together
CHECKSUMS = "files"  # key of the checksums in `config.json`

CSV_NEWLINE = "\r\n"  # of RFC 4180

_NAMED = 5  # files named in an error
PATIENCE = 0.2  # seconds to wait for a lock that another call may be about to release
_WITHOUT_LOCKS: set[int] = set()  # file systems for which a warning was issued

__all__ = [
    "CONFIG",
    "FILES",
    "METRICS",
    "PARQUET",
    "POLICIES",
    "SEARCH",
    "TABLE",
    "claim_directory",
    "exclusive",
    "finished",
    "holds_result",
    "metrics_of_runs",
    "save",
    "write_csv",
]


def claim_directory(
    path: str | Path, force: bool = False, *, checkpoints: bool = False, verified: bool = False
) -> Path:
    """Check, before the work starts, that a result can be saved in a directory.

    Args:
      path: Directory, created if it is missing.
      force: Whether to accept a directory that already holds a result or checkpoints of jaxrl.
      checkpoints: Whether checkpoints will be written too.
      verified: Whether the `run.json` there was read already, and is of jaxrl.

    Returns:
      The directory.

    Raises:
      FileExistsError: The directory already holds a result or checkpoints and `force` is false, or files that would be
        replaced and are not of jaxrl.
      ResultError: The path is an empty string, or the directory cannot be written.
    """
    if path == "":
        raise ResultError("out, the directory to save in, is an empty string; it takes a name, such as runs/first.")
    directory = Path(path)
    try:
        _refuse_foreign(directory, checkpoints, verified)
        _refuse_result(directory, force, checkpoints)
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except ExistsError:
        raise
    except (OSError, ValueError) as error:  # ValueError for a name with a null byte
        reason = getattr(error, "strerror", None) or error
        raise ResultError(f"{directory} cannot be written: {reason}.") from None
    return directory


@contextlib.contextmanager
def exclusive(directory: Path | None, force: bool = False) -> Iterator[None]:
    """Lock a directory against other training calls; the lock is released when the process ends.

    The lock is on a file in the directory, which is visible to other hosts, unlike a lock on the directory itself.
    On a file system without locks a warning is issued and other calls are not excluded. A directory that is left empty
    is removed.

    Args:
      directory: Directory returned by `claim_directory`; None does nothing.
      force: Whether to accept a result that was saved there in the meantime.

    Raises:
      FileExistsError: Another call is training into the directory, or has saved a result there.
      ResultError: The directory cannot be written.
    """
    if directory is None:
        yield
        return
    lock = _lock(directory)
    try:
        _refuse_result(directory, force, checkpoints=True)
        yield
    finally:
        with contextlib.suppress(OSError):
            (directory / LOCK).unlink()  # before its release: filelock tries again where a locked file was deleted
        lock.release()
        with contextlib.suppress(OSError):
            directory.rmdir()


def _lock(directory: Path) -> FileLock:
    """The lock of a directory, held unless the file system has none."""
    # A marker file in place of a lock would outlive a killed process.
    lock = FileLock(
        directory / LOCK, timeout=PATIENCE, poll_interval=PATIENCE / 10, thread_local=False, fallback_to_soft=False
    )
    try:
        directory.mkdir(parents=True, exist_ok=True)  # another call may have left it empty, and removed it
        lock.acquire()
    except Timeout:
        raise ExistsError(
            f"{directory} is in use by another run that is still training: choose another directory."
        ) from None
    except OSError as error:
        if error.filename is not None:  # errors of opening name the file, those of locking do not
            raise ResultError(f"{directory} cannot be written: {error.strerror or error}.") from None
        file_system = directory.stat().st_dev
        if file_system not in _WITHOUT_LOCKS:
            _WITHOUT_LOCKS.add(file_system)
            warnings.warn(
                f"the file system of {directory} has no locks ({error.strerror or error}): another call could train "
                f"into the same directory",
                RuntimeWarning,
                stacklevel=5,
            )
    return lock


def holds_result(directory: Path) -> bool:
    """Whether a directory holds a file of a result."""
    return any((directory / name).exists() for name in FILES)


def finished(directory: Path) -> bool:
    """Whether a directory holds a result of a completed call."""
    return not _attributes(directory).get("interrupted", True)


def _attributes(directory: Path) -> dict[str, Any]:
    """Attributes of the result in a directory; empty without a readable result."""
    if not (directory / CONFIG).is_file():
        return {}
    try:
        return dict(parsed((directory / CONFIG).read_text(encoding="utf-8"))["attributes"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _refuse_foreign(directory: Path, checkpoints: bool, verified: bool) -> None:
    if foreign := foreign_files(directory, checkpoints, verified):
        more = f" and {len(foreign) - _NAMED} more" if len(foreign) > _NAMED else ""
        raise ExistsError(
            f"{directory} holds {', '.join(foreign[:_NAMED])}{more}, which would be replaced and which jaxrl did not "
            "write: choose another directory."
        )


def _refuse_result(directory: Path, force: bool, checkpoints: bool) -> None:
    if force:
        return
    result, killed = holds_result(directory), checkpoints and begun(directory)
    if result or killed:
        stopped = _attributes(directory).get("interrupted") if result else killed
        what = "a result already" if result else "checkpoints already"
        hint = ", of a run that was stopped: resume it with --resume (resume=True)," if stopped else ":"
        raise ExistsError(
            f"{directory} holds {what}{hint} choose another directory, or overwrite it with --force (force=True)."
        )


def _named(tree: PyTree, prefix: str = "") -> dict[str, np.ndarray]:
    """Arrays of a pytree by their paths."""
    return {f"{prefix}{jax.tree_util.keystr(at)}": np.asarray(leaf) for at, leaf in jax.tree.leaves_with_path(tree)}


def save(result: Labelled, path: str | Path, force: bool = False) -> Path:
    """Write a result; see `Result.save`. Files are written atomically."""
    check_flag("force", force)
    directory = claim_directory(path, force)
    dataset = result.metrics.assign_attrs({name: attribute(value) for name, value in result.metrics.attrs.items()})
    leaves = result.policies  # with an unknown algorithm they are still in the form in which they were read
    if UNKNOWN not in result.metrics.attrs:
        leaves = _named(result.policies) | _named(result.best, PREFIX)
    config, table = config_of(result.description()) | for_config(result), _table(result)

    def write_policies(file: Path) -> None:
        with file.open("wb") as stream:
            np.savez(stream, allow_pickle=False, **leaves)

    def write_config(file: Path) -> None:
        checksums = {name: checksum_of_file(parts[name]) for name in VERIFIED}
        file.write_bytes(sealed_json(config | {CHECKSUMS: checksums}))

    writers: dict[str, Callable[[Path], Any]] = {
        # Through memory, because the library leaves files open when the disk is full.
        METRICS: lambda file: file.write_bytes(dataset.to_netcdf(None, engine="h5netcdf")),
        # Absolute, because pandas and xarray take a leading ~ for the home directory.
        TABLE: lambda file: _as_text(table).to_csv(
            file.absolute(), index=False, na_rep="nan", lineterminator=CSV_NEWLINE
        ),
        PARQUET: lambda file: write_parquet(table, file),
        POLICIES: write_policies,
        CONFIG: write_config,
    }
    if importlib.util.find_spec("pyarrow") is None:  # without the extra "parquet" the same table is only written as CSV
        del writers[PARQUET]
    with writing(directory, ResultError):
        if PARQUET not in writers:
            (directory / PARQUET).unlink(missing_ok=True)
        with contextlib.ExitStack() as files:  # moved into place in the order of the writers
            parts = {name: files.enter_context(replacing(directory / name, None)) for name in reversed(writers)}
            for name, write in writers.items():
                write(parts[name])
    return directory


def write_csv(file: Path, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Write rows of numbers and strings to a CSV file, atomically; no text in it is a formula of a spreadsheet."""
    import pandas

    rows = [[spreadsheet_cell(cell) for cell in row] for row in rows]
    table = pandas.DataFrame(rows, None, pandas.Index([spreadsheet_cell(name) for name in columns]), object)
    with replacing(file, ResultError) as part:
        table.to_csv(part, index=False, na_rep="nan", lineterminator=CSV_NEWLINE)


def _as_text(table: pandas.DataFrame) -> pandas.DataFrame:
    """A table without text that a spreadsheet would compute as a formula."""
    import pandas

    text = [name for name in table.columns if not pandas.api.types.is_numeric_dtype(table[name])]
    changed = {name: table[name].map(spreadsheet_cell) for name in text}
    return table.assign(**changed).rename(columns=spreadsheet_cell)


def metrics_of_runs(result: Labelled) -> list[str]:
    """Names of the metrics with a single number per run."""
    return [str(name) for name, metric in result.metrics.items() if set(metric.dims) <= {*result.dims, *RUN_DIMS}]


def _table(result: Labelled) -> pandas.DataFrame:
    """A row for each setting, seed and evaluation, with the unrounded metrics."""
    import pandas

    settings, seeds, env_steps = result.settings, result.seeds, result.metrics["env_step"].values
    points = len(env_steps)
    columns: dict[str, Any] = {
        path: np.repeat([setting[path] for setting in settings], len(seeds) * points) for path in settings[0]
    }
    columns["seed"] = np.tile(np.repeat(seeds, points), len(settings))
    columns["env_step"] = np.tile(env_steps, len(settings) * len(seeds))
    columns |= {name: result.values(name).reshape(-1) for name in metrics_of_runs(result)}
    return pandas.DataFrame(columns)
