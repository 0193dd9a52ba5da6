"""Options of all calls: one list with their defaults, help texts and checks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypedDict, get_type_hints

from envs.errors import UserTypeError, UserValueError
from envs.files import absolute
from envs.spelling import near
from jaxrl.checks import check_choice, check_flag, check_function
from jaxrl.results.best import KEPT
from jaxrl.runtime.machine.memory import parse_size
from jaxrl.tracking.tracker import OnChunk, Tracker
from jaxrl.tracking.trackers import by_name

PRECISIONS = ("default", "high", "highest", "bfloat16", "tensorfloat32", "float32")
SCHEDULES = ("keep", "stretch")
CHECKPOINT_MINUTES = 10.0


class Option(NamedTuple):
    """Default and help text of an option.

    Attributes:
      default: Default value.
      flag: Help text of its flag on the command line; empty for an option without a flag.
    """

    default: Any
    flag: str = ""


# fmt: off
# Options that several calls share without inheriting from one another.
_Devices = Annotated[Sequence[Any] | None, Option(None, "Devices to use, such as gpu:0 gpu:1; all if none are named.")]
_Memory = Annotated[int | str | None, Option(None,
    "Memory limit of the process, or of each GPU, such as 8GiB; 80 % of the free memory if None.")]
_Progress = Annotated[bool, Option(True, "Flag to hide progress.")]
_CheckpointMinutes = Annotated[float | None, Option(CHECKPOINT_MINUTES,
    "Minutes between two checkpoints, in addition to those at a signal and at the end; 0 for none.")]
_Trust = Annotated[bool, Option(False,
    "Flag to resume from files that do not match their checksums (damaged or edited).")]
_Trackers = Annotated[Sequence[Tracker | str], Option(())]
_Schedules = Annotated[str, Option("keep",
    "Treatment of schedules over the whole run if the run is extended: keep (at their final value), or stretch (over "
    "the longer run).")]


class PlacementOptions(TypedDict, total=False):
    """Options of the placement of runs; `RunOptions` documents each."""

    block: Annotated[int | None, Option(None,
        "Number of runs that one device computes together; chosen automatically if None.")]
    devices: _Devices
    memory: _Memory
    precision: Annotated[str, Option("default", "Precision of float32 matrix products: default, high or highest.")]


class ShardOptions(PlacementOptions, total=False):
    """Options of calls that have shards; `RunOptions` documents each."""

    shard: Annotated[str | tuple[int, int] | None, Option(None,
        "Part of the runs to train: I/N, or auto in a SLURM array, in SkyPilot or on a TPU pod, or auto/N in "
        "Kubernetes. Written to OUT-I, for `jaxrl merge`.")]


class PlanOptions(ShardOptions, total=False):
    """Options of `jaxrl.plan`; `RunOptions` documents each."""

    keep: Annotated[str, Option("last",
        "Policies of each run to keep: last (at the end), or best (in addition, that of the best evaluation).")]


class SearchOptions(PlacementOptions, total=False):
    """Options of `jaxrl.search`; `RunOptions` documents each."""

    out: Annotated[str | Path | None, Option(None, "Directory for the result.")]
    progress: _Progress


class PopulationOptions(SearchOptions, total=False):
    """Options of `jaxrl.population_based_training`; `RunOptions` documents each."""

    force: Annotated[bool, Option(False, "Flag to overwrite an existing result.")]


class BanditOptions(PopulationOptions, ShardOptions, total=False):
    """Options of `jaxrl.run_bandit`; `RunOptions` documents each."""

    resume: Annotated[bool, Option(False, "Flag to resume from the checkpoint in --out, bit for bit, if there is one.")]
    checkpoint_minutes: _CheckpointMinutes
    trust: _Trust
    on_chunk: Annotated[OnChunk | None, Option(None)]
    trackers: _Trackers


class MetaOptions(BanditOptions, total=False):
    """Options of `jaxrl.meta`; `RunOptions` documents each. A shard has some of the outer seeds."""


class ResumeOptions(TypedDict, total=False):
    """Options of `jaxrl.resume`; `RunOptions` documents each. All others are those of the resumed call."""

    devices: _Devices
    memory: _Memory
    progress: _Progress
    checkpoint_minutes: _CheckpointMinutes
    trust: _Trust
    trackers: _Trackers
    schedules: _Schedules


class RunOptions(BanditOptions, PlanOptions, total=False):
    """Options of the execution of a call; only `block` and `precision` affect the results.

    Attributes:
      block: Number of runs in one vmap, the width; None takes the fewest blocks that fill the devices evenly, see
        `jaxrl.runtime.layout.plan_layout`. At a given width, results are equal bit for bit for any number of runs, in
        any order, on any devices and with any chunks. A resumed run keeps its width.
      devices: JAX devices or their names, such as `"gpu:0"`; all local devices if None.
      memory: Memory limit, such as `"8GiB"` or a number of bytes, of the whole process after compilation, or of each
        device with separate memory; 80 % of the free memory if None. Runs that do not fit at the same time train in
        parts one after another, and if not even one block fits, blocks become narrower; see `jaxrl.plan`. A resumed run
        keeps its parts and blocks.
      precision: Precision of matrix products, a name of `jax.default_matmul_precision`.
      shard: Part of the runs to train here, `"i/n"` or `(i, n)`; `jaxrl.merge` merges the parts.
      out: Directory to save the result in, relative to the current directory at the call; None saves nothing.
      progress: Flag to show a progress bar (one line per minute without a terminal).
      force: Flag to overwrite an existing `out`.
      resume: Flag to resume from the checkpoint in `out`, bit for bit, if there is one; with more `env_steps` a
        finished run of `jaxrl.train` is extended, otherwise a finished run is not changed. A run
        without a checkpoint starts from the beginning, with a warning.
      checkpoint_minutes: Time in minutes between two checkpoints in `out`, in addition to those at a signal and at the
        end; None for no checkpoints.
      trust: Flag to resume from files that do not match their checksums (damaged or edited).
      schedules: Treatment of schedules over the whole run when `resume` extends it: "keep" leaves them at their
        final value, and "stretch" anneals over the longer run from here on, so that a step size rises
        to its value at that fraction of the longer run. "keep" raises an error if the step size has ended at 0.
      on_chunk: Function that is called as `on_chunk(env_step, metrics)` after each evaluation, with arrays
        `[num_settings, num_seeds]`; NaN for runs that are not in the part that trains.
      trackers: Sequence of trackers, which are called at the start, after each evaluation and at the end; see
        `jaxrl.tracking`. A name, such as "tensorboard", stands for a tracker that writes into `out`.
      keep: Policies to keep of each run: "last", that of the end; or "best", that of the evaluation with the highest
        return as well, the earliest of equal ones, for `result.policy(kept="best")`. A maximum over evaluations is too
        high by chance, so both are evaluated again at the end with other keys, which `result.table()` shows.
      shard_environments: Flag to distribute the environments of one run over all devices, including those of the
        processes that `jaxrl.distributed.start` connected: `num_envs` is divided evenly, minibatches are drawn on
        each device, and gradients, moments and running statistics are averaged over all. For one setting and seed,
        and without `block`, `memory` and `shard`.
    """

    schedules: _Schedules
    shard_environments: Annotated[bool, Option(False,
        "Flag to distribute the environments of one run over all devices; requires one setting and one seed.")]
# fmt: on


class Options:
    """Checked options of one call: a read-only attribute for each of `RunOptions`."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        vars(self).update({name: option.default for name, (_, option) in options_of(RunOptions).items()}, **values)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"there is no option {name}")

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name} cannot be changed to {value!r}: options of a call are fixed")


def options_of(takes: type) -> dict[str, tuple[Any, Option]]:
    """Options of a call by name: their type, and their `Option`.

    Args:
      takes: Class `RunOptions` or one of its bases.
    """
    hints = get_type_hints(takes, include_extras=True)
    return {name: (hint.__origin__, hint.__metadata__[0]) for name, hint in hints.items()}


def checked(call: Callable[..., Any], takes: type, options: Mapping[str, Any]) -> Options:
    """Checked options of a call, with defaults for those that are left out.

    Args:
      call: Function that takes them, for the message about a wrong one.
      takes: Class `RunOptions` or one of its bases.
      options: Options by name.

    Raises:
      TypeError: An option is unknown, has no effect on this call, or has the wrong type.
      ValueError: An option is out of range, or conflicts with another; or JAX does not compile.
    """
    from envs.settings import require_compilation  # imports JAX, which the flags of commands do not need

    require_compilation()
    known = options_of(takes)
    for name in options:
        if name not in known:
            several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
            arguments = [key for key, each in inspect.signature(call).parameters.items() if each.kind not in several]
            hint = near(name, [*known, *arguments])
            raise UserTypeError(
                f"{call.__name__} takes {', '.join(arguments)}, and the options {', '.join(known)}, got {name}{hint}"
            )
    every = Options(options)
    if every.out is not None and not isinstance(every.out, str | Path):
        raise UserTypeError(f"out takes a directory, such as 'runs/x', got {every.out!r}")
    if every.out not in (None, "") and not Path(every.out).is_absolute():
        return checked(call, takes, {**options, "out": absolute(every.out)})  # whatever changes the directory later
    check_choice("precision", every.precision, PRECISIONS)
    for name, (kind, _) in options_of(RunOptions).items():
        if kind is bool:
            check_flag(name, getattr(every, name))
    if every.on_chunk is not None:
        check_function("on_chunk", every.on_chunk, ("env_step", "metrics"))
    if not isinstance(every.trackers, Sequence) or isinstance(every.trackers, str):
        raise UserTypeError(f"trackers takes a list, such as [jaxrl.tracking.csv('runs/csv')], got {every.trackers!r}")
    # A call without the option `out` knows its directory itself, and checks its options again with it.
    if "out" in known and any(isinstance(tracker, str) for tracker in every.trackers):
        return checked(call, takes, {**options, "trackers": _named_trackers(every)})
    for tracker in every.trackers:
        if not isinstance(tracker, str) and not all(
            callable(getattr(tracker, part, None)) for part in ("start", "__call__", "finish")
        ):
            raise UserTypeError(
                f"trackers takes those of jaxrl.tracking, or objects with their methods, got {tracker!r}"
            )
        if not isinstance(tracker, str):
            kind = type(tracker).__name__
            check_function(f"start of {kind} in trackers", tracker.start, ("call", "resumed"))
            check_function(f"{kind} in trackers", tracker, ("env_step", "metrics"))
            check_function(f"finish of {kind} in trackers", tracker.finish, ("result",))
    check_choice("schedules", every.schedules, SCHEDULES)
    check_choice("keep", every.keep, KEPT)
    if every.keep == "best" and every.shard_environments:
        raise UserValueError("keep='best' cannot be combined with shard_environments: leave one of them out")
    if every.memory is not None:
        parse_size(every.memory)
    minutes = every.checkpoint_minutes
    number = isinstance(minutes, int | float) and not isinstance(minutes, bool)
    if minutes is not None and not (number and minutes > 0):
        raise UserValueError(
            f"checkpoint_minutes must be a number above 0, or None for no checkpoints, got {minutes!r}"
        )
    if every.resume and every.out is None:
        raise UserValueError("resume takes out, the directory with the checkpoint, got resume=True without out")
    for name in ("block", "shard", "memory"):
        if every.shard_environments and (value := getattr(every, name)) is not None:
            raise UserValueError(f"{name} has no effect with shard_environments, got {value!r}; leave it out")
    return every


def _named_trackers(options: Options) -> list[Tracker]:
    """Trackers of the call; names are replaced by trackers that write into its directory."""
    if options.out is None:
        raise UserValueError(f"trackers takes names only with out, which they write into, got {options.trackers!r}")
    out, force = Path(options.out), options.force
    return [by_name(each, out, force=force) if isinstance(each, str) else each for each in options.trackers]
