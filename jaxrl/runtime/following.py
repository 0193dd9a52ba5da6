"""Who follows a call while it is carried out: the directory's lock, signals, the progress bar, and trackers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxrl.results.result import Result
from jaxrl.results.storage import claim_directory, exclusive
from jaxrl.runtime.call import Call, Part
from jaxrl.runtime.checkpoints.store import Checkpoints
from jaxrl.runtime.options import Options
from jaxrl.runtime.progress import Progress, StopRequest

__all__ = ["Followers", "Watch", "watched"]


class Followers:
    """The trackers of a whole call, which hear of its parts: they begin once and end once.

    Args:
      call: the whole of it.
      options: with `trackers`, `on_chunk` and `resume`.
    """

    def __init__(self, call: Call, options: Options):
        self._call, self._trackers, self._resume = call, tuple(options.trackers), options.resume
        self._hear = [*self._trackers, *([] if options.on_chunk is None else [options.on_chunk])]
        self._started = self._finished = False

    def __enter__(self) -> Followers:
        return self

    def __exit__(self, *_: object) -> None:
        self.finish(None)

    def start(self, resumed: int) -> None:
        """The first part begins, from so many environment steps."""
        if not self._started:
            self._started = True
            for tracker in self._trackers:
                tracker.start(self._call, resumed if self._resume else None)

    def tell(self, part: Part, env_step: int, metrics: Mapping[str, np.ndarray]) -> None:
        """An evaluation of a part; the other runs are NaN."""
        shape = self._call.shape
        if part.num_runs < self._call.num_runs:
            metrics = {name: _among(shape, part, np.asarray(values)) for name, values in metrics.items()}
        for hear in self._hear:
            hear(env_step, metrics)

    def finish(self, result: Result | None) -> None:
        """The end of the call, None after an error; what comes later is not heard."""
        if self._started and not self._finished:
            self._finished = True
            with contextlib.ExitStack() as every:  # one that fails keeps no other from its end
                for tracker in reversed(self._trackers):
                    every.callback(tracker.finish, result)


class Watch(NamedTuple):
    """Who follows a call.

    Attributes:
      bar: shows how far it is.
      stop: whether a signal asked to end.
      followers: its trackers.
    """

    bar: Progress
    stop: StopRequest
    followers: Followers


@contextlib.contextmanager
def watched(call: Call, options: Options, checkpoints: Checkpoints, stop: StopRequest) -> Iterator[Watch]:
    """Keeps a call's directory for it, shows how far it is, and ends its trackers whatever happens.

    Args:
      call: the whole of it.
      options: of the call.
      checkpoints: of its directory.
      stop: whether a signal asked to end.

    Raises:
      FileExistsError: the directory holds a result, or another call is writing into it.
      ResultError: it cannot be written, or what it holds cannot be resumed.
    """
    force = options.force or options.resume
    directory = None if options.out is None else claim_directory(options.out, force)
    with Followers(call, options) as followers, exclusive(directory, force):
        checkpoints.check()
        with Progress(call.env_steps * call.num_runs, options.progress) as bar:
            yield Watch(bar, stop, followers)


def _among(shape: tuple[int, int], part: Part, values: np.ndarray) -> np.ndarray:
    """Metrics of a part as those of all runs, NaN for the others."""
    dtype: Any = values.dtype if np.issubdtype(values.dtype, np.floating) else np.float32
    every = np.full((*shape, *values.shape[2:]), np.nan, dtype)
    every[np.ix_(part.settings, part.seeds)] = values
    return every
