"""Simple Policy Optimization under any discount: a quadratic penalty instead of PPO's clip."""

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
    total_loss,
)
from jaxrl.checks import Range
from jaxrl.learning.composites import Curve
from jaxrl.learning.losses import approximate_kl, quadratic_surrogate, weighted_mean
from jaxrl.learning.networks import Module
from jaxrl.learning.shards import EnvShards
from jaxrl.pytrees import EnvParams, Params
from jaxrl.sweeps.distributions import SearchSpace, Uniform


@dataclasses.dataclass(frozen=True, kw_only=True)
class SPOConfig(EpochsConfig):
    """Static configuration of SPO: changing a field recompiles."""


@struct.dataclass
class SPOHParams(OnPolicyHParams):
    """Hyper-parameters, which may be swept without recompiling: every leaf is traced.

    Attributes:
      ratio_eps: Distance from 1 of the probability ratio at which the objective of a sample is largest.
      ratio_eps_end: Final distance as a fraction of `ratio_eps`, reached linearly over `anneal_env_steps`; 1 keeps it
        constant.

    `ratio_eps` also takes a `jaxrl.Curve`.
    """

    ratio_eps: Any = 0.2
    ratio_eps_end: Any = 1.0

    schedules = OnPolicyHParams.schedules | {"ratio_eps_end": ("ratio_eps",)}
    ranges = OnPolicyHParams.ranges | dict.fromkeys(("ratio_eps", "ratio_eps_end"), Range(0, INFINITE, "()"))
    composites = OnPolicyHParams.composites | {"ratio_eps": Curve}


@with_hints
def spo(env: Environment, config: SPOConfig | None = None, network: Module | None = None) -> Algorithm:
    """Simple Policy Optimization on an environment: the objective A r - |A| (r - 1)^2 / (2 eps) of the ratio r.

    Its gradient agrees with PPO's at r = 1, and pulls a ratio back beyond 1 + sign(A) eps, where PPO's
    gradient vanishes. It is unrelated to the search algorithm abbreviated SPO.

    Args:
      env: Environment of one agent, or a crowd, whose agents share the network.
      config: Configuration; the defaults if None.
      network: Custom network: a hashable flax module that maps one observation to `(outputs, value)`, or a recurrent
        one, see `jaxrl.learning.recurrent`; None for the one that the configuration names.

    Raises:
      ContractError: The environment breaks a law.
      TypeError, ValueError: A field does not fit the environment; raised before anything is compiled.

    Source: Xie et al., Simple policy optimization, arXiv 2401.16025.
    """
    config = checked_config(config, SPOConfig)
    return _build(env, config, network, agents_of(env, network))


def search_space(algo: Algorithm) -> SearchSpace:
    """Default search space of SPO."""
    return common_space(algo, {"ratio_eps": Uniform(0.1, 0.4)})


@functools.lru_cache(maxsize=64)  # equal arguments give the same functions, which are then compiled once
def _build(
    env: Environment,
    config: SPOConfig,
    network: Module | None,
    agents: tuple[int, ...],
    shards: EnvShards | None = None,
) -> Algorithm:
    agent = on_policy(env, config, network, agents, shards)
    agent.check_minibatches(config.num_minibatches)

    def loss(weights: Params, rows: Samples, hparams: SPOHParams) -> tuple[jax.Array, Metrics]:
        now = acting(agent, weights, rows)
        log_ratio = now.log_prob - rows.log_prob
        advantage = advantages(agent, rows, "minibatch")
        policy_loss = quadratic_surrogate(log_ratio, advantage, rows.weight, hparams.ratio_eps)
        total, metrics = total_loss(agent, now, rows, policy_loss, hparams)
        outside = jnp.abs(jnp.expm1(log_ratio)) > hparams.ratio_eps
        return total, metrics | {
            "approx_kl": approximate_kl(log_ratio, rows.weight),
            "outside_fraction": weighted_mean(outside.astype(jnp.float32), rows.weight),
        }

    def step(
        key: jax.Array, iteration: jax.Array, state: OnPolicyState, hparams: SPOHParams, env_params: EnvParams
    ) -> tuple[OnPolicyState, Metrics]:
        hparams = agent.current(iteration, agent.prepare(hparams))
        policy = agent.policy(state, hparams)
        collect_key, learn_key = jax.random.split(unrolled(key))
        rolled_out = agent.collect(collect_key, policy, state, hparams, env_params)
        evaluation = agent.evaluate(policy, state, rolled_out, hparams)
        hparams = agent.scheduled(iteration, hparams)
        samples = evaluation.samples
        samples = samples._replace(advantage=advantages(agent, samples, "batch"))
        learner = Learner(state.weights, state.optimiser)
        learner, metrics = epochs(agent, learn_key, samples, agent.descent(loss, hparams), learner)
        return agent.finish(state, learner, rolled_out, evaluation, metrics, hparams)

    def part(shards: EnvShards) -> Algorithm:
        return _build(env, config, network, agents, shards)

    return agent.algorithm(f"{__name__}:spo", SPOHParams, agent.init, step, part, network)
