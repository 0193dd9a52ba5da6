"""Advantage actor-critic under any discount: one gradient step for each short rollout."""

import dataclasses
import functools
from typing import Any, Literal

import jax
from flax import struct

from envs.base import Environment
from envs.threefry import unrolled
from jaxrl.algorithms.contract import Algorithm, Metrics, checked_config, with_hints
from jaxrl.algorithms.on_policy import agents_of, on_policy
from jaxrl.algorithms.on_policy_config import OnPolicyConfig, OnPolicyHParams
from jaxrl.algorithms.on_policy_state import Learner, OnPolicyState, Samples
from jaxrl.algorithms.policy_gradient import acting, advantages, common_space, total_loss
from jaxrl.checks import check_choice
from jaxrl.learning.losses import policy_gradient
from jaxrl.learning.networks import Module
from jaxrl.learning.shards import EnvShards
from jaxrl.pytrees import EnvParams, Params
from jaxrl.sweeps.distributions import Choice, SearchSpace


@dataclasses.dataclass(frozen=True, kw_only=True)
class A2CConfig(OnPolicyConfig):
    """Static configuration of A2C: changing a field recompiles.

    Attributes:
      normalise_advantage: Samples over which advantages are normalised: the "batch" of an iteration, or "off", as in
        the paper.
    """

    num_envs: int = 16
    num_steps: int = 5
    normalise_advantage: Literal["batch", "off"] = "off"

    def __post_init__(self, gamma: None) -> None:
        super().__post_init__(gamma)
        check_choice("normalise_advantage", self.normalise_advantage, ("batch", "off"))


@struct.dataclass
class A2CHParams(OnPolicyHParams):
    """Hyper-parameters, which may be swept without recompiling: every leaf is traced.

    With `lam=1` advantages are those of the paper: rewards to the end of the rollout, then the critic's value.
    """

    lr: Any = 7e-4
    lam: Any = 1.0


@with_hints
def a2c(env: Environment, config: A2CConfig | None = None, network: Module | None = None) -> Algorithm:
    """A2C on an environment: PPO with one epoch of one minibatch, whose ratio is 1 and never clipped.

    The optimiser is Adam, as in the other algorithms, instead of the paper's RMSprop; with `adam_b1=0` it is RMSprop
    with a bias correction in the first steps.

    Args:
      env: Environment of one agent, or a crowd, whose agents share the network.
      config: Configuration; the defaults if None.
      network: Custom network: a hashable flax module that maps one observation to `(outputs, value)`, or a recurrent
        one, see `jaxrl.learning.recurrent`; None for the one that the configuration names.

    Raises:
      ContractError: The environment breaks a law.
      TypeError, ValueError: A field does not fit the environment; raised before anything is compiled.

    Source: Mnih et al. (2016), Asynchronous methods for deep reinforcement learning, without the asynchrony; Huang et
    al. (2022), A2C is a special case of PPO, arXiv 2205.09123.
    """
    config = checked_config(config, A2CConfig)
    return _build(env, config, network, agents_of(env, network))


def search_space(algo: Algorithm) -> SearchSpace:
    """Default search space of A2C."""
    steps = algo.config.num_steps
    return common_space(algo, {}) | {"config.num_steps": Choice([steps, 2 * steps, 4 * steps])}


@functools.lru_cache(maxsize=64)  # equal arguments give the same functions, which are then compiled once
def _build(
    env: Environment,
    config: A2CConfig,
    network: Module | None,
    agents: tuple[int, ...],
    shards: EnvShards | None = None,
) -> Algorithm:
    agent = on_policy(env, config, network, agents, shards)

    def loss(weights: Params, batch: Samples, hparams: A2CHParams) -> tuple[jax.Array, Metrics]:
        now = acting(agent, weights, batch)
        policy_loss = policy_gradient(now.log_prob, advantages(agent, batch, "batch"), batch.weight)
        return total_loss(agent, now, batch, policy_loss, hparams)

    def step(
        key: jax.Array, iteration: jax.Array, state: OnPolicyState, hparams: A2CHParams, env_params: EnvParams
    ) -> tuple[OnPolicyState, Metrics]:
        hparams = agent.current(iteration, agent.prepare(hparams))
        policy = agent.policy(state, hparams)
        collect_key, _ = jax.random.split(unrolled(key))
        rolled_out = agent.collect(collect_key, policy, state, hparams, env_params)
        evaluation = agent.evaluate(policy, state, rolled_out, hparams)
        hparams = agent.scheduled(iteration, hparams)
        learner = Learner(state.weights, state.optimiser)
        learner, metrics = agent.descent(loss, hparams)(learner, evaluation.samples)
        return agent.finish(state, learner, rolled_out, evaluation, metrics, hparams)

    def part(shards: EnvShards) -> Algorithm:
        return _build(env, config, network, agents, shards)

    return agent.algorithm(f"{__name__}:a2c", A2CHParams, agent.init, step, part, network)
