"""Execution of runs: chunks, evaluations, checkpoints, and a result that is saved even after an error."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import jax
import numpy as np

from jaxrl.pytrees import Policy, State
from jaxrl.results.best import Kept
from jaxrl.results.json_values import versions
from jaxrl.results.result import Result
from jaxrl.runtime.call import Call, Part
from jaxrl.runtime.checkpoints.finished_results import holds_finished, save_result
from jaxrl.runtime.checkpoints.store import Checkpoint, Checkpoints
from jaxrl.runtime.drive.chunk_length import Pace
from jaxrl.runtime.drive.observers import Watch
from jaxrl.runtime.drive.progress import StopRequest
from jaxrl.runtime.layout import Layout

# On a CPU the memory of programs that run at the same time grows until they end: bench/NOTES.md.
SECONDS_PER_CHUNK = 0.25

__all__ = ["SECONDS_PER_CHUNK", "DrivenRuns", "advance", "drive"]


class DrivenRuns(Protocol):
    """Compiled runs between two chunks; `Runs` documents the methods."""

    @property
    def iteration(self) -> int: ...

    @property
    def layout(self) -> Layout: ...

    @property
    def shapes(self) -> tuple[Any, dict[str, jax.ShapeDtypeStruct]]: ...

    def start(self) -> None: ...

    def advance(self, count: int) -> None: ...

    def evaluate(self) -> tuple[dict[str, np.ndarray], Any]: ...

    def states(self) -> Any: ...

    def kept(self) -> Any: ...

    def again(self) -> Any: ...

    def put(self, states: State, iteration: int) -> None: ...


class History:
    """Evaluations so far, on the host: metrics of all of them, and the policies of the last."""

    def __init__(self) -> None:
        self.iterations: list[int] = []
        self.policies: Any = None
        self._metrics: list[dict[str, np.ndarray]] = []

    @property
    def last(self) -> int:
        """Iteration of the last evaluation, -1 before the first."""
        return self.iterations[-1] if self.iterations else -1

    def add(self, iteration: int, metrics: dict[str, np.ndarray], policies: Policy) -> None:
        self.iterations.append(iteration)
        self._metrics.append(metrics)
        self.policies = policies

    def stacked(self) -> dict[str, np.ndarray]:
        """Metrics of all evaluations, `{name: [num_runs, num_points, ...]}`."""
        names = self._metrics[0] if self._metrics else {}
        return {name: np.stack([metrics[name] for metrics in self._metrics], axis=1) for name in names}

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> History:
        history = cls()
        history.iterations = list(checkpoint.iterations)
        history._metrics = [
            {name: values[:, i] for name, values in checkpoint.metrics.items()} for i in range(len(history.iterations))
        ]
        return history


def advance(runs: DrivenRuns, target: int, pace: Pace, stop: StopRequest) -> Iterator[int]:
    """Advance runs to an iteration in chunks, stopping early after a signal.

    Yields:
      Number of iterations of each chunk, after it.
    """
    while runs.iteration < target and not stop:
        count = pace.next(target - runs.iteration)
        started = time.perf_counter()
        runs.advance(count)
        pace.took(count, time.perf_counter() - started)
        yield count


def drive(
    call: Call,
    part: Part,
    runs: DrivenRuns,
    checkpoints: Checkpoints,
    watch: Watch,
    attrs: Mapping[str, Any],
    done: int = 0,
) -> Result:
    """Execute all runs of a part, and save their result.

    Args:
      call: Call of the part.
      part: Positions of the runs in the whole call.
      runs: Compiled runs, not yet started.
      checkpoints: Checkpoints of the part's directory.
      watch: Observers of the whole call.
      attrs: Attributes of the result, in addition to those of the call and of the layout.
      done: Number of environment steps of the previous parts.

    Raises:
      ResultError: The checkpoint is damaged, or the directory is not writable.
      KeyboardInterrupt: A signal arrived before the first evaluation.
    """
    bar, stop, followers = watch
    per_iteration, points = call.env_steps_per_iteration * call.num_runs, call.points
    history, resumed, started = History(), 0, time.perf_counter()
    result: Result | None = None
    ended: float | None = None  # time at which training was over

    def checkpoint() -> Checkpoint:
        return Checkpoint(runs.iteration, runs.states(), history.iterations, history.stacked())

    def finished() -> Result:
        seconds = (time.perf_counter() if ended is None else ended) - started
        return _result(
            call,
            history,
            {
                **_attributes(runs.layout),
                **attrs,
                "run_seconds": seconds,
                "env_steps_per_second": (history.last - resumed) * per_iteration / seconds,
                "interrupted": int(history.last < points[-1]),
                "stopped_by_signal": stop.signal or 0,
            },
        )

    try:
        if (saved := checkpoints.begin(*runs.shapes)) is not None:
            runs.put(saved.states, saved.iteration)
            history = History.of(saved)
        runs.start()
        resumed = runs.iteration
        followers.start(resumed * call.env_steps_per_iteration)
        bar.start(done + resumed * per_iteration)
        started = time.perf_counter()
        pace = Pace(SECONDS_PER_CHUNK, runs.layout.num_blocks)
        for point in points[points > history.last].tolist():
            for count in advance(runs, point, pace, stop):
                bar.advance(count * per_iteration)
                checkpoints.save_if_due(checkpoint)
            if stop:
                checkpoints.save(checkpoint)
            if stop and runs.iteration <= max(history.last, 0):
                break
            metrics, policies = runs.evaluate()
            if runs.iteration == 0:
                metrics |= {name: np.full_like(metrics[name], np.nan) for name in call.loop.unmeasured(metrics)}
            history.add(runs.iteration, metrics, policies)
            shaped = {name: values.reshape(*call.shape, *values.shape[1:]) for name, values in metrics.items()}
            bar.report(call.headline(shaped))
            env_step = runs.iteration * call.env_steps_per_iteration
            followers.report(part, env_step, shaped)
            followers.show(part, env_step, lambda policies=policies: _last(call, policies))
            if stop:
                # An evaluation between two points is not part of the run, which resumes from before it.
                if runs.iteration == point:
                    checkpoints.save(checkpoint)
                break
        if history.last <= 0:
            raise KeyboardInterrupt(stop.signal)
        if history.policies is None:
            history.policies = runs.kept()
        ended = time.perf_counter()
        further = call.loop.again is not None and history.last == points[-1]
        if further:
            if not stop:
                checkpoints.save(checkpoint)
            history.policies = runs.again()
        result = finished()
        if resumed == points[-1] and (at := checkpoints.directory) is not None and holds_finished(call, at):
            return result  # already saved by an earlier call
        if not stop and not further:  # before the result, which may fail to be written
            checkpoints.save(checkpoint)
        save_result(result, checkpoints.directory)
        return result
    except BaseException:
        # Evaluations so far are saved before the error is raised again.
        if checkpoints.directory is not None and history.policies is not None and history.last > 0 and result is None:
            save_result(finished(), checkpoints.directory)
        else:
            checkpoints.discard_if_empty()
        raise
    finally:
        checkpoints.close()


def _last(call: Call, policies: Policy) -> Policy:
    """Last policies of the runs, leaves `[num_settings, num_seeds, ...]`."""
    last = policies.last if isinstance(policies, Kept) else policies
    return jax.tree.map(lambda leaf: leaf.reshape(*call.shape, *leaf.shape[1:]), last)


def _result(call: Call, history: History, attrs: Mapping[str, Any]) -> Result:
    metrics, policies = jax.tree.map(
        lambda leaf: leaf.reshape(*call.shape, *leaf.shape[1:]), (history.stacked(), history.policies)
    )
    env_steps = [iteration * call.env_steps_per_iteration for iteration in history.iterations]
    return call.result(metrics, policies, env_steps, attrs)


def _attributes(layout: Layout) -> dict[str, Any]:
    """Attributes of a result that describe where it was computed."""
    return {
        "block": layout.block,
        "num_devices": len(set(layout.devices)),
        "num_threads": len(layout.devices),
        "device_kind": layout.devices[0].device_kind,
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        **{f"version_{name}": version for name, version in versions().items()},
    }
