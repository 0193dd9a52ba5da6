"""Checkpoints of a call: what it takes to go on after whatever stopped it, bit for bit."""

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
from jaxrl.runtime.checkpoints.identity import GENERATION, IDENTITY, compare, read_identity

CHECKPOINTS, PARTS = "checkpoints", "parts"
_ITEMS = ("states", "evaluations")  # of a checkpoint: what is an array of each run

__all__ = ["Checkpoint", "Checkpoints", "begun_in", "has_checkpoint", "num_parts_begun"]


class Checkpoint(NamedTuple):
    """A call between two chunks.

    Attributes:
      iteration: that every run has done.
      states: of the runs, leaves `[num_runs, ...]`, as `Runs.states()` gives them.
      iterations: of the evaluations so far.
      metrics: theirs, `{name: [num_runs, num_points, ...]}`.
    """

    iteration: int
    states: Any
    iterations: list[int]
    metrics: dict[str, np.ndarray]


class _DamageError(Exception):
    """What is wrong with a checkpoint; `surely` where no trust in it would help."""

    def __init__(self, reason: str, *, surely: bool = False):
        super().__init__(reason)
        self.surely = surely


class Checkpoints:
    """What a run directory keeps of a call: whose it is, and the last checkpoint whole, whatever happens to the next.

    Args:
      directory: of the call, None where nothing is kept.
      identity: of the call.
      begun: what `run.json` says of the call to resume, None where it begins anew.
      minutes: between two checkpoints; None writes none.
      trust: whether to resume from a checkpoint that does not have the checksums that it tells.
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
        """Refuses, before anything is compiled, to resume what is another call's or cannot be resumed.

        Raises:
          ResultError: in a sentence.
        """
        if self.directory is None:
            return
        _remove_left_overs(self.directory)
        if self.begun is None:
            return
        # Where nothing is to be resumed, runs may be laid out in another way.
        parts = num_parts_begun(self.directory)
        compare(self.directory, self.begun, self.identity, () if parts else ("block",))
        if parts:
            return
        if finished(self.directory):
            raise ResultError(
                f"{self.directory} holds a finished result and no checkpoint to go on from: choose another "
                f"directory, or start anew with --force (force=True)."
            )
        warnings.warn(
            f"{self.directory} was begun but holds no checkpoint to go on from: it starts from the beginning",
            RuntimeWarning,
            stacklevel=6,
        )

    def begin(self, structure: Any) -> Checkpoint | None:
        """Says whose the directory is from now on; the checkpoint to resume from, None where the call begins anew.

        Args:
          structure: a pytree like the states of the runs.

        Raises:
          ResultError: the checkpoint is damaged, or the directory cannot be written.
        """
        if self.directory is None:
            return None
        checkpoint = None if self.begun is None else self.load(structure)
        if checkpoint is None:
            self._begin_anew()
            self._began = True
        if checkpoint is None or self.begun != self.identity:
            self._write_identity()
        return checkpoint

    def begin_parts(self) -> None:
        """`begin` of a call in several parts, whose checkpoints are in a directory for each.

        Raises:
          ResultError: the directory cannot be written.
        """
        if self.directory is not None:
            if self.begun is None:
                self._begin_anew()
                self._began = True
            self._write_identity()

    def narrow(self, block: int) -> bool:
        """Goes on with blocks of another width; whether from a checkpoint, or else from the beginning."""
        self.identity["block"], self.begun = block, None
        if self.directory is not None and (self.directory / IDENTITY).is_file():
            self._write_identity()
            self.begun = self.identity if has_checkpoint(self.directory) else None
        return self.begun is not None

    def save_if_due(self, checkpoint: Callable[[], Checkpoint]) -> None:
        """Writes a checkpoint where the last one was long ago.

        Args:
          checkpoint: makes it.
        """
        if self.minutes is not None and time.perf_counter() - self._last >= 60 * self.minutes:
            self.save(checkpoint)

    def save(self, checkpoint: Callable[[], Checkpoint]) -> None:
        """Writes a checkpoint now, if any are to be written; a failure to do so is a warning.

        Args:
          checkpoint: makes it.
        """
        if self.directory is None or self.minutes is None:
            return
        try:
            self.write(checkpoint())
        except ResultError as error:
            warnings.warn(str(error), RuntimeWarning, stacklevel=6)
        self._last = time.perf_counter()

    def discard_if_empty(self) -> None:
        """Takes back what `begin` wrote where nothing has followed."""
        if self.directory is None or not self._began or num_parts_begun(self.directory):
            return
        shutil.rmtree(self.directory / CHECKPOINTS, ignore_errors=True)
        (self.directory / IDENTITY).unlink(missing_ok=True)
        for folder in (self.directory / PARTS, self.directory):
            with contextlib.suppress(OSError):  # it is not there, or something else is in it
                folder.rmdir()

    @property
    def _at(self) -> Path:
        assert self.directory is not None
        return self.directory

    def _begin_anew(self) -> None:
        """Deletes what an earlier call has left: first what tells whose it is, then checkpoints, parts and result.

        Raises:
          ResultError: something cannot be deleted.
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
        """Says whose the checkpoints are, before there are any.

        Raises:
          ResultError: the directory cannot be written.
        """
        content = sealed_json(self.identity)
        try:
            with replacing(self._at / IDENTITY, None) as part:
                part.write_bytes(content)
        except OSError as error:
            raise ResultError(f"{self._at} cannot be written: {error.strerror or error}.") from None

    def write(self, checkpoint: Checkpoint) -> None:
        """Writes a checkpoint beside the last one, and then deletes that.

        Raises:
          ResultError: it cannot be written, such as for want of room; the last one is still there.
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
        except Exception as error:  # of whichever library beneath: the file system's is hidden in several kinds
            raise ResultError(
                f"No checkpoint could be written to {self._at}: {_reason(error)}; the one before is intact."
            ) from error
        finally:
            _remove_left_overs(self._at)

    def load(self, structure: Any) -> Checkpoint | None:
        """The last whole checkpoint, None where there is none.

        Args:
          structure: a pytree like the states of the runs.

        Raises:
          ResultError: it is damaged, or of other states.
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
                found = manager.restore(
                    step,
                    args=ocp.args.Composite(
                        done=ocp.args.JsonRestore(), **{name: ocp.args.PyTreeRestore() for name in items}
                    ),
                )
            done = found["done"]
            empty = {name: np.zeros(shape, dtype) for name, (shape, dtype) in done.get("empty", {}).items()}
            states = {**(found["states"] if "states" in items else {}), **empty}
            leaves = [np.asarray(states[f"{i:04d}"]) for i in range(len(states))]
            evaluations = found["evaluations"] if "evaluations" in items else {}
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
        except Exception as error:  # as above; a file cut in half raises whatever its reader stumbles over
            on = (
                ""
                if not isinstance(error, _DamageError) or error.surely
                else " go on regardless with --trust (trust=True), or"
            )
            raise ResultError(
                f"The checkpoint {where} is damaged ({_reason(error)}):{on} delete {self._at / CHECKPOINTS} to start "
                f"anew."
            ) from error
        return checkpoint

    def _verify(self, done: Mapping[str, Any], leaves: Mapping[str, Any], metrics: Mapping[str, Any]) -> None:
        """Refuses what is not as it was written; a checkpoint of the version before tells no checksums.

        Raises:
          _DamageError: saying what is damaged.
        """
        if not {CHECKSUM, "checksums", GENERATION} & set(done):
            if set(done) - {"iteration", "iterations", "empty"}:
                raise _DamageError(f"it tells of {', '.join(done)}")
            return
        if done.get(CHECKSUM) != _checksum_of(done):
            raise _DamageError("what it tells of itself does not have its checksum")
        found = _checksums(leaves, metrics)
        if wrong := [name for name in done["checksums"] | found if done["checksums"].get(name) != found.get(name)]:
            raise _DamageError(f"{wrong[0]} does not have its checksum")
        if done[GENERATION] != self.identity[GENERATION]:
            raise _DamageError(f"it is of another run than {IDENTITY}")

    def _check_ranges(
        self, done: Mapping[str, Any], leaves: list[np.ndarray], metrics: Mapping[str, np.ndarray], structure: Any
    ) -> None:
        """Refuses, trusted or not, what no call can go on from.

        Raises:
          _DamageError: saying what is out of range.
        """
        iteration, iterations, last = done["iteration"], done["iterations"], self.identity["points"][-1]
        if not isinstance(iteration, int) or not 0 <= iteration <= last:
            raise _DamageError(f"its iteration is {iteration!r}, not from 0 to {last:,}", surely=True)
        # An evaluation at 0 is only of a call that has one.
        between = [-1 if self.identity["points"][0] == 0 else 0, *iterations, iteration + 1]
        if any(one >= other for one, other in itertools.pairwise(between)):
            raise _DamageError(f"its evaluations are after {iterations} of {iteration:,} iterations", surely=True)
        points = len(iterations)
        if any(values.ndim < 2 or values.shape[1] != points for values in metrics.values()):
            raise _DamageError(f"its metrics are not of {points} evaluations", surely=True)
        if len(leaves) != jax.tree.structure(structure).num_leaves:
            raise _DamageError("its states are not those of this algorithm", surely=True)

    def close(self) -> None:
        """Lets go of the directory."""
        if self._manager is not None:
            self._manager.close()
            self._manager = None

    def _opened(self) -> Any:
        import orbax.checkpoint as ocp

        class Manager(ocp.CheckpointManager):
            def reached_preemption(self, step: int) -> bool:
                del step
                return False  # which the other processes would be asked

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
            # Not in one database (OCDBT): orbax finds the files of one by a pattern in which brackets of a directory's
            # name have a meaning.
            trees = {
                name: ocp.PyTreeCheckpointHandler(use_ocdbt=False, multiprocessing_options=alone) for name in _ITEMS
            }
            with _quiet():
                self._manager = Manager(
                    folder, options=options, item_handlers={**trees, "done": ocp.JsonCheckpointHandler()}
                )
        return self._manager


def has_checkpoint(directory: Path) -> bool:
    """Whether a run directory, none of its parts, holds a checkpoint."""
    folder = directory / CHECKPOINTS
    return folder.is_dir() and any(entry.name.isdigit() for entry in folder.iterdir())


def num_parts_begun(directory: Path) -> int | None:
    """How many parts a run directory is to be gone on with in, None where nothing is there to go on with."""
    if (directory / PARTS).is_dir():
        names = sorted(path.name for path in (directory / PARTS).iterdir() if path.is_dir())
        if names:
            return int(names[0].rpartition("-")[2])
    return 1 if has_checkpoint(directory) else None


def begun_in(directory: str | Path | None, *, trust: bool = False) -> Mapping[str, Any] | None:
    """What a run directory says of the call that is to be resumed in it, None where none was begun.

    Args:
      directory: of the run.
      trust: as in `read_identity`.

    Raises:
      ResultError: it is damaged, or the directory holds runs that it does not tell of.
    """
    if directory is None:
        return None
    directory = Path(directory)
    if (directory / IDENTITY).is_file():
        return read_identity(directory, trust=trust)
    if holds_result(directory) or num_parts_begun(directory):
        raise ResultError(
            f"{directory} holds a result, but no {IDENTITY} that tells how to go on with it: choose another "
            f"directory, or start anew with --force (force=True)."
        )
    return None


def _checksums(leaves: Mapping[str, np.ndarray], metrics: Mapping[str, np.ndarray]) -> dict[str, str]:
    """A checksum for each array, of its shape and type as well."""
    named = {f"states/{name}": leaf for name, leaf in leaves.items()}
    named |= {f"evaluations/{name}": values for name, values in metrics.items()}
    return {name: f"{array.dtype}{list(array.shape)}:{checksum(_bytes_of(array))}" for name, array in named.items()}


def _bytes_of(array: np.ndarray) -> Any:
    return np.atleast_1d(np.ascontiguousarray(array)).view(np.uint8) if array.size else b""


def _checksum_of(done: Mapping[str, Any]) -> str:
    """The checksum of what a checkpoint tells of itself."""
    told = {name: value for name, value in done.items() if name != CHECKSUM}
    return checksum(json.dumps(told, sort_keys=True).encode())


def _require_room(directory: Path, num_bytes: int) -> None:
    """Refuses before anything is written what has no room: threads of the store beneath would tell of it by themselves.

    Args:
      directory: to write to.
      num_bytes: without compression.

    Raises:
      OSError: there is less room.
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
    """Deletes what writers that were killed, or had no room left, have left half written; nobody else may be at it."""
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
    """Keeps orbax from telling on standard error what is told, where it matters, by a sentence of ours."""
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
