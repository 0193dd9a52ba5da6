"""Parts of policy-gradient algorithms that one rarely edits."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.algorithms.contract import Metrics
from jaxrl.learning.normalisation import RunningStatistics, init_statistics, update_statistics
from jaxrl.learning.rollout import Transition
from jaxrl.learning.shards import EnvShards

RewardScale = tuple[RunningStatistics, jax.Array]


def over_agents(flag: jax.Array, reward: jax.Array) -> jax.Array:
    """A flag `[T, N]` with the agents' axes of a reward `[T, N, *A]`."""
    return jnp.broadcast_to(flag.reshape(flag.shape + (1,) * (reward.ndim - flag.ndim)), reward.shape)


def kept_means(metrics: Metrics, kept: jax.Array) -> Metrics:
    """Means of metrics `[epochs]` over the epochs that were kept, bool `[epochs]`; 0 where none was."""
    count = jnp.maximum(jnp.sum(kept), 1)
    return {name: jnp.sum(jnp.where(kept, values, 0.0)) / count for name, values in metrics.items()}


def episode_ends(steps: Transition) -> jax.Array:
    """Bool `[T, N, *A]`: where an agent's episode is over, terminated or truncated."""
    return over_agents(steps.terminated | steps.truncated, steps.reward) | steps.agent_terminated


def init_reward_scale(shape: tuple[int, ...]) -> RewardScale:
    """Statistics that have seen nothing, and sums of 0 for environments (and agents) `[N, *A]`."""
    return init_statistics(jax.ShapeDtypeStruct((), jnp.float32)), jnp.zeros(shape)


def scale_rewards(
    scale: RewardScale, steps: Transition, discount: Any, clip: Any, shards: EnvShards | None = None
) -> tuple[jax.Array, RewardScale]:
    """Rewards divided by the running deviation of their exponentially discounted sum.

    The sum looks back, so that no curve but an exponential can be added to it step by step; its
    rate is Gamma(1), under every family.

    Args:
      scale: statistics of the sums so far, and the sums `[N, *A]`.
      steps: of one rollout, `[T, N, ...]`.
      discount: prepared.
      clip: bound of the scaled rewards, traced.
      shards: which share the statistics, if any.

    Returns:
      Rewards `[T, N, *A]`, and the scale after them.
    """
    statistics, start = scale
    rate = discount.next_weight(jnp.zeros((), jnp.int32), jnp.ones(()))

    def accumulate(total: jax.Array, step: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        reward, done = step
        total = reward + rate * total
        return jnp.where(done, 0.0, total), total

    last, totals = jax.lax.scan(accumulate, start, (steps.reward, episode_ends(steps)))
    statistics = update_statistics(statistics, totals, steps.active.astype(jnp.float32), shards)
    return jnp.clip(steps.reward * jax.lax.rsqrt(statistics.variance + 1e-8), -clip, clip), (statistics, last)


def learning_rate_share(env_steps: jax.Array, end: Any, anneal_env_steps: Any) -> jax.Array:
    """The share of the learning rate in force after `env_steps`, falling linearly from 1 to `end`."""
    return 1 + (end - 1) * jnp.minimum(env_steps / anneal_env_steps, 1.0)


def apply_over(network: Any, params: Any, obs: Any, num_axes: int) -> tuple[jax.Array, jax.Array]:
    """A network on observations with `num_axes` axes in front, one after the other."""
    function = network.apply
    for _ in range(num_axes):
        function = jax.vmap(function, in_axes=(None, 0))
    return function(params, obs)
