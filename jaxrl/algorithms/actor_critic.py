"""Shared parts of off-policy actor-critic algorithms."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from envs.base import Environment, spaces
from envs.errors import UserTypeError, UserValueError
from jaxrl.algorithms.actor_critic_config import ActorCriticConfig
from jaxrl.algorithms.contract import Algorithm, Metrics, longest_episode
from jaxrl.algorithms.critic_ensemble import Critics, critics_of
from jaxrl.algorithms.observations import leading_axes, observation_shapes, zeros
from jaxrl.algorithms.off_policy import Method, OffPolicyPolicy, OffPolicyState, off_policy_functions
from jaxrl.algorithms.q_discount import prepare_discount
from jaxrl.checks import effective
from jaxrl.discounts.parsing import Exponential
from jaxrl.learning import value_losses
from jaxrl.learning.action_heads import ActionHead, action_head
from jaxrl.learning.actor import Actor, Scores
from jaxrl.learning.exploration import CORRELATION, noisy_actor
from jaxrl.learning.networks import Module, apply_over
from jaxrl.learning.output_networks import OutputNetwork, with_action
from jaxrl.learning.replay import Window
from jaxrl.sweeps.distributions import Choice, LogUniform, Uniform

# `(key, learner, window, weight, hparams, count) -> (learner, error, metrics)`, as in `Method`.
Learn = Callable[[jax.Array, Any, Window, jax.Array, Any, jax.Array], tuple[Any, jax.Array, Metrics]]

__all__ = ["Acting", "Parts", "algorithm", "parts_of", "search_space"]


class Acting(NamedTuple):
    """Parameters and numbers from which actions are computed.

    Attributes:
      params: Parameters of the policy.
      noise_std: Standard deviation of the noise, float32 `[]`; None for a policy with its own.
      correlation: Correlation of the noise of two steps, float32 `[]`; None for independent noise.
    """

    params: Any
    noise_std: jax.Array | None
    correlation: jax.Array | None


class Parts(NamedTuple):
    """Networks of an algorithm on one environment.

    Attributes:
      head: Action head of the environment's action space.
      shapes: Shapes of the observation of one agent.
      policy: Network of the policy.
      critics: Ensemble of critics.
      axes: Number of leading axes of transitions in a batch, `[B, *A]`.
      walks: Whether the noise is correlated.
    """

    head: ActionHead
    shapes: Any
    policy: Module
    critics: Critics
    axes: int
    walks: bool

    def init(self, key: jax.Array) -> tuple[Any, Any]:
        """Parameters of the policy and of the critics."""
        policy_key, critic_key = jax.random.split(key)
        policy = self.policy.init(policy_key, zeros(self.shapes))
        action = jax.ShapeDtypeStruct((self.head.num_outputs,), jnp.float32)
        return policy, self.critics.init(critic_key, with_action(self.shapes, action))

    def outputs(self, params: Any, obs: Any) -> jax.Array:
        """Outputs of the policy for observations with any leading axes."""
        return apply_over(self.policy, params, obs, leading_axes(obs, self.shapes))

    def values(self, params: Any, obs: Any, action: jax.Array) -> jax.Array:
        """Outputs for the values of actions in a batch, `[num_critics, B, *A, K, num_outputs]`."""
        return self.critics.outputs(params, with_action(obs, action), self.axes)

    def actor(
        self,
        scores: Callable[[Acting, jax.Array], Scores],
        act: Callable[[jax.Array | None, Scores], jax.Array],
    ) -> Actor:
        """Actor of the policy.

        Args:
          scores: Function `(acting, outputs) -> scores`.
          act: Function as for `exploration.noisy_actor`.
        """

        def of_policy(policy: OffPolicyPolicy, obs: Any, mask: Any) -> Scores:
            del mask
            outputs = self.outputs(policy.acting.params, policy.see(obs))
            walk = {CORRELATION: jnp.broadcast_to(policy.acting.correlation, outputs.shape[:-1])} if self.walks else {}
            return scores(policy.acting, outputs) | walk

        return noisy_actor(of_policy, act, self.head, self.walks)


def parts_of(
    name: str,
    env: Environment,
    config: ActorCriticConfig,
    agents: tuple[int, ...],
    outputs_per_component: int,
    kinds: str = "a Box of floats",
) -> Parts:
    """Networks of an algorithm.

    Args:
      name: Name of the algorithm, for error messages.
      env: Environment of one agent or a crowd.
      config: Configuration.
      agents: Agents' axes.
      outputs_per_component: Number of outputs of the policy for each component of an action.
      kinds: Action spaces that the algorithm takes, for error messages.

    Raises:
      TypeError: Actions are not a Box of floats.
      ValueError: A bound of the actions is infinite, or the network does not fit the observations.
    """
    head = _bounded_head(name, env.action_space(env.default_params), kinds)
    if config.network == "cnn":
        raise UserValueError("network takes 'auto', 'mlp', 'simba' or 'relation' where critics take actions, got 'cnn'")
    shapes = observation_shapes(env, agents)
    inputs = with_action(shapes, jax.ShapeDtypeStruct((head.num_outputs,), jnp.float32))
    policy = OutputNetwork(config.encoder(shapes), outputs_per_component * head.num_outputs, 0.01)
    encoder = config.encoder(inputs, with_action=True)
    critics = critics_of(config, lambda num_values: OutputNetwork(encoder, num_values))
    return Parts(head, shapes, policy, critics, 1 + len(agents), config.noise == "ornstein-uhlenbeck")


def _bounded_head(name: str, space: spaces.Space, kinds: str) -> ActionHead:
    if not isinstance(space, spaces.Box) or not jnp.issubdtype(space.dtype, jnp.floating):
        hint = "; dqn, pqn, sac and ppo take discrete actions" if isinstance(space, spaces.Discrete) else ""
        raise UserTypeError(f"{name} takes an environment whose action space is {kinds}, got {space!r}{hint}")
    low, high = np.asarray(space.low, np.float64), np.asarray(space.high, np.float64)
    if not np.all((high - low) < np.finfo(np.float32).max):
        raise UserValueError(
            f"{name} takes an environment whose actions have finite bounds, got {space!r} with bounds from "
            f"{np.min(low):g} to {np.max(high):g}; envs.wrappers.bound_actions gives them bounds"
        )
    return action_head(space)


def search_space(algo: Algorithm) -> dict[str, Uniform | LogUniform | Choice]:
    """The default search space of an algorithm with a policy and critics."""
    space: dict[str, Uniform | LogUniform | Choice] = {
        "lr": LogUniform(1e-4, 1e-2),
        "policy_lr": LogUniform(1e-4, 1e-2),
        "target_rate": LogUniform(1e-3, 0.1),
    }
    if isinstance(algo.hparams.discount, Exponential):
        space["discount"] = Choice([0.9, 0.95, 0.98, 0.99, 0.995])
    return space


def algorithm(
    builder: str,
    env: Environment,
    config: ActorCriticConfig,
    agents: tuple[int, ...],
    actor: Actor,
    warming: Actor,
    hparams: Any,
    effects: dict[str, bool],
    init_learner: Callable[[jax.Array, Any], Any],
    learn: Learn,
    own_defaults: Mapping[str, float] | None = None,
) -> Algorithm:
    """Algorithm with the given actor and gradient steps.

    Args:
      builder: Path `"module:name"` of its builder; the name is that of the algorithm.
      env: Environment of one agent or a crowd.
      config: Configuration.
      agents: Agents' axes.
      actor: Actor of the policy.
      warming: Actor of the random actions of the warm-up.
      hparams: Class of the hyper-parameters.
      effects: Mapping from the names of this algorithm's hyper-parameters that have no effect in some configurations to
        whether they have one.
      init_learner: Function `(key, hparams) -> learner`, a named tuple with the field `policy`, its parameters, and
        perhaps `target_policy`.
      learn: Function of one gradient step, `Method.learn`.
      own_defaults: Defaults that depend on the environment, by names in `effects`; they are None in the class.
    """
    effects = effects | {
        "observation_clip": config.normalise_observation,
        **dict.fromkeys(("priority_alpha", "priority_beta"), config.replay == "prioritised"),
        "huber_delta": config.value_loss in value_losses.WITH_HUBER,
        "noise_correlation": config.noise == "ornstein-uhlenbeck",
    }
    episode_length = longest_episode(env)
    num_heads = 1 if config.heads == "single" else config.num_heads
    defaults = {name: hparams.__dataclass_fields__[name].default for name in effects} | dict(own_defaults or {})

    def prepare(hparams: Any, num_settings: int | None = None, run_length: int | None = None) -> Any:
        del run_length
        changes = {
            name: effective(name, getattr(hparams, name), defaults[name], on, num_settings)
            for name, on in effects.items()
        }
        discount = prepare_discount(
            hparams.discount, config.heads, num_heads, episode_length, num_settings, "heads='joint'"
        )
        return dataclasses.replace(hparams, discount=discount, **changes)

    def acting(learner: Any, hparams: Any) -> Acting:
        def number(name: str) -> jax.Array | None:
            value = getattr(hparams, name, None)
            return None if value is None else jnp.asarray(value, jnp.float32)

        return Acting(
            learner.policy, number("noise_std"), number("noise_correlation") if effects["noise_correlation"] else None
        )

    method = Method(
        actor=actor,
        init=init_learner,
        scheduled=lambda learner, hparams, env_steps: learner,
        acting=acting,
        warming=warming,
        learn=learn,
    )
    init, step, policy_of = off_policy_functions(env, config, agents, prepare, method)

    def warm(state: OffPolicyState, policy: OffPolicyPolicy) -> OffPolicyState:
        names = {"policy", "target_policy"} & set(state.learner._fields)
        learner = state.learner._replace(**dict.fromkeys(names, policy.acting.params))
        return state._replace(learner=learner, observations=policy.observations)

    return Algorithm(
        name=builder.partition(":")[2],
        env=env,
        config=config,
        hparams=hparams(**{name: defaults[name] if on else None for name, on in effects.items()}),
        init=init,
        step=step,
        policy=policy_of,
        actor=actor,
        env_steps_per_iteration=config.steps_per_iteration,
        prepare=prepare,
        discount=lambda hparams: hparams.discount,
        builder=builder,
        warm=warm,
    )
