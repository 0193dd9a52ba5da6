"""How calls are carried out: the one list of options that all of them share, their defaults, and what they refuse."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypedDict, get_type_hints

from envs.errors import UserTypeError, UserValueError
from envs.spelling import near
from jaxrl.checks import check_choice
from jaxrl.runtime.memory import parse_size
from jaxrl.tracking.tracker import OnChunk, Tracker
from jaxrl.tracking.trackers import by_name

PRECISIONS = ("default", "high", "highest", "bfloat16", "tensorfloat32", "float32")
SCHEDULES = ("keep", "stretch")
CHECKPOINT_MINUTES = 10.0

__all__ = [
    "CHECKPOINT_MINUTES",
    "PRECISIONS",
    "SCHEDULES",
    "BanditOptions",
    "Option",
    "Options",
    "PlacementOptions",
    "PlanOptions",
    "PopulationOptions",
    "ResumeOptions",
    "RunOptions",
    "SearchOptions",
    "checked",
    "options_of",
]


class Option(NamedTuple):
    """What is known of an option beside its type.

    Attributes:
      default: Value where it is left out.
      flag: Help of its flag on the command line, empty where it has none of its own.
    """

    default: Any
    flag: str = ""


# Options of more than one call that do not follow from one another.
_Devices = Annotated[
    Sequence[Any] | None, Option(None, "Devices to use, such as gpu:0 gpu:1; all where there are none.")
]
_Memory = Annotated[
    int | str | None,
    Option(None, "Memory to keep to, such as 8GiB: of the process, or of each GPU; 80 % of what is free if none."),
]
_Progress = Annotated[bool, Option(True, "Show no progress.")]
_CheckpointMinutes = Annotated[
    float | None,
    Option(CHECKPOINT_MINUTES, "Minutes between two checkpoints, beside those at a signal and at the end; 0 for none."),
]
_Trust = Annotated[
    bool, Option(False, "Resume from files that do not have their checksums, which are damaged or were changed.")
]
_Trackers = Annotated[Sequence[Tracker | str], Option(())]
_Schedules = Annotated[
    str,
    Option("keep", "What is annealed over the whole run where the run is made longer: keep its end, or stretch."),
]


class PlacementOptions(TypedDict, total=False):
    """Where runs go; `RunOptions` says what each is."""

    block: Annotated[int | None, Option(None, "Runs that one device works on together; chosen where there is none.")]
    devices: _Devices
    memory: _Memory
    precision: Annotated[str, Option("default", "Of float32 matrix products: default, high or highest.")]


class PlanOptions(PlacementOptions, total=False):
    """What `jaxrl.plan` takes; `RunOptions` says what each is."""

    shard: Annotated[
        str | tuple[int, int] | None,
        Option(
            None,
            "Which part of the runs to train: I/N, or auto in a SLURM array or on a TPU pod. Written to OUT-I, for "
            "`jaxrl merge`.",
        ),
    ]


class SearchOptions(PlacementOptions, total=False):
    """What `jaxrl.search` takes; `RunOptions` says what each is."""

    out: Annotated[str | Path | None, Option(None, "Directory to write the result to.")]
    progress: _Progress


class PopulationOptions(SearchOptions, total=False):
    """What `jaxrl.population_based_training` takes; `RunOptions` says what each is."""

    force: Annotated[bool, Option(False, "Overwrite a result that is there already.")]


class BanditOptions(PopulationOptions, PlanOptions, total=False):
    """What `jaxrl.run_bandit` takes; `RunOptions` says what each is."""

    resume: Annotated[bool, Option(False, "Go on from the checkpoint in --out, bit for bit, where there is one.")]
    checkpoint_minutes: _CheckpointMinutes
    trust: _Trust
    on_chunk: Annotated[OnChunk | None, Option(None)]
    trackers: _Trackers


class ResumeOptions(TypedDict, total=False):
    """What `jaxrl.resume` takes; `RunOptions` says what each is. The rest is as in the call that is resumed."""

    devices: _Devices
    memory: _Memory
    progress: _Progress
    checkpoint_minutes: _CheckpointMinutes
    trust: _Trust
    trackers: _Trackers
    schedules: _Schedules


class RunOptions(BanditOptions, total=False):
    """How a call is carried out; nothing here changes what is computed, but for `block` and `precision`.

    Attributes:
      block: Number of runs of one vmap; if None the fewest blocks that fill the devices evenly, see
        `jaxrl.runtime.layout.plan_layout`. At one width results are equal bit for bit whatever the number of
        runs, their order, the devices and the chunks. A run that is resumed keeps its width.
      devices: Devices to use, as JAX's or by name, such as `"gpu:0"`; all local ones if None.
      memory: Size of the memory that the call may take, such as `"8GiB"` or a number of bytes: of the whole
        process, or of each device where these have memory of their own; 80 % of what is free if None. Runs that
        do not fit at the same time train in parts one after another, and where not even one block fits, blocks
        become narrower; see `jaxrl.plan`. A run that is resumed keeps its parts and blocks.
      precision: Precision of matrix products, as `jax.default_matmul_precision` names it.
      shard: Part of the runs to train here, `"i/n"` or `(i, n)`, for `jaxrl.merge` to assemble.
      out: Directory to save the result in; None saves nothing.
      progress: Flag to show a progress bar (a line a minute without a terminal).
      force: Flag to accept that `out` exists, and to overwrite it.
      resume: Flag to resume from the checkpoint in `out`, bit for bit, where there is one; with more `env_steps` a
        finished run of `jaxrl.train` is continued, too, and without more of them nothing is changed. A run that was
        begun and has no checkpoint starts anew, of which a warning tells.
      checkpoint_minutes: Number of minutes between two checkpoints in `out`, beside those at a signal and at the
        end; None for none.
      trust: Flag to resume from files that do not have their checksums, which are damaged or were changed by hand.
      schedules: Rule for what is annealed over the whole run where `resume` makes the run longer: "keep" leaves it
        where it ended, and "stretch" anneals it over the longer run from here on, so that a step size rises
        to its share of then. A run whose step size has ended at 0 is not made longer by "keep".
      on_chunk: Function that is called as `on_chunk(env_step, metrics)` after each evaluation, with arrays
        `[num_settings, num_seeds]`; NaN for runs that are not in the part that trains.
      trackers: Sequence of trackers, which hear of the beginning, of each evaluation and of the end; see
        `jaxrl.tracking`. A name, such as "tensorboard", stands for a tracker that writes into `out`.
      shard_environments: Flag to let all devices, those of the other processes that `jaxrl.distributed.start`
        joined among them, share the environments of one run: `num_envs` evenly, minibatches drawn on each,
        gradients, moments and running statistics averaged over all. For one setting and seed, and without
        `block`, `memory` and `shard`.
    """

    schedules: _Schedules
    shard_environments: Annotated[
        bool, Option(False, "Share the environments of one run between all devices: one setting, one seed.")
    ]


class Options:
    """The options of one call, checked: a value for each of `RunOptions`, under its name, that cannot be changed."""

    def __init__(self, values: Mapping[str, Any]):
        vars(self).update({name: option.default for name, (_, option) in options_of(RunOptions).items()}, **values)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"there is no option {name}")

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{name} cannot be changed to {value!r}: options are what a call was given")


def options_of(takes: type) -> dict[str, tuple[Any, Option]]:
    """The options that a call takes, by name: their type, and what is known beside.

    Args:
      takes: `RunOptions` or one of the smaller ones.
    """
    hints = get_type_hints(takes, include_extras=True)
    return {name: (hint.__origin__, hint.__metadata__[0]) for name, hint in hints.items()}


def checked(call: Callable[..., Any], takes: type, options: Mapping[str, Any]) -> Options:
    """The options of a call with the defaults of those that are left out.

    Args:
      call: Function that takes them, for the message about a wrong one.
      takes: `RunOptions` or one of the smaller ones.
      options: Options by name.

    Raises:
      TypeError: one is unknown or has no effect on this call, or is of another type.
      ValueError: one is out of range, or does not go with another.
    """
    known = options_of(takes)
    for name in options:
        if name not in known:
            hint = near(name, [*known, *(parameter for parameter in inspect.signature(call).parameters)])
            raise UserTypeError(f"{call.__name__} takes the options {', '.join(known)}, got {name}{hint}")
    every = Options(options)
    if every.out is not None and not isinstance(every.out, str | Path):
        raise UserTypeError(f"out takes a directory, such as 'runs/x', got {every.out!r}")
    check_choice("precision", every.precision, PRECISIONS)
    for name in ("force", "resume", "progress", "shard_environments"):
        if not isinstance(getattr(every, name), bool):
            raise UserTypeError(f"{name} takes True or False, got {getattr(every, name)!r}")
    if every.on_chunk is not None and not callable(every.on_chunk):
        raise UserTypeError(f"on_chunk takes a function of (env_step, metrics), got {every.on_chunk!r}")
    if not isinstance(every.trackers, Sequence) or isinstance(every.trackers, str):
        raise UserTypeError(f"trackers takes a list, such as [jaxrl.tracking.csv('runs/csv')], got {every.trackers!r}")
    # A call without the option out knows its directory itself, and has it when it checks them again.
    if "out" in known and any(isinstance(tracker, str) for tracker in every.trackers):
        return checked(call, takes, {**options, "trackers": _named_trackers(every)})
    for tracker in every.trackers:
        if not isinstance(tracker, str) and not all(
            callable(getattr(tracker, part, None)) for part in ("start", "__call__", "finish")
        ):
            raise UserTypeError(f"trackers takes what jaxrl.tracking makes, or the like, got {tracker!r}")
    check_choice("schedules", every.schedules, SCHEDULES)
    if every.memory is not None:
        parse_size(every.memory)
    minutes = every.checkpoint_minutes
    number = isinstance(minutes, int | float) and not isinstance(minutes, bool)
    if minutes is not None and not (number and minutes > 0):
        raise UserValueError(
            f"checkpoint_minutes must be a number above 0, or None for no checkpoints, got {minutes!r}"
        )
    if every.resume and every.out is None:
        raise UserValueError("resume goes on from the checkpoint in the directory out, got resume=True without out")
    for name in ("block", "shard", "memory"):
        if every.shard_environments and (value := getattr(every, name)) is not None:
            raise UserValueError(f"{name} has no effect with shard_environments, got {value!r}; leave it out")
    return every


def _named_trackers(options: Options) -> list[Tracker]:
    """The trackers, those that have a name made for the directory of the call."""
    if options.out is None:
        raise UserValueError(f"trackers takes names only with out, which they write into, got {options.trackers!r}")
    out, force = Path(options.out), options.force
    return [by_name(each, out, force=force) if isinstance(each, str) else each for each in options.trackers]
