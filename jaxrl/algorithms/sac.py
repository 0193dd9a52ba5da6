"""Soft actor-critic: a random policy that is rewarded for its entropy, for continuous actions."""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import struct

from envs.base import Environment
from envs.checking import check_abstractly
from envs.errors import UserValueError
from jaxrl.algorithms.actor_critic import Acting, algorithm, parts_of
from jaxrl.algorithms.actor_critic_config import ActorCriticConfig, ActorCriticHParams
from jaxrl.algorithms.arguments import checked_config, with_hints
from jaxrl.algorithms.contract import Algorithm, Metrics
from jaxrl.algorithms.critic_ensemble import Nodes, scale_of
from jaxrl.algorithms.off_policy_config import INFINITE
from jaxrl.checks import Range, check_range
from jaxrl.learning.actor import Scores
from jaxrl.learning.exploration import uniform_actor
from jaxrl.learning.losses import weighted_mean
from jaxrl.learning.optimisers import adam
from jaxrl.learning.replay import Window
from jaxrl.learning.squashed import sample_squashed

_LOG_STD = (-20.0, 2.0)  # bounds of the logarithm of the standard deviation before tanh


@dataclasses.dataclass(frozen=True, kw_only=True)
class SACConfig(ActorCriticConfig):
    """What is static about SAC: changing a field compiles anew.

    Attributes:
      automatic_temperature: Whether the temperature follows the policy's entropy, from its hyper-parameter on, so that
        the entropy stays at its target; otherwise it is the hyper-parameter.
    """

    automatic_temperature: bool = True

    def __post_init__(self, gamma: None) -> None:
        super().__post_init__(gamma)
        if self.n_step != 1:
            raise UserValueError(
                f"n_step takes 1 where values contain the entropy of every step, got {self.n_step}; td3 takes more"
            )


@struct.dataclass
class SACHParams(ActorCriticHParams):
    """What may be swept without compiling anew: every leaf is traced.

    Attributes:
      temperature: Reward for one nat of entropy; the first one, with an automatic temperature.
      temperature_lr: Step size of Adam for the logarithm of the temperature.
      target_entropy_fraction: Target entropy as a multiple of the default, -1 nat for each component of an action
        scaled to [-1, 1].
    """

    temperature: Any = 1.0
    temperature_lr: Any = 1e-3
    target_entropy_fraction: Any = 1.0

    def __post_init__(self, gamma: None) -> None:
        super().__post_init__(gamma)
        for name, allowed in _RANGES.items():
            check_range(name, getattr(self, name), allowed)


_RANGES = {
    "temperature": Range(1e-30, INFINITE, "[)"),
    "temperature_lr": Range(0, INFINITE, "[)"),
    "target_entropy_fraction": Range(-INFINITE, INFINITE, "()"),
}


class Learner(NamedTuple):
    """What SAC learns.

    Attributes:
      policy: Parameters of the policy.
      critics, targets: Parameters of the critics and of their target networks, leaves `[num_critics, ...]`.
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
    """Soft actor-critic on an environment with continuous actions.

    Args:
      env: Environment of one agent, or a crowd, whose agents share the networks.
      config: Configuration; the defaults if None.

    Raises:
      ContractError: The environment breaks a law.
      TypeError, ValueError: A field does not fit the environment, or actions are discrete or without bounds; before
        anything is compiled.

    Source: Haarnoja et al. (2018), arXiv 1801.01290 and 1812.05905.
    """
    return _build(env, checked_config(config, SACConfig), check_abstractly(env))


@functools.lru_cache(maxsize=64)  # equal arguments give the same functions, which are then compiled once
def _build(env: Environment, config: SACConfig, agents: tuple[int, ...]) -> Algorithm:
    parts = parts_of("sac", env, config, agents, 2)
    critics, automatic = parts.critics, config.automatic_temperature

    def distribution(outputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        mean, log_std = jnp.split(outputs, 2, axis=-1)
        return mean, jnp.clip(log_std, *_LOG_STD)

    def scores(acting: Acting, outputs: jax.Array) -> Scores:
        del acting
        mean, log_std = distribution(outputs)
        return {"mean": mean, "std": jnp.exp(log_std)}

    def act(noise: jax.Array | None, scores: Scores) -> jax.Array:
        return jnp.tanh(scores["mean"] if noise is None else scores["mean"] + scores["std"] * noise)

    def sampled(key: jax.Array, policy: Any, obs: Any) -> tuple[jax.Array, jax.Array]:
        mean, log_std = distribution(parts.outputs(policy, obs))
        return sample_squashed(mean, log_std, jax.random.normal(key, mean.shape))

    def init_learner(key: jax.Array, hparams: Any) -> Learner:
        policy, params = parts.init(key)
        log_temperature = jnp.log(jnp.asarray(hparams.temperature, jnp.float32)) if automatic else None
        optimiser = adam(hparams, hparams.lr)
        states = optimiser.init(policy), optimiser.init(params), optimiser.init(jnp.zeros(()))
        return Learner(policy, params, params, log_temperature, states)

    def learn(
        key: jax.Array, learner: Learner, batch: Window, weight: jax.Array, hparams: Any, count: jax.Array
    ) -> tuple[Learner, jax.Array, Metrics]:
        del count
        next_key, key = jax.random.split(key)
        nodes, scale, active = Nodes.of(hparams.discount), scale_of(hparams), batch.active.astype(jnp.float32)
        log_temperature = learner.log_temperature
        temperature = jnp.asarray(hparams.temperature if log_temperature is None else jnp.exp(log_temperature))
        of_policy, of_critics, of_temperature = learner.optimisers

        action, log_prob = sampled(next_key, learner.policy, batch.next_obs)
        following = critics.lowest(parts.values(learner.targets, batch.next_obs, action), nodes, scale)
        entropy = -temperature * log_prob[..., None] / nodes.sizes  # in the units of each exponential
        target = critics.target(batch, following._replace(atoms=following.atoms + entropy[..., None]), nodes)

        def taken(params: Any) -> jax.Array:
            return parts.values(params, batch.obs, batch.raw_action)

        params, of_critics, error, metrics = critics.descend(
            learner.critics, of_critics, taken, target, batch, weight, hparams, nodes
        )

        def loss(policy: Any) -> tuple[jax.Array, jax.Array]:
            action, log_prob = sampled(key, policy, batch.obs)
            q = jnp.min(critics.value(parts.values(params, batch.obs, action), nodes, scale), axis=0)
            return weighted_mean(temperature * log_prob - q, active), weighted_mean(log_prob, active)

        (policy_loss, log_prob), gradient = jax.value_and_grad(loss, has_aux=True)(learner.policy)
        updates, of_policy = adam(hparams, hparams.policy_lr).update(gradient, of_policy, learner.policy)
        policy: Any = optax.apply_updates(learner.policy, updates)
        if log_temperature is not None:
            surplus = -log_prob + hparams.target_entropy_fraction * parts.head.num_outputs
            update, of_temperature = adam(hparams, hparams.temperature_lr).update(surplus, of_temperature)
            log_temperature = log_temperature + jnp.asarray(update)
        targets = optax.incremental_update(params, learner.targets, hparams.target_rate)
        metrics |= {"policy_loss": policy_loss, "entropy": -log_prob, "temperature": temperature}
        return (
            Learner(policy, params, targets, log_temperature, (of_policy, of_critics, of_temperature)),
            error,
            metrics,
        )

    effects = {"temperature_lr": automatic, "target_entropy_fraction": automatic}
    actor = parts.actor(scores, act)
    return algorithm(
        "sac", env, config, agents, actor, uniform_actor(actor, parts.head), SACHParams, effects, init_learner, learn
    )
