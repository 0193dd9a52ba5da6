"""Checks of the arguments of algorithms: of their builders, and of their hyper-parameters."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast, get_args, get_type_hints

from envs.errors import UserTypeError, UserValueError
from jaxrl.checks import check_range
from jaxrl.discounts.parsing import GAMMA_HINT, as_discount

Build = TypeVar("Build", bound=Callable[..., Any])
C = TypeVar("C")

MOST_ROWS = 2**31 - 1

__all__ = ["check_hparams", "check_num_rows", "checked_config", "with_hints"]


def with_hints(build: Build) -> Build:
    """Decorates a builder `(env, config, network)`, so that errors for unknown arguments state where these belong."""
    takes = inspect.signature(build).parameters

    @functools.wraps(build)
    def hinting(*values: Any, **named: Any) -> Any:
        config = next(kind for kind in get_args(get_type_hints(build)["config"]) if kind is not type(None))
        example = f"{build.__name__}(env, {config.__name__}({{}}))"
        for name in named.keys() - takes.keys():
            if name not in config.__dataclass_fields__:
                config(**{name: None})  # raises the error with near matches
            raise UserTypeError(
                f"{build.__name__} takes {', '.join(takes)}, got {name}; it is a field of the configuration: "
                f"{example.format(f'{name}=...')}"
            )
        network = named.get("network", values[2] if len(values) > 2 else None)
        if isinstance(network, str):
            raise UserTypeError(
                f"network takes your own flax module, got {network!r}; a network by name is a field of the "
                f"configuration: {example.format(f'network={network!r}')}"
            )
        return build(*values, **named)

    return cast(Build, hinting)


def checked_config(config: C | None, kind: type[C]) -> C:
    """Configuration of an algorithm, the defaults if None.

    Raises:
      TypeError: `config` is of another class.
    """
    if config is not None and not isinstance(config, kind):
        name = kind.__name__
        raise UserTypeError(f"config must be a {name}, such as {name}(num_envs=8), got {type(config).__name__}")
    return kind() if config is None else config


def check_hparams(hparams: Any, gamma: Any) -> None:
    """Resolves the discount of new hyper-parameters, and rejects values outside their ranges.

    Args:
      hparams: Hyper-parameters with the field `discount`, where a number or a string becomes a discount; its class has
        the attribute `ranges`, the allowed values `{name: Range}` of other fields.
      gamma: Value of the argument `gamma`, which is not a field.

    Raises:
      TypeError: `gamma` is not None, or a field has several values.
      ValueError: A field lies outside its range.
    """
    if gamma is not None:
        raise UserTypeError(GAMMA_HINT)
    if isinstance(hparams.discount, int | float | str):
        object.__setattr__(hparams, "discount", as_discount(hparams.discount))
    if isinstance(hparams.discount, list | tuple):
        raise UserTypeError(
            f"discount takes one discount, got {hparams.discount!r}; several make a sweep: use jaxrl.grid"
        )
    for name, allowed in hparams.ranges.items():
        check_range(name, getattr(hparams, name), allowed)


def check_num_rows(num_rows: int) -> None:
    """Rejects more samples in an iteration than int32 can count.

    Raises:
      ValueError: `num_rows` is above `MOST_ROWS`.
    """
    if num_rows > MOST_ROWS:
        raise UserValueError(
            f"num_envs * num_steps * agents must be at most {MOST_ROWS:,} samples of an iteration, which int32 "
            f"counts, got {num_rows:,}"
        )
