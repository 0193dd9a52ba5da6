"""Flags of public dataclasses and functions take True or False: another value, such as "no", would count as True."""

import dataclasses
import importlib
import inspect
import pickle
import pkgutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import envs
import jaxrl
from envs.adapters.outgoing import gymnasium, gymnasium_vector
from envs.cooperation.levers import LeverGame
from envs.crowd.crowd import Crowd
from jaxrl.algorithms import registry
from jaxrl.bandits.bounds import lower
from jaxrl.results import loading, storage
from jaxrl.results.policy import TrainedPolicy
from jaxrl.results.result import Result
from jaxrl.runtime import options

# The names of a flag's type in annotations, with and without `from __future__ import annotations`.
FLAGS = (bool, "bool", bool | None, "bool | None")
CONFIGS = [
    value
    for name in registry.ROWS
    for value in vars(importlib.import_module(f"jaxrl.algorithms.{name}")).values()
    if isinstance(value, type) and dataclasses.is_dataclass(value) and value.__name__.endswith("Config")
]
PLACES: list[Any] = [
    *(jaxrl, jaxrl.bandits, jaxrl.bandits.bounds, lower, jaxrl.distributed, jaxrl.hazards, jaxrl.plotting),
    *(jaxrl.presets, jaxrl.statistics, jaxrl.tracking, loading, storage, Result, TrainedPolicy),
    *(envs, envs.probes, envs.wrappers, gymnasium, gymnasium_vector.VectorEnv),
]
# Functions of the library itself in these places.
INTERNAL = ("claim_directory", "exclusive", "read_sealed")


def flags_of(kind: Any) -> list[str]:
    """The names of the flags among the fields of a dataclass."""
    return [field.name for field in dataclasses.fields(kind) if field.type in FLAGS]


def dataclasses_of_envs() -> list[type]:
    """The dataclasses of `envs` with flags."""
    modules = [importlib.import_module(each.name) for each in pkgutil.walk_packages(envs.__path__, "envs.")]
    values = {value for module in modules for value in vars(module).values() if isinstance(value, type)}
    own = {value for value in values if value.__module__.startswith("envs.") and dataclasses.is_dataclass(value)}
    return sorted((kind for kind in own if flags_of(kind)), key=str)


def public_functions() -> dict[str, tuple[Callable[..., Any], list[str]]]:
    """The public functions and methods with flags, and the names of these."""
    functions: dict[str, tuple[Callable[..., Any], list[str]]] = {}
    for place in PLACES:
        for name in getattr(place, "__all__", vars(place)):
            function = inspect.unwrap(getattr(place, name)) if callable(getattr(place, name)) else None
            method = name in ("__init__", "__call__") and not dataclasses.is_dataclass(place)
            if inspect.isfunction(function) and (method or not name.startswith("_")) and name not in INTERNAL:
                parameters = inspect.signature(function).parameters.values()
                flags = [each.name for each in parameters if each.annotation in FLAGS]
                where = place.__name__ if isinstance(place, type) else function.__module__
                if flags and function.__module__.partition(".")[0] in ("jaxrl", "envs"):
                    functions[f"{where}.{name}"] = function, flags
    return functions


FUNCTIONS = public_functions()


@pytest.mark.parametrize("kind", dataclasses_of_envs(), ids=lambda kind: kind.__name__)
def test_flags_of_the_dataclasses_of_envs_are_checked(kind: Any):
    fields = [field for field in dataclasses.fields(kind) if field.default is dataclasses.MISSING]
    required = {field.name: False if field.type in FLAGS else None for field in fields}
    for name in flags_of(kind):
        with pytest.raises(TypeError, match=f"^{name} takes True(, False or None| or False), got 'yes'$"):
            kind(**(required | {name: "yes"}))


@pytest.mark.parametrize("kind", CONFIGS, ids=lambda kind: kind.__name__)
def test_flags_of_configurations_are_checked(kind: Any):
    assert len(flags_of(kind)) >= 2
    for name in flags_of(kind):
        with pytest.raises(TypeError, match=f"^{name} takes True or False, got 'yes'$"):
            kind(**{name: "yes"})


@pytest.mark.parametrize("name", FUNCTIONS)
def test_flags_of_functions_are_checked(name: str):
    function, flags = FUNCTIONS[name]
    known = {"algo": jaxrl.ppo(envs.make("probe/constant-reward")), "env_steps": 10, "name": "cartpole"}
    for flag in flags:
        parameters = inspect.signature(function).parameters.values()
        needed = {each.name for each in parameters if each.default is each.empty and each.kind not in (2, 4)}
        needed |= {"env_steps"} & {each.name for each in parameters}
        arguments = {each: known.get(each) for each in needed}
        with pytest.raises(TypeError, match=f"^{flag} takes True or False, got 'yes'$"):
            function(**(arguments | {flag: "yes"}))


def test_flags_among_the_options_of_calls_are_checked():
    known = [name for name, (kind, _) in options.options_of(options.RunOptions).items() if kind in FLAGS]
    assert {"trust", "force", "resume"} < set(known)
    for name in known:
        with pytest.raises(TypeError, match=f"^{name} takes True or False, got 'yes'$"):
            options.checked(jaxrl.train, options.RunOptions, {name: "yes"})


def test_flags_of_numpy_become_those_of_python():
    env = LeverGame(reveals=np.True_)  # pyright: ignore[reportArgumentType]
    assert env.reveals is True and env == LeverGame(reveals=True)


def test_flags_without_a_value_may_be_none():
    with pytest.raises(TypeError, match=r"^backwards takes True, False or None, got 'no'$"):
        Crowd(backwards="no")  # pyright: ignore[reportArgumentType]
    assert Crowd(backwards=None) == Crowd()


def test_flags_are_checked_in_copies_and_survive_pickling():
    env = LeverGame(reveals=True)
    assert pickle.loads(pickle.dumps(env)) == env
    with pytest.raises(TypeError, match=r"^reveals takes True or False, got 1$"):
        dataclasses.replace(env, reveals=1)  # pyright: ignore[reportArgumentType]
