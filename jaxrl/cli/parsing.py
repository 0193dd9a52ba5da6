"""Parsing the arguments of a command into a dataclass, with one sentence for each error."""

import contextlib
import dataclasses
import io
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import tyro

T = TypeVar("T")

# Types of options of several commands, with their help texts.
RunDirectory = Annotated[
    Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN", help="Run directory, as written by `jaxrl train --out`.")
]
Setting = Annotated[
    tuple[str, ...],
    tyro.conf.arg(help="Setting of a sweep, such as `lr=1e-3 discount=beta:0.98,0.5`; required if there are several."),
]
Allow = Annotated[
    tuple[str, ...],
    tyro.conf.arg(help="Names of your own modules that may be imported if the run names them, such as my_algorithms."),
]
KeptPolicy = Annotated[
    Literal["last", "best"],
    tyro.conf.arg(help="Policy of each run: last, or best (of a run of `train --keep best`)."),
]
Trust = Annotated[
    tyro.conf.FlagCreatePairsOff[bool],
    tyro.conf.arg(help="Flag to read files that do not match their checksums."),
]


class CommandError(ValueError):
    """Error in the arguments of a command, in one sentence."""


def whole_number(words: list[str]) -> int:
    """Parse a whole number: digits exactly, without the limit 2**53 of a float; or a form such as `1e6`."""
    with contextlib.suppress(ValueError):
        return int(words[0])
    with contextlib.suppress(ValueError):
        number = float(words[0])
        if number.is_integer():
            return int(number)
    from envs.errors import UserValueError  # late: another package `envs` may hide that of jaxrl, which `main` reports

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
    """Rule that all whole numbers, including those of a configuration, take the same forms."""
    return WHOLE_NUMBER if info.type is int else None


def option_words(args: Sequence[str], name: str) -> list[str] | None:
    """Words that follow an option, where it decides which options there are; those of its last occurrence.

    Args:
      args: Arguments of a command.
      name: Name of the option, with underscores.

    Returns:
      The words, or None if the option is absent.
    """
    words, listed = None, False
    for arg in args:
        option, equals, value = arg.partition("=")
        if arg.startswith("--"):
            listed = option[2:].replace("-", "_") == name
            words = [value] * bool(equals) if listed else words
        elif listed and words is not None:
            words.append(arg)
    return words


def without_options(args: Sequence[str], names: Collection[str]) -> list[str]:
    """Arguments of a command without some options and their words.

    Args:
      args: Arguments.
      names: Names of the options, with underscores.
    """
    kept, skipped = [], False
    for arg in args:
        if arg.startswith("--"):
            skipped = arg[2:].partition("=")[0].replace("-", "_") in names
        if not skipped:
            kept.append(arg)
    return kept


def parse(command: type[T], args: Sequence[str], prog: str, description: str | None = None) -> T:
    """Parse the arguments of one command.

    Args:
      command: Dataclass whose fields are the options.
      args: Arguments after the name of the command.
      prog: Name of the command in the help.
      description: Heading of the help; the docstring of the dataclass if None.

    Raises:
      CommandError: An argument is unknown, missing or malformed.
      SystemExit: The help was requested and printed.
    """
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            return tyro.cli(command, args=list(args), prog=prog, description=description, registry=_REGISTRY)
    except SystemExit as exit:
        if not exit.code:
            raise
    sentence = _several(_sentence(errors.getvalue()), args)
    raise CommandError(f"{_with_own_name(sentence, command)} (see {prog} --help)")


def _with_own_name(sentence: str, command: type) -> str:
    """The sentence on an unknown option, with the options of its name here or of its last part, if there are any."""
    match = re.match(r"unrecognized options: --(?:[\w-]+\.)*([\w-]+)", sentence)
    if match is None:
        return sentence
    from envs.spelling import own_names  # late, as above

    name = match[1].replace("-", "_")
    names = [name, *own_names(name)]
    options = _options(command)
    meant = [option for option in options if option.rpartition(".")[2] in names]
    if not meant and sentence.startswith("unrecognized options: --env.") and "did you mean" not in sentence:
        has = any(option.startswith("env.") for option in options)
        reason = "it is not one of" if has else "this command has no options for"
        static = " (its static fields take --static NAME=VALUE)" if "static" in options else ""
        return f"{sentence}; {reason} the environment's parameters{static}"
    if not meant:
        return sentence
    shown = " or ".join("--" + option.replace("_", "-") for option in meant)
    return f"{sentence.partition('; did you mean')[0]}; did you mean {shown}?"


def _options(command: Any, prefix: str = "") -> list[str]:
    """Names of the options of a command, with those of its parts, such as "hparams.lr"."""
    names = []
    for field in dataclasses.fields(command):
        kind: Any = get_args(field.type)[0] if get_origin(field.type) is Annotated else field.type
        inside = dataclasses.is_dataclass(kind)
        names += _options(kind, f"{prefix}{field.name}.") if inside else [f"{prefix}{field.name}"]
    return names


def _several(sentence: str, args: Sequence[str]) -> str:
    """Names the option that takes one value and got several, if this is the error; otherwise the sentence."""
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
    """Extract the text of tyro's message, and the options that it suggests.

    The message is a frame, or plain text on a terminal without frames: a title, then sections between rules. Tyro's
    public interface offers nothing else: `console_outputs=False` leaves only the exit status,
    `return_unknown_args=True` ignores values and missing arguments, and the error objects are in a module
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
    commas = re.fullmatch(r"(--\S+): Could not find valid parse for arguments: \['([^' ]+,[^' ]*)'\]", message)
    if commas is not None:
        option, values = commas.groups()
        apart = values.replace(",", " ").strip()
        message = f"{option} takes values with spaces between them, such as {option} {apart}, got {values}"
    return message[:1].lower() + message[1:]
