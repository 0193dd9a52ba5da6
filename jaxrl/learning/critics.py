"""Critics under a discount: one value, or one value for each exponential of a mixture."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from jaxrl.discounts.mixtures import head_sizes, with_nodes
from jaxrl.discounts.parsing import Prepared, discount_name, prepare
from jaxrl.learning.advantages import LamWeights, mixture_ugae, ugae
from jaxrl.learning.losses import clipped_value_loss
from jaxrl.pytrees import DiscountLike, Number


class Critic(NamedTuple):
    """Functions of the network's values `V`, `[*B]` or `[*B, K]`.

    Attributes:
      num_values: Number of values of the network; None for one, without an axis.
      prepare: Function `(discount, horizon, batch_size, episode_length) -> Prepared`, see
        `jaxrl.discounts.parsing.prepare`.
      estimate: Function `(discount, lam, reward, V, next V, terminated, done) -> (advantage [T, *B], target like V)`.
      loss: Function `(discount, V, old V, target, weight, clip) -> []`, the clipped value loss.
      whole: Function `(discount, V or target) -> [*B]`, the value under the discount.
    """

    num_values: int | None
    prepare: Callable[..., Prepared]
    estimate: Callable[..., tuple[jax.Array, jax.Array]]
    loss: Callable[..., jax.Array]
    whole: Callable[[Prepared, jax.Array], jax.Array]


def single_critic(lam_weights: LamWeights = "truncated") -> Critic:
    """Critic with one value; estimates bootstrap as if the discount restarted at each step (UGAE).

    Args:
      lam_weights: Weights of the n-step estimators, as in `ugae`.
    """

    def loss(
        discount: Prepared,
        value: jax.Array,
        old: jax.Array,
        target: jax.Array,
        weight: jax.Array,
        clip: jax.Array | float,
    ) -> jax.Array:
        del discount
        return clipped_value_loss(value, old, target, weight, clip)

    estimate = functools.partial(ugae, lam_weights=lam_weights)
    return Critic(None, prepare, estimate, loss, lambda discount, value: value)


def mixture_critic(num_heads: int, lam_weights: LamWeights = "truncated") -> Critic:
    """Critic with one value for each exponential of the discount, each bootstrapping from itself.

    Values under a rate r grow with its horizon h, the sum of r^t over the steps of one rollout. The network therefore
    returns u_k, from which head k computes V_k = u_k h_k / h with h = sum_k w_k h_k. The value under the discount is V
    = sum_k w_k V_k = sum_k s_k u_k with shares s_k = w_k h_k / h that sum to 1, and the loss is sum_k s_k (u_k -
    target_k)^2 / 2, which bounds half the squared error of V by Jensen's inequality, most tightly where the heads'
    errors are of the size of their horizons. The sizes of the u_k differ by the part of their values that lies beyond
    one rollout: for endless rewards of 1 under "beta:0.98,0.5", rollouts of 128 steps give u_k from 56 to 247, and V is
    94. Values are clipped head by head, in these units. A discount of fewer exponentials leaves the other heads at a
    weight of 0.

    The exponentials fit the curve over one rollout; beyond it the slowest one determines the tail, which is exponential
    even if the curve has an infinite sum. Fitted over 8 rollouts, the slowest rate, whose head learns
    last, comes some 5 times closer to 1, and learning on CartPole was worse.

    Args:
      num_heads: Number of exponentials K.
      lam_weights: Weights of the n-step estimators, as in `ugae`.
    """

    def prepare_heads(
        discount: DiscountLike, horizon: int, batch_size: int | None, episode_length: int | None = None
    ) -> Prepared:
        prepared = prepare(discount, horizon, batch_size, episode_length)
        return with_nodes(prepared, num_heads, horizon, discount_name(discount))

    def estimate(
        discount: Prepared, lam: Number, reward: jax.Array, value: jax.Array, next_value: jax.Array, *ends: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        chex.assert_shape([value, next_value], (..., num_heads), custom_message="value, next_value")
        size = head_sizes(discount)
        rates, weights = discount.rates, discount.weights
        values = value * size, next_value * size
        advantage, target = mixture_ugae(rates, weights, lam, reward, *values, *ends, lam_weights=lam_weights)
        return advantage, target / size

    def loss(
        discount: Prepared,
        value: jax.Array,
        old: jax.Array,
        target: jax.Array,
        weight: jax.Array,
        clip: jax.Array | float,
    ) -> jax.Array:
        chex.assert_shape(value, (*weight.shape, num_heads), custom_message="value, weight")
        return clipped_value_loss(value, old, target, weight[..., None] * shares(discount), clip)

    def shares(discount: Prepared) -> jax.Array:
        return discount.weights * head_sizes(discount)

    def whole(discount: Prepared, value: jax.Array) -> jax.Array:
        chex.assert_shape(value, (..., num_heads), custom_message="value")
        return jnp.sum(shares(discount) * value, axis=-1)

    return Critic(num_heads, prepare_heads, estimate, loss, whole)
