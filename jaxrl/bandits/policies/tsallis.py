"""Tsallis-INF: the best of both worlds, stochastic and adversarial."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl.bandits.arms import POSITIVE, one_hot
from jaxrl.bandits.base import BanditAlgorithm, View
from jaxrl.bandits.policies.exponential import RESOLUTION, of_losses
from jaxrl.bandits.runner import Total
from jaxrl.checks import Range, Settings, ranged

# Number of steps of Newton's method, which has then converged to 1e-9 for up to 1,000 arms, for any losses.
NEWTON_STEPS = 5

__all__ = ["TsallisINFHParams", "tsallis_inf", "tsallis_probabilities"]


@struct.dataclass
class TsallisINFHParams(Settings):
    """Hyper-parameters of `tsallis_inf`.

    Attributes:
      rate: Factor c of the learning rate c / sqrt(t) of the pull number t; 2 in the analysis without a
        baseline, 4 with one.
      baseline: Number subtracted from a loss before it is divided by its arm's probability and added again
        afterwards, for likely arms; 0.5 lowers the variance, in [0, 1].
    """

    rate: float = ranged(2.0, POSITIVE)
    baseline: float = ranged(0.0, Range(0, 1))


@functools.cache
def tsallis_inf() -> BanditAlgorithm:
    """Tsallis-INF: arms drawn with probabilities that follow their losses, regularised by the Tsallis entropy of 1/2.

    For rewards in [0, 1]. Regret grows with ln T where rewards are stochastic and with sqrt(T)
    where an adversary sets them. With delayed rewards a loss is divided by the arm's probability
    on arrival.

    Source: Zimmert and Seldin (2021), algorithm 1 and section 3.
    """

    def learning_rate(view: View, hparams: TsallisINFHParams) -> jax.Array:
        return hparams.rate / jnp.sqrt((view.time + 1).astype(jnp.float32))

    def probabilities(state: Total, view: View, hparams: TsallisINFHParams) -> jax.Array:
        losses = state.sum if view.mask is None else jnp.where(view.mask, state.sum, jnp.inf)
        return tsallis_probabilities(learning_rate(view, hparams) * (losses - jnp.min(losses)))

    def update(state: Total, view: View, action: jax.Array, reward: jax.Array, hparams: TsallisINFHParams) -> Total:
        chance = jnp.maximum(probabilities(state, view, hparams), RESOLUTION)
        baseline = jnp.where(chance >= learning_rate(view, hparams) ** 2, hparams.baseline, 0.0)
        return state.add(one_hot(chance, action) * (1 - reward - baseline) / chance + baseline)

    return of_losses("tsallis-inf", TsallisINFHParams(), probabilities, update)


def tsallis_probabilities(distances: jax.Array) -> jax.Array:
    """Probabilities 4 / (distance + z)^2, with the z at which they sum to 1.

    Args:
      distances: Learning rate times the difference between each arm's loss and the least loss, float32 `[K]`;
        one of them is 0, and arms that may not be pulled have infinity.

    Returns:
      `[K]`. The root is that of sum(p)^(-1/2) - 1, which is increasing and concave in z, so
      Newton's method increases from z = 2 to it and never passes it; the K equal distances of the first
      pull take one step.

    Source: Zimmert and Seldin (2021), section 3.3, with another iteration.
    """
    shift: Any = 2.0
    for _ in range(NEWTON_STEPS):
        inverse = 1 / (distances + shift)
        squares = 4 * jnp.sum(inverse * inverse)
        shift = shift + squares * (jnp.sqrt(squares) - 1) / (4 * jnp.sum(inverse**3))
    weights = 4 / (distances + shift) ** 2
    return weights / jnp.sum(weights)
