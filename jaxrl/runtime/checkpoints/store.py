"""Checkpoints of a call: what it takes to go on after whatever stopped it, bit for bit."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl.results.dataset import ResultError
from jaxrl.results.plain import from_json, to_json
from jaxrl.results.storage import FILES, METRICS, SEARCH, unfinished

CHECKPOINTS, PARTS, IDENTITY = "checkpoints", "parts", "run.json"
# What may differ between the run and its resumption: results are then no longer equal bit for bit.
SOFT = ("versions", "device_kind", "processor", "deterministic", "xla_flags")
ASKED = "asked"  # what the call was begun with, and changes nothing

__all__ = ["Checkpoint", "Checkpoints", "difference", "has_checkpoint", "num_parts_begun", "read_identity"]


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


class Checkpoints:
    """The checkpoints of one run directory: the last one whole, whatever happens while the next is written.

    Args:
      directory: of the call.
    """

    def __init__(self, directory: Path):
        self.directory = directory
        self._manager: Any = None

    def begin_anew(self) -> None:
        """Deletes what an earlier call has left: first what tells whose it is, then checkpoints, parts and result.

        Raises:
          ResultError: something cannot be deleted.
        """
        try:
            (self.directory / IDENTITY).unlink(missing_ok=True)
            for folder in (self.directory / CHECKPOINTS, self.directory / PARTS):
                with contextlib.suppress(FileNotFoundError):
                    shutil.rmtree(folder)
            for name in FILES:
                (self.directory / name).unlink(missing_ok=True)
        except OSError as error:
            raise ResultError(
                f"{self.directory} holds an earlier run that cannot be deleted: {error.filename}: "
                f"{error.strerror or error}."
            ) from None

    def write_identity(self, identity: Mapping[str, Any]) -> None:
        """Says whose the checkpoints are, before there are any.

        Raises:
          ResultError: the directory cannot be written.
        """
        text = json.dumps(to_json(dict(identity)), indent=2, default=str, allow_nan=False) + "\n"
        part = unfinished(self.directory / IDENTITY)
        try:
            part.write_text(text, encoding="utf-8")
            part.replace(self.directory / IDENTITY)
        except OSError as error:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
            raise ResultError(f"{self.directory} cannot be written: {error.strerror or error}.") from None

    def save(self, checkpoint: Checkpoint) -> None:
        """Writes a checkpoint beside the last one, and then deletes that.

        Raises:
          ResultError: it cannot be written, such as for want of room; the last one is still there.
        """
        import orbax.checkpoint as ocp

        manager = self._opened()
        leaves = {f"{i:04d}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(checkpoint.states))}
        done = {"iteration": checkpoint.iteration, "iterations": [int(at) for at in checkpoint.iterations]}
        items = {"states": leaves, "evaluations": dict(checkpoint.metrics)}
        try:
            manager.save(
                (manager.latest_step() or 0) + 1,
                args=ocp.args.Composite(
                    done=ocp.args.JsonSave(done),
                    **{name: ocp.args.StandardSave(tree) for name, tree in items.items() if tree},
                ),
            )
        except Exception as error:  # of whichever library beneath: the file system's is hidden in several kinds
            raise ResultError(
                f"No checkpoint could be written to {self.directory}: {_reason(error)}; the one before is intact."
            ) from error

    def load(self, structure: Any) -> Checkpoint | None:
        """The last whole checkpoint, None where there is none.

        Args:
          structure: a pytree like the states of the runs.

        Raises:
          ResultError: it is damaged, or of other states.
        """
        import orbax.checkpoint as ocp

        if not (self.directory / CHECKPOINTS).is_dir():
            return None
        manager = self._opened()
        step = manager.latest_step()
        if step is None:
            return None
        where = self.directory / CHECKPOINTS / str(step)
        items = [name for name in ("states", "evaluations") if (where / name).is_dir()]
        try:
            found = manager.restore(
                step,
                args=ocp.args.Composite(
                    done=ocp.args.JsonRestore(), **{name: ocp.args.StandardRestore() for name in items}
                ),
            )
            done, states = found["done"], found["states"]
            leaves = [np.asarray(states[f"{i:04d}"]) for i in range(len(states))]
            evaluations = found["evaluations"] if "evaluations" in items else {}
            metrics = {name: np.asarray(leaf) for name, leaf in evaluations.items()}
            checkpoint = Checkpoint(
                int(done["iteration"]),
                jax.tree.unflatten(jax.tree.structure(structure), leaves),
                [int(at) for at in done["iterations"]],
                metrics,
            )
        except Exception as error:  # as above; a file cut in half raises whatever its reader stumbles over
            raise ResultError(
                f"The checkpoint {where} is damaged ({_reason(error)}): delete {self.directory / CHECKPOINTS} to start "
                f"anew."
            ) from error
        return checkpoint

    def discard_if_empty(self) -> None:
        """Takes back what `write_identity` wrote where no checkpoint has followed."""
        if not has_checkpoint(self.directory):
            shutil.rmtree(self.directory / CHECKPOINTS, ignore_errors=True)
            (self.directory / IDENTITY).unlink(missing_ok=True)

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
            folder = (self.directory / CHECKPOINTS).absolute()
            folder.mkdir(parents=True, exist_ok=True)
            self._manager = Manager(folder, options=options)
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


def read_identity(directory: Path) -> dict[str, Any]:
    """What a run directory says of the call whose checkpoints it holds.

    Raises:
      ResultError: it says nothing, or is damaged.
    """
    if not directory.is_dir():
        raise ResultError(f"{directory} is not a run directory: there is no such directory.")
    file = directory / IDENTITY
    if not file.is_file():
        why = f"{IDENTITY} is missing"
        if (directory / SEARCH).is_file():
            why = "it holds a search, with which the same jaxrl sweep, or jaxrl.search, goes on"
        elif (directory / METRICS).is_file():
            why = f"{IDENTITY} is missing, as of a result that was merged (resume its shards) or saved by itself"
        raise ResultError(f"{directory} holds no run that can be resumed: {why}.")
    try:
        identity = from_json(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise ResultError(f"{file} is damaged: {error}") from None
    if not isinstance(identity, dict):
        raise ResultError(f"{file} is damaged: it holds no names.")
    return identity


def difference(saved: Any, wanted: Any, at: str = "") -> str | None:
    """Where two identities differ first, and how, such as `config.num_steps is 128 there and 64 here`."""
    if isinstance(saved, Mapping) and isinstance(wanted, Mapping):
        for name in [*wanted, *(name for name in saved if name not in wanted)]:
            path = f"{at}.{name}" if at else str(name)
            if name not in saved or name not in wanted:
                return f"{path} is {'set there only' if name in saved else 'set here only'}"
            if (found := difference(saved[name], wanted[name], path)) is not None:
                return found
        return None
    if saved == wanted:
        return None
    there, here = _shortened(saved), _shortened(wanted)
    if there == here and isinstance(saved, list) and isinstance(wanted, list) and len(saved) != len(wanted):
        there, here = f"{there} ({len(saved):,} of them)", f"{len(wanted):,}"
    return f"{at} is {there} there and {here} here"


def _shortened(value: Any) -> str:
    text = json.dumps(to_json(value), default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _reason(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:300].rstrip(".")
