"""Running mean and variance of observations and rewards."""

from typing import Any

import chex
import jax
import jax.numpy as jnp
from flax import struct

from envs.choices import ChoiceShape
from envs.loops import scan
from jaxrl.learning.shards import EnvShards, summed
from jaxrl.pytrees import Number, PyTree


@struct.dataclass
class RunningStatistics:
    """Mean and variance of all samples so far, leaf by leaf.

    Attributes:
      count: Total weight of the samples, float32 `[]`.
      mean, variance: Pytrees with the shape of one sample; None for its choices, which have no mean.
    """

    count: jax.Array
    mean: Any
    variance: Any


def init_statistics(sample: PyTree) -> RunningStatistics:
    """Statistics of no samples: mean 0, variance 1.

    Args:
      sample: Pytree with the shapes of one sample.
    """

    def zeros_of(leaf: PyTree) -> jax.Array | None:
        return None if isinstance(leaf, ChoiceShape) else jnp.zeros(leaf.shape, jnp.float32)

    zeros = jax.tree.map(zeros_of, sample)
    return RunningStatistics(jnp.zeros(()), zeros, jax.tree.map(jnp.ones_like, zeros))


def update_statistics(
    statistics: RunningStatistics, batch: PyTree, weight: jax.Array, shards: EnvShards | None = None
) -> RunningStatistics:
    """Statistics after one more batch, by the parallel form of Welford's update.

    Args:
      statistics: Statistics so far.
      batch: Samples, leaves `[*B, *sample]`.
      weight: Weights of the samples, `[*B]`, 0 for excluded samples.
      shards: Shards whose batches are combined, if any.

    Source: Chan, Golub and LeVeque (1983).
    """
    chex.assert_tree_shape_prefix(batch, weight.shape, custom_message="batch, weight")
    added = summed(jnp.sum(weight), shards)
    total = statistics.count + added
    fraction = added / jnp.where(total > 0, total, 1.0)
    axes = tuple(range(weight.ndim))

    def merge(mean: jax.Array, variance: jax.Array, leaf: jax.Array) -> tuple[jax.Array, jax.Array]:
        chex.assert_shape(leaf, (*weight.shape, *mean.shape), custom_message="batch")
        leaf = leaf.astype(jnp.float32)
        w = weight.reshape(weight.shape + (1,) * (leaf.ndim - weight.ndim)) / jnp.where(added > 0, added, 1.0)
        batch_mean = summed(jnp.sum(leaf * w, axes), shards)
        batch_variance = summed(jnp.sum(jnp.square(leaf - batch_mean) * w, axes), shards)
        shift = batch_mean - mean
        merged = (1 - fraction) * variance + fraction * batch_variance
        return mean + fraction * shift, merged + fraction * (1 - fraction) * jnp.square(shift)

    means, treedef = jax.tree.flatten(statistics.mean, is_leaf=_is_none)
    variances = jax.tree.leaves(statistics.variance, is_leaf=_is_none)
    pairs = [
        (None, None) if mean is None else merge(mean, variance, leaf)
        for mean, variance, leaf in zip(means, variances, jax.tree.leaves(batch), strict=True)
    ]
    updated = RunningStatistics(
        total, treedef.unflatten([mean for mean, _ in pairs]), treedef.unflatten([variance for _, variance in pairs])
    )
    return jax.tree.map(lambda new, old: jnp.where(added > 0, new, old), updated, statistics)


RewardScale = tuple[RunningStatistics, jax.Array]


def init_reward_scale(shape: tuple[int, ...]) -> RewardScale:
    """Statistics of no samples, and sums of 0 for environments (and agents) `[N, *A]`."""
    return init_statistics(jax.ShapeDtypeStruct((), jnp.float32)), jnp.zeros(shape)


def scale_rewards(
    scale: RewardScale,
    reward: jax.Array,
    done: jax.Array,
    active: jax.Array,
    rate: Number,
    clip: jax.Array | float,
    shards: EnvShards | None = None,
) -> tuple[jax.Array, RewardScale]:
    """Rewards divided by the running standard deviation of their exponentially discounted sum.

    The sum runs over past rewards; only an exponential curve can be accumulated in it step by step. Scaled rewards do
    not depend on the unit of rewards: where the sums do not vary, rewards other than 0 reach the bound.

    Args:
      scale: Statistics of the sums so far, and the sums `[N, *A]`.
      reward: Rewards of one rollout, `[T, N, *A]`.
      done: Ends of episodes, bool `[T, N, *A]`.
      active: Whether an agent took part, bool `[T, N, *A]`; sums of inactive agents are excluded from the statistics.
      rate: Factor of the sum at each step, `[]`, traced: Gamma(1), whatever the family of the discount.
      clip: Bound of the scaled rewards, `[]`, traced.
      shards: Shards that share the statistics, if any.

    Returns:
      Scaled rewards `[T, N, *A]`, and the updated scale.
    """
    chex.assert_equal_shape([reward, done, active], custom_message="reward, done, active")
    statistics, start = scale

    def accumulate(total: jax.Array, step: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        reward, done = step
        total = reward + rate * total
        return jnp.where(done, 0.0, total), total

    last, totals = scan(accumulate, start, (reward, done))
    statistics = update_statistics(statistics, totals, active.astype(jnp.float32), shards)
    variance = jnp.maximum(statistics.variance, jnp.finfo(jnp.float32).tiny)
    return jnp.clip(reward * jax.lax.rsqrt(variance), -clip, clip), (statistics, last)


# Formula of `normalise`, for exported policies.
FORMULA = "clip((x - mean) / sqrt(variance + 1e-8), -observation_clip, observation_clip)"


def normalise(statistics: RunningStatistics | None, sample: PyTree, clip: jax.Array | float | None) -> Any:
    """(sample - mean) / standard deviation, clipped to [-clip, clip]; with any leading axes.

    If the statistics or the bound are None, the sample is returned unchanged; so are its choices.

    The 1e-8 that is added to variances is absolute, unlike in `scale_rewards`: components of observations that vary by
    less than 1e-4 are mostly rounding errors of a simulator, which must not become inputs of the size of the others.
    Observations whose numbers are small because of their unit, such as km, take a smaller unit first. Exported policies
    and those of saved results contain this formula.
    """
    if statistics is None or clip is None:
        return sample
    chex.assert_rank(clip, 0, custom_message="clip")

    def leaf(mean: jax.Array | None, variance: Number, x: jax.Array) -> jax.Array:
        if mean is None:
            return x
        chex.assert_shape(x, (..., *mean.shape), custom_message="sample")
        return jnp.clip((x - mean) * jax.lax.rsqrt(variance + 1e-8), -clip, clip)

    return jax.tree.map(leaf, statistics.mean, statistics.variance, sample, is_leaf=_is_none)


def _is_none(node: PyTree) -> bool:
    return node is None
