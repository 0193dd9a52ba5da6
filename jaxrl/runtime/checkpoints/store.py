"""The run directory of a call that can be resumed bit for bit: its identity, its checkpoints and its parts."""

from __future__ import annotations

import contextlib
import re
import shutil
import time
import uuid
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from envs.files import replacing, writing
from jaxrl.pytrees import State
from jaxrl.results.checksums import sealed_json
from jaxrl.results.dataset import ResultError
from jaxrl.results.file_names import CHECKPOINTS, IDENTITY, PARTS
from jaxrl.results.own_files import parts_in, unfinished_checkpoints
from jaxrl.results.storage import FILES, finished, holds_result
from jaxrl.runtime.checkpoints.checkpoint_files import Checkpoint, CheckpointFiles, Expected
from jaxrl.runtime.checkpoints.identity import GENERATION, compare
from jaxrl.runtime.checkpoints.identity_file import read_identity

__all__ = [
    "CHECKPOINTS",
    "PARTS",
    "Checkpoint",
    "Checkpoints",
    "begun_in",
    "has_checkpoint",
    "lacks_identity",
    "num_parts_begun",
]


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
    ) -> None:
        self.directory, self.identity, self.begun, self.minutes = directory, dict(identity or {}), begun, minutes
        self.trust = trust
        self.identity[GENERATION] = uuid.uuid4().hex if begun is None else begun.get(GENERATION)
        self._last = time.perf_counter()
        self._began = False
        self._files: CheckpointFiles | None = None

    def check(self) -> None:
        """Refuse, before anything is compiled, to resume a different call or one that cannot be resumed.

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

    def begin(self, states: State, metrics: Mapping[str, Any]) -> Checkpoint | None:
        """Record the identity of the call; return the checkpoint to resume from, None to start from scratch.

        Args:
          states: Shapes of the states of the runs, leaves `[num_runs, ...]`.
          metrics: Shapes of the metrics of an evaluation, `{name: [num_runs, ...]}`.

        Raises:
          ResultError: The checkpoint is damaged, or the directory is not writable.
        """
        if self.directory is None:
            return None
        checkpoint = None if self.begun is None else self.load(states, metrics)
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
        """Change the block width; return whether there is a checkpoint to resume from."""
        self.identity["block"], self.begun = block, None
        if self.directory is not None and (self.directory / IDENTITY).is_file():
            self._write_identity()
            self.begun = self.identity if has_checkpoint(self.directory) else None
        return self.begun is not None

    def save_if_due(self, checkpoint: Callable[[], Checkpoint]) -> None:
        """Write a checkpoint if `minutes` have passed since the last one.

        Args:
          checkpoint: Function that makes the checkpoint.
        """
        if self.minutes is not None and time.perf_counter() - self._last >= 60 * self.minutes:
            self.save(checkpoint)

    def save(self, checkpoint: Callable[[], Checkpoint]) -> None:
        """Write a checkpoint now, if checkpoints are enabled; a failure is a warning.

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
        """Delete the files that `begin` wrote if nothing else has been written since."""
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
        """Delete the files of an earlier call: first its identity, then checkpoints, parts and result.

        Raises:
          ResultError: A file cannot be deleted.
        """
        self.close()  # beneath an open folder nothing may be deleted: no checkpoint could be written to it any more
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
        """Write the identity of the call, before any checkpoint.

        Raises:
          ResultError: The directory is not writable.
        """
        content = sealed_json(self.identity)
        with writing(self._at, ResultError), replacing(self._at / IDENTITY, None) as part:
            part.write_bytes(content)

    def write(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint next to the last one, and then delete the last one.

        Raises:
          ResultError: The checkpoint cannot be written, such as for lack of disk space; the last one is intact.
        """
        try:
            self._opened().write(checkpoint, self.identity[GENERATION])
        finally:
            _remove_left_overs(self._at)

    def load(self, states: State, metrics: Mapping[str, Any]) -> Checkpoint | None:
        """Last complete checkpoint, None where there is none.

        Args:
          states: Shapes of the states of the runs, leaves `[num_runs, ...]`.
          metrics: Shapes of the metrics of an evaluation, `{name: [num_runs, ...]}`.

        Raises:
          ResultError: The checkpoint is damaged, or holds other states.
        """
        if not (self._at / CHECKPOINTS).is_dir():
            return None
        expected = Expected(states, metrics, self.identity["points"], self.identity[GENERATION])
        return self._opened().load(expected, trust=self.trust)

    def close(self) -> None:
        """Close the directory."""
        if self._files is not None:
            self._files.close()
            self._files = None

    def _opened(self) -> CheckpointFiles:
        if self._files is None:
            self._files = CheckpointFiles(self._at)
        return self._files


def has_checkpoint(directory: Path) -> bool:
    """Whether a run directory itself, not one of its parts, holds a checkpoint."""
    folder = directory / CHECKPOINTS
    return folder.is_dir() and any(entry.name.isdigit() for entry in folder.iterdir())


def num_parts_begun(directory: Path) -> int | None:
    """Number of parts of the call in a run directory, None where there is nothing to resume."""
    if parts := parts_in(directory):
        return int(parts[0].name.rpartition("-")[2])
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
    if lacks_identity(directory):
        raise ResultError(
            f"{directory} holds a result, but no {IDENTITY}, which is required to resume it: choose another "
            f"directory, or start over with --force (force=True)."
        )
    return read_identity(directory, trust=trust) if (directory / IDENTITY).is_file() else None


def lacks_identity(directory: Path) -> bool:
    """Whether a run directory holds runs, but no `run.json`."""
    if (directory / IDENTITY).is_file():
        return False
    return holds_result(directory) or num_parts_begun(directory) is not None


def _remove_left_overs(directory: Path) -> None:
    """Delete incomplete files of writers that were killed or ran out of space; no other process may be writing."""
    with contextlib.suppress(OSError):
        for entry in directory.iterdir():
            name = re.fullmatch(r"\..+-\d+-(.+)", entry.name)
            if name is not None and name[1] in (*FILES, IDENTITY):
                entry.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        for entry in unfinished_checkpoints(directory):
            shutil.rmtree(entry, ignore_errors=True)
