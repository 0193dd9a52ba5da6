"""The driver of thousands of runs: chunks, evaluations, checkpoints, interruption, and a result that is never lost."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import jax
import numpy as np

from jaxrl.results.plain import versions
from jaxrl.results.result import Result
from jaxrl.results.storage import claim_directory, exclusive
from jaxrl.runtime.call import Call
from jaxrl.runtime.checkpoints.keeper import Keeper, identity_of, precision_in_force
from jaxrl.runtime.checkpoints.store import Checkpoint
from jaxrl.runtime.layout import Layout
from jaxrl.runtime.pace import Pace
from jaxrl.runtime.progress import Progress, StopRequest, stop_on_signals
from jaxrl.runtime.runs import Runs

PRECISIONS = ("default", "high", "highest", "bfloat16", "tensorfloat32", "float32")
# On a CPU the memory of programs that run at the same time grows until they end: bench/NOTES.md.
SECONDS_PER_CHUNK = 0.25
CHECKPOINT_MINUTES = 10.0

__all__ = ["CHECKPOINT_MINUTES", "PRECISIONS", "SECONDS_PER_CHUNK", "Options", "Tracker", "drive"]

OnChunk = Callable[[int, Mapping[str, np.ndarray]], None]


class Tracker(Protocol):
    """What follows a call from outside: told at its start, after each evaluation, and at its end."""

    def start(self, call: Call, resumed: int | None) -> None:
        """The call, before anything is computed, and the environment steps that it goes on from; None begins anew."""
        ...

    def __call__(self, env_step: int, metrics: Mapping[str, np.ndarray]) -> None:
        """An evaluation, as `on_chunk` gets it."""
        ...

    def finish(self, result: Result | None) -> None:
        """The result, None where an error ended the call."""
        ...


@dataclasses.dataclass(frozen=True)
class Options:
    """How a call is carried out; nothing here changes what is computed, but for `precision`.

    Attributes:
      on_chunk, trackers: told of every evaluation.
      out: the directory for the result, None for none.
      force: whether `out` may be overwritten.
      resume: whether to go on from the checkpoint in `out`, if there is one.
      checkpoint_minutes: between two checkpoints in `out`; None writes none, but goes on from one.
      progress: whether to show any.
      precision: of matrix products.
      asked: what the run was begun with that may change when it goes on; `run.json` remembers it.
    """

    on_chunk: OnChunk | None = None
    trackers: Sequence[Tracker] = ()
    out: str | Path | None = None
    force: bool = False
    resume: bool = False
    checkpoint_minutes: float | None = CHECKPOINT_MINUTES
    progress: bool = True
    precision: str = "default"
    asked: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        minutes = self.checkpoint_minutes
        number = isinstance(minutes, int | float) and not isinstance(minutes, bool)
        if minutes is not None and not (number and minutes > 0):
            raise ValueError(
                f"checkpoint_minutes must be a number above 0, or None for no checkpoints, got {minutes!r}"
            )
        if self.resume and self.out is None:
            raise ValueError("resume goes on from the checkpoint in the directory out, got resume=True without out")


class History:
    """The evaluations so far, on the host: metrics of all of them, and the policies of the last."""

    def __init__(self) -> None:
        self.iterations: list[int] = []
        self.policies: Any = None
        self._metrics: list[dict[str, np.ndarray]] = []

    def add(self, iteration: int, metrics: dict[str, np.ndarray], policies: Any) -> None:
        self.iterations.append(iteration)
        self._metrics.append(metrics)
        self.policies = policies

    def checkpoint(self, runs: Runs) -> Checkpoint:
        """What it takes to go on from here."""
        return Checkpoint(runs.iteration, runs.states(), self.iterations, self.stacked())

    def stacked(self) -> dict[str, np.ndarray]:
        """`{name: [num_runs, num_points, ...]}`."""
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


def _runs(call: Call, layout: Layout, precision: str, stop: StopRequest) -> Runs:
    del stop
    return Runs(call.work, call.arguments(), layout, precision=precision)


def drive(call: Call, layout: Layout, options: Options, make_runs: Callable[..., Any] = _runs) -> Result:
    """Does the work of all runs, block by block on all devices, and saves what it gives.

    Args:
      call: what to run.
      layout: of its runs.
      options: how.
      make_runs: `(call, layout, precision, stop) -> runs`, to be used like `Runs`.

    Raises:
      FileExistsError: `out` holds a result, or another call is writing into it.
      ResultError: `resume` finds a run of another configuration, a damaged checkpoint, or a finished
        result without any.
      KeyboardInterrupt: a signal came before the first evaluation, and there is nowhere to save.
    """
    force = options.force or options.resume
    directory = None if options.out is None else claim_directory(options.out, force)
    with exclusive(directory, force):
        identity = {} if directory is None else identity_of(call, layout, options.precision, options.asked)
        keeper = Keeper(directory, identity, resume=options.resume, minutes=options.checkpoint_minutes)
        keeper.check()
        result = _driven(call, layout, options, make_runs, directory, keeper)
    _warn_of_failures(result)
    return result


def _driven(
    call: Call,
    layout: Layout,
    options: Options,
    make_runs: Callable[..., Any],
    directory: Path | None,
    keeper: Keeper,
) -> Result:
    """`drive`, once it is known that the call may begin or go on in its directory."""
    work, points = call.work, call.work.points
    per_iteration = work.env_steps_per_iteration * layout.num_runs
    told: dict[str, Any] = _attributes(layout)
    result: Result | None = None
    with Progress(int(points[-1]) * per_iteration, options.progress) as bar, stop_on_signals(options.progress) as stop:
        started = time.perf_counter()
        history, resumed = History(), 0

        def finish() -> Result:
            seconds = told["run_seconds"] = time.perf_counter() - started
            told["env_steps_per_second"] = (history.iterations[-1] - resumed) * per_iteration / seconds
            told["interrupted"] = int(history.iterations[-1] < points[-1])
            told["stopped_by_signal"] = stop.signal or 0
            return _result(call, history, told)

        try:
            bar.phase("compiling")
            told["precision"] = precision_in_force(options.precision)
            runs = make_runs(call, layout, options.precision, stop)
            told["compile_seconds"] = time.perf_counter() - started
            if (found := keeper.begin(runs.state_structure)) is not None:
                runs.put(found.states, found.iteration)
                history = History.of(found)
            resumed = runs.iteration
            for tracker in options.trackers:
                tracker.start(call, resumed * work.env_steps_per_iteration if options.resume else None)
            bar.start(resumed * per_iteration)
            started = time.perf_counter()
            pace = Pace(SECONDS_PER_CHUNK, layout.num_blocks)
            _advance_all(call, runs, pace, history, keeper, options, bar, stop, per_iteration)
            if not history.iterations:
                raise KeyboardInterrupt(stop.signal)
            if history.policies is None:
                history.policies = runs.kept()
            result = finish()
            if not stop:  # before the result, whose files may fail to be written
                keeper.save(lambda: history.checkpoint(runs))
            if directory is not None:
                result.save(directory, force=True)
        except BaseException:
            # Nothing already computed is lost: what was evaluated is saved before the error goes on.
            if directory is not None and history.policies is not None and result is None:
                finish().save(directory, force=True)
            elif directory is not None:
                keeper.discard_if_empty()
            raise
        finally:
            with contextlib.ExitStack() as every:  # one that fails keeps no other from its end
                for tracker in reversed(options.trackers):
                    every.callback(tracker.finish, result)
                keeper.close()
    assert result is not None  # an error has gone on
    return result


def _advance_all(
    call: Call,
    runs: Runs,
    pace: Pace,
    history: History,
    keeper: Keeper,
    options: Options,
    bar: Progress,
    stop: StopRequest,
    per_iteration: int,
) -> None:
    """Advances and evaluates the runs until their last point, or until a signal has come."""
    work = call.work

    def checkpoint() -> Checkpoint:
        return history.checkpoint(runs)

    for point in work.points.tolist():
        if history.iterations and point <= history.iterations[-1]:
            continue
        while runs.iteration < point and not stop:
            bar.advance(pace.advance(runs, point) * per_iteration)
            keeper.save_if_due(checkpoint)
        if stop:
            keeper.save(checkpoint)
        if runs.iteration == (history.iterations[-1] if history.iterations else 0):
            return
        metrics, policies = runs.evaluate()
        history.add(runs.iteration, metrics, policies)
        shaped = {name: values.reshape(*call.shape, *values.shape[1:]) for name, values in metrics.items()}
        bar.report(work.headline(shaped))
        for told in (*options.trackers, *([options.on_chunk] if options.on_chunk is not None else [])):
            told(runs.iteration * work.env_steps_per_iteration, shaped)
        if stop:
            # An evaluation between two points is no part of the run, which goes on from before it.
            if runs.iteration == point:
                keeper.save(checkpoint)
            return


def _result(call: Call, history: History, told: Mapping[str, Any]) -> Result:
    metrics, policies = jax.tree.map(
        lambda leaf: leaf.reshape(*call.shape, *leaf.shape[1:]), (history.stacked(), history.policies)
    )
    env_steps = [iteration * call.work.env_steps_per_iteration for iteration in history.iterations]
    return call.result(metrics, policies, env_steps, told)


def _attributes(layout: Layout) -> dict[str, Any]:
    return {
        "block": layout.block,
        "num_devices": len(set(layout.devices)),
        "num_threads": len(layout.devices),
        "device_kind": layout.devices[0].device_kind,
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        **{f"version_{name}": version for name, version in versions().items()},
    }


def _warn_of_failures(result: Result) -> None:
    failed = result.failed
    if failed:
        named = "; ".join(f"seed {seed}" + (f" of {setting}" if setting else "") for setting, seed in failed[:10])
        more = f" and {len(failed) - 10} more" if len(failed) > 10 else ""
        warnings.warn(
            f"{len(failed)} of {result.failed_runs().size} runs have metrics that are not finite: {named}{more}",
            RuntimeWarning,
            stacklevel=4,
        )
