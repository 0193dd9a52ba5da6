"""Centralised critics: the actor takes an agent's own observation, the critic the global observation as well."""

from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from envs.base import Environment
from envs.choices import Choices, encoded
from envs.errors import UserValueError
from jaxrl.learning.networks import last_of_actor, last_of_critic
from jaxrl.pytrees import Params, PyTree, State

__all__ = ["CentralisedActorCritic", "apply_centralised", "critic_observation", "global_observation_shapes"]


class CentralisedActorCritic(nn.Module):
    """Two networks: an actor of an agent's own observation, and a critic of both the own and the global observation.

    Attributes:
      actor: Encoder of the actor, `(obs) -> features`.
      critic: Encoder of the critic, which takes `critic_observation(obs, global_obs, own_scale, neighbour_scale)`.
      num_outputs: Number of outputs that the action head takes (`ActionHead.num_outputs`).
      num_values: Number of values of the critic; None for one, without an axis.
      own_scale, neighbour_scale: Factors of inputs of the critic.
      choices: Choices in observations, by `choices.choices_of`; `actor` encodes its own.

    Source: Yu et al. (2022), "The surprising effectiveness of PPO in cooperative multi-agent games" (MAPPO).
    """

    actor: nn.Module
    critic: nn.Module
    num_outputs: int
    num_values: int | None = None
    own_scale: float = 1.0
    neighbour_scale: float = 1.0
    choices: Choices = ()

    @nn.compact
    def __call__(self, obs: Any, global_obs: Any = None) -> tuple[jax.Array, jax.Array | None]:
        """Outputs of the actor `[num_outputs]` and the value `[]`, or values `[num_values]`, of one agent.

        Args:
          obs: Observation of the agent.
          global_obs: Global observation of its environment; None for the outputs alone, with None as the value.
        """
        outputs = last_of_actor(self.actor(obs), self.num_outputs)
        if global_obs is None:
            return outputs, None
        seen = critic_observation(encoded(obs, self.choices), global_obs, self.own_scale, self.neighbour_scale)
        return outputs, last_of_critic(self.critic(seen), self.num_values)


def critic_observation(
    obs: Any, global_obs: Any, own_scale: float = 1.0, neighbour_scale: float = 1.0
) -> dict[str, Any]:
    """Input of a centralised critic: an agent's own observation together with the global one.

    Rows "agents" of the global observation take the place of neighbours in `relation.RelationActorCritic`, which pools
    them, so that the order of the agents has no effect.

    Args:
      obs: Observation of one agent.
      global_obs: Global observation of its environment.
      own_scale: Factor of all but flags of presence and the agent's neighbours, static.
      neighbour_scale: Factor of the neighbours that the agent observes, static.
    """
    factors = {"neighbours": neighbour_scale, "neighbours_present": 1.0, "agents_present": 1.0}

    def scaled(tree: PyTree) -> Any:
        if not isinstance(tree, dict):
            return _times(tree, own_scale)
        return {name: _times(part, factors.get(name, own_scale)) for name, part in tree.items()}

    own, others = scaled(obs), scaled(global_obs)
    if not _has_rows(global_obs):
        return {"own": own, "global": others}
    rows = {"neighbours": others.pop("agents"), "neighbours_present": others.pop("agents_present")}
    return {"own": own, "global": others} | rows


def apply_centralised(
    network: nn.Module, params: Params, obs: Any, global_obs: Any, num_axes: int, num_agent_axes: int
) -> tuple[jax.Array, jax.Array]:
    """Applies a centralised network to all agents of environments; features of `global_obs` are computed once for all.

    Args:
      network: Centralised network, a `CentralisedActorCritic`.
      params: Parameters of the network.
      obs: Observations, leaves `[*B, *A, ...]`.
      global_obs: Global observations, leaves `[*B, ...]`.
      num_axes: Number of the axes `*B` and `*A`, static.
      num_agent_axes: Number of the axes `*A`, static.

    Returns:
      Outputs and values `[*B, *A, ...]`.
    """
    leading = jax.tree.leaves(global_obs)[0].shape[: num_axes - num_agent_axes]
    chex.assert_tree_shape_prefix((obs, global_obs), leading, custom_message="obs, global_obs")
    function: Any = network.apply
    for axis in range(num_axes):
        function = jax.vmap(function, in_axes=(None, 0, None if axis < num_agent_axes else 0))
    return function(params, obs, global_obs)


def global_observation_shapes(env: Environment, state: State, agents: tuple[int, ...]) -> Any:
    """Shapes of the global observation of an environment.

    Args:
      env: Environment with its default parameters.
      state: Shapes of its state.
      agents: Axes of its agents.

    Raises:
      ValueError: There is one agent, or no global observation, or critics do not support its form.
    """
    if not agents:
        raise UserValueError(f"critic_sees='global' takes an environment of several agents, got {env.name} with one")
    shapes: Any = jax.eval_shape(env.global_observation, state, env.default_params)
    if not jax.tree.leaves(shapes):
        raise UserValueError(
            f"critic_sees='global' takes an environment with a global_observation, which {env.name} does not have"
        )
    for path, leaf in jax.tree.leaves_with_path(shapes):
        if not any(jnp.issubdtype(leaf.dtype, kind) for kind in (jnp.floating, jnp.integer, jnp.bool_)):
            raise UserValueError(
                f"global_observation{jax.tree_util.keystr(path)} of {env.name} must have real numbers, got {leaf.dtype}"
            )
    if _has_rows(shapes):
        rows, present = shapes["agents"].shape, shapes["agents_present"].shape
        if len(rows) != 2 or present != rows[:1]:
            raise UserValueError(
                f"global_observation of {env.name} must have 'agents' [N, F] and 'agents_present' [N], got shapes "
                f"{rows} and {present}"
            )
    return shapes


def _times(tree: PyTree, factor: float) -> Any:
    return jax.tree.map(lambda leaf: leaf * factor, tree)


def _has_rows(global_obs: Any) -> bool:
    return isinstance(global_obs, dict) and {"agents", "agents_present"} <= set(global_obs)
