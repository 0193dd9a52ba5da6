"""From a call to its result: a plan that fits into memory, its parts one after another, and their merged result."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tqdm.auto

from envs.errors import UserValueError
from jaxrl.results.dataset import ResultError
from jaxrl.results.format import duration
from jaxrl.results.result import Result
from jaxrl.runtime.call import Call, Part, merged, shard_of, sharded, split
from jaxrl.runtime.checkpoints.finished_results import finished_result, save_result
from jaxrl.runtime.checkpoints.identity import identity_of, precision_in_force
from jaxrl.runtime.checkpoints.identity_file import ASKED
from jaxrl.runtime.checkpoints.store import PARTS, Checkpoints, begun_in, num_parts_begun
from jaxrl.runtime.drive.divergence import PARAMETER_LIMIT, diverged_runs
from jaxrl.runtime.drive.driver import drive
from jaxrl.runtime.drive.observers import Watch, watched
from jaxrl.runtime.drive.progress import StopRequest, stop_on_signals
from jaxrl.runtime.env_sharding.sharded_training import run_sharded
from jaxrl.runtime.layout import Layout, plan_layout
from jaxrl.runtime.machine.exhaustion import Exhaustion
from jaxrl.runtime.machine.memory import give_back
from jaxrl.runtime.options import Options
from jaxrl.runtime.plan.plan import Plan
from jaxrl.runtime.plan.planner import Planner
from jaxrl.runtime.programs import forget
from jaxrl.runtime.runs import Runs


def carry_out(
    call: Call,
    options: Options,
    *,
    begun: Mapping[str, Any] | None = None,
    layout: Layout | None = None,
    stop: StopRequest | None = None,
) -> Result:
    """Execute a call, or the shard of it that belongs to this process, within the memory limit.

    Args:
      call: Call to run.
      options: Options of the execution.
      begun: Contents of `run.json` in `options.out` of the call to resume; None starts from scratch.
      layout: Layout of the runs with enough memory; chosen from the options if None. Even for a shard it is the layout
        of the whole call, so that shards compute the same numbers as one process.
      stop: Stop request whose signal handlers are installed already; None installs them.

    Raises:
      ValueError: The options do not apply to this call, or not even a block of one run fits.
      FileExistsError, ResultError: See `watched`.
      KeyboardInterrupt: A signal arrived before the first evaluation.
    """
    hearing = stop_on_signals(options.progress) if stop is None else contextlib.nullcontext(stop)
    with _reporting_what_is_kept(options), hearing as stop:
        if options.shard_environments:
            return _reported(call, run_sharded(call, options, begun, stop))
        memory, asked = options.memory, {}
        if layout is None:
            call, layout, asked = placed(call, options, begun)
            memory = asked["memory"]
        keeps = options.out is not None and options.checkpoint_minutes is not None
        planner = Planner.of(call, layout, memory, keeps)
        identity = {} if options.out is None else identity_of(call, layout, options.precision, asked)
        directory = None if options.out is None else Path(options.out)
        checkpoints = Checkpoints(
            directory, identity, begun=begun, minutes=options.checkpoint_minutes, trust=options.trust
        )
        with watched(call, options, checkpoints, stop) as watch:
            if (result := finished_result(call, directory, begun, trust=options.trust)) is not None:
                return _reported(call, result)
            watch.bar.phase("compiling")
            started = time.perf_counter()
            strict = begun is None or memory != begun.get(ASKED, {}).get("memory")
            plan = _fitted(planner, options, None if begun is None else directory, strict)
            _say(options, plan.summary)
            with _Parts(planner, plan, options, checkpoints, watch, time.perf_counter() - started) as parts:
                for part in parts:
                    parts.drive(part)
            result = parts.result()
            watch.followers.finish(result)
    return _reported(call, result)


def placed(call: Call, options: Options, begun: Mapping[str, Any] | None) -> tuple[Call, Layout, dict[str, Any]]:
    """The call or its shard, the layout of its runs with enough memory, and the options that the call began with."""
    begun = {} if begun is None else begun
    asked = begun.get(ASKED, {})
    layout = plan_layout(call.num_runs, block_of(options.block, begun), options.devices, call.cpu_block)
    memory = asked.get("memory") if options.memory is None else options.memory
    asked = {"block": asked.get("block", layout.block), "memory": memory}
    if options.shard is not None:
        call = sharded(call, *shard_of(options.shard))
        layout = plan_layout(call.num_runs, layout.block, options.devices)
    return call, layout, asked


def block_of(block: int | None, begun: Mapping[str, Any]) -> int | None:
    """Width of blocks of a call, for `plan_layout`; that of a call to resume, unless another one is requested.

    Args:
      block: Width that the options request; None for the default.
      begun: Contents of `run.json` of the call to resume, whose blocks may have become narrower for lack of memory;
        empty for a new call.
    """
    resumed = "block" in begun and block in (None, begun.get(ASKED, {}).get("block"))
    return int(begun["block"]) if resumed else block


def _fitted(planner: Planner, options: Options, resumed: Path | None, strict: bool) -> Plan:
    """Plan of a call; its programs are compiled.

    Args:
      planner: Planner of the call.
      options: Options of the execution.
      resumed: Directory of the call to resume, whose parts and blocks stay as they were; None for a new call.
      strict: Whether a resumed call above the memory limit is refused; otherwise it gives a warning.

    Raises:
      ValueError: The call is refused, or not even blocks of one run fit.
    """
    num_parts = None if resumed is None else num_parts_begun(resumed)
    if num_parts is None:
        return planner.fit(options.precision)
    if num_parts > planner.call.num_runs:
        raise ResultError(f"{resumed} is damaged: it has {num_parts:,} parts for {planner.call.num_runs:,} runs")
    layout = planner.layout_of(planner.runs_of_part(num_parts), num_parts, planner.layout.block)
    _, _, plan = planner.compiled(planner.call, layout, num_parts, options.precision)
    summary = plan.summary.splitlines()[0]
    if not plan.fits and strict:
        forget()
        raise UserValueError(
            f"{resumed} keeps its layout, which takes {summary}; resume with more --memory (memory=), or start "
            f"over with --force (force=True)"
        )
    if not plan.fits:
        warnings.warn(
            f"{resumed} keeps its layout, although memory may be short: {summary}", RuntimeWarning, stacklevel=4
        )
    return plan


class _Parts:
    """Parts of a call, executed one after another; as a context it keeps finished parts when another is interrupted.

    Args:
      planner: Planner of the call.
      plan: Plan that fits into memory.
      options: Options of the execution.
      checkpoints: Checkpoints of the call's directory; each of several parts has its own directory in `parts`.
      watch: Observers of the call.
      compile_seconds: Time in seconds that making the plan took.
    """

    def __init__(
        self,
        planner: Planner,
        plan: Plan,
        options: Options,
        checkpoints: Checkpoints,
        watch: Watch,
        compile_seconds: float,
    ) -> None:
        self._planner, self._options, self._watch, self._compile_seconds = planner, options, watch, compile_seconds
        self._call, self._num_parts, self._block = planner.call, plan.num_parts, plan.block
        self._checkpoints, self._resumes = checkpoints, checkpoints.begun is not None
        self._compiled = plan.block  # block width of the programs compiled last
        self._parts = split(*self._call.shape, plan.num_parts)
        self._done: list[tuple[Part, Result]] = []
        self._cut: list[tuple[Part, Result]] = []  # the part that a signal ended, if any

    def __enter__(self) -> _Parts:
        self._checkpoints.identity["block"] = self._block
        if self._num_parts > 1:
            self._checkpoints.begin_parts()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> bool:
        del kind, traceback
        if error is None or self._num_parts == 1:
            return False
        if not self._done:
            self._checkpoints.discard_if_empty()
        elif isinstance(error, KeyboardInterrupt):
            self._watch.stop.signal = self._watch.stop.signal or (error.args[0] if error.args else signal.SIGINT)
            return True
        return False

    def __iter__(self) -> Iterator[Part]:
        """Remaining parts; none after a signal."""
        started = time.perf_counter()
        for i, part in enumerate(self._parts):
            if self._num_parts > 1:
                if self._watch.stop:
                    break
                self._say_part(i, time.perf_counter() - started)
            yield part
        if not self._done and not self._cut:
            raise KeyboardInterrupt(self._watch.stop.signal)

    def drive(self, part: Part) -> None:
        """Execute one part at its original block width, or narrower after a device ran out of memory."""
        options, call, before = self._options, self._call.part(part), self._watch.bar.done
        checkpoints, block = self._checkpoints_of(part, call)
        exhaustion = Exhaustion()
        while True:
            layout = self._planner.layout_of(call.num_runs, self._num_parts, block)
            with exhaustion:
                started = time.perf_counter()
                self._compile(call, layout)
                runs = Runs(call, call.arguments(), layout, precision=options.precision)
                seconds = self._compile_seconds + time.perf_counter() - started
                attrs = {"precision": precision_in_force(options.precision), "compile_seconds": seconds}
                result = drive(call, part, runs, checkpoints, self._watch, attrs, before)
                break
            wider, block = block, exhaustion.narrower(block)
            self._block = min(self._block, block)
            resumes = checkpoints.narrow(block)
            if self._num_parts > 1:
                self._checkpoints.narrow(self._block)
            exhaustion.warn(wider, block, "from the last checkpoint" if resumes else "from the start of this part")
        self._compile_seconds = 0.0
        if self._num_parts > 1:
            give_back()  # the copies of one part that were freed would otherwise add to those of the next
        interrupted = bool(result.metrics.attrs["interrupted"])
        (self._cut if interrupted else self._done).append((part, result))

    def result(self) -> Result:
        """Result of the finished parts, or of the part that a signal ended if none is finished."""
        if self._num_parts == 1:
            return (self._done or self._cut)[0][1]
        result = self._merged()
        save_result(result, self._checkpoints.directory)
        return result

    def _compile(self, call: Call, layout: Layout) -> None:
        """Compile the programs of a part whose block width differs from that of the plan."""
        if layout.block != self._compiled:
            _, _, plan = self._planner.compiled(call, layout, self._num_parts, self._options.precision)
            self._compiled = plan.block
            _say(self._options, plan.summary)

    def _checkpoints_of(self, part: Part, call: Call) -> tuple[Checkpoints, int]:
        """Checkpoints of a part, and its block width."""
        whole = self._checkpoints
        if self._num_parts == 1 or whole.directory is None:
            return whole, self._block
        position = next(i for i, other in enumerate(self._parts) if other is part)
        where = whole.directory / PARTS / f"{position:04d}-of-{self._num_parts:04d}"
        begun = begun_in(where, trust=whole.trust) if self._resumes else None
        block = self._block if begun is None else int(begun["block"])
        layout = self._planner.layout._replace(block=block)
        identity = identity_of(call, layout, self._options.precision, whole.identity[ASKED])
        checkpoints = Checkpoints(where, identity, begun=begun, minutes=whole.minutes, trust=whole.trust)
        checkpoints.check()
        return checkpoints, block

    def _merged(self) -> Result:
        stop, interrupted = self._watch.stop, len(self._done) < len(self._parts)
        parts = self._done or self._cut
        each = [result.metrics.attrs for _, result in parts]
        seconds = sum(float(attrs["run_seconds"]) for attrs in each)
        env_steps = sum(float(attrs["env_steps_per_second"]) * float(attrs["run_seconds"]) for attrs in each)
        attrs = {name: value for name, value in each[0].items() if name not in self._call.attrs} | {
            "block": min(int(attrs["block"]) for attrs in each),
            "num_parts": self._num_parts,
            "compile_seconds": sum(float(attrs["compile_seconds"]) for attrs in each),
            "run_seconds": seconds,
            "env_steps_per_second": env_steps / seconds,
            "interrupted": int(interrupted),
            "stopped_by_signal": stop.signal or 0,
        }
        try:
            result = merged(self._call, parts, attrs)
        except ResultError:
            warnings.warn(self._left("no seed has been trained under every setting"), RuntimeWarning, stacklevel=5)
            raise KeyboardInterrupt(stop.signal or signal.SIGINT) from None
        if interrupted:
            some = f"{len(result.seeds)} of {len(self._call.seeds)} seeds are in the result"
            warnings.warn(self._left(some), RuntimeWarning, stacklevel=5)
        return result

    def _left(self, text: str) -> str:
        directory = self._checkpoints.directory
        kept = "" if directory is None else f"; finished parts are kept in {directory / PARTS}"
        return f"interrupted before the last of {self._num_parts} parts: {text}{kept}"

    def _say_part(self, i: int, seconds: float) -> None:
        left = sum(later.num_runs for later in self._parts[i:])
        done = self._call.num_runs - left
        expected = f", about {duration(seconds * left / done)} left for all" if done else ""
        _say(self._options, f"part {i + 1} of {len(self._parts)}: {self._parts[i].num_runs:,} runs{expected}")


def _say(options: Options, text: str) -> None:
    if options.progress:
        for line in text.splitlines():
            tqdm.auto.tqdm.write(f"jaxrl: {line}", file=sys.stderr)


@contextlib.contextmanager
def _reporting_what_is_kept(options: Options) -> Iterator[None]:
    """Warn if a call is interrupted that can be resumed."""
    try:
        yield
    except KeyboardInterrupt:
        if options.out is not None and num_parts_begun(Path(options.out)):
            warnings.warn(
                f"interrupted: progress is kept in {options.out}; `jaxrl resume {options.out}` resumes it, as does the "
                f"same call with resume=True",
                RuntimeWarning,
                stacklevel=5,
            )
        raise


def _reported(call: Call, result: Result) -> Result:
    """Return the result unchanged, after warnings about failed runs and about episodes that began alike."""
    failed = result.failed
    if failed:
        named = "; ".join(f"seed {seed}" + (f" of {setting}" if setting else "") for setting, seed in failed[:10])
        more = f" and {len(failed) - 10} more" if len(failed) > 10 else ""
        warnings.warn(
            f"{len(failed)} of {result.failed_runs().size} runs have metrics that are not finite: {named}{more}",
            RuntimeWarning,
            stacklevel=4,
        )
    if diverged := int(np.sum(diverged_runs(result.policies) & ~result.failed_runs())):
        warnings.warn(
            f"{diverged} of {result.failed_runs().size} runs have diverged, although their metrics are finite: "
            f"policies have parameters of {PARAMETER_LIMIT:,} and more, between which float32 has no fractions",
            RuntimeWarning,
            stacklevel=4,
        )
    if (reused := result.metrics.get("reset_reuse")) is not None and np.any(reused.values > 0):
        config = None if call.algo is None else call.algo.config
        steps = getattr(config, "num_steps", None)
        name = "reset_pool" if steps is None else f"{type(config).__name__}(reset_pool={steps})"
        warnings.warn(
            f"episodes were so short that up to {np.nanmax(reused.values):,.3g} per iteration began with a state used "
            f"before (metric reset_reuse); {name} has a new state for every episode",
            RuntimeWarning,
            stacklevel=4,
        )
    if (lost := result.metrics.get("replay_lost")) is not None and np.any(lost.values > 0):
        warnings.warn(
            f"episodes were so short that up to {np.nanmax(lost.values):,.3g} of their last observations per iteration "
            "were lost (metric replay_lost), and their transitions left out of the losses; "
            "replay_storage='transitions' keeps them, as does an environment whose default max_steps_in_episode is not "
            "above that of the call",
            RuntimeWarning,
            stacklevel=4,
        )
    return result
