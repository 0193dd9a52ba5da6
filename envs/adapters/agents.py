"""What adapters of crowds to libraries with an agent by name share."""

from typing import Any

import jax
import jax.numpy as jnp

from envs import base
from envs.abstract_checking import check_abstractly, sample

__all__ = ["agent_names", "broken_up", "num_agents", "present", "sample"]


def num_agents(env: base.Environment, params: Any, what: str) -> int:
    """How many agents an environment has at most.

    Args:
      env, params: the environment.
      what: the function that takes it, for the error.

    Raises:
      TypeError: `env` is no environment.
      ContractError: it breaks the contract.
      ValueError: it is not one of agents along a single axis.
    """
    agents = check_abstractly(env, params)
    if len(agents) != 1:
        has = "a single agent" if not agents else f"agents along {len(agents)} axes"
        raise ValueError(f"{what} takes a crowd, whose rewards have the shape (agents,), and {env.name} has {has}.")
    return agents[0]


def agent_names(count: int) -> list[str]:
    """`agent_0`, `agent_1` and so on."""
    return [f"agent_{i}" for i in range(count)]


def broken_up(tree: Any, names: list[str]) -> dict[str, Any]:
    """Leaves `[N, ...]` as a dictionary of agents' own parts."""
    return {name: jax.tree.map(lambda leaf, i=i: leaf[i], tree) for i, name in enumerate(names)}


def present(env: base.Environment, state: Any, params: Any, count: int) -> jax.Array:
    """Bool `[count]`: who takes part in the next transition, whatever the actions are.

    It is read off a step, of which a compiled program keeps nothing else.
    """
    key = jax.random.key(0)
    action = sample(env.action_space(params), key, (count,))
    info = env.step_env(key, state, action, params)[4]
    return jnp.broadcast_to(info.get("active", True), (count,))
