"""What a run directory keeps of a call while it is carried out, and whose it is."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxrl.results.dataset import ResultError
from jaxrl.results.description import config_of
from jaxrl.results.plain import from_json, to_json
from jaxrl.results.storage import finished, holds_result
from jaxrl.runtime.call import Call
from jaxrl.runtime.checkpoints.store import (
    ASKED,
    IDENTITY,
    SOFT,
    Checkpoint,
    Checkpoints,
    difference,
    has_checkpoint,
    num_parts_begun,
    read_identity,
)
from jaxrl.runtime.devices.processors import processor
from jaxrl.runtime.devices.xla_flags import DETERMINISTIC, flags_in_force
from jaxrl.runtime.layout import Layout

__all__ = ["Keeper", "check_begun", "identity_of", "precision_in_force"]


class Keeper:
    """Writes whose a run directory is, and checkpoints at their time; a failure to write one is told and ends nothing.

    Args:
      directory: of the call, None where nothing is kept.
      identity: of the call.
      resume: whether to go on with what the directory holds.
      minutes: between two checkpoints; None writes none.
    """

    def __init__(self, directory: Path | None, identity: Mapping[str, Any], *, resume: bool, minutes: float | None):
        self._directory, self._identity, self._resume, self._minutes = directory, identity, resume, minutes
        self._checkpoints = None if directory is None else Checkpoints(directory)
        self._last = time.perf_counter()
        self._began = False

    def check(self) -> None:
        """Refuses, before anything is compiled, to go on with what is no call's, another's, or cannot be gone on with.

        Raises:
          ResultError: in a sentence.
        """
        if self._directory is None or not self._resume or not check_begun(self._directory, self._identity):
            return
        if has_checkpoint(self._directory):
            return
        if finished(self._directory):
            raise ResultError(
                f"{self._directory} holds a finished result and no checkpoint to go on from: choose another "
                f"directory, or start anew with --force (force=True)."
            )
        warnings.warn(
            f"{self._directory} was begun but holds no checkpoint to go on from: it starts from the beginning",
            RuntimeWarning,
            stacklevel=4,
        )

    def begin(self, structure: Any) -> Checkpoint | None:
        """Says whose the directory is from now on; the checkpoint to go on from, None where the call begins anew.

        Args:
          structure: a pytree like the states of the runs.

        Raises:
          ResultError: the checkpoint is damaged, or the directory cannot be written.
        """
        if self._checkpoints is None:
            return None
        goes_on = self._resume and (self._checkpoints.directory / IDENTITY).is_file()
        found = self._checkpoints.load(structure) if goes_on else None
        if found is None:
            self._checkpoints.begin_anew()
            self._began = True
        self._checkpoints.write_identity(self._identity)
        return found

    def save_if_due(self, checkpoint: Any) -> None:
        """Writes a checkpoint where the last one was long ago.

        Args:
          checkpoint: makes it.
        """
        if self._minutes is not None and time.perf_counter() - self._last >= 60 * self._minutes:
            self.save(checkpoint)

    def save(self, checkpoint: Any) -> None:
        """Writes a checkpoint now, if any are to be written.

        Args:
          checkpoint: makes it.
        """
        if self._checkpoints is None or self._minutes is None:
            return
        try:
            self._checkpoints.save(checkpoint())
        except ResultError as error:
            warnings.warn(str(error), RuntimeWarning, stacklevel=4)
        self._last = time.perf_counter()

    def discard_if_empty(self) -> None:
        """Takes back what `begin` wrote where nothing has followed."""
        if self._checkpoints is not None and self._began:
            self._checkpoints.discard_if_empty()

    def close(self) -> None:
        """Lets go of the directory."""
        if self._checkpoints is not None:
            self._checkpoints.close()


def check_begun(directory: Path, identity: Mapping[str, Any]) -> bool:
    """Whether a call was begun in a directory, once it is known to be this one.

    Raises:
      ResultError: it was another call, or the directory holds a result that does not tell of what call.
    """
    if not (directory / IDENTITY).is_file():
        if holds_result(directory):
            raise ResultError(
                f"{directory} holds a result, but no {IDENTITY} that tells how to go on with it: choose another "
                f"directory, or start anew with --force (force=True)."
            )
        return False
    # Where nothing is to be gone on from, runs may be laid out in another way.
    _compare(directory, identity, () if num_parts_begun(directory) else ("block",))
    return True


def _compare(directory: Path, identity: Mapping[str, Any], free: Collection[str]) -> None:
    saved = read_identity(directory)
    free = (*SOFT, *free, ASKED, "points", "env_steps")

    def firm(told: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in told.items() if name not in free}

    found = difference(firm(saved), firm(identity))
    if found is None and saved["points"] != identity["points"] and identity["points"][-1] <= saved["points"][-1]:
        found = difference({"points": saved["points"]}, {"points": identity["points"]})
    if found is not None:
        raise ResultError(
            f"{directory} holds a checkpoint of another configuration: {found}; choose another directory, "
            f"or start anew with --force (force=True)."
        )
    for name in (name for name in SOFT if name in saved):
        if (found := difference(saved[name], identity[name], name)) is not None:
            warnings.warn(
                f"{directory} goes on elsewhere than it began, and may round otherwise: {found}",
                RuntimeWarning,
                stacklevel=5,
            )


def identity_of(call: Call, layout: Layout, precision: str, asked: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What a checkpoint must agree with to be gone on from, as JSON gives it back.

    Args:
      call: the call.
      layout: of its runs.
      precision: of matrix products.
      asked: what it was begun with that need not agree.
    """
    described = call.result({"pending": np.zeros((*call.shape, 0))}, None, [], {})
    told = {name: value for name, value in config_of(described).items() if name not in ("attributes", "devices")}
    told |= {name: value for name, value in call.attrs.items() if name not in told}
    on_cpu = layout.devices[0].platform == "cpu"
    told |= {
        "env_steps": int(call.work.points[-1]) * call.work.env_steps_per_iteration,
        "points": call.work.points.tolist(),
        "block": layout.block,
        "precision": precision_in_force(precision),
        "device_kind": layout.devices[0].device_kind,
        "processor": processor() if on_cpu else None,  # every CPU is of the kind "cpu"
        "deterministic": _deterministic(),
        "xla_flags": [flag for flag in flags_in_force() if DETERMINISTIC not in flag],
        ASKED: dict(asked or {}),
    }
    return from_json(json.loads(json.dumps(to_json(told), default=str)))


def precision_in_force(precision: str) -> str:
    """The precision of matrix products by its name; that of JAX's own setting for the default."""
    return jax.config.values["jax_default_matmul_precision"] or "default" if precision == "default" else precision


def _deterministic() -> bool:
    """Whether XLA is told to add numbers up in the same order every time."""
    given = [flag.partition("=") for flag in flags_in_force()]
    values = [value.lower() for name, _, value in given if name == f"--{DETERMINISTIC}"]
    return bool(values) and values[-1] not in ("false", "0")
