"""Builders of algorithms by their paths, and how an algorithm is built again from its builder."""

import importlib
import inspect
import sys
from collections.abc import Callable
from typing import Any

from envs.errors import UserValueError
from envs.spelling import near

__all__ = ["again", "imported", "is_edited", "reduced"]


def imported(path: str) -> Any:
    """Function of a path `module:name`.

    Raises:
      ValueError: There is no such module, or no function of this name in it.
    """
    module, _, name = path.partition(":")
    try:
        function = getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError as error:
        if error.name is None or not (module == error.name or module.startswith(f"{error.name}.")):
            raise  # a module that it imports is missing
        raise UserValueError(f"The algorithm {path!r} cannot be found: there is no module {module!r} here") from error
    if not callable(function):
        functions = [word for word, value in vars(sys.modules[module]).items() if inspect.isfunction(value)]
        hint = near(name, functions) or "."
        raise UserValueError(f"The algorithm {path!r} cannot be found: {module} has no function {name!r}{hint}")
    return function


def again(builder: Callable[..., Any], env: Any, config: Any = None, network: Any = None) -> Any:
    """Algorithm by its builder, `builder(env)`, `builder(env, config)` or `builder(env, config, network)`."""
    if network is not None:
        return builder(env, config, network)
    return builder(env) if config is None else builder(env, config)


def is_edited(algo: Any) -> bool:
    """Whether functions of an algorithm differ from those of its builder, as of a copy with another actor."""
    built = again(imported(algo.builder), algo.env, algo.config, algo.network)
    return _codes(built.functions) != _codes(algo.functions)


def reduced(algo: Any) -> tuple[Any, ...]:
    """Value of `Algorithm.__reduce__`: its builder and the arguments, so that no function of it needs to be pickled.

    The parts of an algorithm without a builder, or of an edited copy, are pickled one by one: plain pickle takes them
    where its functions are of a module, and cloudpickle takes any.
    """
    arguments = algo.env, algo.config, algo.network
    try:
        builder = None if algo.builder is None else imported(algo.builder)
    except UserValueError:  # one that is defined inside a function
        builder = None
    if builder is not None and _codes(algo) == _codes(again(builder, *arguments)._replace(hparams=algo.hparams)):
        return _unpickled, (builder, *arguments, algo.hparams)
    return type(algo), tuple(algo._replace(metric_rules=dict(algo.metric_rules)))


def _unpickled(builder: Callable[..., Any], env: Any, config: Any, network: Any, hparams: Any) -> Any:
    return again(builder, env, config, network)._replace(hparams=hparams)


def _codes(functions: Any) -> Any:
    """Code objects of functions, for comparison: builders make new functions of the same code."""
    if isinstance(functions, tuple):
        return tuple(map(_codes, functions))
    return getattr(functions, "__code__", functions)
