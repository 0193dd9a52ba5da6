"""PPO with an adaptive KL penalty instead of the clip, under any discount."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from envs.base import Environment
from envs.threefry import unrolled
from jaxrl.algorithms.contract import Algorithm, Metrics, checked_config, with_hints
from jaxrl.algorithms.on_policy import agents_of, on_policy
from jaxrl.algorithms.on_policy_config import INFINITE, OnPolicyHParams
from jaxrl.algorithms.on_policy_state import Learner, OnPolicyState, Samples
from jaxrl.algorithms.policy_gradient import (
    EpochsConfig,
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
from jaxrl.learning.shards import EnvShards
from jaxrl.pytrees import EnvParams, Params, PyTree
from jaxrl.sweeps.distributions import LogUniform, SearchSpace

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
    return _build(env, config, network, agents_of(env, network))


def search_space(algo: Algorithm) -> SearchSpace:
    """Default search space of PPO with a penalty."""
    return common_space(algo, {"kl_target": LogUniform(3e-3, 3e-2)})


def next_coefficient(coefficient: jax.Array, kl: jax.Array, target: jax.Array) -> jax.Array:
    """Coefficient of the divergence after an iteration with the divergence `kl`, all `[]`."""
    factor = jnp.where(kl > TOLERATED * target, CHANGE, jnp.where(kl < target / TOLERATED, 1 / CHANGE, 1.0))
    return jnp.clip(coefficient * factor, *BOUNDS)


@functools.lru_cache(maxsize=64)  # equal arguments give the same functions, which are then compiled once
def _build(
    env: Environment,
    config: PPOKLConfig,
    network: Module | None,
    agents: tuple[int, ...],
    shards: EnvShards | None = None,
) -> Algorithm:
    agent = on_policy(env, config, network, agents, shards)
    agent.check_minibatches(config.num_minibatches)

    def divergence(now: PyTree, batch: Samples, shards: Any = None) -> jax.Array:
        return weighted_mean(agent.head.kl(batch.scores, now, batch.mask), batch.weight, shards)

    def loss(weights: Params, rows: Samples, hparams: PPOKLHParams, kl_coef: jax.Array) -> tuple[jax.Array, Metrics]:
        now = acting(agent, weights, rows)
        advantage = advantages(agent, rows, "minibatch")
        kl = divergence(now.scores, rows)
        policy_loss = surrogate(now.log_prob - rows.log_prob, advantage, rows.weight)
        total, metrics = total_loss(agent, now, rows, policy_loss, hparams)
        return total + kl_coef * kl, metrics

    def init(key: jax.Array, hparams: PPOKLHParams, env_params: EnvParams) -> OnPolicyState:
        return agent.init(key, hparams, env_params)._replace(own=jnp.float32(hparams.kl_coef))

    def step(
        key: jax.Array, iteration: jax.Array, state: OnPolicyState, hparams: PPOKLHParams, env_params: EnvParams
    ) -> tuple[OnPolicyState, Metrics]:
        hparams = agent.current(iteration, agent.prepare(hparams))
        policy = agent.policy(state, hparams)
        collect_key, learn_key = jax.random.split(unrolled(key))
        rolled_out = agent.collect(collect_key, policy, state, hparams, env_params)
        evaluation = agent.evaluate(policy, state, rolled_out, hparams)
        hparams = agent.scheduled(iteration, hparams)
        samples, kl_coef = evaluation.samples._replace(scores=evaluation.scores), state.own
        samples = samples._replace(advantage=advantages(agent, samples, "batch"))
        one_minibatch = agent.descent(functools.partial(loss, kl_coef=kl_coef), hparams)
        learner = Learner(state.weights, state.optimiser)
        learner, metrics = epochs(agent, learn_key, samples, one_minibatch, learner)
        kl = divergence(scores_of(agent, learner, samples), samples, shards)
        metrics |= {"kl_old_new": kl, "current_kl_coef": kl_coef}
        state = state._replace(own=next_coefficient(kl_coef, kl, hparams.kl_target))
        return agent.finish(state, learner, rolled_out, evaluation, metrics, hparams)

    def part(shards: EnvShards) -> Algorithm:
        return _build(env, config, network, agents, shards)

    return agent.algorithm(f"{__name__}:ppo_kl", PPOKLHParams, init, step, part, network)
