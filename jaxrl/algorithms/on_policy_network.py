"""Network of an on-policy algorithm: the user's own, or the one that the configuration selects."""

from typing import Any

import jax

from envs.base import Environment
from envs.errors import UserValueError
from jaxrl.algorithms.observations import SCALED_SLOTS, observation_shapes
from jaxrl.learning.beliefs import Belief, BelievingHeads
from jaxrl.learning.centralised import global_observation_shapes
from jaxrl.learning.networks import Module, check_network
from jaxrl.learning.recurrent import RecurrentActorCritic, check_recurrent, is_recurrent
from jaxrl.learning.relation import RelationActorCritic

__all__ = ["choose_network", "shapes_of"]


def shapes_of(env: Environment, config: Any, agents: tuple[int, ...]) -> tuple[Any, Any]:
    """Shapes of one agent's observation and of the global observation, None if the critic does not take it.

    Args:
      env: Environment with its default parameters.
      config: Configuration, an `OnPolicyConfig`.
      agents: Axes of its agents.

    Raises:
      ValueError: The critic takes a global observation, which the environment does not have.
    """
    obs = observation_shapes(env, agents)
    if config.critic_sees != "global":
        return obs, None
    state = jax.eval_shape(env.reset_env, jax.random.key(0), env.default_params)[1]
    return obs, global_observation_shapes(env, state, agents)


def choose_network(
    config: Any,
    own: Module | None,
    obs: Any,
    global_obs: Any,
    num_outputs: int,
    num_values: int | None,
    belief: Belief | None = None,
) -> Module:
    """Network for observations of these shapes.

    Args:
      config: Configuration, an `OnPolicyConfig`.
      own: Custom network, None for the one that the configuration selects.
      obs: Shapes of one observation.
      global_obs: Shapes of the global observation, None if the critic does not take it.
      num_outputs: Number of outputs of the actor.
      num_values: Number of values of the critic; None for one, without an axis.
      belief: Belief whose outputs follow those of the actor; None for none.

    Raises:
      TypeError, ValueError: The network, or a field of the configuration, does not fit the observations.
    """
    if own is not None:
        config.check_own_network()
        network = own
    elif global_obs is not None:
        network = config.centralised(obs, global_obs, num_outputs, num_values)
        _refuse_scaled_slots(config, network.actor, network.critic)
        return network
    else:
        network = config.actor_critic(obs, num_outputs, num_values)
        _refuse_scaled_slots(config, getattr(network, "encoder", network))
        if belief is not None:
            assert isinstance(network, RecurrentActorCritic)
            heads = BelievingHeads(network.heads, belief, config.belief != "auxiliary")
            network = RecurrentActorCritic(network.encoder, network.cell, heads)
            num_outputs += belief.num_outputs
    check = check_recurrent if is_recurrent(network) else check_network
    check(network, obs, num_outputs, num_values)
    return network


def _refuse_scaled_slots(config: Any, actor: Module, critic: Module | None = None) -> None:
    """Rejects normalisation of observations whose rows a network treats alike."""
    if not config.normalise_observation:
        return
    if isinstance(actor, RelationActorCritic):
        raise UserValueError(SCALED_SLOTS)
    if isinstance(critic, RelationActorCritic):
        raise UserValueError(
            "normalise_observation would scale every slot of the global observation's 'agents' differently; "
            "use own_scale instead, or network='mlp'"
        )
