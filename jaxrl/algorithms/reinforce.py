"""REINFORCE under any discount: Monte Carlo returns to the ends of episodes, with or without a baseline."""

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import struct

from envs.base import Environment
from envs.errors import UserValueError
from jaxrl.algorithms.arguments import checked_config, with_hints
from jaxrl.algorithms.contract import Algorithm, Metrics
from jaxrl.algorithms.on_policy import on_policy
from jaxrl.algorithms.on_policy_config import OnPolicyConfig, OnPolicyHParams
from jaxrl.algorithms.on_policy_parts import Learn, Learner, Parts, Samples
from jaxrl.algorithms.policy_gradient import Space, acting, advantages, common_space, total_loss
from jaxrl.checks import check_choice
from jaxrl.learning.losses import policy_gradient, weighted_mean
from jaxrl.learning.networks import Module
from jaxrl.learning.shards import summed
from jaxrl.sweeps.distributions import Choice, LogUniform


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReinforceConfig(OnPolicyConfig):
    """Static configuration of REINFORCE: changing a field recompiles.

    Rollouts should be longer than episodes, see `reinforce`.

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
        for name, needed in (("time_limits", "terminal"), ("critic", "single"), ("critic_sees", "own")):
            if self.baseline == "off" and getattr(self, name) != needed:
                raise UserValueError(
                    f"baseline='off' has no critic, so that {name} must be {needed!r}, got {getattr(self, name)!r}"
                )


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
    return on_policy(
        "reinforce",
        env,
        config,
        ReinforceHParams,
        make_learn,
        network=network,
        builder=f"{__name__}:reinforce",
        whole_episodes=True,
        without=("lam",) if config.baseline == "critic" else ("lam", "value_coef"),
    )


def search_space(algo: Algorithm) -> Space:
    """Default search space of REINFORCE."""
    count = algo.config.num_envs
    space = common_space(algo, {"max_grad_norm": LogUniform(0.1, 10.0)})
    return space | {"config.num_envs": Choice([count, 2 * count, 4 * count])}


def make_learn(parts: Parts) -> Learn:
    """Learning from one rollout: one step along the policy gradient of its complete returns."""

    def loss(weights: Any, batch: Samples, hparams: ReinforceHParams) -> tuple[jax.Array, Metrics]:
        now = acting(parts, weights, batch)
        policy_loss = policy_gradient(now.log_prob, advantages(parts, batch, "batch"), batch.weight)
        if parts.config.baseline == "critic":
            return total_loss(parts, now, batch, policy_loss, hparams)
        entropy = weighted_mean(now.entropy, batch.weight)
        return policy_loss - hparams.entropy_coef * entropy, {"policy_loss": policy_loss, "entropy": entropy}

    def learn(
        key: jax.Array, learner: Learner, samples: Samples, hparams: ReinforceHParams, lr: jax.Array
    ) -> tuple[Learner, Metrics]:
        del key
        if parts.config.baseline == "off":
            samples = samples._replace(advantage=samples.target)
        learned, metrics = parts.descent(loss, hparams, lr)(learner, samples)
        complete = summed(jnp.sum(samples.weight), parts.shards)
        learned = jax.tree.map(lambda new, old: jnp.where(complete > 0, new, old), learned, learner)
        count = samples.weight.size * (1 if parts.shards is None else parts.shards.count)
        return learned, metrics | {"complete_share": complete / count}

    return learn
