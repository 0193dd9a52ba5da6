"""Losses of policy-gradient methods, on samples along one axis."""

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.learning.shards import EnvShards, greatest, summed

_ROUNDING = 4 * np.finfo(np.float32).eps  # relative difference of samples that count as equal


def weighted_mean(x: jax.Array, weight: jax.Array, shards: EnvShards | None = None) -> jax.Array:
    """Mean of `x` weighted by `weight`, both `[*B]`; 0 where all weights are 0; over all shards, if any."""
    chex.assert_equal_shape([x, weight], custom_message="x, weight")
    total = summed(jnp.sum(weight), shards)
    return summed(jnp.sum(x * weight), shards) / jnp.where(total > 0, total, 1.0)


def standardise(x: jax.Array, weight: jax.Array, shards: EnvShards | None = None) -> jax.Array:
    """`x` with weighted mean 0 and standard deviation 1, both `[*B]`; over all shards, if any.

    The result does not depend on the unit of `x`. Samples that differ by no more than rounding, and samples of weight
    0, become 0.
    """
    chex.assert_equal_shape([x, weight], custom_message="x, weight")
    x, scale = _in_unit_range(x, weight, shards)
    mean = weighted_mean(x, weight, shards)
    variance = weighted_mean(jnp.square(x - mean), weight, shards)
    equal = scale == 0
    return jnp.where(equal | ~(weight > 0), 0.0, (x - mean) * jax.lax.rsqrt(jnp.where(equal, 1.0, variance)))


def _in_unit_range(x: jax.Array, weight: jax.Array, shards: EnvShards | None) -> tuple[jax.Array, jax.Array]:
    """Samples `[*B]` mapped to [-1, 1] by a shift and a scale `[]`, so that their squares neither over- nor underflow.

    The scale is 0 where samples of positive weight differ by no more than rounding; their images, and those of samples
    of weight 0, are 0. Values that are not numbers stay so.
    """
    counts, largest = weight > 0, jnp.finfo(jnp.float32).max
    high = greatest(jnp.max(jnp.where(counts, x, -largest)), shards)
    low = -greatest(jnp.max(jnp.where(counts, -x, -largest)), shards)
    half = high / 2 - low / 2
    beyond = half - _ROUNDING * jnp.maximum(jnp.abs(high), jnp.abs(low))  # not a number if half is infinite
    scale = jnp.where(beyond <= 0, 0.0, half)
    unit = (x - (high / 2 + low / 2)) / jnp.where(scale == 0, 1.0, scale)
    return jnp.where(counts & (scale != 0), unit, 0.0), scale


def policy_gradient(log_prob: jax.Array, advantage: jax.Array, weight: jax.Array) -> jax.Array:
    """Loss whose gradient is the policy gradient: minus the mean of log-probability times advantage.

    Args:
      log_prob: Log-probabilities of the actions, `[*B]`.
      advantage, weight: Advantages, or returns, of the actions and weights of the samples, `[*B]`.

    Source: Williams (1992), Simple statistical gradient-following algorithms for connectionist reinforcement learning.
    """
    chex.assert_equal_shape([log_prob, advantage, weight], custom_message="log_prob, advantage, weight")
    return -weighted_mean(log_prob * advantage, weight)


def surrogate(log_ratio: jax.Array, advantage: jax.Array, weight: jax.Array) -> jax.Array:
    """Policy loss of trust-region methods: minus the mean of probability ratio times advantage.

    Args:
      log_ratio: Current log-probability of the actions minus that when acting, `[*B]`.
      advantage, weight: Advantages of the actions and weights of the samples, `[*B]`.

    Source: Schulman et al. (2015), Trust region policy optimization, equation 14.
    """
    chex.assert_equal_shape([log_ratio, advantage, weight], custom_message="log_ratio, advantage, weight")
    return -weighted_mean(jnp.exp(log_ratio) * advantage, weight)


def clipped_surrogate(log_ratio: jax.Array, advantage: jax.Array, weight: jax.Array, clip_eps: jax.Array) -> jax.Array:
    """PPO's clipped policy loss.

    Args:
      log_ratio: Current log-probability of the actions minus that when acting, `[*B]`.
      advantage, weight: Advantages of the actions and weights of the samples, `[*B]`.
      clip_eps: Half width of the interval around 1 to which the ratio is clipped, scalar, traced.

    Source: Schulman et al. (2017), equation 7.
    """
    chex.assert_equal_shape([log_ratio, advantage, weight], custom_message="log_ratio, advantage, weight")
    chex.assert_rank(clip_eps, 0, custom_message="clip_eps")
    ratio = jnp.exp(log_ratio)
    clipped = jnp.clip(ratio, 1 - clip_eps, 1 + clip_eps)
    return -weighted_mean(jnp.minimum(ratio * advantage, clipped * advantage), weight)


def quadratic_surrogate(log_ratio: jax.Array, advantage: jax.Array, weight: jax.Array, eps: jax.Array) -> jax.Array:
    """Policy loss of Simple Policy Optimization: minus the mean of A r - |A| (r - 1)^2 / (2 eps).

    Its gradient is that of the unclipped surrogate at the ratio r = 1 and vanishes at r = 1 + sign(A) eps; beyond
    that it pulls the ratio back, whereas PPO's gradient is 0.

    Args:
      log_ratio: Current log-probability of the actions minus that when acting, `[*B]`.
      advantage, weight: Advantages A of the actions and weights of the samples, `[*B]`.
      eps: Distance from 1 of the ratio that is best for a sample, scalar, traced.

    Source: Xie et al., Simple policy optimization, arXiv 2401.16025.
    """
    chex.assert_equal_shape([log_ratio, advantage, weight], custom_message="log_ratio, advantage, weight")
    chex.assert_rank(eps, 0, custom_message="eps")
    change = jnp.expm1(log_ratio)
    penalty = jnp.abs(advantage) * jnp.square(change) / (2 * eps)
    return -weighted_mean(advantage * (1 + change) - penalty, weight)


def clipped_value_loss(
    value: jax.Array, old_value: jax.Array, target: jax.Array, weight: jax.Array, clip_eps: jax.Array | float
) -> jax.Array:
    """Half the squared error, clipped so that changing a value by more than `clip_eps` does not reduce it.

    Args:
      value, old_value, target: Current values, values when acting, and targets, `[*B]`.
      weight: Weights of the samples, `[*B]`.
      clip_eps: Largest change of a value, scalar, traced; infinity for the plain squared error.
    """
    chex.assert_equal_shape([value, old_value, target, weight], custom_message="value, old_value, target, weight")
    chex.assert_rank(clip_eps, 0, custom_message="clip_eps")
    clipped = old_value + jnp.clip(value - old_value, -clip_eps, clip_eps)
    return 0.5 * weighted_mean(jnp.maximum(jnp.square(value - target), jnp.square(clipped - target)), weight)


def approximate_kl(log_ratio: jax.Array, weight: jax.Array) -> jax.Array:
    """KL(old || new) by the estimator (ratio - 1) - log ratio, which is never negative; both `[*B]`."""
    chex.assert_equal_shape([log_ratio, weight], custom_message="log_ratio, weight")
    return weighted_mean(jnp.expm1(log_ratio) - log_ratio, weight)


def kept_means(metrics: dict[str, jax.Array], kept: jax.Array) -> dict[str, jax.Array]:
    """Means of metrics over the updates that were kept; 0 where none was.

    Args:
      metrics: Metrics by name, `[updates]`.
      kept: Whether each update was kept, bool `[updates]`.
    """
    chex.assert_equal_shape([kept, *metrics.values()], custom_message="metrics, kept")
    count = jnp.maximum(jnp.sum(kept), 1)
    return {name: jnp.sum(jnp.where(kept, values, 0.0)) / count for name, values in metrics.items()}


def share_without_effect(prevented: jax.Array, rewinds: bool) -> jax.Array:
    """Share of the updates that have no effect, because they were prevented, or undone.

    Args:
      prevented: Whether each update was prevented, bool `[updates]`; once one is, so are all later ones.
      rewinds: Whether the update before the first of them is undone, static.
    """
    chex.assert_rank(prevented, 1, custom_message="prevented")
    if rewinds:
        prevented |= jnp.append(prevented[1:], prevented[-1])
    return jnp.mean(prevented.astype(jnp.float32))


def explained_variance(
    prediction: jax.Array, target: jax.Array, weight: jax.Array, shards: EnvShards | None = None
) -> jax.Array:
    """1 - Var(target - prediction) / Var(target), over all shards, if any: 1 is perfect, 0 no better than the mean.

    It does not depend on the unit of rewards. Where targets differ by no more than rounding, it is 1 if errors do not
    vary either, and otherwise 0.

    Args:
      prediction, target, weight: Predicted and true values, and weights of the samples, `[*B]`.
      shards: Parts whose samples count together, if any.
    """
    chex.assert_equal_shape([prediction, target, weight], custom_message="prediction, target, weight")
    error, of_error = _in_unit_range(target - prediction, weight, shards)
    target, of_target = _in_unit_range(target, weight, shards)
    residual = weighted_mean(jnp.square(error - weighted_mean(error, weight, shards)), weight, shards)
    total = weighted_mean(jnp.square(target - weighted_mean(target, weight, shards)), weight, shards)
    constant = of_target == 0
    share = jnp.square(of_error / jnp.where(constant, 1.0, of_target)) * residual / jnp.where(constant, 1.0, total)
    return jnp.where(constant, jnp.where(of_error == 0, 1.0, 0.0), 1 - share)
