"""Exponential weights for rewards that an adversary may set: EXP3, EXP3-IX and EXP3.S."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl.bandits.arms import NOT_NEGATIVE, POSITIVE, one_hot
from jaxrl.bandits.base import BanditAlgorithm, Task, View, argmax, masked
from jaxrl.bandits.checks import check_unit_rewards
from jaxrl.bandits.runner import Total
from jaxrl.checks import Range, Settings, ranged
from jaxrl.pytrees import EnvParams, HParams

# A uniform float32 is a multiple of this, so a positive probability of drawing an arm is never smaller.
RESOLUTION = 2.0**-23

__all__ = ["Exp3HParams", "Exp3IXHParams", "Exp3SHParams", "draw", "exp3", "exp3_ix", "exp3_s", "of_losses"]


@struct.dataclass
class Exp3HParams(Settings):
    """Hyper-parameters of `exp3`.

    Attributes:
      rate: Factor c of the learning rate c sqrt(ln K / (K t)) of the pull number t; 1 in the analysis.
      exploration: Share of pulls of a random arm, in [0, 1].
    """

    rate: float = ranged(1.0, POSITIVE)
    exploration: float = ranged(0.0, Range(0, 1))


@struct.dataclass
class Exp3IXHParams(Settings):
    """Hyper-parameters of `exp3_ix`.

    Attributes:
      rate: Factor c of the learning rate c sqrt(ln K / (K t)) of the pull number t; 1 in the analysis.
      bias: Share of the learning rate added to the probability by which a loss is divided; 0.5 in the analysis.
    """

    rate: float = ranged(1.0, POSITIVE)
    bias: float = ranged(0.5, NOT_NEGATIVE)


@struct.dataclass
class Exp3SHParams(Settings):
    """Hyper-parameters of `exp3_s`.

    Attributes:
      stretches: Number of periods, each of which may have a different best arm, at least 1.
      rate: Factor of the exploration; 1 in the analysis.
    """

    stretches: float = ranged(1.0, Range(1, float("inf"), "[)"))
    rate: float = ranged(1.0, POSITIVE)


@functools.cache
def exp3() -> BanditAlgorithm:
    """EXP3: arms drawn with probabilities exponential in their estimated losses, at any horizon.

    For rewards in [0, 1]. With delayed rewards a loss is divided by the arm's probability on arrival.

    Source: Bubeck and Cesa-Bianchi (2012), section 3.1.
    """

    def probabilities(state: Total, view: View, hparams: Exp3HParams) -> jax.Array:
        return _mixed(_exponential(state, view, hparams.rate), hparams.exploration, view.mask)

    def update(state: Total, view: View, action: jax.Array, reward: jax.Array, hparams: Exp3HParams) -> Total:
        chance = jnp.maximum(probabilities(state, view, hparams), RESOLUTION)
        return state.add(one_hot(chance, action) * (1 - reward) / chance)

    return of_losses("exp3", Exp3HParams(), probabilities, update)


@functools.cache
def exp3_ix() -> BanditAlgorithm:
    """EXP3-IX: EXP3 with loss estimates that are slightly too low, so that regret is low with high probability.

    For rewards in [0, 1]. With delayed rewards a loss is divided by the arm's probability on arrival.

    Source: Neu (2015), algorithm 1.
    """

    def probabilities(state: Total, view: View, hparams: Exp3IXHParams) -> jax.Array:
        return _exponential(state, view, hparams.rate)

    def update(state: Total, view: View, action: jax.Array, reward: jax.Array, hparams: Exp3IXHParams) -> Total:
        chance = jnp.maximum(probabilities(state, view, hparams), RESOLUTION)
        low = chance + hparams.bias * _learning_rate(chance.shape[0], view, hparams.rate)
        return state.add(one_hot(chance, action) * (1 - reward) / low)

    return of_losses("exp3-ix", Exp3IXHParams(), probabilities, update)


@functools.cache
def exp3_s() -> BanditAlgorithm:
    """EXP3.S: EXP3 whose weights never vanish, so it follows a best arm that changes; it uses the horizon T.

    For rewards in [0, 1]. A share gamma of pulls is random, and every weight receives e / (K T)
    of their sum. With delayed rewards a reward is divided by the arm's probability on arrival. The state holds the
    logarithms of weights whose sum is 1, `[K]`.

    Source: Auer, Cesa-Bianchi, Freund and Schapire (2002), figure 4 and corollary 8.2.
    """

    def init(key: jax.Array, task: Task, params: EnvParams, hparams: Exp3SHParams) -> jax.Array:
        del key, params, hparams
        return jnp.full(task.num_arms, -jnp.log(float(task.num_arms)))

    def exploration(num_arms: int, view: View, hparams: Exp3SHParams) -> jax.Array:
        cells = num_arms * view.horizon.astype(jnp.float32)
        squared = num_arms * (hparams.stretches * jnp.log(cells) + jnp.e) / ((jnp.e - 1) * view.horizon)
        return jnp.minimum(hparams.rate * jnp.sqrt(squared), 1.0)

    def probabilities(state: jax.Array, view: View, hparams: Exp3SHParams) -> jax.Array:
        gamma = exploration(state.shape[0], view, hparams)
        return _mixed(jax.nn.softmax(masked(state, view.mask)), gamma, view.mask)

    def choose(key: jax.Array, state: jax.Array, view: View, hparams: Exp3SHParams) -> jax.Array:
        return draw(key, probabilities(state, view, hparams))

    def update(state: jax.Array, view: View, action: jax.Array, reward: jax.Array, hparams: Exp3SHParams) -> jax.Array:
        num_arms = state.shape[0]
        chance = jnp.maximum(probabilities(state, view, hparams), RESOLUTION)
        gain = one_hot(chance, action) * reward / chance
        grown = state + exploration(num_arms, view, hparams) / num_arms * gain
        share = 1 - jnp.log(num_arms * view.horizon.astype(jnp.float32))
        log = jnp.logaddexp(grown, share)
        return log - jax.nn.logsumexp(log)

    def recommend(state: jax.Array, hparams: Exp3SHParams) -> jax.Array:
        del hparams
        return argmax(state)

    check = functools.partial(check_unit_rewards, "exp3-s")
    return BanditAlgorithm("exp3-s", Exp3SHParams(), init, choose, update, recommend, check)


def draw(key: jax.Array, probabilities: jax.Array) -> jax.Array:
    """An arm, int32 `[]`, drawn with the probabilities `[K]`; arms of probability 0 are never drawn."""
    cumulative = jnp.cumsum(probabilities)
    return jnp.argmax(cumulative > jax.random.uniform(key) * cumulative[-1]).astype(jnp.int32)


def of_losses(name: str, hparams: HParams, probabilities: Any, update: Any) -> BanditAlgorithm:
    """A policy that draws arms with probabilities computed from sums of estimated losses, 1 less the reward, `[K]`."""

    def init(key: jax.Array, task: Task, params: EnvParams, hparams: HParams) -> Total:
        del key, params, hparams
        return Total.zeros(task.num_arms)

    def choose(key: jax.Array, state: Total, view: View, hparams: HParams) -> jax.Array:
        return draw(key, probabilities(state, view, hparams))

    def recommend(state: Total, hparams: HParams) -> jax.Array:
        del hparams
        return argmax(-state.sum)

    check = functools.partial(check_unit_rewards, name)
    return BanditAlgorithm(name, hparams, init, choose, update, recommend, check)


def _learning_rate(num_arms: int, view: View, rate: jax.Array | float) -> jax.Array:
    return rate * jnp.sqrt(jnp.log(float(num_arms)) / (num_arms * (view.time + 1).astype(jnp.float32)))


def _exponential(state: Total, view: View, rate: jax.Array | float) -> jax.Array:
    losses = state.sum
    log = -_learning_rate(losses.shape[0], view, rate) * (losses - jnp.min(losses))
    return jax.nn.softmax(masked(log, view.mask))


def _mixed(probabilities: jax.Array, share: jax.Array | float, mask: jax.Array | None) -> jax.Array:
    """Probabilities with a share spread evenly over the arms that may be pulled."""
    awake = jnp.ones_like(probabilities) if mask is None else mask.astype(jnp.float32)
    return (1 - share) * probabilities + share * awake / jnp.sum(awake)
