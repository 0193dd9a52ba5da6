"""Argument checks of all packages; messages name the argument, its value and the accepted values."""

import dataclasses
import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Self, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from envs.arguments import check_choice, check_count, check_flag, in_interval
from envs.errors import UserTypeError, UserValueError
from envs.spelling import near_or_all, own_names
from jaxrl.importing import name_of
from jaxrl.pytrees import Number, PyTree

F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S")

__all__ = [
    "Range",
    "Settings",
    "carried_over",
    "check_choice",
    "check_choices",
    "check_count",
    "check_counts",
    "check_flag",
    "check_function",
    "check_range",
    "effective",
    "extends",
    "is_concrete",
    "random_key",
    "ranged",
    "short",
    "with_example",
]


def is_concrete(tree: PyTree) -> bool:
    """Whether no leaf of `tree` is being traced, so that NumPy can compute with it."""
    return not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(tree))


def random_key(key: Any, name: str = "key") -> jax.Array:
    """A single random key of `jax.random.key`; the raw words of `jax.random.PRNGKey` are wrapped.

    Args:
      key: Key, concrete or traced.
      name: Name of the argument.

    Raises:
      TypeError: The value is not one random key.
    """
    dtype, shape = getattr(key, "dtype", None), getattr(key, "shape", None)
    if isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and shape == ():
        return key
    words = jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0))).shape
    if dtype == np.uint32 and shape == words:
        return jax.random.wrap_key_data(key)
    got = f"{dtype}{list(shape)}" if dtype is not None and shape is not None else repr(key)
    raise UserTypeError(f"{name} takes one random key, such as jax.random.key(0), got {got}")


def check_counts(settings: Any, **least: int) -> None:
    """Check that fields of settings are whole numbers of at least a bound.

    Args:
      settings: Object with the fields, such as a dataclass.
      **least: Smallest value of each field, such as `seeds=2`.

    Raises:
      ValueError: A field is not a whole number, or below its bound.
    """
    for name, bound in least.items():
        check_count(name, getattr(settings, name), bound)


def check_choices(name: str, values: Sequence[Any], known: Sequence[Any] | None = None) -> None:
    """Check that a setting has at least one value, no value twice, and only known values.

    Args:
      name: Name of the setting.
      values: Values of the setting.
      known: Valid values; None for any.

    Raises:
      ValueError: The values are invalid.
    """
    if not values or len(set(values)) < len(values):
        raise UserValueError(f"{name} takes one or more different values, got {' '.join(map(str, values)) or 'none'}")
    for value in values:
        if known is not None and value not in known:
            raise UserValueError(f"{name} has {value!r}{near_or_all(value, known)}")


def with_example(example: str) -> Callable[[F], F]:
    """Decorate a function, so that the error for arguments that it does not take has an example of a call."""

    def decorated(function: F) -> F:
        takes = inspect.signature(function)

        @functools.wraps(function)
        def called(*arguments: Any, **named: Any) -> Any:
            try:
                takes.bind(*arguments, **named)
            except TypeError as error:
                raise UserTypeError(f"{error}; the call is {example}") from None
            return function(*arguments, **named)

        return cast(F, called)

    return decorated


def check_function(name: str, function: Any, arguments: Sequence[str], error: type[Exception] = UserTypeError) -> None:
    """Check that a value is a function that can be called with some positional arguments.

    Args:
      name: Name of the value.
      function: Value; its signature is not checked where it has none, as for some builtins.
      arguments: Names of the arguments, for the message.
      error: Class of the error.

    Raises:
      TypeError, ContractError: It is not a function, or takes other arguments.
    """
    if not callable(function):
        raise error(f"{name} must be a function of ({', '.join(arguments)}), got {function!r}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*arguments)
    except TypeError:
        takes = ", ".join(signature.parameters)
        raise error(f"{name} must take ({', '.join(arguments)}), but it takes ({takes})") from None


class Range(NamedTuple):
    """Interval from `low` to `high`; an open infinite end excludes infinity only.

    Attributes:
      low, high: Ends of the interval.
      closed: Closed and open ends: "[]", "[)" or "()".
    """

    low: float
    high: float
    closed: str = "[]"

    def __str__(self) -> str:
        return f"{self.closed[0]}{self.low}, {self.high}{self.closed[1]}"


def check_range(name: str, value: object, allowed: Range) -> None:
    """Check that a value is a number in a range in float32; arrays of a sweep and tracers pass.

    Args:
      name: Name of the argument.
      value: Value of the argument.
      allowed: Range of valid values.

    Raises:
      TypeError: The value is a list, a tuple, a string or a bool.
      ValueError: A number, or an element of an array, is outside the range.
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


def ranged(default: float, allowed: Range) -> Any:
    """Field of `Settings` with a default, whose values lie in a range."""
    return dataclasses.field(default=default, metadata={"range": allowed})


class Settings:
    """Base of configurations and hyper-parameters, which are dataclasses.

    Fields made by `ranged` are checked, and unknown fields raise an error of one sentence. The repr shows the fields
    that differ from their defaults, and `str`, which `print` uses, all fields that are not None.

    Attributes:
      elsewhere: Clauses on fields that other configurations alone have, by name, for error messages.
    """

    elsewhere = MappingProxyType[str, str]({})

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.__repr__ = Settings.__repr__  # set before `dataclass`, which would add a repr of all fields

    def __new__(cls, *values: Any, **fields: Any) -> Self:
        known: dict[str, dataclasses.Field[Any]] = vars(cls)["__dataclass_fields__"]
        if values and all(field.kw_only for field in known.values()):
            example = f"{cls.__name__}({next(iter(known))}=...)"
            raise UserTypeError(f"{cls.__name__} takes its fields by name, such as {example}, got {values[0]!r}")
        for name in fields:
            if name not in known:
                hint = f"; {cls.elsewhere[name]}" if name in cls.elsewhere else _other_field(cls, name)
                raise UserTypeError(f"{cls.__name__} has no field {name!r}{hint}")
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for field in dataclasses.fields(cast(Any, self)):
            if "range" in field.metadata:
                check_range(field.name, getattr(self, field.name), field.metadata["range"])

    def __repr__(self) -> str:
        return self._text(lambda value, default: value is not default and not _same(value, default))

    def __str__(self) -> str:
        return self._text(lambda value, _: value is not None)

    def replace(self, **changes: Any) -> Self:
        """Copy with other values of some fields, checked like those of a new one.

        Raises:
          TypeError: There is no field of this name.
          ValueError: A value is out of range.
        """
        for name in changes:
            if name not in vars(type(self))["__dataclass_fields__"]:
                raise UserTypeError(f"{type(self).__name__} has no field {name!r}{_other_field(type(self), name)}")
        return dataclasses.replace(cast(Any, self), **changes)

    def _text(self, shown: Callable[[Any, Any], bool]) -> str:
        fields = [(field, getattr(self, field.name)) for field in dataclasses.fields(cast(Any, self))]
        parts = [f"{field.name}={_named(value)}" for field, value in fields if shown(value, field.default)]
        return f"{type(self).__name__}({', '.join(parts)})"


def _named(value: object) -> str:
    """Short text of a value, or the name of a function."""
    return name_of(value) if callable(value) else short(value)


def _other_field(kind: Any, name: str) -> str:
    """Suggestion for an unknown field: one here or in the other class, hyper-parameters or configuration."""
    known, partner, names = [field.name for field in dataclasses.fields(kind)], None, [name, *own_names(name)]
    for one, other in (("Config", "HParams"), ("HParams", "Config")):
        if kind.__name__.endswith(one):
            partner = vars(sys.modules[kind.__module__]).get(kind.__name__.replace(one, other))
    there: Any = [each for each in names if each in getattr(partner, "__dataclass_fields__", {})]
    here = [each for each in names if each in known]
    example = f"{partner.__name__}({there[0]}=...)" if partner is not None and there else ""
    if here:
        return f"; did you mean {' or '.join(map(repr, here))}{f', or {example}' if example else ''}?"
    return (
        f"; {partner.__name__} has it: {example}"
        if partner is not None and there
        else near_or_all(name, known, "it has")
    )


def extends(kind: type, other: type) -> bool:
    """Whether a class of settings is derived from another, or is that of a copied file: it has the same name."""
    related = issubclass(kind, other) or kind.__name__ == other.__name__
    return related and dataclasses.is_dataclass(other)


def carried_over(settings: S, source: Any) -> S:
    """Settings of one class with the values of another's, such as those of a copied file with those of the original.

    Args:
      settings: Settings, whose other fields are kept.
      source: Settings of the other class; None without being a default, a value without effect, is not carried over.

    Raises:
      TypeError: A value that differs from its default has no field in `settings`.
    """
    kind, takes, changes = type(settings), vars(type(settings))["__dataclass_fields__"], {}
    for field in dataclasses.fields(source):
        value = getattr(source, field.name)
        if field.name in takes and not (value is None and field.default is not None):
            changes[field.name] = value
        elif field.name not in takes and value is not None and not _same(value, field.default):
            raise UserTypeError(
                f"{kind.__module__}.{kind.__name__} takes the values of {type(source).__name__} and has no field "
                f"{field.name!r}, which is {short(value)} there"
            )
    return dataclasses.replace(cast(Any, settings), **changes)


def _same(value: PyTree, other: PyTree) -> bool:
    plain = isinstance(value, tuple) or (is_concrete((value, other)) and np.ndim(value) == 0)
    return plain and type(value) is type(other) and value == other


def short(value: PyTree) -> str:
    """Short text of a value: the shape of an array, the digits of a float, the string of a discount."""
    if not is_concrete(value) or (np.ndim(value) and not isinstance(value, list | tuple)):
        return f"{jax.tree.leaves(value)[0].dtype}{list(jax.tree.leaves(value)[0].shape)}"
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        return str(np.asarray(value))
    return repr(value)


def effective(name: str, value: Number, default: float, active: bool, num_settings: int | None = None) -> Any:
    """Value of a hyper-parameter that has an effect; None for one without.

    Args:
      name, value: Name and value of the hyper-parameter; None stands for its default.
      default: Default value.
      active: Whether it has an effect on this environment and configuration.
      num_settings: Number of settings in a batch, each of which gets the default; None for a single setting.

    Raises:
      ValueError: The hyper-parameter has no effect, and was changed; not raised for a traced value.
    """
    if active:
        if value is not None:
            return value
        return default if num_settings is None else np.full(num_settings, default, np.float32)
    number = is_concrete(value) and isinstance(value, int | float | np.ndarray | np.number | jax.Array)
    if number and np.any(np.asarray(value, np.float32) != np.float32(default)):
        got = np.ravel(value)[0] if np.size(value) == 1 else np.asarray(value)
        raise UserValueError(f"{name} has no effect on this environment and configuration, got {got!s}; leave it out")
    return None
