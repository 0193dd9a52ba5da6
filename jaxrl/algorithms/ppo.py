"""Proximal policy optimisation under any discount."""

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import struct

from envs.base import Environment
from envs.errors import UserTypeError
from jaxrl.algorithms.contract import Algorithm, Metrics
from jaxrl.algorithms.on_policy import Learn, Parts, Samples, on_policy
from jaxrl.algorithms.on_policy_config import INFINITE, OnPolicyConfig, OnPolicyHParams
from jaxrl.checks import Range, check_choice, check_count, check_range
from jaxrl.discounts.parsing import Exponential
from jaxrl.learning.losses import approximate_kl, clipped_surrogate, kept_means, standardise, weighted_mean
from jaxrl.learning.minibatches import over_epochs
from jaxrl.learning.networks import Module
from jaxrl.learning.recurrent import is_recurrent
from jaxrl.sweeps.distributions import Choice, LogUniform, Uniform


@dataclasses.dataclass(frozen=True, kw_only=True)
class PPOConfig(OnPolicyConfig):
    """What is static about PPO: changing a field compiles anew.

    Attributes:
      num_epochs: Number of passes over the samples of an iteration.
      num_minibatches: Number of minibatches of one pass; must divide num_envs * num_steps (* agents), or
        num_envs where the policy remembers.
      normalise_advantage: Samples over which advantages are normalised: the whole "batch", each "minibatch", or "off".
      kl_stop: Where `target_kl` ends an iteration's learning: after the "epoch" whose mean divergence exceeds it; at
        the "minibatch" that finds it exceeded, without a step of its own; or there with a "rewind", which also undoes
        the step before.
    """

    num_epochs: int = 4
    num_minibatches: int = 4
    normalise_advantage: Literal["batch", "minibatch", "off"] = "minibatch"
    kl_stop: Literal["epoch", "minibatch", "rewind"] = "epoch"

    def __post_init__(self, gamma: None) -> None:
        super().__post_init__(gamma)
        for name in ("num_epochs", "num_minibatches"):
            check_count(name, getattr(self, name))
        check_choice("normalise_advantage", self.normalise_advantage, ("batch", "minibatch", "off"))
        check_choice("kl_stop", self.kl_stop, ("epoch", "minibatch", "rewind"))


@struct.dataclass
class PPOHParams(OnPolicyHParams):
    """What may be swept without compiling anew: every leaf is traced.

    Attributes:
      clip_eps: Half width of the trusted interval of the probability ratio.
      value_clip: Largest move of a value in one iteration; infinite turns the clip off.
      target_kl: KL divergence beyond which an iteration stops learning, see `PPOConfig.kl_stop`;
        infinite turns it off.
    """

    clip_eps: Any = 0.2
    value_clip: Any = INFINITE
    target_kl: Any = INFINITE

    def __post_init__(self, gamma: None) -> None:
        super().__post_init__(gamma)
        check_range("clip_eps", self.clip_eps, Range(0, INFINITE, "[)"))
        for name in ("value_clip", "target_kl"):
            check_range(name, getattr(self, name), Range(0, INFINITE))


def ppo(env: Environment, config: PPOConfig | None = None, network: Module | None = None) -> Algorithm:
    """PPO on an environment.

    Args:
      env: Environment of one agent, or a crowd, whose agents share the network.
      config: Configuration; the defaults if None.
      network: The user's own network: a hashable flax module that maps one observation to `(outputs, value)`, or one
        that remembers, see `jaxrl.learning.recurrent`; None for the one that the configuration names.

    Raises:
      ContractError: The environment breaks a law.
      TypeError, ValueError: A field does not fit the environment; before anything is compiled.

    Source: Schulman et al. (2017); advantages: Kwiatkowski et al. (2023), arXiv 2302.05740.
    """
    if config is not None and not isinstance(config, PPOConfig):
        raise UserTypeError(f"config must be a PPOConfig, such as PPOConfig(num_envs=8), got {type(config).__name__}")
    config = PPOConfig() if config is None else config
    return on_policy("ppo", env, config, PPOHParams, make_learn, network=network, builder=f"{__name__}:ppo")


def search_space(algo: Algorithm) -> dict[str, Uniform | LogUniform | Choice]:
    """What a search over PPO tries where nothing else is said."""
    space: dict[str, Uniform | LogUniform | Choice] = {
        "lr": LogUniform(1e-4, 1e-2),
        "lam": Uniform(0.8, 1.0),
        "clip_eps": Uniform(0.1, 0.4),
        "entropy_coef": LogUniform(1e-5, 3e-2),
    }
    if isinstance(algo.hparams.discount, Exponential):
        space["discount"] = Choice([0.9, 0.95, 0.98, 0.99, 0.995, 0.999])
    remembers = algo.config.memory != "none" or is_recurrent(algo.network)
    rows, steps = algo.config.num_envs * (1 if remembers else algo.config.num_steps), algo.config.num_minibatches
    counts = [count for count in (steps // 2, steps, 2 * steps) if count and rows % count == 0]
    return space | ({"config.num_minibatches": Choice(counts)} if len(counts) > 1 else {})


def make_learn(parts: Parts) -> Learn:
    """Learning from one rollout: epochs of minibatches, until the divergence is too large."""
    config, head, critic, shards = parts.config, parts.head, parts.critic, parts.shards
    parts.check_minibatches(config.num_minibatches)

    def loss(weights: Any, rows: Samples, hparams: PPOHParams) -> tuple[jax.Array, Metrics]:
        params, log_std = weights
        outputs, value = parts.forward(params, rows)
        # The scores twice: gradients of a standard deviation that both uses share would be added up in another order.
        scores, scores_of_entropy = head.scores(outputs, log_std), head.scores(outputs, log_std)
        advantage = rows.advantage
        if config.normalise_advantage == "minibatch":
            advantage = standardise(advantage, rows.weight, shards)
        log_ratio = head.log_prob(scores, rows.mask, rows.raw_action) - rows.log_prob
        policy_loss = clipped_surrogate(log_ratio, advantage, rows.weight, hparams.clip_eps)
        value_loss = critic.loss(hparams.discount, value, rows.value, rows.target, rows.weight, hparams.value_clip)
        entropy = jnp.broadcast_to(head.entropy(scores_of_entropy, rows.mask), rows.weight.shape)
        entropy = weighted_mean(entropy, rows.weight)
        total = policy_loss + hparams.value_coef * value_loss - hparams.entropy_coef * entropy
        outside = jnp.abs(jnp.expm1(log_ratio)) > hparams.clip_eps
        return total, {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "approx_kl": approximate_kl(log_ratio, rows.weight),
            "clip_fraction": weighted_mean(outside.astype(jnp.float32), rows.weight),
        }

    def learn(
        key: jax.Array, learner: Any, samples: Samples, hparams: PPOHParams, lr: jax.Array
    ) -> tuple[Any, Metrics]:
        if config.normalise_advantage == "batch":
            samples = samples._replace(advantage=standardise(samples.advantage, samples.weight, shards))
        one_minibatch = parts.descent(loss, hparams, lr)

        def one_guarded_minibatch(carry: Any, rows: Samples) -> tuple[Any, tuple[Metrics, jax.Array]]:
            learner, before, stopped = carry
            learned, metrics = one_minibatch(learner, rows)
            halted = stopped | (metrics["approx_kl"] > hparams.target_kl)
            stay = _select(stopped, learner, before) if config.kl_stop == "rewind" else learner
            return (_select(halted, stay, learned), learner, halted), (metrics, stopped)

        def one_epoch(carry: Any, minibatches: Samples) -> tuple[Any, tuple[Metrics, jax.Array]]:
            if config.kl_stop != "epoch":
                return jax.lax.scan(one_guarded_minibatch, carry, minibatches)
            learner, _, stopped = carry
            learned, metrics = jax.lax.scan(one_minibatch, learner, minibatches)
            metrics = jax.tree.map(jnp.mean, metrics)
            over = stopped | (metrics["approx_kl"] > hparams.target_kl)
            return (_select(stopped, learner, learned), None, over), (metrics, stopped)

        start = (learner, None if config.kl_stop == "epoch" else learner, jnp.zeros((), bool))
        (learner, _, _), (metrics, stopped) = over_epochs(
            key,
            config.num_epochs,
            lambda key: parts.minibatches(key, samples, config.num_minibatches),
            one_epoch,
            start,
            shards,
        )
        metrics, stopped = jax.tree.map(jnp.ravel, (metrics, stopped))
        metrics = kept_means(metrics, ~stopped)  # what comes after the stop is computed, and discarded
        metrics["stopped_early"] = jnp.mean(stopped.astype(jnp.float32))
        return learner, metrics

    return learn


def _select(condition: jax.Array, one: Any, other: Any) -> Any:
    return jax.tree.map(lambda mine, yours: jnp.where(condition, mine, yours), one, other)
