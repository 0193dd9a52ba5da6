"""Distributions for random designs: ranges and lists."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from envs.errors import UserTypeError, UserValueError


@runtime_checkable
class Distribution(Protocol):
    """The protocol of distributions for `sample`."""

    def draw(self, generator: np.random.Generator, count: int) -> list[Any]:
        """`count` independent values."""
        ...


@dataclasses.dataclass(frozen=True)
class Uniform:
    """Numbers uniform in [low, high)."""

    low: float
    high: float

    def __post_init__(self) -> None:
        _check_range(self)

    def draw(self, generator: np.random.Generator, count: int) -> list[Any]:
        return generator.uniform(self.low, self.high, count).tolist()

    def sample(self, key: jax.Array) -> jax.Array:
        """One number in JAX, float32 `[]`, for `envs.wrappers.randomise`."""
        return jax.random.uniform(key, (), jnp.float32, self.low, self.high)


@dataclasses.dataclass(frozen=True)
class LogUniform:
    """Positive numbers whose logarithm is uniform between those of low and high."""

    low: float
    high: float

    def __post_init__(self) -> None:
        _check_range(self)
        if self.low <= 0:
            raise UserValueError(f"low must be above 0 for LogUniform, got {self.low}.")

    def draw(self, generator: np.random.Generator, count: int) -> list[Any]:
        drawn = np.exp(generator.uniform(math.log(self.low), math.log(self.high), count))
        return np.clip(drawn, self.low, self.high).tolist()

    def sample(self, key: jax.Array) -> jax.Array:
        """One number in JAX, float32 `[]`, for `envs.wrappers.randomise`."""
        drawn = jnp.exp(jax.random.uniform(key, (), jnp.float32, math.log(self.low), math.log(self.high)))
        return jnp.clip(drawn, self.low, self.high)


@dataclasses.dataclass(frozen=True)
class Choice:
    """One of `values`, all equally likely; discounts of any kind are allowed."""

    values: Sequence[Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(several_of("Choice", self.values)))

    def draw(self, generator: np.random.Generator, count: int) -> list[Any]:
        return [self.values[i] for i in generator.integers(len(self.values), size=count)]

    def sample(self, key: jax.Array) -> jax.Array:
        """One of the values, which are numbers, in JAX, `[]`, for `envs.wrappers.randomise`."""
        for value in self.values:
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise UserTypeError(f"Choice takes numbers where a program draws from it, got {value!r}")
        return jnp.asarray(self.values)[jax.random.randint(key, (), 0, len(self.values))]


SearchSpace = dict[str, Uniform | LogUniform | Choice]  # distributions by paths of hyper-parameters and fields


def several_of(name: str, values: Any) -> list[Any]:
    """The values as a list, if they are a collection of any kind."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Sequence | np.ndarray | jax.Array):
        raise UserTypeError(f"{name!r} takes a list of values, got {values!r}.")
    several = list(values)
    if not several:
        raise UserValueError(f"{name!r} has no values.")
    return several


def _check_range(distribution: Uniform | LogUniform) -> None:
    name = type(distribution).__name__
    for end in (distribution.low, distribution.high):
        if isinstance(end, bool) or not isinstance(end, int | float) or not math.isfinite(end):
            raise UserTypeError(f"{name} takes two finite numbers, got {end!r}.")
    if not distribution.low < distribution.high:
        raise UserValueError(f"{name} takes low < high, got {distribution.low} and {distribution.high}.")
