"""Targets of action values: under one rate, or under each rate of a mixture of exponentials.

Values under a rate grow with its horizon. Networks therefore learn `u_k = V_k / size_k`, which are all of the scale of
the value under the discount, `V = sum_k weights_k V_k = sum_k shares_k u_k`.
"""

from typing import Any, Literal

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.learning.advantages import rate_returns
from jaxrl.pytrees import Mask, Number

__all__ = [
    "best_actions",
    "bootstrap_actions",
    "lambda_targets",
    "masked_values",
    "mixture_values",
    "n_step_targets",
    "of_actions",
    "of_branches",
    "soft_values",
]


def mixture_values(values: jax.Array, shares: jax.Array) -> jax.Array:
    """Values under the discount, `[*B]`, from the values under its rates.

    Args:
      values: Values u_k, `[*B, K]`.
      shares: Shares of the rates in a value, `[K]`, with sum 1.
    """
    chex.assert_equal_shape_suffix([values, shares], 1, custom_message="values, shares")
    return jnp.sum(values * shares, axis=-1)


def masked_values(values: jax.Array, mask: Mask) -> jax.Array:
    """Values of actions, `[*B, num_actions]`, with the lowest finite number where a mask forbids the action."""
    if mask is None:
        return values
    chex.assert_equal_shape([values, mask], custom_message="values, mask")
    return jnp.where(mask, values, jnp.finfo(values.dtype).min)


def of_branches(values: Any, branches: tuple[int, ...], axis: int = -1) -> list[Any]:
    """Values of the choices of each part of an action, from those of all parts one after another along an axis.

    Args:
      values: Values, or an action mask, whose leaves are the parts already; None for no mask.
      branches: Numbers of choices of the parts.
      axis: Axis of the choices.
    """
    if isinstance(values, jax.Array | np.ndarray):
        chex.assert_axis_dimension(values, axis, sum(branches), custom_message="values")
    else:
        return [None] * len(branches) if values is None else jax.tree.leaves(values)
    return jnp.split(values, np.cumsum(branches)[:-1].tolist(), axis=axis)


def of_actions(values: jax.Array, index: jax.Array, branches: tuple[int, ...] | None, axis: int) -> jax.Array:
    """Values of chosen actions, without the axis of the actions; of several choices with those of all parts, D.

    Args:
      values: Values of all actions, with `num_actions` entries along the axis.
      index: Actions, int32, with the axes of `values`, of which others than `axis` may have size 1. Along `axis` they
        have size 1, or D for several choices, each counted within its part.
      branches: Numbers of choices of the D parts of an action; None for one choice.
      axis: Axis of the actions, below 0.
    """
    chex.assert_equal_rank([values, index], custom_message="values, index")
    after = (slice(None),) * (-axis - 1)
    if branches is None:
        return jnp.take_along_axis(values, index, axis=axis)[(..., 0, *after)]
    first = np.cumsum([0, *branches[:-1]]).astype(np.int32)
    return jnp.take_along_axis(values, index + first[(..., *[None] * len(after))], axis=axis)


def best_actions(values: jax.Array, mask: Mask, branches: tuple[int, ...] | None) -> jax.Array:
    """Allowed actions of the highest value, int32 `[*B]`; of several choices the best of each part, `[*B, D]`.

    Args:
      values: Values of all actions, `[*B, num_actions]`.
      mask: Action mask, or None.
      branches: Numbers of choices of the parts; None for one choice.
    """
    if branches is None:
        return jnp.argmax(masked_values(values, mask), axis=-1).astype(jnp.int32)
    parts = zip(of_branches(values, branches), of_branches(mask, branches), strict=True)
    return jnp.stack([best_actions(part, allowed, None) for part, allowed in parts], axis=-1)


def bootstrap_actions(
    values: jax.Array,
    shares: jax.Array,
    mask: Mask,
    heads: Literal["single", "own", "joint"],
    branches: tuple[int, ...] | None = None,
) -> jax.Array:
    """Action of the bootstrap of each rate, int32 `[*B, K]`; of several choices, `[*B, D, K]`.

    Args:
      values: Values u_k of the actions, `[*B, num_actions, K]`.
      shares: Shares of the rates in a value, `[K]`.
      mask: Action mask, bool `[*B, num_actions]`, or None; of several choices, a tree with one for each part.
      heads: Criterion of the action: "own", the value under each rate; "joint" or "single", the value of the mixture.
      branches: Numbers of choices of the D parts of an action; None for one choice.

    Source: Fedus et al. (2019), arXiv 1902.06865, for "own".
    """
    if branches is not None:
        parts = zip(of_branches(values, branches, -2), of_branches(mask, branches), strict=True)
        return jnp.stack([bootstrap_actions(part, shares, allowed, heads) for part, allowed in parts], axis=-2)
    chex.assert_equal_shape_suffix([values, shares], 1, custom_message="values, shares")
    if heads == "own":
        by_rate = jnp.moveaxis(values, -1, -2)
        return jnp.argmax(masked_values(by_rate, _over_rates(mask, by_rate)), axis=-1)
    best = jnp.argmax(masked_values(mixture_values(values, shares), mask), axis=-1)
    return jnp.broadcast_to(best[..., None], (*best.shape, shares.shape[0]))


def _over_rates(mask: Mask, by_rate: jax.Array) -> Any:
    return None if mask is None else jnp.broadcast_to(mask[..., None, :], by_rate.shape)


def n_step_targets(
    reward: jax.Array, counts: jax.Array, ended: jax.Array, next_atoms: jax.Array, rates: jax.Array, sizes: jax.Array
) -> jax.Array:
    """Atoms of the n-step targets of u_k, `[B, *A, K, M]`.

    Args:
      reward: Rewards of the steps, `[B, n, *A]`.
      counts: Whether a step belongs to the window, bool `[B, n, *A]`.
      ended: Whether the last step has no successor to bootstrap from, bool `[B, *A]`.
      next_atoms: Atoms of u_k of the bootstrap after the last step, `[B, *A, K, M]`.
      rates, sizes: Rates of the mixture and sizes of their values, `[K]`.
    """
    chex.assert_equal_shape([reward, counts], custom_message="reward, counts")
    chex.assert_equal_shape([rates, sizes], custom_message="rates, sizes")
    chex.assert_shape(next_atoms, (*ended.shape, *rates.shape, None), custom_message="next_atoms, ended")
    powers = jnp.asarray(rates) ** jnp.arange(reward.shape[1] + 1)[:, None]  # [n + 1, K]
    sums = jnp.einsum("bn...,nk->b...k", jnp.where(counts, reward, 0.0), powers[:-1], precision="highest")
    going_on = jnp.where(ended[..., None], 0.0, powers[jnp.sum(counts, axis=1)])
    return (sums / sizes)[..., None] + going_on[..., None] * next_atoms


def lambda_targets(
    lam: Number,
    reward: jax.Array,
    next_values: jax.Array,
    terminated: jax.Array,
    done: jax.Array,
    rates: jax.Array,
    sizes: jax.Array,
) -> jax.Array:
    """Targets of u_k along a rollout: lambda-returns of the actions taken, cut where an episode ends, `[T, *B, K]`.

    Args:
      lam: Weight of longer returns, scalar in [0, 1], traced; 1 is Monte Carlo, 0 one-step.
      reward: Rewards, `[T, *B]`.
      next_values: Values u_k after each step, before any reset, of the action that follows, `[T, *B, K]`.
      terminated: Whether a step ended its episode in a state of value 0, bool `[T, *B]`; the last return of any other
        episode bootstraps.
      done: Whether a step is the last of an episode, bool `[T, *B]`.
      rates, sizes: Rates of the mixture and sizes of their values, `[K]`.

    Source: Peng and Williams (1996), "Incremental multi-step Q-learning", whose traces continue after exploratory
    actions; Gallici et al. (2024), "Simplifying deep temporal difference learning", for learning without a replay
    buffer.
    """
    chex.assert_equal_shape([rates, sizes], custom_message="rates, sizes")
    chex.assert_shape(next_values, (*reward.shape, *rates.shape), custom_message="next_values, reward")
    chex.assert_equal_shape([reward, terminated, done], custom_message="reward, terminated, done")
    return rate_returns(rates, lam, reward, next_values * sizes, terminated, done) / sizes


def soft_values(values: jax.Array, mask: Mask, temperature: jax.Array | float) -> tuple[jax.Array, jax.Array]:
    """Soft value, and the log-probabilities of the softmax policy.

    Args:
      values: Values of actions, `[*B, num_actions]`.
      mask: Action mask, bool `[*B, num_actions]`, or None; where it forbids all actions, as after some ends, it has no
        effect, so that values are finite.
      temperature: Temperature of the policy, `[]`, above 0, traced.

    Returns:
      Soft values, `[*B]`: `temperature * logsumexp(values / temperature)`, the mean of
      `values - temperature * log(policy)` under the policy; and log-probabilities, `[*B, num_actions]`.

    Source: Vieillard, Pietquin and Geist (2020), "Munchausen reinforcement learning".
    """
    chex.assert_rank(temperature, 0, custom_message="temperature")
    allowed = True if mask is None else mask | ~jnp.any(mask, axis=-1, keepdims=True)
    logits = jnp.where(allowed, values / temperature, -jnp.inf)
    total = jax.nn.logsumexp(logits, axis=-1, keepdims=True)
    return temperature * total[..., 0], logits - total
