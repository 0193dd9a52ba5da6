"""One checkpoint on disk: writing, loading and verifying it."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import logging
import math
import os
import re
import stat
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from envs.files import block_size, require_room, writing
from jaxrl.pytrees import State
from jaxrl.results.checksums import CHECKSUM, checksum
from jaxrl.results.dataset import ResultError
from jaxrl.results.file_names import CHECKPOINTS, IDENTITY
from jaxrl.results.format import reason
from jaxrl.results.json_values import parsed
from jaxrl.runtime.checkpoints.identity import GENERATION

_ITEMS = ("states", "evaluations")  # items of a checkpoint with an array for each run
_BLOCKS_OF_ARRAY = 2  # beside its numbers: its folder and its metadata
_BLOCKS_OF_CHECKPOINT = 24  # folders and metadata of the rest
_READS_END = 0.1  # seconds after a failed read in which others end
_OPEN_FILES = 32  # that the store underneath has open at a time, beside one for each processor


class Checkpoint(NamedTuple):
    """Snapshot of a call between two chunks.

    Attributes:
      iteration: Number of iterations that every run has done.
      states: States of the runs, leaves `[num_runs, ...]`, as returned by `Runs.states()`.
      iterations: Iterations of the evaluations so far.
      metrics: Metrics of the evaluations so far, `{name: [num_runs, num_points, ...]}`.
    """

    iteration: int
    states: State
    iterations: list[int]
    metrics: dict[str, np.ndarray]


class Expected(NamedTuple):
    """Properties that a call expects of its checkpoint, before reading it.

    Attributes:
      states: Shapes of the states of the runs, leaves `[num_runs, ...]`.
      metrics: Shapes of the metrics of an evaluation, `{name: [num_runs, ...]}`.
      points: Iterations of the evaluations of the run.
      generation: Value of `GENERATION` in the identity of the run.
    """

    states: State
    metrics: Mapping[str, Any]
    points: Sequence[int]
    generation: Any


class _DamageError(Exception):
    """Error for a damaged checkpoint; `surely` is True if `trust` cannot ignore the damage."""

    def __init__(self, reason: str, *, surely: bool = False) -> None:
        super().__init__(reason)
        self.surely = surely


class CheckpointFiles:
    """Folder of the last checkpoint in a run directory, which is created.

    Args:
      directory: Run directory.

    Raises:
      ResultError: The folder is a link, what it holds cannot be opened, or this process may open too few files.
    """

    def __init__(self, directory: Path) -> None:
        self._at = directory
        self._require_open_files()
        folder = (directory / CHECKPOINTS).absolute()
        if folder.is_symlink():
            raise ResultError(f"{folder} is a link, through which nothing is written: delete it to start over.")
        with writing(directory, ResultError):
            folder.mkdir(parents=True, exist_ok=True)
        self._link: tempfile.TemporaryDirectory[str] | None = None
        # A separator for tensorstore, a bucket for orbax, and bytes that are not UTF-8, wherever they are.
        if re.search(r"\\|gs:/|[\ud800-\udfff]", str(folder)):
            self._link = tempfile.TemporaryDirectory(prefix="jaxrl-")
            link = Path(self._link.name) / CHECKPOINTS
            link.symlink_to(folder, target_is_directory=True)
            folder = link
        try:
            self._manager = _manager(folder)
        except Exception as error:  # as below, of the metadata of a checkpoint
            raise ResultError(
                f"The checkpoint in {directory / CHECKPOINTS} is damaged ({reason(error)}): delete "
                f"{directory / CHECKPOINTS} to start over."
            ) from error

    def write(self, checkpoint: Checkpoint, generation: Any) -> None:
        """Write a checkpoint next to the last one, and then delete the last one.

        Args:
          checkpoint: Checkpoint.
          generation: Value of `GENERATION` in the identity of its run.

        Raises:
          ResultError: The checkpoint cannot be written, such as for lack of disk space; the last one is intact.
        """
        import orbax.checkpoint as ocp

        self._require_open_files()
        manager = self._manager
        leaves = {name: np.asarray(leaf) for name, leaf in _named(checkpoint.states).items()}
        empty = {name: [leaf.shape, str(leaf.dtype)] for name, leaf in leaves.items() if not leaf.size}
        done = {"iteration": checkpoint.iteration, "iterations": [int(at) for at in checkpoint.iterations]}
        done |= {"empty": empty}  # orbax refuses arrays without numbers, such as the boxes of a crowd without any
        metrics = {name: np.asarray(values) for name, values in checkpoint.metrics.items()}
        done |= {GENERATION: generation, "checksums": _checksums(leaves, metrics)}
        done[CHECKSUM] = _checksum_of(done)
        items = {"states": {name: leaf for name, leaf in leaves.items() if leaf.size}, "evaluations": metrics}
        try:
            _require_room(self._at / CHECKPOINTS, [array.nbytes for tree in items.values() for array in tree.values()])
            with _quiet():
                manager.save(
                    (manager.latest_step() or 0) + 1,
                    args=ocp.args.Composite(
                        done=ocp.args.JsonSave(done),
                        **{name: ocp.args.PyTreeSave(tree) for name, tree in items.items() if tree},
                    ),
                )
        except Exception as error:  # of any library underneath: errors of the file system come wrapped in several types
            rest = "there is no previous one" if manager.latest_step() is None else "the previous one is intact"
            raise ResultError(f"No checkpoint could be written to {self._at}: {reason(error)}; {rest}.") from error

    def load(self, expected: Expected, *, trust: bool) -> Checkpoint | None:
        """Last complete checkpoint, None where there is none.

        Args:
          expected: Checkpoint as the call knows it; no array of another shape is read.
          trust: Whether to load a checkpoint that does not match its checksums.

        Raises:
          ResultError: The checkpoint is damaged, or holds other states.
        """
        import orbax.checkpoint as ocp

        manager = self._manager
        step = manager.latest_step()
        if step is None:
            return None
        self._require_open_files()
        where = self._at / CHECKPOINTS / str(step)
        items = [name for name in _ITEMS if (where / name).is_dir()]
        try:
            _check_files(where)
            _check_shapes(where, expected)
            with _quiet():
                try:
                    restored = manager.restore(
                        step,
                        args=ocp.args.Composite(
                            done=ocp.args.JsonRestore(), **{name: ocp.args.PyTreeRestore() for name in items}
                        ),
                    )
                except Exception:
                    time.sleep(_READS_END)  # those that have begun
                    raise
            done = restored["done"]
            states = restored["states"] if "states" in items else {}
            leaves = [
                np.asarray(states[name]) if leaf.size else np.zeros(leaf.shape, leaf.dtype)
                for name, leaf in _named(expected.states).items()
            ]
            evaluations = restored["evaluations"] if "evaluations" in items else {}
            metrics = {name: np.asarray(leaf) for name, leaf in evaluations.items()}
            if not trust:
                _verify(done, _named(leaves), metrics, expected.generation)
            _check_ranges(done, metrics, expected.points)
            checkpoint = Checkpoint(
                int(done["iteration"]),
                jax.tree.unflatten(jax.tree.structure(expected.states), leaves),
                [int(at) for at in done["iterations"]],
                metrics,
            )
        except Exception as error:  # as above; a truncated file raises various errors
            on = (
                ""
                if not isinstance(error, _DamageError) or error.surely
                else " resume regardless with --trust (trust=True), or"
            )
            raise ResultError(
                f"The checkpoint {where} is damaged ({reason(error)}):{on} delete {self._at / CHECKPOINTS} to start "
                f"over."
            ) from error
        return checkpoint

    def close(self) -> None:
        """Close the folder."""
        self._manager.close()
        if self._link is not None:
            self._link.cleanup()

    def _require_open_files(self) -> None:
        """Check how many files may be opened: orbax would leave half of its event loops, which print errors.

        Raises:
          ResultError: This process may open too few files.
        """
        count = _OPEN_FILES + (os.cpu_count() or 1)
        with contextlib.ExitStack() as files:
            try:
                for _ in range(count):
                    files.enter_context(open(os.devnull, "rb"))
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE):
                    raise
                raise ResultError(
                    f"No checkpoint can be written to or read from {self._at}: it takes {count} open files at a time, "
                    "more than this process may have; `ulimit -n 1024` raises the limit."
                ) from None


def _manager(folder: Path) -> Any:
    """Manager of orbax for a folder, an absolute path."""
    import orbax.checkpoint as ocp

    class Manager(ocp.CheckpointManager):
        def reached_preemption(self, step: int) -> bool:
            del step
            return False  # would ask the other processes

    # One of several processes writes by itself.
    alone = ocp.options.MultiprocessingOptions(
        primary_host=jax.process_index(),
        active_processes={jax.process_index()},
        barrier_sync_key_prefix=f"jaxrl-{jax.process_index()}",
    )
    options = ocp.CheckpointManagerOptions(
        max_to_keep=1, enable_async_checkpointing=False, create=False, multiprocessing_options=alone
    )
    # Without OCDBT, whose files orbax finds by a pattern in which brackets in a directory's name are special.
    trees = {name: ocp.PyTreeCheckpointHandler(use_ocdbt=False, multiprocessing_options=alone) for name in _ITEMS}
    with _quiet():
        return Manager(folder, options=options, item_handlers={**trees, "done": ocp.JsonCheckpointHandler()})


def _verify(done: Mapping[str, Any], leaves: Mapping[str, Any], metrics: Mapping[str, Any], generation: Any) -> None:
    """Reject contents that do not match their checksums; checkpoints of the previous version have none.

    Raises:
      _DamageError: The message names what is damaged.
    """
    if not {CHECKSUM, "checksums", GENERATION} & set(done):
        if set(done) - {"iteration", "iterations", "empty"}:
            raise _DamageError(f"it contains {', '.join(done)}")
        return
    if done.get(CHECKSUM) != _checksum_of(done):
        raise _DamageError("its metadata does not match its checksum")
    actual = _checksums(leaves, metrics)
    if wrong := [name for name in done["checksums"] | actual if done["checksums"].get(name) != actual.get(name)]:
        raise _DamageError(f"{wrong[0]} does not match its checksum")
    if done[GENERATION] != generation:
        raise _DamageError(f"it is of another run than {IDENTITY}")


def _check_files(where: Path) -> None:
    """Reject a checkpoint of other than files and folders: a link would be followed, a named pipe be waited for.

    Raises:
      _DamageError: The message names what is of another kind.
    """
    for entry in (where, *where.rglob("*")):
        kind = entry.lstat().st_mode
        if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
            raise _DamageError(f"{entry.relative_to(where.parent)} is neither a file nor a folder", surely=True)


def _check_shapes(where: Path, expected: Expected) -> None:
    """Reject arrays that the call does not expect, before any is read.

    Raises:
      _DamageError: The message names the array.
    """
    states = {name: leaf for name, leaf in _named(expected.states).items() if leaf.size}
    if _names_in(where / "states") != set(states):
        raise _DamageError("its states are not those of this algorithm", surely=True)
    metrics = _names_in(where / "evaluations")
    if metrics and metrics != set(expected.metrics):
        raise _DamageError("its metrics are not those of this algorithm", surely=True)
    for name, leaf in states.items():
        shape, dtype = _declared(where / "states" / name)
        if (shape, dtype) != (leaf.shape, leaf.dtype):
            got, takes = f"{dtype}{list(shape)}", f"{leaf.dtype}{list(leaf.shape)}"
            raise _DamageError(f"states/{name} is {got}, not {takes}", surely=True)
    for name in metrics:
        shape, dtype = _declared(where / "evaluations" / name)
        leaf = expected.metrics[name]
        fits = (shape[:1] + shape[2:], dtype) == (leaf.shape, leaf.dtype)
        if not fits or shape[1] > len(expected.points):
            raise _DamageError(f"evaluations/{name} is {dtype}{list(shape)}", surely=True)


def _named(states: State) -> dict[str, Any]:
    """Leaves of states by the names under which a checkpoint has them."""
    return {f"{i:04d}": leaf for i, leaf in enumerate(jax.tree.leaves(states))}


def _names_in(item: Path) -> set[str]:
    """Names of the arrays of an item of a checkpoint, as orbax reads them; none where the item is missing."""
    if not item.is_dir():
        return set()
    metadata = parsed((item / "_METADATA").read_text(encoding="utf-8"))
    keys = [[key["key"] for key in entry["key_metadata"]] for entry in metadata["tree_metadata"].values()]
    return {"/".join(map(str, key)) for key in keys}


def _declared(array: Path) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and type of an array of zarr, in one piece."""
    header = parsed((array / ".zarray").read_text(encoding="utf-8"))
    shape = tuple(header["shape"])
    if not all(isinstance(size, int) and size > 0 for size in shape) or list(shape) != header["chunks"]:
        raise _DamageError(f"{array.name} is not an array in one piece", surely=True)
    return shape, np.dtype(header["dtype"])


def _check_ranges(done: Mapping[str, Any], metrics: Mapping[str, np.ndarray], points: Sequence[int]) -> None:
    """Reject contents from which no call can resume, whether trusted or not.

    Raises:
      _DamageError: The message names what is out of range.
    """
    iteration, iterations, last = done["iteration"], done["iterations"], points[-1]
    if not isinstance(iteration, int) or not 0 <= iteration <= last:
        raise _DamageError(f"its iteration is {iteration!r}, not from 0 to {last:,}", surely=True)
    # Only a call with an evaluation at 0 has one there.
    between = [-1 if points[0] == 0 else 0, *iterations, iteration + 1]
    if any(one >= other for one, other in itertools.pairwise(between)):
        raise _DamageError(f"its evaluations are after {iterations} of {iteration:,} iterations", surely=True)
    count = len(iterations)
    if any(values.ndim < 2 or values.shape[1] != count for values in metrics.values()):
        raise _DamageError(f"its metrics are not of {count} evaluations", surely=True)


def _checksums(leaves: Mapping[str, np.ndarray], metrics: Mapping[str, np.ndarray]) -> dict[str, str]:
    """Checksum of each array, including its shape and type."""
    named = {f"states/{name}": leaf for name, leaf in leaves.items()}
    named |= {f"evaluations/{name}": values for name, values in metrics.items()}
    return {name: f"{array.dtype}{list(array.shape)}:{checksum(_bytes_of(array))}" for name, array in named.items()}


def _bytes_of(array: np.ndarray) -> Any:
    return np.atleast_1d(np.ascontiguousarray(array)).view(np.uint8) if array.size else b""


def _checksum_of(done: Mapping[str, Any]) -> str:
    """Checksum of the metadata of a checkpoint."""
    content = {name: value for name, value in done.items() if name != CHECKSUM}
    return checksum(json.dumps(content, sort_keys=True).encode())


def _require_room(directory: Path, num_bytes: Sequence[int]) -> None:
    """Check the disk space before writing: threads of the store underneath would print errors of their own.

    Args:
      directory: Directory to write to.
      num_bytes: Number of bytes of each array, without compression.

    Raises:
      OSError: There is too little space.
    """
    block = block_size(directory)
    blocks = sum(math.ceil(each / block) + _BLOCKS_OF_ARRAY for each in num_bytes) + _BLOCKS_OF_CHECKPOINT
    require_room(directory, blocks * block)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence messages of orbax on standard error: an error of this module reports the failure.

    After a failed read of an array, orbax closes the event loop of all reads; the others then fail in threads of
    tensorstore, whose exceptions Python prints.
    """
    logger, hook = logging.getLogger("absl"), sys.unraisablehook
    before = logger.level

    def unless_closed(unraisable: Any) -> None:
        if "Event loop is closed" not in str(unraisable.exc_value):
            hook(unraisable)

    logger.setLevel(logging.CRITICAL)
    sys.unraisablehook = unless_closed
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
        sys.unraisablehook = hook
