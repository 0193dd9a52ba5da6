"""Argument checks of environments and jaxrl; messages name the argument, its value and the accepted values."""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from envs.errors import UserTypeError, UserValueError
from envs.pytrees import Params, PyTree
from envs.spelling import near

__all__ = [
    "CheckedFlags",
    "check_at_least",
    "check_choice",
    "check_count",
    "check_flag",
    "check_flags",
    "check_limit",
    "check_number",
    "check_order",
    "check_positive",
    "check_time_limit",
    "check_whole",
    "described",
    "each_setting",
    "in_interval",
]

_FLAGS = (bool, "bool", bool | None, "bool | None")  # types of fields that hold flags


class _Text(str):
    """Text without quotes inside a container's repr."""

    def __repr__(self) -> str:
        return str(self)


def described(tree: PyTree) -> str:
    """Types and shapes of a pytree of arrays, shapes or tracers as text, such as `float32[4]`."""
    import jax

    def leaf_text(leaf: PyTree) -> _Text:
        known = hasattr(leaf, "shape") and hasattr(leaf, "dtype")
        return _Text(f"{leaf.dtype}{list(leaf.shape)}" if known else repr(leaf))

    return str(jax.tree.map(leaf_text, tree))


def check_count(name: str, value: object, least: int = 1, most: float = math.inf, why: str = "") -> None:
    """Raise an error unless a value is a whole number in a range.

    Args:
      name: Name of the argument.
      value: Value of the argument.
      least, most: Ends of the range, both included.
      why: Clause that follows the range, such as ", the number of arms".
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        limits = f"of at least {least}" if most == math.inf else f"from {least} to {most}"
        raise UserValueError(f"{name} must be a whole number {limits}{why}, got {value!r}")


def check_flag(name: str, value: object, takes: str = "True or False") -> None:
    """Raise an error unless a value is True or False, NumPy's included: "no" would count as True."""
    if not isinstance(value, bool | np.bool):
        raise UserTypeError(f"{name} takes {takes}, got {value!r}")


def check_flags(settings: Any) -> None:
    """Reject a field of type `bool` with another value, or one of type `bool | None` that is not None either.

    NumPy's True and False become Python's.

    Args:
      settings: Instance of a dataclass; of another class, nothing is checked.

    Raises:
      TypeError: A flag is neither True nor False.
    """
    for field in dataclasses.fields(settings) if dataclasses.is_dataclass(settings) else ():
        if field.type not in _FLAGS:
            continue
        value, required = getattr(settings, field.name), field.type in _FLAGS[:2]
        if value is None and not required:
            continue
        check_flag(field.name, value, "True or False" if required else "True, False or None")
        if not isinstance(value, bool):
            object.__setattr__(settings, field.name, bool(value))


class CheckedFlags:
    """Base of dataclasses whose flags are checked by `check_flags` before their own `__post_init__`."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if "__post_init__" in vars(cls):
            cls.__post_init__ = _after_flags(vars(cls)["__post_init__"])

    def __post_init__(self, *_: object) -> None:
        check_flags(self)


def _after_flags(method: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(method)
    def called(self: Any, *arguments: Any) -> None:
        check_flags(self)
        method(self, *arguments)

    return called


def class_names(kind: type, value: object) -> tuple[str, str]:
    """Names of a class and of the class of a value, with their modules where both are the same."""
    got = type(value)
    if kind.__name__ != got.__name__:
        return kind.__name__, got.__name__
    return f"{kind.__module__}.{kind.__name__}", f"{got.__module__}.{got.__name__}"


def check_choice(name: str, value: object, choices: Iterable[Any]) -> None:
    """Raise an error unless a value is one of the choices; the message suggests a close one."""
    choices = tuple(choices)
    if value not in choices:
        hint = near(value, map(str, choices)) if isinstance(value, str) else ""
        raise UserValueError(f"{name} must be one of {', '.join(map(str, choices))}, got {value!r}{hint}")


def check_positive(params: Params, *names: str) -> None:
    """Raise an error unless an environment's parameters are finite and above 0; each may have an axis of settings."""
    for name in names:
        values = np.atleast_1d(np.asarray(getattr(params, name)))
        for wrong in values[~((values > 0) & (values < math.inf))][:1]:
            raise UserValueError(f"env.{name} must be above 0 and finite, got {wrong}")


def check_at_least(params: Params, **least: float) -> None:
    """Raise an error unless each parameter is at least its bound, given by name; each may have an axis of settings."""
    for name, bound in least.items():
        values = np.atleast_1d(np.asarray(getattr(params, name)))
        for wrong in values[~((values >= bound) & (values < math.inf))][:1]:
            raise UserValueError(f"env.{name} must be at least {bound} and finite, got {wrong}")


def check_order(params: Params, low: str, high: str) -> None:
    """Raise an error unless a parameter is at most another one; each may have an axis of settings."""
    least, most = map(np.atleast_1d, np.broadcast_arrays(getattr(params, low), getattr(params, high)))
    wrong = ~(least <= most)
    for value, limit in zip(least[wrong][:1], most[wrong][:1], strict=True):
        raise UserValueError(f"env.{low} must be at most env.{high}, {limit}, got {value}")


def check_whole(params: Params, *names: str) -> None:
    """Raise an error unless an environment's parameters are whole numbers; each may have an axis of settings."""
    for name in names:
        values = np.atleast_1d(np.asarray(getattr(params, name)))
        for wrong in values[~np.isfinite(values) | (values != np.floor(values))][:1]:
            raise UserValueError(f"env.{name} must be a whole number, got {wrong}")


def check_time_limit(params: Params, name: str = "env.max_steps_in_episode") -> None:
    """Raise an error unless the time limit is a whole number of at least 1; it may have an axis of settings.

    Args:
      params: Parameters of an environment.
      name: Name of the time limit in errors.
    """
    limits = np.atleast_1d(np.asarray(params.max_steps_in_episode))
    for wrong in limits[limits < 1][:1]:
        raise UserValueError(f"{name} must be at least 1, got {wrong}")
    for wrong in limits[~np.isfinite(limits) | (limits != np.floor(limits))][:1]:
        raise UserValueError(f"{name} must be a whole number, got {wrong}")


def each_setting(params: Params, axes: Mapping[str, int]) -> list[Any]:
    """Parameters of each setting along leading axes, or the parameters themselves if there are none.

    Args:
      params: Parameters of an environment, concrete.
      axes: Number of axes of each parameter of one setting.

    Raises:
      ValueError: Parameters have different numbers of settings.
    """
    values = {name: value for name, value in vars(params).items() if value is not None and np.ndim(value) > axes[name]}
    counts = sorted({len(np.asarray(value)) for value in values.values()})
    if len(counts) > 1:
        raise UserValueError(f"env takes as many settings of each parameter, got {' and '.join(map(str, counts))}.")
    if not counts:
        return [params]
    return [params.replace(**{name: value[i] for name, value in values.items()}) for i in range(counts[0])]


def check_limit(params: Params, name: str, steps: Any) -> None:
    """Raise an error if an environment cannot be solved within its time limit.

    Args:
      params: Parameters of the environment; each may have an axis of settings.
      name: Name of the parameter that determines the number of steps.
      steps: Number of steps needed, with the axis of that parameter.

    Raises:
      ValueError: The time limit is below the number of steps.
    """
    values = np.broadcast_arrays(params.max_steps_in_episode, steps, getattr(params, name))
    for limit, least, value in zip(*map(np.atleast_1d, values), strict=True):
        if limit < least:
            raise UserValueError(
                f"env.max_steps_in_episode must be at least {least} where env.{name} is {value}, got {limit}"
            )


def in_interval(values: np.ndarray, low: float, high: float, closed: str) -> np.ndarray:
    """Whether each number lies in an interval, whose ends `closed` describes, such as "[)"."""
    above = values >= low if closed[0] == "[" else values > low
    below = values <= high if closed[1] == "]" else values < high
    return above & below


def check_number(name: str, value: object, low: float = -math.inf, high: float = math.inf, closed: str = "()") -> None:
    """Raise an error if a number, or an element of an array, is out of range; None, tracers and placeholders pass.

    Args:
      name: Name of the argument.
      value: Number or array, concrete or traced, of any shape.
      low, high: Ends of the range.
      closed: Closed and open ends: "()", "[)", "(]" or "[]".

    Raises:
      ValueError: The value lies outside the range, or is not a number.
    """
    if isinstance(value, list | tuple):
        raise UserValueError(f"{name} takes a number or an array such as np.array({list(value)}), got {value!r}")
    if isinstance(value, str | bool):
        raise UserValueError(f"{name} takes a number, got {value!r}")
    if not isinstance(value, int | float | np.ndarray | np.generic) or np.asarray(value).dtype.kind not in "fiu":
        return
    array = np.asarray(value)
    inside = in_interval(array, low, high, closed)
    if not np.all(inside):
        wrong = array[~inside].ravel()[0]
        raise UserValueError(f"{name} must lie in {closed[0]}{low}, {high}{closed[1]}, got {wrong}")
