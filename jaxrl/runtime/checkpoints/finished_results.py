"""Results in run directories: those of finished calls, and saving with a warning where the disk is full."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl.algorithms.contract import Algorithm
from jaxrl.results.dataset import ResultError
from jaxrl.results.loading import load_result
from jaxrl.results.result import Result
from jaxrl.results.storage import finished
from jaxrl.runtime.call import Call


def finished_result(
    call: Call, directory: Path | None, begun: Mapping[str, Any] | None, *, trust: bool = False
) -> Result | None:
    """Saved result of a finished call; None if the call is not finished.

    Args:
      call: Call to resume.
      directory: Directory of the call.
      begun: Contents of `run.json` in the directory; None for a new call.
      trust: Whether to read files that do not match their checksums.
    """
    if begun is None or directory is None or not isinstance(call.algo, Algorithm):
        return None
    if begun.get("points") != call.points.tolist() or (result := _complete(call, directory, trust)) is None:
        return None
    return dataclasses.replace(result, algo=call.algo, hparams=call.hparams, env_params=call.env_params)


def holds_finished(call: Call, directory: Path) -> bool:
    """Whether a directory holds the complete result of a finished call."""
    return _complete(call, directory) is not None


def save_result(result: Result, directory: Path | None) -> None:
    """Save a result; a failure gives a warning and sets `unsaved`.

    Args:
      result: Result to save.
      directory: Directory to save in; None does not save.
    """
    if directory is None:
        return
    try:
        result.save(directory, force=True)
    except ResultError as error:
        result.unsaved = True
        warnings.warn(
            f"the result is not saved: {error} If there is a checkpoint, jaxrl resume saves its result.",
            RuntimeWarning,
            stacklevel=4,
        )


def _complete(call: Call, directory: Path, trust: bool = False) -> Result | None:
    """The complete result of a finished call; None without one that can be read, which the checkpoint then replaces."""
    if not finished(directory):
        return None
    try:
        result = load_result(directory, call.algo, trust=trust)
    except ResultError:
        return None
    steps = call.points * call.env_steps_per_iteration
    same = result.seeds == list(call.seeds) and np.array_equal(result.metrics["env_step"].values, steps)
    return result if same else None
