"""Advantages and returns along a rollout, under any discount: UGAE, and GAE as its exponential case."""

from __future__ import annotations

import functools
from typing import Any, Literal

import chex
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from envs.errors import UserTypeError, UserValueError
from envs.loops import scan
from jaxrl.checks import check_choice, is_concrete
from jaxrl.discounts.families import Exponential
from jaxrl.discounts.parsing import prepare
from jaxrl.pytrees import DiscountLike, Number

LamWeights = Literal["truncated", "finite-time"]
LAM_WEIGHTS: tuple[LamWeights, ...] = ("truncated", "finite-time")

__all__ = [
    "LAM_WEIGHTS",
    "LamWeights",
    "gae",
    "lambda_returns",
    "mixture_ugae",
    "monte_carlo",
    "rate_returns",
    "ugae",
]


def ugae(
    discount: DiscountLike,
    lam: Number,
    reward: npt.ArrayLike,
    value: npt.ArrayLike,
    next_value: npt.ArrayLike,
    terminated: npt.ArrayLike,
    done: npt.ArrayLike,
    lam_weights: LamWeights = "truncated",
) -> tuple[jax.Array, jax.Array]:
    """Universal generalised advantage estimation: the lambda-weighted mean of k-step advantages, under any discount.

    A mixture of Q exponentials takes one reverse scan that carries `[Q, *B]`, O(T Q), and an exponential costs what GAE
    costs; any other curve is applied lag by lag, in O(T^2) time and O(T) memory. Every episode starts at lag 0,
    and the last step of the segment bootstraps from `next_value` unless it terminated.

    With N steps left to the end of the episode or of the segment, step t included, there are N estimators R_n = sum_l
    Gamma(l) r_{t+l} + Gamma(n) V_{t+n}, l < n <= N. In an endless episode R_n weighs (1 - lam) lam^(n-1). "truncated"
    gives R_N the weight of all longer estimators as well, lam^(N-1) altogether; "finite-time" divides the first N
    weights by their sum, 1 - lam^N. For lam = 0.95 and N = 10, R_10 weighs 0.63 in the former and 0.08 in the latter.
    With S_N = 1 + lam + ... + lam^(N-1) the finite-time weights are lam^(n-1) / S_N, and as S_N = 1 + lam S_{N-1}, the
    return under an exponential gamma is

        G_t = r_t + gamma ((1 - lam_N) V_{t+1} + lam_N G_{t+1}),    lam_N = lam S_{N-1} / S_N,

    which is TD(lambda) with a lambda that falls to 0 at the end; S_N needs the distance to the end alone, so that one
    scan carries both. It is linear in the curve too, and so the weights are the same under any discount. For lam = 1
    every R_n weighs 1 / N, which is not Monte Carlo; for lam = 0 the settings agree. Elsewhere they move a weight of
    lam^N (1 - lam^(N-1)) / (1 - lam^N) from R_N to the others, so that targets differ by less than lam^N times the
    range of the R_n: only near an end. Finite-time weights depend on when an episode ends. If the end is random, the
    temporal difference at the last step has a smaller weight than that of a step at which the episode continues, so
    targets are biased even if values are exact; truncated weights have no such bias under an exponential.

    Args:
      discount: Number, string, discount, or a discount prepared for at least T steps; parameters may be traced. Prepare
        it once outside a loop. Use `jax.vmap` for a stack of discounts.
      lam: Weight of longer returns, scalar in [0, 1], traced; 1 gives Monte Carlo returns, 0 one-step targets.
      reward: Rewards, `[T, *B]`.
      value: Values of the observations before the steps, `[T, *B]`.
      next_value: Values of the observations after the steps, before any reset, `[T, *B]`; within an episode, the next
        step's `value`.
      terminated: Flags of the steps that ended an episode in a state of value 0, bool `[T]`, `[T, ...]` or `[T, *B]`
        (trailing axes are shared).
      done: Flags of the steps that ended an episode, by termination or truncation, of the same shapes. A truncation
        bootstraps from `next_value`; if both flags hold, the step is a termination.
      lam_weights: Weights of the n-step estimators near the end of an episode or of the segment, "truncated" or
        "finite-time", static.

    Returns:
      advantage, target: `[T, *B]` float32; target = advantage + value, the lambda-return.

    Raises:
      ValueError: Shapes do not fit, lam is outside [0, 1], T exceeds the steps that `discount` was prepared for, or
        `lam_weights` has another value.

    Source: Kwiatkowski et al. (2023), UGAE; it is linear in the discount curve, hence the mixture. Finite-time weights
    under an exponential discount: Doering et al. (2026), An approximate ascent approach to prove convergence of PPO,
    arXiv 2602.03386.
    """
    reward = _checked_reward(reward)
    value = _like_reward("value", value, reward)
    target = _targets(discount, lam, reward, next_value, terminated, done, lam_weights)
    return target - value, target


def mixture_ugae(
    rates: npt.ArrayLike,
    weights: npt.ArrayLike,
    lam: Number,
    reward: npt.ArrayLike,
    value: npt.ArrayLike,
    next_value: npt.ArrayLike,
    terminated: npt.ArrayLike,
    done: npt.ArrayLike,
    lam_weights: LamWeights = "truncated",
) -> tuple[jax.Array, jax.Array]:
    """UGAE under Gamma(t) = sum_k weights_k rates_k^t, from one value for every rate.

    Each head k is a critic under its own exponential discount and bootstraps from itself, so its TD(lambda) return is
    unbiased at every lam where its values are exact. `ugae` bootstraps from the mixture's value, as though the clock
    restarted there, which biases it unless the discount is exponential or lam is 1; where rates are all equal, or lam
    is 1 and no episode is cut, the two agree.

    Args:
      rates, weights: Mixture of exponentials, `[K]`, traced: of `discount.mixture(horizon)`, or fewer nodes from
        `jaxrl.discounts.mixtures`.
      lam: Weight of longer returns, scalar in [0, 1], traced.
      reward: Rewards, `[T, *B]`.
      value, next_value: Values of each head, `[T, *B, K]`, as in `ugae`.
      terminated, done: Flags of episode ends, bool, as in `ugae`.
      lam_weights: Weights of the n-step estimators, as in `ugae`, static.

    Returns:
      advantage: `[T, *B]` float32, sum_k weights_k (G_k - V_k).
      target: `[T, *B, K]`, the lambda-return G_k of each head.

    Raises:
      ValueError: Shapes do not fit, lam is outside [0, 1], or `lam_weights` has another value.

    Source: UGAE is linear in the discount curve; a critic for each rate is that of Fedus et al. (2019), Hyperbolic
    discounting and learning over multiple horizons.
    """
    reward = _checked_reward(reward)
    rates, weights = jnp.asarray(rates, jnp.float32), jnp.asarray(weights, jnp.float32)
    if rates.ndim != 1 or rates.shape != weights.shape:
        raise UserValueError(f"rates and weights must both be [K], got the shapes {rates.shape} and {weights.shape}.")
    value = _like_reward("value", value, _at_rates(reward, rates))
    target = rate_returns(rates, lam, reward, next_value, terminated, done, lam_weights)
    return jnp.sum(weights * (target - value), axis=-1), target


def rate_returns(
    rates: npt.ArrayLike,
    lam: Number,
    reward: npt.ArrayLike,
    next_value: npt.ArrayLike,
    terminated: npt.ArrayLike,
    done: npt.ArrayLike,
    lam_weights: LamWeights = "truncated",
) -> jax.Array:
    """TD(lambda) returns under several exponential discounts, each with its own values, by one reverse scan.

    Args:
      rates: Rates of the exponentials, `[K]`, traced.
      lam: Weight of longer returns, scalar in [0, 1], traced; 1 gives Monte Carlo returns, 0 one-step targets.
      reward: Rewards, `[T, *B]`.
      next_value: Values at each rate of the observations after the steps, before any reset, `[T, *B, K]`.
      terminated, done: Flags of episode ends, bool, as in `ugae`.
      lam_weights: Weights of the n-step estimators, as in `ugae`, static.

    Returns:
      `[T, *B, K]`, G_t = r_t + rate ((1 - lam) V_{t+1} + lam G_{t+1}); V is 0 after a termination, and an episode's
      last return bootstraps from V alone. With "finite-time", lam falls to 0 towards the end, as in `ugae`.

    Raises:
      ValueError: Shapes do not fit, lam is outside [0, 1], or `lam_weights` has another value.

    Source: Sutton and Barto (2018), section 12.2.
    """
    reward, rates = _checked_reward(reward), jnp.asarray(rates, jnp.float32)
    if rates.ndim != 1:
        raise UserValueError(f"rates must be [K], got the shape {rates.shape}.")
    next_value = _like_reward("next_value", next_value, _at_rates(reward, rates))
    terminated = _flag("terminated", terminated, reward)
    last = (terminated | _flag("done", done, reward)).at[-1].set(True)
    bootstrap = jnp.where(terminated[..., None], 0.0, next_value)
    lam = _checked_lam(lam)
    _check_lam_weights(lam_weights)
    if lam_weights == "finite-time":

        def backward_finite(carry: tuple[jax.Array, jax.Array], step: tuple[jax.Array, ...]) -> Any:
            (following, size), (reward, bootstrap, last) = carry, step
            size, longer, one = _finite_time(lam, size, last)
            ahead = one[..., None] * bootstrap + longer[..., None] * jnp.where(last[..., None], 0.0, following)
            returns = reward[..., None] + rates * ahead
            return (returns, size), returns

        start = jnp.zeros_like(bootstrap[0]), jnp.zeros_like(reward[0])
        return scan(backward_finite, start, (reward, bootstrap, last), reverse=True)[1]

    def backward(following: jax.Array, step: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        reward, bootstrap, last = step
        ahead = jnp.where(last[..., None], bootstrap, (1.0 - lam) * bootstrap + lam * following)
        returns = reward[..., None] + rates * ahead
        return returns, returns

    return scan(backward, jnp.zeros_like(bootstrap[0]), (reward, bootstrap, last), reverse=True)[1]


def gae(
    gamma: Number,
    lam: Number,
    reward: npt.ArrayLike,
    value: npt.ArrayLike,
    next_value: npt.ArrayLike,
    terminated: npt.ArrayLike,
    done: npt.ArrayLike,
    lam_weights: LamWeights = "truncated",
) -> tuple[jax.Array, jax.Array]:
    """Generalised advantage estimation: `ugae` under the exponential discount `gamma`.

    Args:
      gamma: Discount factor per step, scalar in [0, 1], traced.
      lam, reward, value, next_value, terminated, done, lam_weights: Arguments of `ugae`.

    Returns:
      advantage, target: `[T, *B]`.

    Source: Schulman et al. (2016), High-dimensional continuous control using generalized advantage estimation.
    """
    return ugae(Exponential(gamma), lam, reward, value, next_value, terminated, done, lam_weights)


def lambda_returns(
    gamma: Number,
    lam: Number,
    reward: npt.ArrayLike,
    next_value: npt.ArrayLike,
    terminated: npt.ArrayLike,
    done: npt.ArrayLike,
    lam_weights: LamWeights = "truncated",
) -> jax.Array:
    """TD(lambda) returns along a rollout, by one reverse scan.

    Args:
      gamma: Discount factor per step, scalar in [0, 1], traced, or any discount.
      lam, reward, next_value, terminated, done, lam_weights: Arguments of `ugae`.

    Returns:
      `[T, *B]`, G_t = r_t + gamma ((1 - lam) V_{t+1} + lam G_{t+1}); V is 0 after a termination, and an episode's last
      return bootstraps from V alone. With "finite-time" weights, lam falls to 0 towards the end, as in `ugae`.

    Source: Sutton and Barto (2018), section 12.2.
    """
    return _targets(gamma, lam, _checked_reward(reward), next_value, terminated, done, lam_weights)


def monte_carlo(
    discount: DiscountLike,
    reward: npt.ArrayLike,
    next_value: npt.ArrayLike,
    terminated: npt.ArrayLike,
    done: npt.ArrayLike,
) -> jax.Array:
    """Discounted returns to the end of each episode, bootstrapped where the episode was truncated.

    Args:
      discount, reward, next_value, terminated, done: Arguments of `ugae`; `next_value` counts only after a truncation
        and at the end of the segment.

    Returns:
      `[T, *B]`, sum_l Gamma(l) r_{t+l} + Gamma(n) V_{t+n}, with n the steps left and V 0 after a termination.
    """
    return _targets(discount, 1.0, _checked_reward(reward), next_value, terminated, done)


def _targets(
    discount: DiscountLike,
    lam: Number,
    reward: jax.Array,
    next_value: npt.ArrayLike,
    terminated: npt.ArrayLike,
    done: npt.ArrayLike,
    lam_weights: LamWeights = "truncated",
) -> jax.Array:
    next_value = _like_reward("next_value", next_value, reward)
    terminated = _flag("terminated", terminated, reward)
    last = (terminated | _flag("done", done, reward)).at[-1].set(True)
    bootstrap = jnp.where(terminated, 0.0, next_value)
    lam = _checked_lam(lam)
    _check_lam_weights(lam_weights)
    num_steps = reward.shape[0]
    prepared = prepare(discount, num_steps)
    for part in (prepared.rates, prepared.lags):
        if part is not None and np.ndim(part) != 1:
            raise UserValueError(f"discount holds a stack of {np.shape(part)[0]} discounts; map over it with jax.vmap.")
    if num_steps > prepared.horizon:
        raise UserValueError(f"discount was prepared for {prepared.horizon} steps, and reward has {num_steps}.")
    target = jnp.zeros_like(reward)
    if prepared.rates is not None:
        rates, weights = jnp.asarray(prepared.rates), jnp.asarray(prepared.weights)
        if prepared.mixture_curve is None:
            target = target + _mixture_targets(rates, weights, lam, reward, bootstrap, last, lam_weights)
        else:
            curve = jnp.asarray(prepared.mixture_curve)
            target = target + _quadrature_targets(rates, weights, curve, lam, reward, bootstrap, last, lam_weights)
    if prepared.lags is not None:
        target = target + _lag_targets(jnp.asarray(prepared.lags), lam, reward, bootstrap, last, lam_weights)
    return target


def _finite_time(lam: jax.Array, size: jax.Array, last: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Finite-time weights: S_N of a step, its lambda, and 1 - lambda, from S_{N-1} of the next step, `size`."""
    chex.assert_rank(lam, 0, custom_message="lam")
    chex.assert_equal_shape([size, last], custom_message="size, last")
    longer = lam * jnp.where(last, 0.0, size)
    size = 1.0 + longer
    return size, longer / size, 1.0 / size


def _mixture_targets(
    rates: jax.Array,
    weights: jax.Array,
    lam: jax.Array,
    reward: jax.Array,
    bootstrap: jax.Array,
    last: jax.Array,
    lam_weights: LamWeights = "truncated",
) -> jax.Array:
    """sum_q weights_q G_q, where G_q is the lambda-return under the rate q; one reverse scan carrying `[Q, *B]`."""
    chex.assert_rank([rates, weights, lam], [1, 1, 0], custom_message="rates, weights, lam")
    chex.assert_equal_shape([rates, weights], custom_message="rates, weights")
    chex.assert_equal_shape([reward, bootstrap, last], custom_message="reward, bootstrap, last")
    shape = (-1,) + (1,) * (reward.ndim - 1)
    rates, weights = rates.reshape(shape), weights.reshape(shape)
    if lam_weights == "finite-time":

        def backward_finite(carry: tuple[jax.Array, jax.Array], step: tuple[jax.Array, ...]) -> Any:
            (following, size), (reward, bootstrap, last) = carry, step
            size, longer, one = _finite_time(lam, size, last)
            returns = reward + rates * (one * bootstrap + longer * jnp.where(last, 0.0, following))
            return (returns, size), jnp.sum(weights * returns, axis=0)

        start = jnp.zeros((rates.shape[0], *reward.shape[1:]), reward.dtype), jnp.zeros_like(reward[0])
        return scan(backward_finite, start, (reward, bootstrap, last), reverse=True)[1]
    # Few operations per node: this form runs twice as fast as the plain recursion.
    decay = lam * rates
    value_part = jnp.where(last, bootstrap, (1.0 - lam) * bootstrap)

    def backward(following: jax.Array, step: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        reward, value_part, last = step
        returns = (reward + rates * value_part) + decay * jnp.where(last, 0.0, following)
        return returns, jnp.sum(weights * returns, axis=0)

    start = jnp.zeros((rates.shape[0], *reward.shape[1:]), reward.dtype)
    return scan(backward, start, (reward, value_part, last), reverse=True)[1]


def _lag_targets(
    curve: jax.Array,
    lam: jax.Array,
    reward: jax.Array,
    bootstrap: jax.Array,
    last: jax.Array,
    lam_weights: LamWeights = "truncated",
) -> jax.Array:
    """Lambda-returns under any curve, summed lag by lag with O(T) memory, also under differentiation."""
    chex.assert_rank([curve, lam], [1, 0], custom_message="curve, lam")
    chex.assert_equal_shape([reward, bootstrap, last], custom_message="reward, bootstrap, last")
    chex.assert_axis_dimension_gt(curve, 0, reward.shape[0], custom_message="curve")
    num_steps = reward.shape[0]
    index = jnp.arange(num_steps).reshape((-1,) + (1,) * (reward.ndim - 1))
    left = jax.lax.cummin(jnp.where(last, index, num_steps), axis=0, reverse=True) - index
    padding = jnp.zeros_like(reward)
    reward, bootstrap = jnp.concatenate([reward, padding]), jnp.concatenate([bootstrap, padding])
    decay = jnp.concatenate([jnp.ones((1,), reward.dtype), jnp.cumprod(jnp.broadcast_to(lam, (num_steps - 1,)))])
    finite_time, sizes = lam_weights == "finite-time", jnp.ones(())
    if finite_time:  # at lag l a reward has lam^l S_{N-l} / S_N of the weight, and the value after it lam^l / S_N
        sizes = jnp.cumsum(decay)[left]
        reward = reward.at[:num_steps].multiply(sizes)

    @jax.checkpoint
    def add(total: jax.Array, lag: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        number, reward_weight, value_weight = lag
        reward_there = jax.lax.dynamic_slice_in_dim(reward, number, num_steps)
        value_there = jax.lax.dynamic_slice_in_dim(bootstrap, number, num_steps)
        share = 1.0 if finite_time else jnp.where(number == left, 1.0, 1.0 - lam)
        term = reward_weight * reward_there + value_weight * share * value_there
        return total + jnp.where(number <= left, term, 0.0), None

    lags = (jnp.arange(num_steps), decay * curve[:num_steps], decay * curve[1 : num_steps + 1])
    total = jax.lax.scan(add, padding, lags)[0]
    return total / sizes if finite_time else total


@functools.partial(jax.custom_jvp, nondiff_argnums=(7,))
def _quadrature_targets(
    rates: jax.Array,
    weights: jax.Array,
    curve: jax.Array,
    lam: jax.Array,
    reward: jax.Array,
    bootstrap: jax.Array,
    last: jax.Array,
    lam_weights: LamWeights,
) -> jax.Array:
    """Mixture targets, differentiated by the discount through `curve`: nodes have no derivative where eta nears 0."""
    del curve
    return _mixture_targets(rates, weights, lam, reward, bootstrap, last, lam_weights)


def _quadrature_jvp(
    lam_weights: LamWeights, primals: tuple[Any, ...], tangents: tuple[Any, ...]
) -> tuple[jax.Array, jax.Array]:
    rates, weights, curve, lam, reward, bootstrap, last = primals
    zero = jax.custom_derivatives.SymbolicZero
    smooth = tuple(
        jnp.zeros_like(primal) if isinstance(tangent, zero) else tangent
        for primal, tangent in zip((lam, reward, bootstrap), tangents[3:6], strict=True)
    )
    target, slope = jax.jvp(
        lambda lam, reward, bootstrap: _mixture_targets(rates, weights, lam, reward, bootstrap, last, lam_weights),
        (lam, reward, bootstrap),
        smooth,
    )
    if not isinstance(tangents[2], zero):  # targets are linear in the curve
        slope = slope + _lag_targets(tangents[2], lam, reward, bootstrap, last, lam_weights)
    del curve
    return target, slope


_quadrature_targets.defjvp(_quadrature_jvp, symbolic_zeros=True)


def _checked_reward(reward: npt.ArrayLike) -> jax.Array:
    reward = jnp.asarray(reward, jnp.float32)
    if reward.ndim == 0 or reward.shape[0] == 0:
        raise UserValueError(f"reward must be time-major, [T, *B] with T at least 1, got the shape {reward.shape}.")
    return reward


def _at_rates(reward: jax.Array, rates: jax.Array) -> jax.Array:
    """Rewards `[T, *B, K]`, the same at each rate."""
    return jnp.broadcast_to(reward[..., None], (*reward.shape, rates.shape[0]))


def _like_reward(name: str, array: npt.ArrayLike, reward: jax.Array) -> jax.Array:
    array = jnp.asarray(array, jnp.float32)
    if array.shape != reward.shape:
        raise UserValueError(f"{name} must have reward's shape {reward.shape}, got {array.shape}.")
    return array


def _flag(name: str, flag: npt.ArrayLike, reward: jax.Array) -> jax.Array:
    flag = jnp.asarray(flag)
    if flag.dtype != bool:
        raise UserValueError(f"{name} must be bool, got {flag.dtype}.")
    if flag.ndim == 0 or flag.shape != reward.shape[: flag.ndim]:
        raise UserValueError(f"{name} must have reward's shape {reward.shape} or its leading axes, got {flag.shape}.")
    return jnp.broadcast_to(flag.reshape(flag.shape + (1,) * (reward.ndim - flag.ndim)), reward.shape)


def _checked_lam(lam: Any) -> jax.Array:
    if isinstance(lam, bool | str) or lam is None:
        raise UserTypeError(f"lam takes a number in [0, 1], got {lam!r}.")
    if np.ndim(lam) != 0:
        raise UserValueError(f"lam must be a scalar, got the shape {np.shape(lam)}; map over it with jax.vmap.")
    if is_concrete(lam) and not 0 <= float(lam) <= 1:
        raise UserValueError(f"lam must lie in [0, 1], got {lam}.")
    return jnp.asarray(lam, jnp.float32)


def _check_lam_weights(lam_weights: object) -> None:
    if not isinstance(lam_weights, str):
        raise UserTypeError(f"lam_weights must be one of {', '.join(LAM_WEIGHTS)}, got {lam_weights!r}.")
    check_choice("lam_weights", lam_weights, LAM_WEIGHTS)
