"""Values of runs at an environment step that need not be one of their evaluations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from envs.errors import UserValueError
from jaxrl.report.runs import Run

__all__ = ["common_step", "values_at"]


def common_step(runs: Sequence[Run], task: str, asked: int | None) -> int:
    """The environment step at which runs on one task are compared: the last that all reach, or the one asked for.

    Args:
      runs: Runs.
      task: Name of the task, for errors.
      asked: Environment step; None for the last that all reach.

    Raises:
      ValueError: Some run has no evaluation before this step, or none after it.
    """
    ends, begins = ([int(run.steps[at]) for run in runs] for at in (-1, 0))
    first, last = int(np.argmax(begins)), int(np.argmin(ends))
    step = ends[last] if asked is None else asked
    if step > ends[last]:
        raise UserValueError(
            f"env_steps is {step:,}, and {runs[last].name} on {task} ends at {ends[last]:,}; it takes a number up to "
            "that."
        )
    if step < begins[first]:
        where = f"env_steps is {step:,}" if asked is not None else f"{runs[last].name} on {task} ends at {step:,}"
        raise UserValueError(
            f"{where} environment steps, and {runs[first].name} is evaluated there from {begins[first]:,} on; evaluate "
            "more often, by a larger evals=."
        )
    return step


def values_at(values: np.ndarray, finite: np.ndarray, steps: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray]:
    """Values at a step: those of an evaluation, or between two evaluations by linear interpolation within each run.

    Args:
      values: Values at the evaluations, `[..., points]`.
      finite: Whether a run had not failed there, bool `[..., points]`.
      steps: Environment steps of the evaluations, `[points]`, increasing.
      step: Environment step, between the first and the last of them.

    Returns:
      The values `[...]`, float64, and whether the run had not failed at the evaluations that they are from.
    """
    after = int(np.searchsorted(steps, step))
    if steps[after] == step:
        return values[..., after].astype(np.float64), finite[..., after]
    before = after - 1
    share = (step - steps[before]) / (steps[after] - steps[before])
    low, high = (values[..., at].astype(np.float64) for at in (before, after))
    return low + share * (high - low), finite[..., before] & finite[..., after]
