"""Parameters of adapted environments, and crowds as dictionaries by agent name, for adapters to other libraries."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from envs import base
from envs.abstract_checking import check_abstractly, sample
from envs.arguments import class_names
from envs.errors import UserTypeError, UserValueError
from envs.pytrees import Params, PyTree, State

__all__ = ["agent_names", "broken_up", "crowd", "known_params", "present", "sample"]


def crowd(env: base.Environment, params: Params, what: str) -> tuple[Any, int]:
    """The parameters of a crowd, and its largest number of agents.

    Args:
      env: Environment.
      params: Parameters of the environment; None for its defaults.
      what: Name of the calling function, for the error message.

    Raises:
      TypeError: `env` is not an environment, or `params` belong to another environment.
      ContractError: `env` breaks the contract.
      ValueError: `env` does not have agents along a single axis, or parameters are out of range.
    """
    params = known_params(env, params, what) if isinstance(env, base.Environment) else None
    agents = check_abstractly(env, params)
    if len(agents) != 1:
        has = "a single agent" if not agents else f"agents along {len(agents)} axes"
        raise UserValueError(f"{what} takes a crowd, whose rewards have the shape (agents,), and {env.name} has {has}.")
    return params, agents[0]


def known_params(env: base.Environment, params: Params, what: str) -> Any:
    """Check that parameters belong to an environment and, where concrete, are in range, and return them.

    Args:
      env: Environment of one or several agents.
      params, what: See `crowd`.

    Raises:
      TypeError: `params` belong to another environment.
      ValueError: `params` are out of range.
    """
    usual = env.default_params
    params = usual if params is None else params
    if not isinstance(params, type(usual)):
        kind, got = class_names(type(usual), params)
        raise UserTypeError(f"params must be {kind} of {env.name}, got {got}.")
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(params)):
        return params
    env.check_params(params)
    limit = np.asarray(params.max_steps_in_episode)
    if np.any((limit < 1) | (limit != np.floor(limit))):
        raise UserValueError(f"max_steps_in_episode is {limit}; {what} takes a whole number of at least 1.")
    return params


def agent_names(count: int) -> list[str]:
    """`agent_0`, `agent_1` and so on."""
    return [f"agent_{i}" for i in range(count)]


def broken_up(tree: PyTree, names: list[str]) -> dict[str, Any]:
    """Leaves `[N, ...]` as a dictionary by agent."""
    return {name: jax.tree.map(lambda leaf, i=i: leaf[i], tree) for i, name in enumerate(names)}


def present(env: base.Environment, state: State, params: Params, count: int) -> jax.Array:
    """The agents that take part in the next transition, for any actions, bool `[count]`.

    It is taken from a step, whose other results a compiled program omits.
    """
    key = jax.random.key(0)
    action = sample(env.action_space(params), key, (count,))
    info = env.step_env(key, state, action, params)[4]
    return jnp.broadcast_to(info.get("active", True), (count,))
