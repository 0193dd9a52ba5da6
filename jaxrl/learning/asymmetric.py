"""Critics that see more than the actor: their inputs and networks, and the fields of configurations."""

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from envs.base import Environment, spaces
from envs.choices import Choices, encoded, with_choices
from envs.errors import UserTypeError, UserValueError
from envs.wrappers import asymmetric
from envs.wrappers.asymmetric import ACTOR_WORDS, CRITIC_WORDS, View
from jaxrl.importing import imported
from jaxrl.learning.networks import are_pixels, last_of_actor, last_of_critic, perceptron
from jaxrl.learning.recurrent import RecurrentActorCritic, part_of, unroll
from jaxrl.pytrees import EnvParams, Memory, Observation, Params, PyTree, State

# Value of `actor_sees` or `critic_sees`: a word, the name of an entry of observations, several, or a function, or the
# path of a function.
Sees = Callable[[Any], Any] | str | tuple[str, ...]

__all__ = [
    "ACTOR_WORDS",
    "CRITIC_WORDS",
    "AsymmetricActorCritic",
    "AsymmetricHeads",
    "AsymmetricRecurrentActorCritic",
    "CentralisedActorCritic",
    "Seen",
    "Sees",
    "View",
    "apply_centralised",
    "check_sees",
    "critic_input",
    "critic_observation",
    "critic_shapes",
    "facts_of",
    "global_observation_shapes",
    "is_asymmetric",
    "seen_by",
]


def check_sees(name: str, value: object, words: tuple[str, ...]) -> Any:
    """Value of the field `actor_sees` or `critic_sees` of a configuration, in which lists are tuples.

    Raises:
      TypeError: The value is neither a word, names, nor a function.
    """
    value = tuple(value) if isinstance(value, list) else value
    names = value if isinstance(value, tuple) else (value,)
    if callable(value) or (names and all(isinstance(each, str) and each for each in names)):
        return value
    raise UserTypeError(
        f"{name} takes {', '.join(map(repr, words))}, names of entries of observations, or a function of an "
        f"observation, got {value!r}"
    )


def seen_by(env: Environment, actor_sees: Sees, critic_sees: Sees = "own") -> tuple[Environment, View]:
    """Result of `envs.wrappers.asymmetric.seen_by`, which takes functions, for functions or their paths."""
    return asymmetric.seen_by(env, _with_function(actor_sees), _with_function(critic_sees))


def _with_function(sees: Sees) -> Sees:
    """Value of a field, with the function of a path in place of the path."""
    return imported(sees, "function of an observation") if isinstance(sees, str) and ":" in sees else sees


def facts_of(env: Environment, view: View) -> Callable[[State, EnvParams], Any] | None:
    """Function of a state and parameters that returns what only a critic sees; None where it sees nothing more."""
    if view == "own":
        return None
    return env.global_observation if view == "global" else env.privileged


def critic_shapes(env: Environment, view: View, agents: tuple[int, ...]) -> Any:
    """Shapes of what only a critic sees, of one agent or of all together; None where it sees nothing more.

    Args:
      env: Environment with its default parameters.
      view: Kind of the critic's input.
      agents: Axes of its agents.

    Raises:
      ValueError: The environment does not have it.
    """
    if view == "own":
        return None
    params = env.default_params
    state = jax.eval_shape(env.reset_env, jax.random.key(0), params)[1]
    if view == "global":
        return global_observation_shapes(env, state, agents)
    facts: Any = jax.eval_shape(env.privileged, state, params)
    if not jax.tree.leaves(facts):
        space = asymmetric.seen_from(env).observation_space(params)
        names = [name for name in space.spaces if "privileged" in name] if isinstance(space, spaces.Dict) else []
        listed = " or ".join(f"critic_sees={('privileged',) if name == 'privileged' else name!r}" for name in names)
        hint = "; envs.wrappers.randomise(env, ...) adds one, which returns the drawn values"
        hint = f"; {listed} shows that entry of the observations" if names else hint
        raise UserValueError(
            f"critic_sees='privileged' takes an environment with a method privileged(state, params), which {env.name} "
            f"does not have{hint}"
        )
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[len(agents) :], leaf.dtype), facts)
    space = env.privileged_space(params)
    return shapes if space is None else with_choices(space, shapes)


def critic_input(view: View, obs: Observation, facts: Observation) -> Any:
    """Input of a critic whose facts are of each agent, or its shapes; leaves `[*B, ...]`.

    Args:
      view: Kind of the input, not "global".
      obs: Observations of the actor.
      facts: What only the critic sees; None with the view "own".
    """
    if view == "own":
        return obs
    if view == "apart":
        return facts
    if not isinstance(obs, dict) or "neighbours" not in obs:
        return {"observation": obs, "privileged": facts}
    rows = {name: obs[name] for name in ("neighbours", "neighbours_present")}
    return rows | {"own": {name: leaf for name, leaf in obs.items() if name not in rows} | {"privileged": facts}}


class Seen(NamedTuple):
    """Input of a network of which the critic sees more than the actor.

    Attributes:
      obs: Observation of the actor.
      facts: Privileged facts for the critic; None where only the actor is of interest.
    """

    obs: Any
    facts: Any = None


class AsymmetricActorCritic(nn.Module):
    """Two networks, of an actor and of a critic that sees more.

    Attributes:
      actor: Encoder of the actor, `(obs) -> features`.
      critic: Encoder of the critic, `(critic_input(...)) -> features`.
      view: Kind of the critic's input.
      num_outputs: Number of outputs that the action head takes (`ActionHead.num_outputs`).
      num_values: Number of values of the critic; None for one, without an axis.

    Source: Pinto et al. (2018), "Asymmetric actor critic for image-based robot learning".
    """

    actor: nn.Module
    critic: nn.Module
    view: View
    num_outputs: int
    num_values: int | None = None

    @nn.compact
    def __call__(self, seen: Seen) -> tuple[jax.Array, jax.Array | None]:
        """Outputs of the actor `[num_outputs]` and the value `[]`, or values `[num_values]`; None without facts."""
        outputs = last_of_actor(self.actor(seen.obs), self.num_outputs)
        if seen.facts is None:
            return outputs, None
        return outputs, last_of_critic(self.critic(critic_input(self.view, *seen)), self.num_values)


class AsymmetricHeads(nn.Module):
    """`recurrent.Heads` whose critic also takes features of what only it sees.

    Attributes:
      num_outputs: Number of outputs that the action head takes (`ActionHead.num_outputs`).
      hidden: Widths of the hidden layers of each.
      activation: Name in `networks.ACTIVATIONS`.
      num_values: Number of values of the critic; None for one, without an axis.
    """

    num_outputs: int
    hidden: tuple[int, ...] = ()
    activation: str = "tanh"
    num_values: int | None = None

    @nn.compact
    def __call__(self, features: jax.Array, of_critic: Any = None) -> tuple[jax.Array, jax.Array | None]:
        """Outputs of the actor `[num_outputs]`, and the value or values; None without the critic's features."""
        chex.assert_rank(features, 1, custom_message="features")
        outputs = last_of_actor(perceptron(features, self.hidden, self.activation, "actor"), self.num_outputs)
        if of_critic is None:
            return outputs, None
        seen = jnp.concatenate([features, of_critic])
        return outputs, last_of_critic(perceptron(seen, self.hidden, self.activation, "critic"), self.num_values)


class AsymmetricRecurrentActorCritic(RecurrentActorCritic):
    """A `RecurrentActorCritic` whose critic also takes what only it sees.

    The value depends on the memory too: a value of the state alone is biased where the policy remembers.

    Attributes:
      critic: Encoder of what only the critic sees, `(critic_input(...)) -> features`.
      view: Kind of the critic's input.

    Source: Baisero and Amato (2022), "Unbiased asymmetric reinforcement learning under partial observability".
    """

    critic: nn.Module
    view: View

    def __call__(self, obs: Seen, memory: Memory) -> tuple[jax.Array, Any, Memory]:
        """Outputs, value and the memory after one observation."""
        features, memory = self.cell(self.encoder(obs.obs), memory)
        of_critic = None if obs.facts is None else self.critic(critic_input(self.view, *obs))
        outputs, value = self.heads(features, of_critic)
        return outputs, value, memory

    def unroll(self, params: Params, obs: Seen, memory: Memory, reset: jax.Array) -> tuple[jax.Array, Any, Memory]:
        """Outputs, values and memories after each observation of a sequence; only the cell is sequential."""
        chex.assert_rank(reset, 1, custom_message="reset")
        encoded = jax.vmap(self.encoder.apply, in_axes=(None, 0))(part_of(params, "encoder"), obs.obs)
        features, memories = unroll(self.cell, part_of(params, "cell"), encoded, memory, reset)
        of_critic = None
        if obs.facts is not None:
            seen = critic_input(self.view, *obs)
            of_critic = jax.vmap(self.critic.apply, in_axes=(None, 0))(part_of(params, "critic"), seen)
        outputs, value = jax.vmap(self.heads.apply, in_axes=(None, 0, 0))(part_of(params, "heads"), features, of_critic)
        return outputs, value, memories


def is_asymmetric(network: Any) -> bool:
    """Whether a network takes `Seen` in place of an observation."""
    return isinstance(network, AsymmetricActorCritic | AsymmetricRecurrentActorCritic)


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
    def __call__(self, obs: Observation, global_obs: Observation = None) -> tuple[jax.Array, jax.Array | None]:
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
    obs: Observation, global_obs: Observation, own_scale: float = 1.0, neighbour_scale: float = 1.0
) -> dict[str, Any]:
    """Input of a centralised critic: an agent's own observation together with the global one.

    Rows "agents" of the global observation take the place of neighbours in `relation.RelationActorCritic`, which pools
    them, so that the order of the agents has no effect.

    Args:
      obs: Observation of one agent.
      global_obs: Global observation of its environment.
      own_scale: Factor of all but flags of presence and the agent's neighbours, static; pixels are divided by 255, too.
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
    network: nn.Module, params: Params, obs: Observation, global_obs: Observation, num_axes: int, num_agent_axes: int
) -> tuple[jax.Array, jax.Array]:
    """Apply a centralised network to all agents of environments; features of `global_obs` are computed once for all.

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
    return jax.tree.map(lambda leaf: (leaf / 255.0 if are_pixels(leaf) else leaf) * factor, tree)


def _has_rows(global_obs: Observation) -> bool:
    return isinstance(global_obs, dict) and {"agents", "agents_present"} <= set(global_obs)
