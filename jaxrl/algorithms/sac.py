"""Soft actor-critic: maximisation of rewards and of the entropy of the policy."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from envs.base import Environment, spaces
from envs.checking import check_abstractly
from jaxrl.algorithms.actor_critic import algorithm
from jaxrl.algorithms.arguments import checked_config, with_hints
from jaxrl.algorithms.contract import Algorithm, Metrics
from jaxrl.algorithms.critic_ensemble import scale_of
from jaxrl.algorithms.sac_config import SACConfig, SACHParams
from jaxrl.algorithms.soft_policies import continuous_policy, discrete_policy
from jaxrl.algorithms.value_step import Nodes
from jaxrl.learning.optimisers import adam
from jaxrl.learning.replay import Window

__all__ = ["Learner", "sac"]


class Learner(NamedTuple):
    """State of learning of SAC.

    Attributes:
      policy: Parameters of the policy.
      critics: Parameters of the critics, leaves `[num_critics, ...]`.
      targets: Parameters of the target networks of the critics.
      log_temperature: Logarithm of an automatic temperature, float32 `[]`; None for a fixed one.
      optimisers: States of Adam for the policy, the critics, and the logarithm of the temperature.
    """

    policy: Any
    critics: Any
    targets: Any
    log_temperature: jax.Array | None
    optimisers: tuple[Any, Any, Any]


@with_hints
def sac(env: Environment, config: SACConfig | None = None) -> Algorithm:
    """Soft actor-critic on an environment with continuous actions, or with a few discrete ones.

    Args:
      env: Environment of one agent, or a crowd, whose agents share the networks.
      config: Configuration; the defaults if None.

    Raises:
      ContractError: The environment breaks a law.
      TypeError, ValueError: A field does not fit the environment, or continuous actions are without bounds; before
        anything is compiled.

    Source: Haarnoja et al. (2018), arXiv 1801.01290 and 1812.05905; Christodoulou (2019), arXiv 1910.07207, for
    discrete actions.
    """
    return _build(env, checked_config(config, SACConfig), check_abstractly(env))


@functools.lru_cache(maxsize=64)  # equal arguments give the same functions, which are then compiled once
def _build(env: Environment, config: SACConfig, agents: tuple[int, ...]) -> Algorithm:
    space, automatic = env.action_space(env.default_params), config.automatic_temperature
    discrete = isinstance(space, spaces.Discrete)
    soft = discrete_policy(env, config, agents, space) if discrete else continuous_policy(env, config, agents)

    def init_learner(key: jax.Array, hparams: Any) -> Learner:
        policy, params = soft.init(key)
        log_temperature = jnp.log(jnp.asarray(hparams.temperature, jnp.float32)) if automatic else None
        optimiser = adam(hparams, hparams.lr)
        states = optimiser.init(policy), optimiser.init(params), optimiser.init(jnp.zeros(()))
        return Learner(policy, params, params, log_temperature, states)

    def learn(
        key: jax.Array, learner: Learner, batch: Window, weight: jax.Array, hparams: Any, count: jax.Array
    ) -> tuple[Learner, jax.Array, Metrics]:
        del count
        next_key, key = jax.random.split(key)
        nodes, scale, log_temperature = Nodes.of(hparams.discount), scale_of(hparams), learner.log_temperature
        temperature = jnp.asarray(hparams.temperature if log_temperature is None else jnp.exp(log_temperature))
        of_policy, of_critics, of_temperature = learner.optimisers

        following = soft.following(next_key, learner.policy, learner.targets, batch, temperature, nodes, scale)
        target = soft.critics.target(batch, following, nodes)

        def taken(params: Any) -> jax.Array:
            return soft.taken(params, batch)

        params, of_critics, error, metrics = soft.critics.descend(
            learner.critics, of_critics, taken, target, batch, weight, hparams, nodes
        )

        def loss(policy: Any) -> tuple[jax.Array, jax.Array]:
            return soft.loss(key, policy, params, batch, temperature, nodes, scale)

        (policy_loss, entropy), gradient = jax.value_and_grad(loss, has_aux=True)(learner.policy)
        updates, of_policy = adam(hparams, hparams.policy_lr).update(gradient, of_policy, learner.policy)
        policy: Any = optax.apply_updates(learner.policy, updates)
        if log_temperature is not None:
            surplus = entropy - hparams.target_entropy_fraction * soft.target_entropy(batch)
            update, of_temperature = adam(hparams, hparams.temperature_lr).update(surplus, of_temperature)
            log_temperature = log_temperature + jnp.asarray(update)
        targets = optax.incremental_update(params, learner.targets, hparams.target_rate)
        metrics |= {"policy_loss": policy_loss, "entropy": entropy, "current_temperature": temperature}
        return (
            Learner(policy, params, targets, log_temperature, (of_policy, of_critics, of_temperature)),
            error,
            metrics,
        )

    effects = {"temperature_lr": automatic, "target_entropy_fraction": automatic}
    defaults = {"target_entropy_fraction": 0.5 if discrete else 1.0}
    return algorithm(
        f"{__name__}:sac",
        env,
        config,
        agents,
        soft.actor,
        soft.warming,
        SACHParams,
        effects,
        init_learner,
        learn,
        defaults,
    )
