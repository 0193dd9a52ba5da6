"""Flags of commands for the options of a call, from the list in `jaxrl.runtime.options`."""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import tyro

from jaxrl.cli.dataclass_options import option
from jaxrl.runtime.options import CHECKPOINT_MINUTES, options_of

__all__ = ["run_flags", "run_options"]

Flag = tyro.conf.FlagCreatePairsOff[bool]
# Type and default of flags that differ from those of the option in Python.
_AS_FLAG: Mapping[str, tuple[Any, Any]] = {
    "devices": (tuple[str, ...], ()),
    "memory": (str | None, None),
    "out": (str | None, None),
    "shard": (str | None, None),
    "force": (Flag, False),
    "resume": (Flag, False),
    "trust": (Flag, False),
    "shard_environments": (Flag, False),
    "checkpoint_minutes": (float, CHECKPOINT_MINUTES),
}
_LAST = ("shard", "shard_environments", "trackers", "progress")  # in the help

_NONE: Mapping[str, Any] = MappingProxyType({})


def run_flags(
    takes: type,
    texts: Mapping[str, str] = _NONE,
    kinds: Mapping[str, Any] = _NONE,
    after: Mapping[str, Sequence[Any]] = _NONE,
    without: Collection[str] = (),
) -> list[tuple[str, Any, Any]]:
    """Fields of an options class.

    Args:
      takes: Class `jaxrl.runtime.options.RunOptions`, or one of its bases.
      texts: Help texts of flags that differ in this command.
      kinds: Types of flags that differ in this command.
      after: Further fields of the command, by the option that they follow.
      without: Options that the command does not have.
    """
    known = {name: each for name, each in options_of(takes).items() if name not in without}
    fields = []
    for name in sorted(known, key=lambda name: _LAST.index(name) if name in _LAST else -1):
        kind, listed = known[name]
        kind, default = _AS_FLAG.get(name, (kind, listed.default))
        text = texts.get(name, listed.flag)
        if name == "progress":
            fields.append(option("no_progress", Flag, False, text))
        elif text:
            fields.append(option(name, kinds.get(name, kind), default, text))
        fields += after.get(name, ())
    return fields


def run_options(takes: type, parsed: Any, *further: str) -> dict[str, Any]:
    """Options of the call from the parsed flags.

    Args:
      takes: Class `jaxrl.runtime.options.RunOptions`, or one of its bases.
      parsed: Parsed options of the command.
      *further: Names of further arguments of the call, each with a flag of that name.
    """
    known = options_of(takes)
    options = {name: getattr(parsed, name) for name in (*further, *known) if name in further or hasattr(parsed, name)}
    if "devices" in options:
        options["devices"] = options["devices"] or None
    if "checkpoint_minutes" in options:
        options["checkpoint_minutes"] = options["checkpoint_minutes"] or None
    if "progress" in known:
        options["progress"] = not parsed.no_progress
    return options
