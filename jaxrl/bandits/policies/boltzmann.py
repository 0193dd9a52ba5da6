"""Arms drawn with probabilities exponential in their means, or in preferences that follow the gradient."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl.bandits.arms import NOT_NEGATIVE, POSITIVE, ArmSums, add, best_mean, means, no_sums, one_hot
from jaxrl.bandits.base import BanditAlgorithm, Task, View, argmax, masked
from jaxrl.bandits.checks import check_arms
from jaxrl.bandits.policies.greedy import decayed
from jaxrl.checks import Settings, ranged
from jaxrl.pytrees import EnvParams


class Preferences(NamedTuple):
    """The state of a gradient bandit.

    Attributes:
      preference: Preferences, float32 `[K]`, 0 before the first pull.
      pulls: Number of rewards, int32 `[]`.
      mean: Mean of the rewards, float32 `[]`.
    """

    preference: jax.Array
    pulls: jax.Array
    mean: jax.Array


@struct.dataclass
class SoftmaxHParams(Settings):
    """Hyper-parameters of `softmax`.

    Attributes:
      temperature: Temperature tau of exp(mean / tau) at the first pull, above 0.
      decay: Exponent of the decay to tau / t^decay at the pull number t; at least 0, which keeps it constant.
    """

    temperature: float = ranged(0.1, POSITIVE)
    decay: float = ranged(0.0, NOT_NEGATIVE)


@struct.dataclass
class GradientHParams(Settings):
    """Hyper-parameters of `gradient`.

    Attributes:
      step: Step size alpha of the preferences; above 0.
      baseline: Weight of the mean of all earlier rewards, which is subtracted from a reward; 0 for no baseline.
    """

    step: float = ranged(0.1, POSITIVE)
    baseline: float = ranged(1.0, NOT_NEGATIVE)


@functools.cache
def softmax() -> BanditAlgorithm:
    """Softmax, or Boltzmann exploration: arms drawn with probabilities proportional to exp(mean / temperature).

    The mean of an arm that was not pulled is 0.

    Source: Sutton and Barto (1998), section 2.3; Cesa-Bianchi, Gentile, Lugosi and Neu (2017).
    """

    def choose(key: jax.Array, state: ArmSums, view: View, hparams: SoftmaxHParams) -> jax.Array:
        return _draw(key, means(state) / decayed(hparams.temperature, hparams.decay, view), view.mask)

    check = functools.partial(check_arms, "softmax")
    return BanditAlgorithm("softmax", SoftmaxHParams(), no_sums, choose, add, best_mean, check)


@functools.cache
def gradient() -> BanditAlgorithm:
    """The gradient bandit: arms drawn from the softmax of preferences that climb the expected reward.

    After a reward r the preferences move by step (r - baseline) (one-hot - probabilities); the baseline is the mean of
    the earlier rewards, and r itself for the first reward.

    Source: Sutton and Barto (2018), section 2.8.
    """

    def init(key: jax.Array, task: Task, params: EnvParams, hparams: GradientHParams) -> Preferences:
        del key, params, hparams
        return Preferences(jnp.zeros(task.num_arms), jnp.zeros((), jnp.int32), jnp.zeros(()))

    def choose(key: jax.Array, state: Preferences, view: View, hparams: GradientHParams) -> jax.Array:
        del hparams
        return _draw(key, state.preference, view.mask)

    def update(
        state: Preferences, view: View, action: jax.Array, reward: jax.Array, hparams: GradientHParams
    ) -> Preferences:
        before = jnp.where(state.pulls > 0, state.mean, reward)
        chances = jax.nn.softmax(masked(state.preference, view.mask))
        direction = one_hot(state.preference, action) - chances
        preference = state.preference + hparams.step * (reward - hparams.baseline * before) * direction
        pulls = state.pulls + 1
        return Preferences(preference, pulls, state.mean + (reward - state.mean) / pulls)

    def recommend(state: Preferences, hparams: GradientHParams) -> jax.Array:
        del hparams
        return argmax(state.preference)

    check = functools.partial(check_arms, "gradient")
    return BanditAlgorithm("gradient", GradientHParams(), init, choose, update, recommend, check)


def _draw(key: jax.Array, logits: jax.Array, mask: jax.Array | None) -> jax.Array:
    return jax.random.categorical(key, masked(logits, mask)).astype(jnp.int32)
