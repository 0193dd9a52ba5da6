"""Observers of a call while it is executed: the directory's lock, signals, the progress bar, and trackers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, cast

import numpy as np

from jaxrl.pytrees import Policy
from jaxrl.results.result import Result
from jaxrl.results.storage import claim_directory, exclusive
from jaxrl.runtime.call import Call, Part
from jaxrl.runtime.checkpoints.store import Checkpoints
from jaxrl.runtime.drive.progress import Progress, StopRequest
from jaxrl.runtime.options import Options


class Followers:
    """Trackers of a whole call, which are notified of its parts: they start once and finish once.

    Args:
      call: Whole call.
      options: Options with `trackers`, `on_chunk` and `resume`.
    """

    def __init__(self, call: Call, options: Options) -> None:
        self._call, self._trackers, self._resume = call, tuple(options.trackers), options.resume
        self._listeners = [*self._trackers, *([] if options.on_chunk is None else [options.on_chunk])]
        self._started = self._finished = False

    def __enter__(self) -> Followers:
        for tracker in self._trackers:
            if callable(check := getattr(tracker, "check", None)):
                check(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        self.finish(None)

    def start(self, resumed: int) -> None:
        """Start the trackers with the first part, at `resumed` environment steps."""
        if not self._started:
            self._started = True
            for tracker in self._trackers:
                tracker.start(self._call, resumed if self._resume else None)

    def report(self, part: Part, env_step: int, metrics: Mapping[str, np.ndarray]) -> None:
        """Report an evaluation of a part; the other runs are NaN."""
        shape = self._call.shape
        if part.num_runs < self._call.num_runs:
            metrics = {name: _among(shape, part, np.asarray(values)) for name, values in metrics.items()}
        for listener in self._listeners:
            listener(env_step, metrics)

    def show(self, part: Part, env_step: int, policies: Callable[[], Policy]) -> None:
        """Pass the policies of an evaluation of a part to trackers that take them, and their films to the others.

        Args:
          part: Positions of the runs in the whole call.
          env_step: Environment steps at the evaluation.
          policies: Function that returns the policies, leaves `[num_settings, num_seeds, ...]` of the part.
        """
        takers = [tracker for tracker in self._trackers if callable(getattr(tracker, "policies", None))]
        showing = [tracker for tracker in self._trackers if callable(getattr(tracker, "film", None))]
        for taker in takers:
            for setting, path in cast(Any, taker).policies(env_step, (part.settings, part.seeds), policies) or ():
                for tracker in showing:
                    cast(Any, tracker).film(env_step, setting, path)

    def finish(self, result: Result | None) -> None:
        """Finish the trackers with the result, None after an error; later calls have no effect."""
        if self._started and not self._finished:
            self._finished = True
            with contextlib.ExitStack() as every:  # a tracker that fails does not keep others from finishing
                for tracker in reversed(self._trackers):
                    every.callback(tracker.finish, result)


class Watch(NamedTuple):
    """Observers of a call.

    Attributes:
      bar: Progress bar.
      stop: Stop request that a signal sets.
      followers: Trackers of the call.
    """

    bar: Progress
    stop: StopRequest
    followers: Followers


@contextlib.contextmanager
def watched(call: Call, options: Options, checkpoints: Checkpoints, stop: StopRequest) -> Iterator[Watch]:
    """Lock the directory of a call, show its progress, and finish its trackers in any case.

    Args:
      call: Whole call.
      options: Options of the call.
      checkpoints: Checkpoints of its directory.
      stop: Stop request that a signal sets.

    Raises:
      FileExistsError: The directory holds a result, or another call is writing into it.
      ResultError: The directory is not writable, or its contents cannot be resumed.
    """
    force = options.force or options.resume
    directory = None
    if options.out is not None:
        directory = claim_directory(options.out, force, checkpoints=True, verified=checkpoints.begun is not None)
    with Followers(call, options) as followers, exclusive(directory, force):
        checkpoints.check()
        with Progress(call.env_steps * call.num_runs, options.progress) as bar:
            yield Watch(bar, stop, followers)


def _among(shape: tuple[int, int], part: Part, values: np.ndarray) -> np.ndarray:
    """Pad the metrics of a part to all runs, with NaN for the others."""
    dtype: Any = values.dtype if np.issubdtype(values.dtype, np.floating) else np.float32
    every = np.full((*shape, *values.shape[2:]), np.nan, dtype)
    every[np.ix_(part.settings, part.seeds)] = values
    return every
