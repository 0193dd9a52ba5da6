"""Results that a run directory holds of a call already, and results that a full disk keeps from being saved."""

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

__all__ = ["finished_result", "holds_finished", "save_result"]


def finished_result(
    call: Call, directory: Path | None, begun: Mapping[str, Any] | None, *, trust: bool = False
) -> Result | None:
    """The result of a call that is finished, as its directory holds it; None where anything is left to do.

    Args:
      call: to be resumed.
      directory: of the call.
      begun: what `run.json` says there, None where the call begins anew.
      trust: as in `load_result`.
    """
    if begun is None or directory is None or not isinstance(call.algo, Algorithm):
        return None
    if begun.get("points") != call.points.tolist() or not finished(directory):
        return None
    try:
        result = load_result(directory, call.algo, trust=trust)
    except ResultError:
        return None  # it is written anew from the checkpoint
    if not _is_of(result, call):
        return None
    return dataclasses.replace(result, algo=call.algo, hparams=call.hparams, env_params=call.env_params)


def holds_finished(call: Call, directory: Path) -> bool:
    """Whether a directory holds the whole result of a call that is finished."""
    if not finished(directory):
        return False
    try:
        return _is_of(load_result(directory, call.algo), call)
    except ResultError:
        return False


def save_result(result: Result, directory: Path | None) -> None:
    """Saves a result; where that fails, a warning says so, and the result in memory is not lost.

    Args:
      result: whose `unsaved` tells from then on.
      directory: to save in, None for none.
    """
    if directory is None:
        return
    try:
        result.save(directory, force=True)
    except ResultError as error:
        result.unsaved = True
        warnings.warn(
            f"the result is not saved: {error} Where there is a checkpoint, jaxrl resume saves the result of it.",
            RuntimeWarning,
            stacklevel=4,
        )


def _is_of(result: Result, call: Call) -> bool:
    steps = call.points * call.env_steps_per_iteration
    return result.seeds == list(call.seeds) and np.array_equal(result.metrics["env_step"].values, steps)
