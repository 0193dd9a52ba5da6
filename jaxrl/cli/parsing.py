"""Parsing one command's arguments into a dataclass, with one sentence for whatever does not parse."""

import contextlib
import io
import re
from collections.abc import Sequence
from typing import TypeVar

import tyro

from envs.errors import UserValueError

T = TypeVar("T")


class CommandError(ValueError):
    """Arguments that make no sense, told in one sentence."""


def whole_number(words: list[str]) -> int:
    """Exact for digits, which a float is not beyond 2**53; and `1e6` for those who count so."""
    with contextlib.suppress(ValueError):
        return int(words[0])
    with contextlib.suppress(ValueError):
        number = float(words[0])
        if number.is_integer():
            return int(number)
    raise UserValueError(f"{words[0]!r} is not a whole number")


WHOLE_NUMBER = tyro.constructors.PrimitiveConstructorSpec(
    nargs=1,
    metavar="INT",
    instance_from_str=whole_number,
    is_instance=lambda value: isinstance(value, int),
    str_from_instance=lambda value: [str(value)],
)
_REGISTRY = tyro.constructors.ConstructorRegistry()


@_REGISTRY.primitive_rule
def _whole_numbers(info: tyro.constructors.PrimitiveTypeInfo) -> tyro.constructors.PrimitiveConstructorSpec[int] | None:
    """Every whole number is typed in the same ways, those of a configuration included."""
    return WHOLE_NUMBER if info.type is int else None


def parse(command: type[T], args: Sequence[str], prog: str, description: str | None = None) -> T:
    """The arguments of one command.

    Args:
      command: a dataclass whose fields are the options.
      args: what follows the command's name.
      prog: how the command was called.
      description: heads the help; the dataclass's docstring if None.

    Raises:
      CommandError: an argument is unknown, missing or malformed.
      SystemExit: the help was asked for and printed.
    """
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            return tyro.cli(command, args=list(args), prog=prog, description=description, registry=_REGISTRY)
    except SystemExit as exit:
        if not exit.code:
            raise
    raise CommandError(f"{_several(_sentence(errors.getvalue()), args)} (see {prog} --help)")


def _several(sentence: str, args: Sequence[str]) -> str:
    """The sentence, or the option that takes one value and got several."""
    match = re.fullmatch(r"unrecognized options: ([^-].*)", sentence)
    rest = match[1].split(", ") if match else []
    for first in range(len(args)):
        if rest and list(args[first : first + len(rest)]) == rest:
            options = [i for i in range(first) if args[i].startswith("--")]
            if options:
                got = " ".join(args[options[-1] + 1 : first + len(rest)])
                return f"{args[options[-1]]} takes one value, got {got}"
    return sentence


def _sentence(box: str) -> str:
    """What tyro's message says, and the options that it suggests.

    The message is a frame, or plain text where the terminal has no frames: a title, then sections between rules. It is
    all that tyro's public interface gives: `console_outputs=False` leaves the exit status alone,
    `return_unknown_args=True` knows nothing of values and of what is missing, and the errors as objects are in a module
    (`tyro._errors`) that is private and may change in any release.
    """
    framed = box.startswith("╭")
    lines = [line.strip("│ ") for line in box.splitlines() if not line.startswith(("╭", "╰"))]
    sections: list[list[str]] = [[]]
    for line in lines:
        if line and not line.strip("─-"):
            sections.append([])
        else:
            sections[-1].append(line)
    if not framed and len(sections) > 1:
        del sections[0]
    message = " ".join(" ".join(sections[0]).split()).rstrip(".")
    if message.startswith("Unrecognized"):
        near = [match[0] for section in sections[1:] for line in section if (match := re.match(r"--[\w.-]+", line))]
        message += f"; did you mean {' or '.join(near[:3])}?" if near else ""
    message = re.sub(r"^Error parsing (config: )?", "", message)
    return message[:1].lower() + message[1:]
