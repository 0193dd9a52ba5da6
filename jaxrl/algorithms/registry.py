"""Algorithms by name, and as a description that a run directory keeps."""

import dataclasses
import importlib
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import envs
from envs import registry
from envs.base import Environment
from jaxrl.algorithms.contract import Algorithm


class Row(NamedTuple):
    """Where an algorithm is defined: its module, builder, Config and HParams."""

    module: str
    builder: str
    config: str
    hparams: str


ROWS: dict[str, Row] = {
    "ppo": Row("jaxrl.algorithms.ppo", "ppo", "PPOConfig", "PPOHParams"),
}


def row(name: str) -> Row:
    """The row of an algorithm, or an error that lists near matches."""
    if name not in ROWS:
        hint = registry.near(name, ROWS) or f"; known are {', '.join(ROWS)}."
        raise ValueError(f"There is no algorithm {name!r}{hint}")
    return ROWS[name]


def member(name: str, which: str) -> Any:
    """The "builder", "config" or "hparams" of an algorithm."""
    found = row(name)
    return vars(importlib.import_module(found.module))[getattr(found, which)]


def describe(algo: Algorithm) -> dict[str, Any]:
    """What `build` needs to make an equal algorithm in another process, as plain values.

    Raises:
      ValueError: a part of it cannot be found by name: a network, an environment from a
        notebook, an edited copy of an algorithm.
    """
    if algo.name not in ROWS or algo.act.__module__ != ROWS[algo.name].module:
        raise ValueError(f"the algorithm {algo.name!r} is not one of jaxrl's own")
    if algo.network is not None:
        raise ValueError(f"its network is the user's own {type(algo.network).__name__}")
    config = {field.name: getattr(algo.config, field.name) for field in dataclasses.fields(algo.config)}
    return {"algorithm": algo.name, "environment": _describe_environment(algo.env), "config": config}


def build(spec: Mapping[str, Any]) -> Algorithm:
    """The algorithm that `describe` described.

    Raises:
      ValueError, TypeError, ImportError: it cannot be built here.
    """
    config = {name: _hashable(value) for name, value in spec["config"].items()}
    env = _build_environment(spec["environment"])
    return member(spec["algorithm"], "builder")(env, member(spec["algorithm"], "config")(**config))


def _build_environment(spec: Mapping[str, Any]) -> Environment:
    static = {
        name: _build_environment(value) if isinstance(value, Mapping) else _hashable(value)
        for name, value in spec["static"].items()
    }
    return envs.make(spec["name"], **static)


def _describe_environment(env: Any) -> dict[str, Any]:
    """Its name and static fields, a wrapped environment's among them described the same way."""
    other = registry.adapted(env)
    if other is not None:
        return {"name": other[0], "static": other[1]}
    kind = type(env)
    if kind.__module__ == "__main__" or vars(sys.modules[kind.__module__]).get(kind.__name__) is not kind:
        raise ValueError(f"the environment {kind.__name__} cannot be imported by name")
    fields = {field.name: getattr(env, field.name) for field in dataclasses.fields(env) if field.init}
    static = {
        name: _describe_environment(value) if isinstance(value, Environment) else value
        for name, value in fields.items()
    }
    for field, value in static.items():
        if not _is_plain(value):
            raise ValueError(f"its environment's {field} is an object, {type(value).__name__}")
    found = registry.row_of(kind, static)
    name, rest = (f"{kind.__module__}:{kind.__name__}", static) if found is None else found
    return {"name": name, "static": rest}


def _is_plain(value: Any) -> bool:
    """Whether a value is the same after a way through JSON, tuples apart."""
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str | dict)


def _hashable(value: Any) -> Any:
    """A value as JSON gives it back, with lists as the tuples they were."""
    return tuple(_hashable(item) for item in value) if isinstance(value, list) else value
