"""A new prior for restless arms, which decline if left alone and improve if touched."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs.bandits.markov import Arms, MarkovParams, make_arms
from envs.errors import UserValueError

__all__ = ["DecliningParams", "declining_arms"]


@struct.dataclass
class DecliningParams(MarkovParams):
    """A prior for the arms, or the arms themselves.

    The number of a state measures how well an arm does: arriving in state s pays weight * s / (S - 1),
    for every action, with a weight per arm, uniform in [0.5, 1.5). A row of transitions is the softmax
    over next states s' of spread * normal + drift * (s' - s): the drift is -decay for an arm left
    alone, plus lift * uniform for each action on each arm.

    Attributes:
      spread: Scale of the differences between transitions, finite, at least 0.
      decay, lift: Strengths of the decline and of the improvement, finite.
    """

    spread: float = 1.0
    decay: float = 1.0
    lift: float = 4.0

    def __post_init__(self) -> None:
        _check_finite("spread", self.spread, 0)
        _check_finite("decay", self.decay, -math.inf)
        _check_finite("lift", self.lift, -math.inf)


def declining_arms(key: jax.Array, params: DecliningParams, shape: tuple[int, int, int], ranked: bool = False) -> Arms:
    """An instance from the prior of `DecliningParams`.

    Args:
      key: Random key of the instance.
      params: Parameters, traced.
      shape: Numbers of arms, actions and states: N, A and S.
      ranked: Whether actions with higher numbers lift an arm more.
    """
    num_arms, num_actions, num_states = shape
    noise_key, weight_key, lift_key = jax.random.split(key, 3)
    share = jax.random.uniform(lift_key, (num_arms, num_actions - 1))
    share = jnp.sort(share, axis=-1) if ranked else share
    drift = params.lift * jnp.concatenate([jnp.zeros((num_arms, 1)), share], axis=1) - params.decay
    states = jnp.arange(num_states, dtype=jnp.float32)
    steps = states[None, :] - states[:, None]
    noise = params.spread * jax.random.normal(noise_key, (*shape, num_states))
    weight = jax.random.uniform(weight_key, (num_arms, 1, 1), minval=0.5, maxval=1.5)
    arrivals = jnp.broadcast_to(weight * states / (num_states - 1), shape)
    return make_arms(jax.nn.softmax(noise + drift[:, :, None, None] * steps), arrivals=arrivals)


def _check_finite(name: str, value: object, low: float) -> None:
    """Reject a concrete number that is not finite, or below `low`."""
    if isinstance(value, int | float | np.ndarray | np.number):
        numbers = np.asarray(value)
        if not np.all(np.isfinite(numbers) & (numbers >= low)):
            raise UserValueError(f"{name} must be finite{' and at least 0' if low == 0 else ''}, got {value}")
