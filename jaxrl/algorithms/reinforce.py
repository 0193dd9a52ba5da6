"""REINFORCE under any discount: Monte Carlo returns to the ends of episodes, with or without a baseline."""

import dataclasses
import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import struct

from envs.base import Environment
from envs.errors import UserValueError
from envs.threefry import unrolled
from jaxrl.algorithms.contract import Algorithm, Metrics, checked_config, with_hints
from jaxrl.algorithms.on_policy import agents_of, on_policy
from jaxrl.algorithms.on_policy_config import OnPolicyConfig, OnPolicyHParams
from jaxrl.algorithms.on_policy_state import Learner, OnPolicyState, Samples
from jaxrl.algorithms.policy_gradient import acting, advantages, common_space, total_loss
from jaxrl.checks import check_choice
from jaxrl.learning.losses import policy_gradient, weighted_mean
from jaxrl.learning.networks import Module
from jaxrl.learning.rollout import episode_ends
from jaxrl.learning.shards import EnvShards, summed
from jaxrl.pytrees import EnvParams, Params
from jaxrl.sweeps.distributions import Choice, LogUniform, SearchSpace

STEPS_OF_PART = 20  # of a rollout, whose layers an accelerator keeps at a time


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReinforceConfig(OnPolicyConfig):
    """Static configuration of REINFORCE: changing a field recompiles.

    Rollouts should be longer than episodes, see `reinforce`. `lam_weights` has no effect on Monte Carlo returns.

    Attributes:
      baseline: Baseline that is subtracted from returns: the "critic", which learns to predict them, or "off" for no
        critic; then `time_limits` must be "terminal", `critic` "single" and `critic_sees` "own".
      normalise_advantage: Samples over which returns, less their baseline, are normalised: the "batch" of an iteration,
        or "off".
    """

    num_envs: int = 8
    num_steps: int = 1024
    baseline: Literal["critic", "off"] = "critic"
    normalise_advantage: Literal["batch", "off"] = "off"

    def __post_init__(self, gamma: None) -> None:
        super().__post_init__(gamma)
        check_choice("baseline", self.baseline, ("critic", "off"))
        check_choice("normalise_advantage", self.normalise_advantage, ("batch", "off"))
        self._refuse_without_effect("lam_weights", "Monte Carlo returns", effect=False)
        if self.levels != "draws":
            raise UserValueError(
                f"levels takes 'draws' in REINFORCE, which learns from complete episodes alone, got {self.levels!r}"
            )
        for name, needed in (("time_limits", "terminal"), ("critic", "single"), ("critic_sees", "own")):
            if self.baseline == "off" and getattr(self, name) not in (needed, "auto"):
                raise UserValueError(
                    f"baseline='off' has no critic, so that {name} must be {needed!r}, got {getattr(self, name)!r}"
                )

    @property
    def has_critic(self) -> bool:
        """Whether a critic learns."""
        return self.baseline == "critic"

    @property
    def effects(self) -> dict[str, bool]:
        """Whether a hyper-parameter has an effect, by name, for those that do not always have one."""
        return super().effects | {"lam": False, "value_coef": self.baseline == "critic"}


@struct.dataclass
class ReinforceHParams(OnPolicyHParams):
    """Hyper-parameters, which may be swept without recompiling: every leaf is traced.

    `lam` is None in `Algorithm.hparams`, since Monte Carlo returns have none, and so is `value_coef` without a critic.
    """

    lr: Any = 1e-3
    lam: Any = 1.0


@with_hints
def reinforce(env: Environment, config: ReinforceConfig | None = None, network: Module | None = None) -> Algorithm:
    """REINFORCE on an environment.

    It learns from samples whose episode ends within the rollout, so that their returns are complete: others have a
    weight of 0, and an iteration in which no episode ends changes nothing. Nothing is bootstrapped, except at a time
    limit if `time_limits` is "bootstrap". Rollouts cut long episodes more often than short ones, so the remaining
    samples over-represent short episodes, and the ends of those that began before the rollout. Longer rollouts reduce
    this bias; the metric `complete_share` is the fraction of samples with complete returns.

    Args:
      env: Environment of one agent, or a crowd, whose agents share the network.
      config: Configuration; the defaults if None.
      network: Custom network: a hashable flax module that maps one observation to `(outputs, value)`, or a recurrent
        one, see `jaxrl.learning.recurrent`; None for the one that the configuration names.

    Raises:
      ContractError: The environment breaks a law.
      TypeError, ValueError: A field does not fit the environment; raised before anything is compiled.

    Source: Williams (1992), Simple statistical gradient-following algorithms for connectionist reinforcement learning;
    Sutton and Barto (2018), section 13.4, without the factor Gamma(t) of the episode's step t.
    """
    config = checked_config(config, ReinforceConfig)
    return _build(env, config, network, agents_of(env, network))


def search_space(algo: Algorithm) -> SearchSpace:
    """Default search space of REINFORCE."""
    count = algo.config.num_envs
    space = common_space(algo, {"max_grad_norm": LogUniform(0.1, 10.0)})
    return space | {"config.num_envs": Choice([count, 2 * count, 4 * count])}


@functools.lru_cache(maxsize=64)  # equal arguments give the same functions, which are then compiled once
def _build(
    env: Environment,
    config: ReinforceConfig,
    network: Module | None,
    agents: tuple[int, ...],
    shards: EnvShards | None = None,
) -> Algorithm:
    agent = on_policy(env, config, network, agents, shards)

    def loss(weights: Params, batch: Samples, hparams: ReinforceHParams) -> tuple[jax.Array, Metrics]:
        now = acting(agent, weights, batch, STEPS_OF_PART)
        policy_loss = policy_gradient(now.log_prob, advantages(agent, batch, "batch"), batch.weight)
        if config.baseline == "critic":
            return total_loss(agent, now, batch, policy_loss, hparams)
        entropy = weighted_mean(now.entropy, batch.weight)
        return policy_loss - hparams.entropy_coef * entropy, {"policy_loss": policy_loss, "entropy": entropy}

    def step(
        key: jax.Array, iteration: jax.Array, state: OnPolicyState, hparams: ReinforceHParams, env_params: EnvParams
    ) -> tuple[OnPolicyState, Metrics]:
        hparams = agent.current(iteration, agent.prepare(hparams))
        policy = agent.policy(state, hparams)
        collect_key, _ = jax.random.split(unrolled(key))
        rolled_out = agent.collect(collect_key, policy, state, hparams, env_params)
        evaluation = agent.evaluate(policy, state, rolled_out, hparams)
        # The return of a sample is complete if its episode ends within the rollout.
        ends = jax.lax.cummax(episode_ends(rolled_out.steps).astype(jnp.float32), axis=0, reverse=True)
        samples = evaluation.samples._replace(weight=evaluation.samples.weight * ends)
        evaluation = evaluation._replace(samples=samples)
        if config.baseline == "off":
            samples = samples._replace(advantage=samples.target)
        hparams = agent.scheduled(iteration, hparams)
        learner = Learner(state.weights, state.optimiser)
        learned, metrics = agent.descent(loss, hparams)(learner, samples)
        complete = summed(jnp.sum(samples.weight), shards)
        learner = jax.tree.map(lambda new, old: jnp.where(complete > 0, new, old), learned, learner)
        count = samples.weight.size * (1 if shards is None else shards.count)
        metrics |= {"complete_share": complete / count}
        return agent.finish(state, learner, rolled_out, evaluation, metrics, hparams)

    def part(shards: EnvShards) -> Algorithm:
        return _build(env, config, network, agents, shards)

    return agent.algorithm(f"{__name__}:reinforce", ReinforceHParams, agent.init, step, part, network)
