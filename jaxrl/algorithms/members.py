"""Checks of the members of an algorithm against its contract: their types, arguments and return values."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax

from envs.arguments import check_count, described
from envs.base import Environment
from envs.checking import ContractError
from envs.errors import UserTypeError
from jaxrl.algorithms.contract import Algorithm
from jaxrl.learning.actor import Actor

_ARGUMENTS = {
    "init": ("key", "hparams", "env_params"),
    "step": ("key", "iteration", "state", "hparams", "env_params"),
    "policy": ("state", "hparams"),
    "prepare": ("hparams", "num_settings", "run_length"),
    "discount": ("hparams",),
    "stopped": ("hparams", "env_steps"),
    "warm": ("state", "policy"),
    "sharded": ("shards",),
}
_OPTIONAL = ("discount", "stopped", "warm", "sharded")
_ARGUMENTS_OF_ACTOR = {
    "start": ("policy",),
    "scores": ("policy", "memory", "obs", "mask"),
    "noise": ("key", "shape"),
    "choose": ("noise", "scores", "memory", "greedy", "mask"),
}

__all__ = ["check_members", "check_stepped"]


def check_members(algo: Any) -> None:
    """Rejects an algorithm with a member of the wrong type, or a function with wrong arguments; nothing is traced.

    Raises:
      TypeError: `algo` is not an `Algorithm`.
      ContractError: A member violates the contract.
    """
    if not isinstance(algo, Algorithm):
        raise UserTypeError(f"algo takes an algorithm, such as jaxrl.ppo(envs.make('cartpole')), got {algo!r}")
    kinds = {"env": (Environment, "an environment"), "actor": (Actor, "a jaxrl.learning.actor.Actor")}
    for name, (kind, text) in kinds.items():
        if not isinstance(getattr(algo, name), kind):
            raise ContractError(f"{name} of {algo.name} must be {text}, got {type(getattr(algo, name)).__name__}")
    if not dataclasses.is_dataclass(algo.hparams) or isinstance(algo.hparams, type):
        got = algo.hparams if isinstance(algo.hparams, type) else type(algo.hparams)
        raise ContractError(f"hparams of {algo.name} must be a flax.struct dataclass instance, got {got.__name__}")
    if not isinstance(algo.metric_rules, Mapping):
        raise ContractError(f"metric_rules of {algo.name} must be a dictionary, got {type(algo.metric_rules).__name__}")
    check_count("env_steps_per_iteration", algo.env_steps_per_iteration)
    for name, arguments in _ARGUMENTS.items():
        if name not in _OPTIONAL or getattr(algo, name) is not None:
            _check_function(f"{name} of {algo.name}", getattr(algo, name), arguments)
    for name, arguments in _ARGUMENTS_OF_ACTOR.items():
        _check_function(f"actor.{name} of {algo.name}", getattr(algo.actor, name), arguments)


def check_stepped(state: Any, stepped: Any) -> None:
    """Rejects a step that does not return a state of the same structure and types, and metrics.

    Args:
      state: Arrays of the state, or their shapes.
      stepped: Shapes of the values that the step returned.

    Raises:
      ContractError: The returned values violate the contract.
    """
    if not isinstance(stepped, tuple) or len(stepped) != 2:
        raise ContractError(f"step must return a pair, the state and the metrics, got {described(stepped)}")
    after, metrics = stepped
    if jax.tree.structure(state) != jax.tree.structure(after):
        raise ContractError(
            f"step must return a state with the structure of its argument: {described(state)} became {described(after)}"
        )
    pairs = zip(jax.tree.leaves_with_path(state), jax.tree.leaves(after), strict=True)
    for (path, old), new in pairs:
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            raise ContractError(
                f"step must return a state like its argument: {jax.tree_util.keystr(path)} was "
                f"{described(old)} and became {described(new)}"
            )
    if not isinstance(metrics, dict):
        raise ContractError(f"step must return its metrics as a dictionary, got {type(metrics).__name__}")


def _check_function(name: str, function: Callable[..., Any], arguments: tuple[str, ...]) -> None:
    if not callable(function):
        raise ContractError(f"{name} must be a function of ({', '.join(arguments)}), got {function!r}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # builtins without a signature
        return
    try:
        signature.bind(*arguments)
    except TypeError:
        takes = ", ".join(signature.parameters)
        raise ContractError(f"{name} must take ({', '.join(arguments)}), but it takes ({takes})") from None
