"""Mirror descent policy optimisation under any discount: a penalty on the divergence with a rising weight."""

import dataclasses
import functools
from typing import Any, Self

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
from jaxrl.learning.losses import surrogate, weighted_mean
from jaxrl.learning.networks import Module
from jaxrl.learning.shards import EnvShards
from jaxrl.pytrees import EnvParams, Params
from jaxrl.sweeps.distributions import LogUniform, SearchSpace

LEAST_STEP_SIZE = 1e-3  # keeps the weight of the divergence, its inverse, finite after the annealing


@dataclasses.dataclass(frozen=True, kw_only=True)
class MDPOConfig(EpochsConfig):
    """Static configuration of MDPO: changing a field recompiles."""


@struct.dataclass
class MDPOHParams(OnPolicyHParams):
    """Hyper-parameters, which may be swept without recompiling: every leaf is traced.

    Attributes:
      step_size: Initial step size t of mirror descent, at least 0.001; the weight of the divergence is 1 / t.
      step_size_end: Final step size as a fraction of `step_size`, reached linearly over `anneal_env_steps`; 1 keeps it
        constant. The step size stays at 0.001 or above, where the policy hardly moves: a run that ends there is not
        extended.
    """

    step_size: Any = 1.0
    step_size_end: Any = 0.0

    schedules = OnPolicyHParams.schedules | {"step_size_end": ("step_size",)}
    stopping = (*OnPolicyHParams.stopping, "step_size_end")
    ranges = OnPolicyHParams.ranges | {
        "step_size": Range(LEAST_STEP_SIZE, INFINITE, "[)"),
        "step_size_end": Range(0, INFINITE, "[)"),
    }

    def at(self, env_steps: jax.Array) -> Self:
        """Values after `env_steps` environment steps, `[]`, traced."""
        values = super().at(env_steps)
        return dataclasses.replace(values, step_size=jnp.maximum(values.step_size, LEAST_STEP_SIZE))


@with_hints
def mdpo(env: Environment, config: MDPOConfig | None = None, network: Module | None = None) -> Algorithm:
    """On-policy MDPO on an environment: several steps on mean(r A) - KL(new || old) / t of the probability ratio r.

    The step size t falls linearly over the run, to 0.001 by default, so that the weight of the divergence rises. The
    divergence of the action distributions is exact, not an estimate from sampled actions.

    Args:
      env: Environment of one agent, or a crowd, whose agents share the network.
      config: Configuration; the defaults if None.
      network: Custom network: a hashable flax module that maps one observation to `(outputs, value)`, or a recurrent
        one, see `jaxrl.learning.recurrent`; None for the one that the configuration names.

    Raises:
      ContractError: The environment breaks a law.
      TypeError, ValueError: A field does not fit the environment; raised before anything is compiled.

    Source: Tomar et al. (2020), Mirror descent policy optimization, arXiv 2005.09814.
    """
    config = checked_config(config, MDPOConfig)
    return _build(env, config, network, agents_of(env, network))


def search_space(algo: Algorithm) -> SearchSpace:
    """Default search space of MDPO."""
    return common_space(algo, {"step_size": LogUniform(0.1, 10.0)})


@functools.lru_cache(maxsize=64)  # equal arguments give the same functions, which are then compiled once
def _build(
    env: Environment,
    config: MDPOConfig,
    network: Module | None,
    agents: tuple[int, ...],
    shards: EnvShards | None = None,
) -> Algorithm:
    agent = on_policy(env, config, network, agents, shards)
    agent.check_minibatches(config.num_minibatches)

    def loss(weights: Params, rows: Samples, hparams: MDPOHParams) -> tuple[jax.Array, Metrics]:
        now = acting(agent, weights, rows)
        advantage = advantages(agent, rows, "minibatch")
        kl = weighted_mean(agent.head.kl(now.scores, rows.scores, rows.mask), rows.weight)
        policy_loss = surrogate(now.log_prob - rows.log_prob, advantage, rows.weight)
        total, metrics = total_loss(agent, now, rows, policy_loss, hparams)
        return total + kl / hparams.step_size, metrics | {"kl_new_old": kl}

    def step(
        key: jax.Array, iteration: jax.Array, state: OnPolicyState, hparams: MDPOHParams, env_params: EnvParams
    ) -> tuple[OnPolicyState, Metrics]:
        hparams = agent.current(iteration, agent.prepare(hparams))
        policy = agent.policy(state, hparams)
        collect_key, learn_key = jax.random.split(unrolled(key))
        rolled_out = agent.collect(collect_key, policy, state, hparams, env_params)
        evaluation = agent.evaluate(policy, state, rolled_out, hparams)
        hparams = agent.scheduled(iteration, hparams)
        samples = evaluation.samples._replace(scores=evaluation.scores)
        samples = samples._replace(advantage=advantages(agent, samples, "batch"))
        learner = Learner(state.weights, state.optimiser)
        learner, metrics = epochs(agent, learn_key, samples, agent.descent(loss, hparams), learner)
        metrics |= {"current_step_size": hparams.step_size}
        return agent.finish(state, learner, rolled_out, evaluation, metrics, hparams)

    def part(shards: EnvShards) -> Algorithm:
        return _build(env, config, network, agents, shards)

    return agent.algorithm(f"{__name__}:mdpo", MDPOHParams, agent.init, step, part, network)
