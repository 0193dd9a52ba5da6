"""`jaxrl train --distributed`: options that connect processes, read before JAX's backend starts."""

from collections.abc import Sequence
from typing import Any

import tyro

from jaxrl.cli.parsing import CommandError, option_words
from jaxrl.runtime.hosts.processes import TIMEOUT, start

_NUMBERS = {"num_processes": int, "process_id": int, "join_timeout": float}


def distributed_options() -> list[tuple[str, Any, Any]]:
    """Options for several processes, as fields of an options class."""
    from jaxrl.cli.dataclass_options import option

    return [
        option(
            "distributed",
            tyro.conf.FlagCreatePairsOff[bool],
            False,
            "Flag to include the devices of all processes of a SLURM, Open MPI or TPU allocation, or of --coordinator.",
        ),
        option("coordinator", str | None, None, "Address HOST:PORT of process 0, the same for every process."),
        option("num_processes", int | None, None, "Number of processes."),
        option("process_id", int | None, None, "Index of this process, from 0."),
        option("join_timeout", float, TIMEOUT, "Time to wait for the other processes, in seconds."),
    ]


def is_asked_for(options: Any) -> bool:
    """Whether the environments of one run are distributed over all devices."""
    return options.shard_environments or options.distributed or options.coordinator is not None


def join(args: Sequence[str]) -> None:
    """Connect the processes that the arguments of `jaxrl train` name, if any.

    Raises:
      CommandError: An option has no value, or a value that is not a number.
      ValueError: See `distributed.start`.
    """
    if {"-h", "--help"} & set(args):
        return
    values = {name: _value(args, name) for name in ("coordinator", *_NUMBERS)}
    joined = {name: value for name, value in values.items() if value is not None and name != "join_timeout"}
    if not joined and "--distributed" not in args:
        return
    numbers = {name: _number(name, values[name]) for name in _NUMBERS}
    timeout = TIMEOUT if numbers["join_timeout"] is None else numbers["join_timeout"]
    try:
        start(values["coordinator"], numbers["num_processes"], numbers["process_id"], timeout=timeout)
    except ValueError as error:
        raise CommandError(_as_options(str(error))) from None


def _value(args: Sequence[str], name: str) -> str | None:
    words = option_words(args, name)
    if words == []:
        raise CommandError(f"--{name.replace('_', '-')} takes a value")
    return None if words is None else words[0]


def _number(name: str, text: str | None) -> Any:
    try:
        return None if text is None else _NUMBERS[name](text)
    except ValueError:
        raise CommandError(f"--{name.replace('_', '-')} takes a number, but got {text!r}") from None


def _as_options(sentence: str) -> str:
    """Message of `start` with its arguments as options."""
    for name in ("num_processes", "process_id"):
        sentence = sentence.replace(name, f"--{name.replace('_', '-')}")
    return sentence.replace(" coordinator, --", " --coordinator, --")
