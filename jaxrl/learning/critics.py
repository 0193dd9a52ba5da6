"""How a critic values a state under a discount: by one value, or by one value for each exponential of a mixture."""

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.checks import is_concrete
from jaxrl.discounts.form import Form
from jaxrl.discounts.mixtures import with_nodes
from jaxrl.discounts.parsing import Family, Prepared, as_discount, prepare
from jaxrl.learning.advantages import mixture_ugae, ugae
from jaxrl.learning.losses import clipped_value_loss


class Critic(NamedTuple):
    """What an algorithm does with its network's values `V`, `[*B]` or `[*B, K]`.

    Attributes:
      num_values: Number of values that the network gives; None for one, without an axis.
      prepare: `(discount, horizon, batch_size, episode_length) -> Prepared`, as `jaxrl.discounts.parsing.prepare`.
      estimate: `(discount, lam, reward, V, next V, terminated, done) -> (advantage [T, *B], target like V)`.
      loss: `(discount, V, old V, target, weight, clip) -> []`, the clipped value loss.
      whole: `(discount, V or target) -> [*B]`, the value under the discount.
    """

    num_values: int | None
    prepare: Callable[..., Prepared]
    estimate: Callable[..., tuple[jax.Array, jax.Array]]
    loss: Callable[..., jax.Array]
    whole: Callable[[Prepared, jax.Array], jax.Array]


def single_critic() -> Critic:
    """One value, which estimates bootstrap from as though the discount's clock restarted: UGAE."""

    def loss(
        discount: Prepared, value: jax.Array, old: jax.Array, target: jax.Array, weight: jax.Array, clip: Any
    ) -> jax.Array:
        del discount
        return clipped_value_loss(value, old, target, weight, clip)

    return Critic(None, prepare, ugae, loss, lambda discount, value: value)


def mixture_critic(num_heads: int) -> Critic:
    """One value for each exponential of the discount, each bootstrapping from itself.

    A rate r has values of the size of its horizon h = sum of r^t, which may be 1 or 1,000. So the network gives u_k,
    of which head k makes V_k = u_k h_k / h with h = sum_k w_k h_k: every u_k has the size of the discount's own value,
    V = sum_k w_k V_k = sum_k s_k u_k with shares s_k = w_k h_k / h that add up to 1, and the loss is
    sum_k s_k (u_k - target_k)^2 / 2, which bounds half the squared error of V by Jensen's inequality, most tightly
    where the heads' errors are of the size of their horizons. Values are clipped head by head, in these units. A
    discount of fewer exponentials leaves the other heads at a weight of 0.

    The exponentials stand for the curve over one rollout; beyond it the slowest one sets the tail, an exponential one
    even where the curve itself has an infinite sum. Over 8 rollouts in place of one the slowest rate, whose head learns
    last, comes some 5 times closer to 1, with which CartPole was learned worse.
    """

    def prepare_heads(
        discount: Any, horizon: int, batch_size: int | None, episode_length: int | None = None
    ) -> Prepared:
        prepared = prepare(discount, horizon, batch_size, episode_length)
        return with_nodes(prepared, num_heads, horizon, discount_name(discount))

    def estimate(
        discount: Prepared, lam: Any, reward: jax.Array, value: jax.Array, next_value: jax.Array, *ends: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        chex.assert_shape([value, next_value], (..., num_heads), custom_message="value, next_value")
        size = head_sizes(discount)
        rates, weights = discount.rates, discount.weights
        advantage, target = mixture_ugae(rates, weights, lam, reward, value * size, next_value * size, *ends)
        return advantage, target / size

    def loss(
        discount: Prepared, value: jax.Array, old: jax.Array, target: jax.Array, weight: jax.Array, clip: Any
    ) -> jax.Array:
        chex.assert_shape(value, (*weight.shape, num_heads), custom_message="value, weight")
        return clipped_value_loss(value, old, target, weight[..., None] * shares(discount), clip)

    def shares(discount: Prepared) -> jax.Array:
        return discount.weights * head_sizes(discount)

    def whole(discount: Prepared, value: jax.Array) -> jax.Array:
        chex.assert_shape(value, (..., num_heads), custom_message="value")
        return jnp.sum(shares(discount) * value, axis=-1)

    return Critic(num_heads, prepare_heads, estimate, loss, whole)


def head_sizes(discount: Prepared) -> jax.Array:
    """`[K]`: the horizon of each exponential of a mixture, as a multiple of the whole mixture's."""
    chex.assert_rank([discount.rates, discount.weights], 1, custom_message="discount.rates, discount.weights")
    chex.assert_equal_shape([discount.rates, discount.weights], custom_message="discount.rates, discount.weights")
    steps = jnp.arange(discount.horizon)
    horizons = jnp.sum(jnp.asarray(discount.rates)[:, None] ** steps, axis=1)
    return horizons / jnp.sum(discount.weights * horizons)


def discount_name(discount: Any) -> str:
    """What to call a discount, or the first of a stack, in an error."""
    if isinstance(discount, Form | Prepared):
        return "the discount"
    family = as_discount(discount)
    if not isinstance(family, Family) or not is_concrete(family):
        return type(family).__name__
    return str(family if family.is_single() else jax.tree.map(lambda leaf: np.asarray(leaf)[0], family))
