"""Options made from fields of dataclasses: each takes one value, or several for a sweep."""

import ast
import dataclasses
import functools
import inspect
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import numpy as np
import tyro

from envs.errors import UserValueError
from jaxrl.cli.parsing import WHOLE_NUMBER, CommandError, option_words, whole_number
from jaxrl.discounts.parsing import Discount, as_discount
from jaxrl.importing import name_of
from jaxrl.learning.composites import Composite, as_composite
from jaxrl.learning.network_config import without_effect
from jaxrl.pytrees import EnvParams, HParams
from jaxrl.sweeps.paths import numbers

MOST_SEEDS = 10_000_000  # of a list, which takes 36 bytes for each
# Type of an option with a count: 1000000, 1_000_000 or 1e6.
WholeNumber = Annotated[int, WHOLE_NUMBER]


def _seeds(words: list[str]) -> int | tuple[int, ...]:
    """Number of seeds from a single number; otherwise the seeds, with FIRST:END for FIRST to END - 1."""
    if len(words) == 1 and ":" not in words[0]:
        return whole_number(words)
    chosen: list[int] = []
    for word in words:
        first, colon, end = word.partition(":")
        begin = whole_number([first])
        stop = whole_number([end]) if colon else begin + 1
        if len(chosen) + stop - begin > MOST_SEEDS:
            raise UserValueError(f"--seeds takes at most {MOST_SEEDS:,} seeds, got {word}")
        chosen += range(begin, stop)
    return tuple(chosen)


# Type of an option with a number of seeds or a list of seeds, as the argument `seeds` of `jaxrl.train`.
Seeds = Annotated[
    int | tuple[int, ...],
    tyro.constructors.PrimitiveConstructorSpec(
        nargs="*",
        metavar="COUNT|SEED SEED ...|FIRST:END",
        instance_from_str=_seeds,
        is_instance=lambda value: isinstance(value, int | tuple),
        str_from_instance=lambda value: [str(value)] if isinstance(value, int) else [str(seed) for seed in value],
    ),
]


def static_fields(args: Sequence[str]) -> dict[str, Any]:
    """Static fields of the environment in the options: `--static num_agents=30 frame=relative`."""
    fields = {}
    for word in option_words(args, "static") or ():
        name, equals, text = word.partition("=")
        if not (name and equals and text):
            raise CommandError(f"--static takes fields with values, such as num_agents=30, but got {word!r}")
        try:
            fields[name.replace("-", "_")] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            fields[name.replace("-", "_")] = text
    return fields


def hparam_leaves(hparams: HParams) -> dict[str, Any]:
    """All hyper-parameters, with the default of the class for those without effect (None)."""
    effective = {name: leaf for name, leaf in numbers(hparams).items() if leaf is not None}
    return effective if len(effective) == len(numbers(hparams)) else numbers(type(hparams)()) | effective


def config_option(config: Any, text: str) -> list[tuple[str, Any, Any]]:
    """Field for the configuration, none for an algorithm without one; `config_of` converts the parsed value back."""
    if config is None:
        return []
    kind, texts = type(config), field_texts(type(config))
    types = get_type_hints(kind)
    defaults = {field.name: _option_value(getattr(config, field.name)) for field in dataclasses.fields(kind)}
    fields = [
        option(name, _option_type(types[name]), default, texts.get(name, "")) for name, default in defaults.items()
    ]
    made = dataclasses.make_dataclass(kind.__name__, fields, frozen=True)
    return [("config", Annotated[made, tyro.conf.arg(help=text)], dataclasses.field(default_factory=made))]


def config_of(options: Any, config: Any, args: Sequence[str]) -> Any:
    """Configuration from parsed options, of the type of `config`; None for an algorithm without one.

    If the options change the memory, fields without an option in `args` that have no effect with that memory have their
    defaults.

    Args:
      options: Parsed options.
      config: Configuration from which they start.
      args: Words of the options.
    """
    if config is None:
        return None
    # A field whose option was left as it is keeps its function, of which the option has the name.
    values = {name: getattr(config, name) for name in vars(options.config)}
    same = {name: value for name, value in values.items() if _option_value(value) == getattr(options.config, name)}
    values = {**vars(options.config), **same}
    if "memory" in values and values["memory"] != config.memory:
        unused = [name for name in without_effect(values["memory"]) if option_words(args, f"config.{name}") is None]
        values = {name: value for name, value in values.items() if name not in unused}
    return type(config)(**values)


def _option_type(kind: Any) -> Any:
    """Type of the option of a field: one that also takes a function takes its path in a shell."""
    members = get_args(kind)
    plain = [member for member in members if get_origin(member) is not Callable]
    return kind if len(plain) == len(members) else functools.reduce(operator.or_, plain)


def _option_value(value: object) -> Any:
    """Default of an option: the value of a field, or the name of a function."""
    return name_of(value) if callable(value) else value


def refuse_gamma(args: Sequence[str], hparams: Mapping[str, Any]) -> None:
    """Refuse --hparams.gamma for an algorithm with a discount and without that field."""
    if option_words(args, "hparams.gamma") is not None and "discount" in hparams and "gamma" not in hparams:
        raise CommandError("gamma is not a field: use --hparams.discount, such as 0.98 or beta:0.98,0.5")


def numbers_of(params: EnvParams) -> dict[str, Any]:
    """Scalar leaves of an environment's parameters, which may be swept."""
    return {name: leaf for name, leaf in numbers(params).items() if leaf is not None and np.ndim(leaf) == 0}


def option(name: str, kind: Any, default: Any, text: str) -> tuple[str, Any, Any]:
    """Field of an options class with a help text."""
    return name, Annotated[kind, tyro.conf.arg(help=text)], dataclasses.field(default=default)


def values_class(values: Any, defaults: Mapping[str, Any], one: str | None = None) -> type:
    """Dataclass that takes one or several values, as text, for every default; dotted paths become nested classes.

    Args:
      values: Dataclass of the values, whose docstring describes them.
      defaults: Default of each path.
      one: Sentence of the help for a command that takes one value each; None if several values make a sweep.
    """
    texts = field_texts(type(values))
    fields, parts = [], {}
    for path, default in defaults.items():
        name, _, rest = path.partition(".")
        if rest:
            parts.setdefault(name, {})[rest] = default
            continue
        text = texts.get(name, "")
        if isinstance(default, Discount):  # a shell takes no object
            text = re.sub(', a string such as "(.*)", or a Discount', r", or a string such as \1", text)
        argument = tyro.conf.arg(help=text, metavar="VALUE" if one else "VALUE [VALUE ...]")
        fields.append((name, Annotated[tuple[str, ...], argument], dataclasses.field(default=(_text(default),))))
    for name, inner in parts.items():
        part = values_class(getattr(values, name), inner, one)
        fields.append((name, part, dataclasses.field(default_factory=part)))
    made = dataclasses.make_dataclass(type(values).__name__, fields, frozen=True)
    made.__doc__ = one or "Several values make a sweep."
    return made


def field_texts(documented: type) -> dict[str, str]:
    """Help text of each field, from the sections "Attributes:" of the docstrings of a class and its bases.

    docstring_parser gives the same for most classes, but fails for a docstring that begins with the section, whose rows
    Python 3.13 passes on without indentation: 29 of 135 classes of options.
    """
    texts = {"max_steps_in_episode": "Time limit of an episode, in steps."}
    for base in reversed(documented.__mro__):
        section = f"\n{inspect.cleandoc(base.__doc__ or '')}".partition("\nAttributes:\n")[2]
        indent = re.match(" *", section)[0]  # pyright: ignore[reportOptionalSubscript] -- it matches any text
        rows = rf"^{indent}(\w[\w, ]*): (.*(?:\n{indent}  .*)*)"
        for names, text in re.findall(rows, section, flags=re.MULTILINE):
            texts |= dict.fromkeys(names.split(", "), " ".join(text.split()))
    return texts


def _text(value: Any) -> str:
    return (
        str(value)
        if value is None or isinstance(value, Discount | Composite)
        else repr(value if isinstance(value, int | float) else float(value))
    )


def split(prefix: str, parsed: Any, defaults: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Fields that the options change: those with one value, and those with several."""
    fixed, swept = {}, {}
    for name, default in defaults.items():
        texts = operator.attrgetter(name)(parsed)
        if texts == (_text(default),):
            continue
        values = [_value(f"--{prefix}.{name}", text, default) for text in texts]
        if not values:
            raise CommandError(f"--{prefix}.{name} takes at least one value")
        if len(values) == 1:
            fixed[name] = values[0]
        else:
            swept[name] = values
    return fixed, swept


def _value(option: str, text: str, default: Any) -> Any:
    """Parse a value of the type of the default: a discount, a whole number, a number or a curve, true or false."""
    if isinstance(default, Discount):
        return as_discount(text)
    composite = as_composite(text)
    if composite is not None:
        return composite
    if isinstance(default, bool):
        if text.lower() not in ("true", "false"):
            raise CommandError(f"{option} takes true or false, but got {text!r}")
        return text.lower() == "true"
    try:
        number = float(text)
    except ValueError:
        raise CommandError(f"{option} takes numbers, but got {text!r}") from None
    if math.isnan(number):
        raise CommandError(f"{option} takes numbers, but got nan")
    if isinstance(default, int):
        if not number.is_integer():
            raise CommandError(f"{option} takes whole numbers, but got {text!r}")
        return int(number)
    return number


def xla_flags_option() -> tuple[str, Any, Any]:
    """Field for flags of XLA, which `jaxrl.runtime.machine.xla_flags` reads before the options are parsed."""
    text = "Flags for XLA, such as xla_cpu_prefer_vector_width=256, in addition to the environment's XLA_FLAGS."
    return option("xla_flags", tuple[str, ...], (), text)
