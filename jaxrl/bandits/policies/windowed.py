"""Upper confidence bounds and Thompson sampling that forget, by a window of pulls or by a discount."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl.bandits.arms import NOT_NEGATIVE, POSITIVE, ArmWeights, means, most_pulled, one_hot, untried_first
from jaxrl.bandits.base import BanditAlgorithm, Task, View
from jaxrl.bandits.checks import check_arms, check_unit_rewards
from jaxrl.bandits.policies.thompson_sampling import ThompsonHParams, thompson
from jaxrl.bandits.runner import Total
from jaxrl.checks import Range, Settings, check_count, ranged
from jaxrl.pytrees import EnvParams, HParams

WINDOW = 1000
DISCOUNT = Range(0, 1, "()")

__all__ = [
    "DiscountedThompsonHParams",
    "DiscountedUCBHParams",
    "SlidingWindowThompsonHParams",
    "SlidingWindowUCBHParams",
    "discounted_thompson",
    "discounted_ucb",
    "sliding_window_thompson",
    "sliding_window_ucb",
]


class Window(NamedTuple):
    """The last rewards.

    Attributes:
      count: Number of rewards so far, int32 `[]`.
      actions: Actions, int32 `[W]`; K for empty places.
      rewards: Rewards, float32 `[W]`.
      pulls: Number of pulls within the window, float32 `[K]`.
      sums: Sums of rewards within the window, `[K]`.
    """

    count: jax.Array  # pyright: ignore[reportIncompatibleMethodOverride]
    actions: jax.Array
    rewards: jax.Array
    pulls: jax.Array
    sums: Total

    def arms(self) -> ArmWeights:
        """Pulls and rewards of each arm within the window."""
        return ArmWeights(self.pulls, self.sums.sum)


@struct.dataclass
class SlidingWindowUCBHParams(Settings):
    """Hyper-parameters of `sliding_window_ucb`.

    Attributes:
      exploration: Factor c in mean + sqrt(c ln min(t, window) / pulls), 0.6 in the paper's experiments; at least 0.
    """

    exploration: float = ranged(0.6, NOT_NEGATIVE)


@struct.dataclass
class DiscountedUCBHParams(Settings):
    """Hyper-parameters of `discounted_ucb`.

    Attributes:
      discount: Discount gamma of a reward per later pull, in (0, 1).
      exploration: Factor c in mean + sqrt(c ln n / pulls), 2.4 in the paper's experiments; at least 0.
    """

    discount: float = ranged(0.999, DISCOUNT)
    exploration: float = ranged(2.4, NOT_NEGATIVE)


@struct.dataclass
class SlidingWindowThompsonHParams(ThompsonHParams):
    """Hyper-parameters of `sliding_window_thompson`.

    Attributes:
      alpha, beta: Parameters of the Beta prior of every mean, each above 0.
    """


@struct.dataclass
class DiscountedThompsonHParams(Settings):
    """Hyper-parameters of `discounted_thompson`.

    Attributes:
      discount: Discount gamma of a reward per later pull, in (0, 1).
      alpha, beta: Parameters of the Beta prior of every mean, each above 0.
    """

    discount: float = ranged(0.999, DISCOUNT)
    alpha: float = ranged(1.0, POSITIVE)
    beta: float = ranged(1.0, POSITIVE)


@functools.cache
def sliding_window_ucb(window: int = WINDOW) -> BanditAlgorithm:
    """SW-UCB: UCB1 on the last rewards only, for arms whose values change; arms outside the window are pulled again.

    Args:
      window: Number of rewards in the window, static; each run stores that many.

    Raises:
      ValueError: `window` is not a whole number of at least 1.

    Source: Garivier and Moulines (2011), section 4.
    """
    check_count("window", window)

    def choose(key: jax.Array, state: Window, view: View, hparams: SlidingWindowUCBHParams) -> jax.Array:
        del key
        log = jnp.log(jnp.clip(view.time, 1, window).astype(jnp.float32))
        bonus = jnp.sqrt(hparams.exploration * log / jnp.maximum(state.pulls, 1.0))
        return untried_first(state.arms(), means(state.arms()) + bonus, view)

    return _windowed("sliding-window-ucb", SlidingWindowUCBHParams(), window, choose, check_arms)


@functools.cache
def sliding_window_thompson(window: int = WINDOW) -> BanditAlgorithm:
    """Thompson sampling from the posterior of the last rewards only, for arms whose values change.

    For rewards in [0, 1], as in `thompson`.

    Args:
      window: Number of rewards in the window, static; each run stores that many.

    Raises:
      ValueError: `window` is not a whole number of at least 1.

    Source: Trovo, Paladino, Restelli and Gatti (2020), algorithm 1.
    """
    check_count("window", window)

    def choose(key: jax.Array, state: Window, view: View, hparams: SlidingWindowThompsonHParams) -> jax.Array:
        return _thompson(key, state.arms(), view, hparams)

    hparams = SlidingWindowThompsonHParams()
    return _windowed("sliding-window-thompson", hparams, window, choose, check_unit_rewards)


@functools.cache
def discounted_ucb() -> BanditAlgorithm:
    """D-UCB: UCB1 on rewards whose weight falls with every later pull, for arms whose values change.

    n is the sum of all weights, `pulls` those of an arm.

    Source: Garivier and Moulines (2011), section 3.
    """

    def choose(key: jax.Array, state: ArmWeights, view: View, hparams: DiscountedUCBHParams) -> jax.Array:
        del key
        pulls = jnp.maximum(state.pulls, jnp.finfo(jnp.float32).tiny)
        log = jnp.log(jnp.maximum(jnp.sum(state.pulls), 1.0))
        return untried_first(state, state.sums / pulls + jnp.sqrt(hparams.exploration * log / pulls), view)

    check = functools.partial(check_arms, "discounted-ucb")
    return BanditAlgorithm("discounted-ucb", DiscountedUCBHParams(), _no_weights, choose, _discount, most_pulled, check)


@functools.cache
def discounted_thompson() -> BanditAlgorithm:
    """Thompson sampling from the posterior of rewards whose weight falls with every later pull.

    For rewards in [0, 1], as in `thompson`; the prior keeps its weight.

    Source: Raj and Kalyani (2017), algorithm 1.
    """
    check = functools.partial(check_unit_rewards, "discounted-thompson")
    return BanditAlgorithm(
        "discounted-thompson", DiscountedThompsonHParams(), _no_weights, _thompson, _discount, most_pulled, check
    )


def _no_weights(key: jax.Array, task: Task, params: EnvParams, hparams: HParams) -> ArmWeights:
    del key, params, hparams
    return ArmWeights(jnp.zeros(task.num_arms), jnp.zeros(task.num_arms))


def _discount(state: ArmWeights, view: View, action: jax.Array, reward: jax.Array, hparams: HParams) -> ArmWeights:
    del view
    pulled = one_hot(state.pulls, action)
    return ArmWeights(hparams.discount * state.pulls + pulled, hparams.discount * state.sums + pulled * reward)


def _thompson(key: jax.Array, state: ArmWeights, view: View, hparams: HParams) -> jax.Array:
    """The choice of `thompson`; rewards that left the window may leave a sum slightly below 0 by rounding."""
    return thompson().choose(key, state._replace(sums=jnp.maximum(state.sums, 0.0)), view, hparams)


def _windowed(name: str, hparams: HParams, window: int, choose: Any, check: Any) -> BanditAlgorithm:
    """A policy that chooses by the last rewards."""

    def init(key: jax.Array, task: Task, params: EnvParams, hparams: HParams) -> Window:
        del key, params, hparams
        zeros = jnp.zeros(task.num_arms)
        actions = jnp.full(window, task.num_arms, jnp.int32)
        return Window(jnp.zeros((), jnp.int32), actions, jnp.zeros(window), zeros, Total.zeros(task.num_arms))

    def update(state: Window, view: View, action: jax.Array, reward: jax.Array, hparams: HParams) -> Window:
        del view, hparams
        at = state.count % window
        pulled, left = one_hot(state.pulls, action), one_hot(state.pulls, state.actions[at])
        return Window(
            state.count + 1,
            state.actions.at[at].set(action),
            state.rewards.at[at].set(reward),
            state.pulls + pulled - left,
            state.sums.add(pulled * reward - left * state.rewards[at]),
        )

    def recommend(state: Window, hparams: HParams) -> jax.Array:
        return most_pulled(state.arms(), hparams)

    return BanditAlgorithm(name, hparams, init, choose, update, recommend, functools.partial(check, name))
