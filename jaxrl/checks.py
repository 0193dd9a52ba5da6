"""Argument checks that every package uses: one sentence with the argument, what it got and what it takes."""

import dataclasses
import sys
from typing import Any, NamedTuple, Self, cast

import jax
import numpy as np
from jax.core import Tracer

from envs.arguments import check_choice, check_count, in_interval
from envs.errors import UserTypeError, UserValueError
from envs.spelling import SYNONYMS, near, near_or_all

__all__ = [
    "Range",
    "Settings",
    "check_choice",
    "check_count",
    "check_counts",
    "check_range",
    "effective",
    "is_concrete",
    "short",
]


def is_concrete(tree: Any) -> bool:
    """Whether no leaf of `tree` is being traced, so that NumPy can compute with it."""
    return not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(tree))


def check_counts(settings: Any, **least: int) -> None:
    """Refuse fields of settings that are not whole numbers of at least so much, such as `seeds=2`."""
    for name, bound in least.items():
        check_count(name, getattr(settings, name), bound)


class Range(NamedTuple):
    """The numbers from `low` to `high`, each end among them or not; an infinite end that is not leaves finite numbers.

    Attributes:
      low, high: Ends.
      closed: Ends that belong to it: "[]", "[)" or "()".
    """

    low: float
    high: float
    closed: str = "[]"

    def __str__(self) -> str:
        return f"{self.closed[0]}{self.low}, {self.high}{self.closed[1]}"


def check_range(name: str, value: Any, allowed: Range) -> None:
    """Refuse what is not a number, or lies outside its range in float32; let arrays of a sweep and tracers be.

    Raises:
      TypeError: a list, a tuple, a string or a bool.
      ValueError: a number, or an array with one, outside the range.
    """
    if isinstance(value, list | tuple):
        raise UserTypeError(f"{name} takes one number, got {value!r}; several values make a sweep: use jaxrl.grid")
    if isinstance(value, str | bool):
        raise UserTypeError(f"{name} takes a number, got {value!r}")
    if not is_concrete(value) or not isinstance(value, int | float | np.ndarray | np.number | jax.Array):
        return
    with np.errstate(over="ignore"):
        numbers = np.asarray(value).astype(np.float32)
    if not np.all(in_interval(numbers, *allowed)):
        raise UserValueError(f"{name} must lie in {allowed}, got {value}")


class Settings:
    """Base of configurations and hyper-parameters, which are dataclasses.

    It refuses fields that a class does not have in one sentence, and prints the fields that differ from their defaults.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.__repr__ = Settings.__repr__  # before `dataclass` makes one of all fields

    def __new__(cls, *values: Any, **fields: Any) -> Self:
        known: dict[str, dataclasses.Field[Any]] = vars(cls)["__dataclass_fields__"]
        if values and all(field.kw_only for field in known.values()):
            example = f"{cls.__name__}({next(iter(known))}=...)"
            raise UserTypeError(f"{cls.__name__} takes its fields by name, such as {example}, got {values[0]!r}")
        for name in fields:
            if name not in known:
                raise UserTypeError(f"{cls.__name__} has no field {name!r}{_other_field(cls, name)}")
        return super().__new__(cls)

    def __repr__(self) -> str:
        shown, settings = [], cast(Any, self)
        for field in dataclasses.fields(settings):
            value = getattr(self, field.name)
            if value is not field.default and not _same(value, field.default):
                shown.append(f"{field.name}={short(value)}")
        return f"{type(self).__name__}({', '.join(shown)})"


def _other_field(kind: Any, name: str) -> str:
    """What was meant in place of a field: a similar one, or one of the hyper-parameters beside a configuration."""
    known = [field.name for field in dataclasses.fields(kind)]
    if hint := near(name, known):
        return hint
    for one, other in (("Config", "HParams"), ("HParams", "Config")):
        beside: Any = vars(sys.modules[kind.__module__]).get(kind.__name__.replace(one, other))
        fields = getattr(beside, "__dataclass_fields__", {}) if kind.__name__.endswith(one) else {}
        meant = name if name in fields else SYNONYMS.get(name)
        if meant in fields:
            return f"; {beside.__name__} has it: {beside.__name__}({meant}=...)"
    return near_or_all(name, known, "it has")


def _same(value: Any, other: Any) -> bool:
    plain = isinstance(value, tuple) or (is_concrete((value, other)) and np.ndim(value) == 0)
    return plain and type(value) is type(other) and value == other


def short(value: Any) -> str:
    """A value in a repr: an array by its shape, a float by its digits, a discount as its string."""
    if not is_concrete(value) or (np.ndim(value) and not isinstance(value, list | tuple)):
        return f"{jax.tree.leaves(value)[0].dtype}{list(jax.tree.leaves(value)[0].shape)}"
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        return str(np.asarray(value))
    return repr(value)


def effective(name: str, value: Any, default: float, active: bool) -> Any:
    """The value of a hyper-parameter that has an effect, None for one without.

    Args:
      name, value: Name and value of the hyper-parameter; None stands for its default.
      default: Value where it is left out.
      active: Whether it has an effect on this environment and configuration.

    Raises:
      ValueError: it has none, and was changed.
    """
    if active:
        return default if value is None else value
    concrete = isinstance(value, int | float | np.ndarray | np.number)
    if concrete and np.any(np.asarray(value, np.float32) != np.float32(default)):
        raise UserValueError(f"{name} has no effect on this environment and configuration, got {value}; leave it out")
    return None
