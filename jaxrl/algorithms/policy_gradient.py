"""Common parts of policy-gradient algorithms: policy and critic on samples, their loss, epochs of minibatches."""

import dataclasses
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from envs.loops import in_parts, scan
from jaxrl.algorithms.contract import Algorithm, Metrics
from jaxrl.algorithms.on_policy import OnPolicy
from jaxrl.algorithms.on_policy_config import INFINITE, OnPolicyConfig
from jaxrl.algorithms.on_policy_state import Learner, Samples
from jaxrl.checks import check_choice, check_count
from jaxrl.discounts.parsing import Exponential
from jaxrl.learning.action_heads import Scores
from jaxrl.learning.losses import standardise, weighted_mean
from jaxrl.learning.minibatches import over_epochs
from jaxrl.learning.recurrent import is_recurrent
from jaxrl.pytrees import HParams, Params
from jaxrl.sweeps.distributions import Choice, LogUniform, SearchSpace, Uniform

__all__ = [
    "Acting",
    "EpochsConfig",
    "acting",
    "advantages",
    "common_space",
    "epochs",
    "scores_of",
    "total_loss",
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpochsConfig(OnPolicyConfig):
    """Static configuration of learning in epochs of minibatches.

    Attributes:
      num_epochs: Number of passes over the samples of an iteration.
      num_minibatches: Number of minibatches of one pass; must divide num_envs * num_steps (* agents), num_envs for
        a recurrent policy, or num_envs * num_steps for a centralised critic.
      normalise_advantage: Samples over which advantages are normalised: the whole "batch", each "minibatch", or "off".
    """

    num_epochs: int = 4
    num_minibatches: int = 4
    normalise_advantage: Literal["batch", "minibatch", "off"] = "minibatch"

    def __post_init__(self, gamma: None) -> None:
        super().__post_init__(gamma)
        for name in ("num_epochs", "num_minibatches"):
            check_count(name, getattr(self, name))
        check_choice("normalise_advantage", self.normalise_advantage, ("batch", "minibatch", "off"))


def common_space(algo: Algorithm, own: SearchSpace) -> SearchSpace:
    """Default search space: the common entries, and those of an algorithm, `own`."""
    space: SearchSpace = {"lr": LogUniform(1e-4, 1e-2)}
    if algo.hparams.lam is not None:
        space["lam"] = Uniform(0.8, 1.0)
    space |= own | {"entropy_coef": LogUniform(1e-5, 3e-2)}
    if isinstance(algo.hparams.discount, Exponential):
        space["discount"] = Choice([0.9, 0.95, 0.98, 0.99, 0.995, 0.999])
    if not isinstance(algo.config, EpochsConfig):
        return space
    remembers = algo.config.memory != "none" or is_recurrent(algo.network)
    rows = algo.config.num_envs * (1 if remembers else algo.config.num_steps)
    steps = algo.config.num_minibatches
    counts = [count for count in (steps // 2, steps, 2 * steps) if count and rows % count == 0]
    return space | ({"config.num_minibatches": Choice(counts)} if len(counts) > 1 else {})


class Acting(NamedTuple):
    """Outputs of the current policy and critic on samples.

    Attributes:
      scores: Parameters of the action distributions, leaves `[*B, ...]`.
      log_prob: Log-probabilities of the sampled actions, `[*B]`.
      entropy: Entropies of the action distributions, `[*B]`.
      value: Values, `[*B]`, or `[*B, K]` for a mixture critic.
    """

    scores: Scores
    log_prob: jax.Array
    entropy: jax.Array
    value: jax.Array


def acting(agent: OnPolicy, weights: Params, batch: Samples, steps_of_part: int | None = None) -> Acting:
    """Evaluate policy and critic with given weights on samples.

    Args:
      agent: OnPolicy of the algorithm.
      weights: Weights.
      batch: Samples.
      steps_of_part: Number of steps of which an accelerator keeps the layers for the gradient at a time, for samples
        `[T, envs, ...]` of a whole rollout; all if None, and if the policy has a memory.
    """
    params, log_std = weights
    if steps_of_part is None or agent.remembers:
        outputs, value = agent.forward(params, batch)
    else:
        forward = lambda obs: agent.apply(params, obs[0], obs[1], batch.weight.ndim)  # noqa: E731
        outputs, value = in_parts(forward, (batch.obs, batch.critic_obs), steps_of_part, recompute=True)
    # Scores are computed twice: a shared standard deviation would change the order in which gradients are summed.
    scores, scores_of_entropy = agent.head.scores(outputs, log_std), agent.head.scores(outputs, log_std)
    log_prob = agent.head.log_prob(scores, batch.mask, batch.raw_action)
    entropy = jnp.broadcast_to(agent.head.entropy(scores_of_entropy, batch.mask), batch.weight.shape)
    return Acting(scores, log_prob, entropy, value)


def advantages(agent: OnPolicy, batch: Samples, over: str) -> jax.Array:
    """Advantages of samples, normalised over them if configured.

    Args:
      agent: OnPolicy of the algorithm.
      batch: Samples of an iteration, or of a minibatch.
      over: Kind of the samples, "batch" or "minibatch".
    """
    if agent.config.normalise_advantage != over:
        return batch.advantage
    return standardise(batch.advantage, batch.weight, agent.shards)


def total_loss(
    agent: OnPolicy,
    now: Acting,
    batch: Samples,
    policy_loss: jax.Array,
    hparams: HParams,
    value_clip: jax.Array | float = INFINITE,
) -> tuple[jax.Array, Metrics]:
    """Total loss of policy and critic with the entropy bonus, and its terms as metrics."""
    value_loss = agent.critic.loss(hparams.discount, now.value, batch.value, batch.target, batch.weight, value_clip)
    entropy = weighted_mean(now.entropy, batch.weight)
    total = policy_loss + hparams.value_coef * value_loss - hparams.entropy_coef * entropy
    return total, {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}


def scores_of(agent: OnPolicy, learner: Learner, samples: Samples) -> Scores:
    """Scores of a learner's policy on samples, for exact divergences."""
    params, log_std = learner.weights
    outputs, _ = agent.forward(params, samples)
    return agent.head.scores(outputs, log_std)


def epochs(
    agent: OnPolicy, key: jax.Array, samples: Samples, one_minibatch: Any, learner: Learner
) -> tuple[Learner, Metrics]:
    """Run the configured number of epochs of minibatches.

    Args:
      agent: OnPolicy of the algorithm.
      key: Random key.
      samples: Samples of an iteration, leaves `[T, num_envs, *A, ...]`.
      one_minibatch: Function `(learner, minibatch) -> (learner, metrics)`, such as one by `OnPolicy.descent`.
      learner: Initial learner.

    Returns:
      Final learner, and means of the metrics over all minibatches.
    """
    learner, metrics = over_epochs(
        key,
        agent.config.num_epochs,
        lambda key: agent.minibatches(key, samples, agent.config.num_minibatches),
        lambda learner, minibatches: scan(one_minibatch, learner, minibatches, steps_of_turn=1),
        learner,
        agent.shards,
    )
    return learner, jax.tree.map(jnp.mean, metrics)
