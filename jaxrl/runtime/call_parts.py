"""Carrying out a call within its memory: in parts one after another, in narrower blocks where these are too wide."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import sys
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tqdm.auto

from jaxrl.results.dataset import ResultError
from jaxrl.results.result import Result
from jaxrl.results.storage import claim_directory, exclusive
from jaxrl.runtime.call import Call, Part, merged, split
from jaxrl.runtime.checkpoints.keeper import check_begun, identity_of
from jaxrl.runtime.checkpoints.store import IDENTITY, PARTS, Checkpoints, has_checkpoint, num_parts_begun, read_identity
from jaxrl.runtime.driver import Options, drive
from jaxrl.runtime.layout import Layout
from jaxrl.runtime.memory_plan import Plan, Planner, Sizes, duration
from jaxrl.runtime.programs import forget
from jaxrl.runtime.progress import StopRequest, stop_on_signals
from jaxrl.runtime.runs import Runs

__all__ = ["run_within"]


def run_within(
    call: Call, layout: Layout, options: Options, memory: int | str | None, *, strict: bool = True
) -> Result:
    """Carries out a call in memory of a size, or in a share of what is free.

    Args:
      call: what to run.
      layout: of its runs, with memory enough.
      options: how. A call in several parts has a run directory for each in `out/parts`, and its
        trackers get NaN for runs that are not in the part that trains.
      memory: as in `train`.
      strict: whether a call that goes on, whose parts and blocks are what they were, is refused where
        it takes more; otherwise a warning tells.

    Raises:
      ValueError: the size makes no sense, or not even a block of one run fits.
    """
    keeps = options.out is not None and options.checkpoint_minutes is not None
    return _Running(call, options, Planner.of(call, layout, memory, keeps), strict).run()


class _DoesNotFitError(Exception):
    """What was compiled takes more than there is."""

    def __init__(self, plan: Plan, sizes: Sizes):
        super().__init__(plan.summary)
        self.plan, self.sizes = plan, sizes


class _Running:
    """One call under way.

    Args:
      call: the whole of it.
      options: how.
      planner: of it.
      strict: as in `run_within`.
    """

    def __init__(self, call: Call, options: Options, planner: Planner, strict: bool):
        self.call, self.options, self.planner, self.strict = call, options, planner, strict
        self.block, self.num_parts = planner.layout.block, 1
        self.trackers = _Trackers(call, options)
        self.planned: Plan | None = None
        self.begun = None if options.out is None or not options.resume else num_parts_begun(Path(options.out))
        if self.begun is not None:
            self.num_parts = self.begun

    def run(self) -> Result:
        """All parts, in smaller ones where these do not fit."""
        result = None
        try:
            while result is None:
                refused: _DoesNotFitError | None = None
                try:
                    result = self._run_once()
                except _DoesNotFitError as error:
                    refused = error
                if refused is not None:
                    self._take_less(refused)
            return result
        finally:
            self.trackers.finish(result)

    def _take_less(self, refused: _DoesNotFitError) -> None:
        if self.begun is not None:
            raise ValueError(
                f"{self.options.out} goes on as it was begun, which takes {refused.plan.summary.splitlines()[0]}; "
                f"go on with more --memory (memory=), or start anew with --force (force=True)"
            )
        planned = self.planner.fitted(refused.sizes, refused.plan.process, refused.plan)
        self.block, self.num_parts = planned.block, planned.num_parts

    def _run_once(self) -> Result:
        if self.num_parts == 1:
            whole = Part(*map(np.arange, self.call.shape))
            return self._drive(self.call, self.trackers.options(whole, self.options, self.options.out))
        return self._run_parts()

    def _run_parts(self) -> Result:
        options = self.options
        force = options.force or options.resume
        out = None if options.out is None else claim_directory(options.out, force)
        parts = split(*self.call.shape, self.num_parts)
        done: list[tuple[Part, Result]] = []
        cut: tuple[Part, Result] | None = None
        with exclusive(out, force), stop_on_signals() as stop:
            begun = out is not None and self._begin(out, parts)
            started = time.perf_counter()
            try:
                for i, part in enumerate(parts):
                    if stop:
                        break
                    self._say_part(i, part, parts, time.perf_counter() - started)
                    result = self._drive_part(part, None if out is None else self._where(out, i))
                    if result.metrics.attrs["interrupted"]:
                        cut = (part, result)
                        stop.signal = stop.signal or int(result.metrics.attrs["stopped_by_signal"])
                        break
                    done.append((part, result))
                if not done and cut is None:
                    raise KeyboardInterrupt(stop.signal)
            except BaseException as error:
                if not (isinstance(error, KeyboardInterrupt) and done):
                    if out is not None and not done and not begun:
                        with contextlib.suppress(OSError):  # where a part has begun
                            (out / PARTS).rmdir()
                            (out / IDENTITY).unlink()
                    raise
                stop.signal = stop.signal or (error.args[0] if error.args else signal.SIGINT)
            result = self._merged(done or ([cut] if cut is not None else []), len(done) < len(parts), stop)
            if out is not None:
                result.save(out, force=True)
        return result

    def _merged(self, parts: list[tuple[Part, Result]], interrupted: bool, stop: StopRequest) -> Result:
        told = [result.metrics.attrs for _, result in parts]
        seconds = sum(float(attrs["run_seconds"]) for attrs in told)
        env_steps = sum(float(attrs["env_steps_per_second"]) * float(attrs["run_seconds"]) for attrs in told)
        attrs = {name: value for name, value in told[0].items() if name not in self.call.attrs} | {
            "block": min(int(attrs["block"]) for attrs in told),
            "num_parts": self.num_parts,
            "compile_seconds": sum(float(attrs["compile_seconds"]) for attrs in told),
            "run_seconds": seconds,
            "env_steps_per_second": env_steps / seconds,
            "interrupted": int(interrupted),
            "stopped_by_signal": stop.signal or 0,
        }
        try:
            result = merged(self.call, parts, attrs)
        except ResultError:
            warnings.warn(self._left("no seed has been trained under every setting"), RuntimeWarning, stacklevel=4)
            raise KeyboardInterrupt(stop.signal or signal.SIGINT) from None
        if interrupted:
            some = f"{len(result.seeds)} of {len(self.call.seeds)} seeds are in the result"
            warnings.warn(self._left(some), RuntimeWarning, stacklevel=4)
        return result

    def _left(self, text: str) -> str:
        kept = "" if self.options.out is None else f"; what is done is kept in {Path(self.options.out) / PARTS}"
        return f"interrupted before the last of {self.num_parts} parts: {text}{kept}"

    def _identity(self) -> dict[str, Any]:
        layout = self.planner.layout._replace(block=self.block)
        return identity_of(self.call, layout, self.options.precision, self.options.asked)

    def _where(self, out: Path, i: int) -> Path:
        return out / PARTS / f"{i:04d}-of-{self.num_parts:04d}"

    def _begin(self, out: Path, parts: list[Part]) -> bool:
        """Writes what the whole call is, before any part trains, for `resume` to go on with; whether it goes on."""
        identity = self._identity()
        begun = self.options.resume and check_begun(out, identity)
        first = self._where(out, 0)
        if self.options.resume and not begun and (first / IDENTITY).is_file():
            layout = self.planner.layout._replace(block=self._block_of(first) or self.block)
            begun = check_begun(first, identity_of(self.call.part(parts[0]), layout, self.options.precision))
        checkpoints = Checkpoints(out)
        if not begun:
            checkpoints.begin_anew()
        checkpoints.write_identity(identity)
        return begun

    def _block_of(self, where: Path | None) -> int | None:
        """The block width of the run that is gone on with in a directory, None where none is."""
        if where is None or not self.options.resume or not (where / IDENTITY).is_file():
            return None
        return int(read_identity(where)["block"])

    def _drive_part(self, part: Part, where: Path | None) -> Result:
        """One part, with the block width that it was begun with."""
        options, block = self.trackers.options(part, self.options, where), self.block
        self.block = self._block_of(where) or block
        own = self.block
        result = self._drive(self.call.part(part), options)
        self.block = min(block, self.block) if self.block < own else block
        return result

    def _drive(self, call: Call, options: Options) -> Result:
        """One part; in narrower blocks after a device that had no memory left."""
        while True:
            layout = self._layout(call)
            try:
                return drive(call, layout, options, self._make_runs)
            except jax.errors.JaxRuntimeError as error:
                if "RESOURCE_EXHAUSTED" not in str(error):
                    raise
                reason = str(error).strip().splitlines()[0][:200]
            # Here the error is gone, and with it what it held on the device.
            if self.block == 1:
                raise ValueError(f"there is no memory left for blocks of one run: {reason}")
            self.block = layout.block // 2
            resume = options.out is not None and _narrow(Path(options.out), self.block)
            if self.num_parts > 1 and self.options.out is not None:
                _narrow(Path(self.options.out), self.block)
            how = "from the last checkpoint" if resume else "from the start of this part"
            warnings.warn(
                f"a device had no memory left for blocks of {layout.block} runs ({reason}); going on {how} with blocks "
                f"of {self.block}, whose results are not equal bit for bit",
                RuntimeWarning,
                stacklevel=2,
            )
            options = dataclasses.replace(options, force=True, resume=resume)

    def _layout(self, call: Call) -> Layout:
        """Of one part: the block and the devices of the largest, for which alone anything is compiled."""
        most = max(self.planner.runs_of_part(self.num_parts), call.num_runs)
        devices = self.planner.layout.devices[: -(-most // self.block)]
        blocks = -(-call.num_runs // self.block)
        return Layout(call.num_runs, self.block, -(-blocks // len(devices)), devices)

    def _make_runs(self, call: Call, layout: Layout, precision: str, stop: StopRequest) -> Runs:
        del stop
        if self.planned is None or layout.block != self.planned.block:
            _, sizes, planned = self.planner.compiled(call, layout, self.num_parts, precision)
            if not planned.fits and self.planned is None:
                if self.begun is None or self.strict:
                    forget()
                    raise _DoesNotFitError(planned, sizes)
                warnings.warn(
                    f"{self.options.out} goes on as it was begun, although memory may be short: "
                    f"{planned.summary.splitlines()[0]}",
                    RuntimeWarning,
                    stacklevel=2,
                )
            self.planned = planned
            self._say(planned.summary)
        return Runs(call.work, call.arguments(), layout, precision=precision)

    def _say_part(self, i: int, part: Part, parts: list[Part], seconds: float) -> None:
        left = sum(later.num_runs for later in parts[i:])
        done = self.call.num_runs - left
        expected = f", about {duration(seconds * left / done)} left for all" if done else ""
        self._say(f"part {i + 1} of {len(parts)}: {part.num_runs:,} runs{expected}")

    def _say(self, text: str) -> None:
        if self.options.progress:
            for line in text.splitlines():
                tqdm.auto.tqdm.write(f"jaxrl: {line}", file=sys.stderr)


class _Trackers:
    """What follows the whole call, told of its parts: it begins once and ends once."""

    def __init__(self, call: Call, options: Options):
        self._call, self._trackers, self._on_chunk = call, options.trackers, options.on_chunk
        self._started = False

    def options(self, part: Part, options: Options, out: str | Path | None) -> Options:
        """How to carry out one part."""
        return dataclasses.replace(options, out=out, on_chunk=None, trackers=[_OfPart(self, part)])

    def start(self, resumed: int | None) -> None:
        if not self._started:
            self._started = True
            for tracker in self._trackers:
                tracker.start(self._call, resumed)

    def tell(self, part: Part, env_step: int, metrics: Mapping[str, np.ndarray]) -> None:
        shape = self._call.shape
        if part.num_runs < self._call.num_runs:
            metrics = {name: _among(shape, part, np.asarray(values)) for name, values in metrics.items()}
        for told in (*self._trackers, *([self._on_chunk] if self._on_chunk is not None else [])):
            told(env_step, metrics)

    def finish(self, result: Result | None) -> None:
        if self._started:
            with contextlib.ExitStack() as every:  # one that fails keeps no other from its end
                for tracker in reversed(self._trackers):
                    every.callback(tracker.finish, result)


@dataclasses.dataclass(frozen=True)
class _OfPart:
    """A tracker of one part that tells those of the whole."""

    trackers: _Trackers
    part: Part

    def start(self, call: Call, resumed: int | None) -> None:
        """See `jaxrl.runtime.driver.Tracker`."""
        del call
        self.trackers.start(resumed)

    def __call__(self, env_step: int, metrics: Mapping[str, np.ndarray]) -> None:
        """See `jaxrl.runtime.driver.Tracker`."""
        self.trackers.tell(self.part, env_step, metrics)

    def finish(self, result: Result | None) -> None:
        """The end of a part is not that of the call."""


def _among(shape: tuple[int, int], part: Part, values: np.ndarray) -> np.ndarray:
    """Metrics of a part as those of all runs, NaN for the others."""
    dtype = values.dtype if np.issubdtype(values.dtype, np.floating) else np.float32
    every = np.full((*shape, *values.shape[2:]), np.nan, dtype)
    every[np.ix_(part.settings, part.seeds)] = values
    return every


def _narrow(directory: Path, block: int) -> bool:
    """Lets a run directory go on with another block width; whether it has a checkpoint to go on from."""
    if not (directory / IDENTITY).is_file():
        return False
    Checkpoints(directory).write_identity(read_identity(directory) | {"block": block})
    return has_checkpoint(directory)
