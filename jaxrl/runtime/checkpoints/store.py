"""Checkpoints of a call: everything needed to resume it bit for bit after an interruption."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import logging
import os
import re
import shutil
import tempfile
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from envs.files import replacing
from jaxrl.results.checksums import CHECKSUM, checksum, sealed_json
from jaxrl.results.dataset import ResultError
from jaxrl.results.storage import FILES, finished, holds_result
from jaxrl.runtime.checkpoints.identity import GENERATION, compare
from jaxrl.runtime.checkpoints.identity_file import IDENTITY, read_identity

CHECKPOINTS, PARTS = "checkpoints", "parts"
_ITEMS = ("states", "evaluations")  # items of a checkpoint with an array for each run

__all__ = ["Checkpoint", "Checkpoints", "begun_in", "has_checkpoint", "num_parts_begun"]


class Checkpoint(NamedTuple):
    """A call between two chunks.

    Attributes:
      iteration: Number of iterations that every run has done.
      states: States of the runs, leaves `[num_runs, ...]`, as returned by `Runs.states()`.
      iterations: Iterations of the evaluations so far.
      metrics: Metrics of the evaluations so far, `{name: [num_runs, num_points, ...]}`.
    """

    iteration: int
    states: Any
    iterations: list[int]
    metrics: dict[str, np.ndarray]


class _DamageError(Exception):
    """Damage of a checkpoint; `surely` where `trust` does not help."""

    def __init__(self, reason: str, *, surely: bool = False):
        super().__init__(reason)
        self.surely = surely


class Checkpoints:
    """Identity and last checkpoint of a call in a run directory; writing a checkpoint leaves the last one intact.

    Args:
      directory: Directory of the call; None writes nothing.
      identity: Identity of the call.
      begun: Contents of `run.json` of the call to resume; None starts from scratch.
      minutes: Time between two checkpoints in minutes; None writes none.
      trust: Whether to resume from a checkpoint that does not match its recorded checksums.
    """

    def __init__(
        self,
        directory: Path | None,
        identity: Mapping[str, Any] | None = None,
        *,
        begun: Mapping[str, Any] | None = None,
        minutes: float | None = None,
        trust: bool = False,
    ):
        self.directory, self.identity, self.begun, self.minutes = directory, dict(identity or {}), begun, minutes
        self.trust = trust
        self.identity[GENERATION] = uuid.uuid4().hex if begun is None else begun.get(GENERATION)
        self._last = time.perf_counter()
        self._began = False
        self._manager: Any = None

    def check(self) -> None:
        """Refuses, before anything is compiled, to resume a different call or one that cannot be resumed.

        Raises:
          ResultError: The directory does not hold a checkpoint of this call.
        """
        if self.directory is None:
            return
        _remove_left_overs(self.directory)
        if self.begun is None:
            return
        # Without a checkpoint to resume from, runs may have a different layout.
        parts = num_parts_begun(self.directory)
        compare(self.directory, self.begun, self.identity, () if parts else ("block",))
        if parts:
            return
        if finished(self.directory):
            raise ResultError(
                f"{self.directory} holds a finished result and no checkpoint to resume from: choose another "
                f"directory, or start over with --force (force=True)."
            )
        warnings.warn(
            f"{self.directory} was begun but holds no checkpoint to resume from: it starts from the beginning",
            RuntimeWarning,
            stacklevel=6,
        )

    def begin(self, structure: Any) -> Checkpoint | None:
        """Records the identity of the call; returns the checkpoint to resume from, None to start from scratch.

        Args:
          structure: Pytree with the structure of the states of the runs.

        Raises:
          ResultError: The checkpoint is damaged, or the directory is not writable.
        """
        if self.directory is None:
            return None
        checkpoint = None if self.begun is None else self.load(structure)
        if checkpoint is None:
            self._start_over()
            self._began = True
        if checkpoint is None or self.begun != self.identity:
            self._write_identity()
        return checkpoint

    def begin_parts(self) -> None:
        """Like `begin`, for a call in several parts, each with its own directory of checkpoints.

        Raises:
          ResultError: The directory is not writable.
        """
        if self.directory is not None:
            if self.begun is None:
                self._start_over()
                self._began = True
            self._write_identity()

    def narrow(self, block: int) -> bool:
        """Changes the block width; returns whether there is a checkpoint to resume from."""
        self.identity["block"], self.begun = block, None
        if self.directory is not None and (self.directory / IDENTITY).is_file():
            self._write_identity()
            self.begun = self.identity if has_checkpoint(self.directory) else None
        return self.begun is not None

    def save_if_due(self, checkpoint: Callable[[], Checkpoint]) -> None:
        """Writes a checkpoint if `minutes` have passed since the last one.

        Args:
          checkpoint: Function that makes the checkpoint.
        """
        if self.minutes is not None and time.perf_counter() - self._last >= 60 * self.minutes:
            self.save(checkpoint)

    def save(self, checkpoint: Callable[[], Checkpoint]) -> None:
        """Writes a checkpoint now, if checkpoints are enabled; a failure is a warning.

        Args:
          checkpoint: Function that makes the checkpoint.
        """
        if self.directory is None or self.minutes is None:
            return
        try:
            self.write(checkpoint())
        except ResultError as error:
            warnings.warn(str(error), RuntimeWarning, stacklevel=6)
        self._last = time.perf_counter()

    def discard_if_empty(self) -> None:
        """Deletes what `begin` wrote if nothing was written since."""
        if self.directory is None or not self._began or num_parts_begun(self.directory):
            return
        shutil.rmtree(self.directory / CHECKPOINTS, ignore_errors=True)
        (self.directory / IDENTITY).unlink(missing_ok=True)
        for folder in (self.directory / PARTS, self.directory):
            with contextlib.suppress(OSError):  # it does not exist, or is not empty
                folder.rmdir()

    @property
    def _at(self) -> Path:
        assert self.directory is not None
        return self.directory

    def _start_over(self) -> None:
        """Deletes the files of an earlier call: first its identity, then checkpoints, parts and result.

        Raises:
          ResultError: A file cannot be deleted.
        """
        try:
            (self._at / IDENTITY).unlink(missing_ok=True)
            for folder in (self._at / CHECKPOINTS, self._at / PARTS):
                with contextlib.suppress(FileNotFoundError):
                    shutil.rmtree(folder)
            for name in FILES:
                (self._at / name).unlink(missing_ok=True)
        except OSError as error:
            raise ResultError(
                f"{self._at} holds an earlier run that cannot be deleted: {error.filename}: {error.strerror or error}."
            ) from None

    def _write_identity(self) -> None:
        """Writes the identity of the call, before any checkpoint.

        Raises:
          ResultError: The directory is not writable.
        """
        content = sealed_json(self.identity)
        try:
            with replacing(self._at / IDENTITY, None) as part:
                part.write_bytes(content)
        except OSError as error:
            raise ResultError(f"{self._at} cannot be written: {error.strerror or error}.") from None

    def write(self, checkpoint: Checkpoint) -> None:
        """Writes a checkpoint next to the last one, and then deletes the last one.

        Raises:
          ResultError: The checkpoint cannot be written, such as for lack of disk space; the last one is intact.
        """
        import orbax.checkpoint as ocp

        manager = self._opened()
        leaves = {f"{i:04d}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(checkpoint.states))}
        empty = {name: [leaf.shape, str(leaf.dtype)] for name, leaf in leaves.items() if not leaf.size}
        done = {"iteration": checkpoint.iteration, "iterations": [int(at) for at in checkpoint.iterations]}
        done |= {"empty": empty}  # orbax refuses arrays without numbers, such as the boxes of a crowd without any
        metrics = {name: np.asarray(values) for name, values in checkpoint.metrics.items()}
        done |= {GENERATION: self.identity[GENERATION], "checksums": _checksums(leaves, metrics)}
        done[CHECKSUM] = _checksum_of(done)
        items = {
            "states": {name: leaf for name, leaf in leaves.items() if leaf.size},
            "evaluations": metrics,
        }
        try:
            _require_room(
                self._at / CHECKPOINTS, sum(array.nbytes for tree in items.values() for array in tree.values())
            )
            with _quiet():
                manager.save(
                    (manager.latest_step() or 0) + 1,
                    args=ocp.args.Composite(
                        done=ocp.args.JsonSave(done),
                        **{name: ocp.args.PyTreeSave(tree) for name, tree in items.items() if tree},
                    ),
                )
        except Exception as error:  # of any library underneath: errors of the file system come wrapped in several types
            raise ResultError(
                f"No checkpoint could be written to {self._at}: {_reason(error)}; the one before is intact."
            ) from error
        finally:
            _remove_left_overs(self._at)

    def load(self, structure: Any) -> Checkpoint | None:
        """Last complete checkpoint, None where there is none.

        Args:
          structure: Pytree with the structure of the states of the runs.

        Raises:
          ResultError: The checkpoint is damaged, or holds other states.
        """
        import orbax.checkpoint as ocp

        if not (self._at / CHECKPOINTS).is_dir():
            return None
        manager = self._opened()
        step = manager.latest_step()
        if step is None:
            return None
        where = self._at / CHECKPOINTS / str(step)
        items = [name for name in _ITEMS if (where / name).is_dir()]
        try:
            with _quiet():
                restored = manager.restore(
                    step,
                    args=ocp.args.Composite(
                        done=ocp.args.JsonRestore(), **{name: ocp.args.PyTreeRestore() for name in items}
                    ),
                )
            done = restored["done"]
            empty = {name: np.zeros(shape, dtype) for name, (shape, dtype) in done.get("empty", {}).items()}
            states = {**(restored["states"] if "states" in items else {}), **empty}
            leaves = [np.asarray(states[f"{i:04d}"]) for i in range(len(states))]
            evaluations = restored["evaluations"] if "evaluations" in items else {}
            metrics = {name: np.asarray(leaf) for name, leaf in evaluations.items()}
            if not self.trust:
                self._verify(done, {f"{i:04d}": leaf for i, leaf in enumerate(leaves)}, metrics)
            self._check_ranges(done, leaves, metrics, structure)
            checkpoint = Checkpoint(
                int(done["iteration"]),
                jax.tree.unflatten(jax.tree.structure(structure), leaves),
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
                f"The checkpoint {where} is damaged ({_reason(error)}):{on} delete {self._at / CHECKPOINTS} to start "
                f"over."
            ) from error
        return checkpoint

    def _verify(self, done: Mapping[str, Any], leaves: Mapping[str, Any], metrics: Mapping[str, Any]) -> None:
        """Refuses contents that do not match their checksums; checkpoints of the previous version have none.

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
        if done[GENERATION] != self.identity[GENERATION]:
            raise _DamageError(f"it is of another run than {IDENTITY}")

    def _check_ranges(
        self, done: Mapping[str, Any], leaves: list[np.ndarray], metrics: Mapping[str, np.ndarray], structure: Any
    ) -> None:
        """Refuses contents that no call can resume from, trusted or not.

        Raises:
          _DamageError: The message names what is out of range.
        """
        iteration, iterations, last = done["iteration"], done["iterations"], self.identity["points"][-1]
        if not isinstance(iteration, int) or not 0 <= iteration <= last:
            raise _DamageError(f"its iteration is {iteration!r}, not from 0 to {last:,}", surely=True)
        # Only a call with an evaluation at 0 has one there.
        between = [-1 if self.identity["points"][0] == 0 else 0, *iterations, iteration + 1]
        if any(one >= other for one, other in itertools.pairwise(between)):
            raise _DamageError(f"its evaluations are after {iterations} of {iteration:,} iterations", surely=True)
        points = len(iterations)
        if any(values.ndim < 2 or values.shape[1] != points for values in metrics.values()):
            raise _DamageError(f"its metrics are not of {points} evaluations", surely=True)
        if len(leaves) != jax.tree.structure(structure).num_leaves:
            raise _DamageError("its states are not those of this algorithm", surely=True)

    def close(self) -> None:
        """Closes the directory."""
        if self._manager is not None:
            self._manager.close()
            self._manager = None

    def _opened(self) -> Any:
        import orbax.checkpoint as ocp

        class Manager(ocp.CheckpointManager):
            def reached_preemption(self, step: int) -> bool:
                del step
                return False  # would ask the other processes

        if self._manager is None:
            # One of several processes writes by itself.
            alone = ocp.options.MultiprocessingOptions(
                primary_host=jax.process_index(),
                active_processes={jax.process_index()},
                barrier_sync_key_prefix=f"jaxrl-{jax.process_index()}",
            )
            options = ocp.CheckpointManagerOptions(
                max_to_keep=1, enable_async_checkpointing=False, create=False, multiprocessing_options=alone
            )
            folder = (self._at / CHECKPOINTS).absolute()
            folder.mkdir(parents=True, exist_ok=True)
            # Without OCDBT, whose files orbax finds by a pattern in which brackets in a directory's name are special.
            trees = {
                name: ocp.PyTreeCheckpointHandler(use_ocdbt=False, multiprocessing_options=alone) for name in _ITEMS
            }
            with _quiet():
                self._manager = Manager(
                    folder, options=options, item_handlers={**trees, "done": ocp.JsonCheckpointHandler()}
                )
        return self._manager


def has_checkpoint(directory: Path) -> bool:
    """Whether a run directory itself, not one of its parts, holds a checkpoint."""
    folder = directory / CHECKPOINTS
    return folder.is_dir() and any(entry.name.isdigit() for entry in folder.iterdir())


def num_parts_begun(directory: Path) -> int | None:
    """Number of parts of the call in a run directory, None where there is nothing to resume."""
    if (directory / PARTS).is_dir():
        names = sorted(path.name for path in (directory / PARTS).iterdir() if path.is_dir())
        if names:
            return int(names[0].rpartition("-")[2])
    return 1 if has_checkpoint(directory) else None


def begun_in(directory: str | Path | None, *, trust: bool = False) -> Mapping[str, Any] | None:
    """Identity of the call to resume in a run directory, None where none was started.

    Args:
      directory: Directory of the run.
      trust: Whether to accept a file that does not match its recorded checksum.

    Raises:
      ResultError: The file is damaged, or missing where the directory holds runs.
    """
    if directory is None:
        return None
    directory = Path(directory)
    if (directory / IDENTITY).is_file():
        return read_identity(directory, trust=trust)
    if holds_result(directory) or num_parts_begun(directory):
        raise ResultError(
            f"{directory} holds a result, but no {IDENTITY}, which is required to resume it: choose another "
            f"directory, or start over with --force (force=True)."
        )
    return None


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


def _require_room(directory: Path, num_bytes: int) -> None:
    """Checks the disk space before writing: threads of the store underneath would print errors of their own.

    Args:
      directory: Directory to write to.
      num_bytes: Number of bytes without compression.

    Raises:
      OSError: There is too little space.
    """
    if not hasattr(os, "posix_fallocate"):
        return
    with tempfile.TemporaryFile(dir=directory) as file:
        try:
            os.posix_fallocate(file.fileno(), 0, max(num_bytes, 1))
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
                raise


def _remove_left_overs(directory: Path) -> None:
    """Deletes incomplete files of writers that were killed or ran out of space; no other process may be writing."""
    with contextlib.suppress(OSError):
        for entry in directory.iterdir():
            name = re.fullmatch(r"\..+-\d+-(.+)", entry.name)
            if name is not None and name[1] in (*FILES, IDENTITY):
                entry.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        for entry in (directory / CHECKPOINTS).iterdir():
            if not entry.name.isdigit():
                shutil.rmtree(entry, ignore_errors=True)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silences messages of orbax on standard error: an error of this module reports the failure."""
    logger = logging.getLogger("absl")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)


def _reason(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:300].rstrip(".")
