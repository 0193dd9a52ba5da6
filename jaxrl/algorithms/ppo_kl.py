"""PPO with an adaptive KL penalty instead of the clip, under any discount."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from envs.base import Environment
from jaxrl.algorithms.arguments import checked_config, with_hints
from jaxrl.algorithms.contract import Algorithm, Metrics
from jaxrl.algorithms.on_policy import on_policy
from jaxrl.algorithms.on_policy_config import INFINITE, OnPolicyHParams
from jaxrl.algorithms.on_policy_parts import Learn, Learner, Parts, Samples
from jaxrl.algorithms.policy_gradient import (
    EpochsConfig,
    Space,
    acting,
    advantages,
    common_space,
    epochs,
    scores_of,
    total_loss,
)
from jaxrl.checks import Range
from jaxrl.learning.losses import surrogate, weighted_mean
from jaxrl.learning.networks import Module
from jaxrl.sweeps.distributions import LogUniform

TOLERATED = 1.5  # factor by which the divergence may miss its target before the coefficient changes
CHANGE = 2.0  # factor of the change of the coefficient
BOUNDS = (1e-4, 1e4)  # bounds of the coefficient, so that it can recover


@dataclasses.dataclass(frozen=True, kw_only=True)
class PPOKLConfig(EpochsConfig):
    """Static configuration of PPO with a penalty: changing a field recompiles."""


@struct.dataclass
class PPOKLHParams(OnPolicyHParams):
    """Hyper-parameters, which may be swept without recompiling: every leaf is traced.

    Attributes:
      kl_target: Target of the divergence KL(old || new) of an iteration, in nats.
      kl_coef: Initial coefficient of the divergence; it adapts within [1e-4, 1e4]. Only the first iteration of a run
        reads it: changes during a run, such as those of population-based training, have no effect.
    """

    kl_target: Any = 0.01
    kl_coef: Any = 1.0

    ranges = OnPolicyHParams.ranges | {"kl_target": Range(0, INFINITE, "()"), "kl_coef": Range(*BOUNDS)}


@with_hints
def ppo_kl(env: Environment, config: PPOKLConfig | None = None, network: Module | None = None) -> Algorithm:
    """PPO with an adaptive KL penalty on an environment: epochs on mean(r A) - beta KL(old || new) of the ratio r.

    After each iteration the divergence of the new policy from the old one on all samples is compared with its target:
    if it is more than 1.5 times smaller, the coefficient beta is halved; if it is more than 1.5 times larger, beta is
    doubled. The divergence of the action distributions is exact. Beta is part of the state.

    Args:
      env: Environment of one agent, or a crowd, whose agents share the network.
      config: Configuration; the defaults if None.
      network: Custom network: a hashable flax module that maps one observation to `(outputs, value)`, or a recurrent
        one, see `jaxrl.learning.recurrent`; None for the one that the configuration names.

    Raises:
      ContractError: The environment breaks a law.
      TypeError, ValueError: A field does not fit the environment; raised before anything is compiled.

    Source: Schulman et al. (2017), Proximal policy optimization algorithms, section 4.
    """
    config = checked_config(config, PPOKLConfig)
    return on_policy(
        "ppo_kl",
        env,
        config,
        PPOKLHParams,
        make_learn,
        network=network,
        builder=f"{__name__}:ppo_kl",
        init_own=first_coefficient,
        keeps_scores=True,
    )


def search_space(algo: Algorithm) -> Space:
    """Default search space of PPO with a penalty."""
    return common_space(algo, {"kl_target": LogUniform(3e-3, 3e-2)})


def first_coefficient(hparams: PPOKLHParams) -> jax.Array:
    """Initial coefficient of the divergence, float32 `[]`."""
    return jnp.float32(hparams.kl_coef)


def next_coefficient(coefficient: jax.Array, kl: jax.Array, target: jax.Array) -> jax.Array:
    """Coefficient of the divergence after an iteration with the divergence `kl`, all `[]`."""
    factor = jnp.where(kl > TOLERATED * target, CHANGE, jnp.where(kl < target / TOLERATED, 1 / CHANGE, 1.0))
    return jnp.clip(coefficient * factor, *BOUNDS)


def make_learn(parts: Parts) -> Learn:
    """Learning from one rollout: epochs of minibatches, then a new coefficient."""
    parts.check_minibatches(parts.config.num_minibatches)

    def divergence(now: Any, batch: Samples, shards: Any = None) -> jax.Array:
        return weighted_mean(parts.head.kl(batch.scores, now, batch.mask), batch.weight, shards)

    def loss(weights: Any, rows: Samples, hparams: PPOKLHParams, kl_coef: jax.Array) -> tuple[jax.Array, Metrics]:
        now = acting(parts, weights, rows)
        advantage = advantages(parts, rows, "minibatch")
        kl = divergence(now.scores, rows)
        policy_loss = surrogate(now.log_prob - rows.log_prob, advantage, rows.weight)
        total, metrics = total_loss(parts, now, rows, policy_loss, hparams)
        return total + kl_coef * kl, metrics

    def learn(
        key: jax.Array, learner: Learner, samples: Samples, hparams: PPOKLHParams, lr: jax.Array
    ) -> tuple[Learner, Metrics]:
        samples = samples._replace(advantage=advantages(parts, samples, "batch"))
        own_loss = functools.partial(loss, kl_coef=learner.own)
        learner, metrics = epochs(parts, key, samples, parts.descent(own_loss, hparams, lr), learner)
        kl = divergence(scores_of(parts, learner, samples), samples, parts.shards)
        metrics |= {"kl_old_new": kl, "current_kl_coef": learner.own}
        return learner._replace(own=next_coefficient(learner.own, kl, hparams.kl_target)), metrics

    return learn
