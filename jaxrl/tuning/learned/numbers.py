"""Hyper-parameters as theta: numbers within ranges, such as the step size and lambda."""

from __future__ import annotations

import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from envs.errors import UserTypeError, UserValueError
from envs.spelling import near_or_all
from jaxrl.algorithms.contract import Algorithm
from jaxrl.pytrees import HParams
from jaxrl.sweeps.distributions import LogUniform, Uniform
from jaxrl.sweeps.paths import place, replaced
from jaxrl.tuning.learned.theta import Theta

__all__ = ["learned_numbers"]


def learned_numbers(algo: Algorithm, ranges: Mapping[str, Uniform | LogUniform]) -> Theta:
    """Theta whose numbers are hyper-parameters of an algorithm.

    A number t stands for the share sigmoid(t) of the way from the lower to the upper end of its range, on a logarithmic
    scale for `LogUniform`, and starts at the algorithm's own value.

    Args:
      algo: Algorithm.
      ranges: Ranges `{path: Uniform | LogUniform}`, a path as in `jaxrl.grid`, such as "lr" or "discount.gamma".

    Returns:
      Theta `{path: t}`.

    Raises:
      ValueError, TypeError: A path is not a number of the hyper-parameters, its own value is not within its range, or
        the range has an end that the hyper-parameter cannot have.
    """
    if not isinstance(ranges, Mapping) or not ranges:
        raise UserValueError(
            f"ranges takes at least one path, such as {{'lr': LogUniform(1e-4, 1e-2)}}, got {ranges!r}"
        )
    initial = {path: _start(algo, path, ends) for path, ends in ranges.items()}

    def apply(theta: Mapping[str, jax.Array], hparams: HParams) -> HParams:
        return replaced(hparams, {path: _value(theta[path], ends) for path, ends in ranges.items()})

    return Theta(", ".join(ranges), initial, apply)


def _start(algo: Algorithm, path: str, ends: Uniform | LogUniform) -> np.float32:
    """The number that stands for the algorithm's own value."""
    if not isinstance(ends, Uniform | LogUniform):
        raise UserTypeError(f"{path} takes a range, Uniform or LogUniform, got {ends!r}")
    at = place(algo.hparams, path)
    if not at.there:
        raise UserValueError(f"{path!r} is not a hyper-parameter of {algo.name}{near_or_all(path, at.known, 'it has')}")
    if not at.there or at.known or at.value is None or np.ndim(at.value) > 0 or isinstance(at.value, str):
        raise UserValueError(f"{path!r} is not a number among the hyper-parameters of {algo.name}: {algo.hparams}")
    value = float(at.value)
    if not ends.low < value < ends.high:
        raise UserValueError(
            f"ranges takes ends on both sides of the own value of {path}, {value:g}, got {ends.low:g} to "
            f"{ends.high:g}; its own value, at which learning starts, is that in algo.hparams (--hparams.{path})"
        )
    for end in (ends.low, ends.high):
        try:
            replaced(algo.hparams, {path: end})
        except UserValueError as error:
            raise UserValueError(f"ranges has an end of {path} that {algo.name} does not take: {error}") from error
    scale = math.log if isinstance(ends, LogUniform) else float
    share = (scale(value) - scale(ends.low)) / (scale(ends.high) - scale(ends.low))
    return np.float32(math.log(share) - math.log1p(-share))


def _value(number: jax.Array, ends: Uniform | LogUniform) -> jax.Array:
    """The value within a range that a number stands for; rounding leads to no value outside of it."""
    share = jax.nn.sigmoid(number)
    if isinstance(ends, LogUniform):
        value = jnp.exp(math.log(ends.low) + share * (math.log(ends.high) - math.log(ends.low)))
    else:
        value = ends.low + share * (ends.high - ends.low)
    return jnp.clip(value, ends.low, ends.high)
