"""Real fields on a circle as Fourier modes: derivatives, smooth random fields, and exponential time differencing.

A field of n points has the modes 0, ..., n / 2, the last of which is left out, because a grid does not show its phase.
Arrays keep their precision: fields of float32 have modes of complex64, those of float64 complex128.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from envs.loops import scan
from envs.pytrees import Number

__all__ = [
    "Stepping",
    "advance",
    "phi",
    "random_modes",
    "resolved",
    "stepping",
    "to_field",
    "to_modes",
    "wave_numbers",
]

_SUMMED = 256  # points of a field up to which its transforms are sums of waves
_TERMS = 16  # of the series of phi functions where |z| < 1, whose rest is below 1 / 17!


class Stepping(NamedTuple):
    """Factors of a step of ETDRK4 for each mode, `[n / 2 + 1]`.

    Attributes:
      whole, half: Factors exp(L h) and exp(L h / 2) of the modes.
      inner: Factor of the nonlinear term in the stages.
      first, middle, last: Factors of the nonlinear terms at the start, of the sum of the two in the middle, and at the
        end.
    """

    whole: jax.Array
    half: jax.Array
    inner: jax.Array
    first: jax.Array
    middle: jax.Array
    last: jax.Array


def wave_numbers(num_modes: int, length: Number) -> jax.Array:
    """Wave numbers 2 pi k / length of the modes, `[num_modes / 2 + 1]`.

    Args:
      num_modes: Number n of Fourier modes, and of points.
      length: Length of the circle, traced.
    """
    return jnp.arange(num_modes // 2 + 1) * (2 * math.pi / jnp.asarray(length))


def resolved(num_modes: int, share: float = 1.0) -> np.ndarray:
    """Whether each mode k has k < share n / 2, bool `[num_modes / 2 + 1]`.

    Products of two fields have no aliases among the modes of a share of 2 / 3 (Orszag, 1971).

    Args:
      num_modes: Number n of Fourier modes.
      share: Share of the modes.
    """
    return np.arange(num_modes // 2 + 1) < share * num_modes / 2


def to_modes(field: jax.Array) -> jax.Array:
    """Modes `[..., n / 2 + 1]` of a field `[..., n]`, see `to_field`."""
    if field.shape[-1] > _SUMMED:
        return jnp.fft.rfft(field)
    cosines, sines = (jnp.asarray(wave, field.dtype) for wave in _waves(field.shape[-1]))
    return jax.lax.complex(_product(field, cosines), -_product(field, sines))


def to_field(modes: jax.Array) -> jax.Array:
    """Field `[..., n]` of modes `[..., n / 2 + 1]`, where n is even.

    Up to 256 points it is a sum of waves, which takes about the time of XLA's transform. On a CPU, two of those
    transforms at the same time may wait for each other forever (jaxlib 0.11.2).
    """
    n = 2 * (modes.shape[-1] - 1)
    if n > _SUMMED:
        return jnp.fft.irfft(modes)
    copies = np.where(np.arange(n // 2 + 1) % (n // 2) == 0, 1.0, 2.0) / n  # modes k and -k
    cosines, sines = (jnp.asarray((copies * wave).T, modes.real.dtype) for wave in _waves(n))
    return _product(modes.real, cosines) - _product(modes.imag, sines)


@functools.lru_cache(maxsize=16)
def _waves(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines of the waves of each mode at each point, float64 `[n, n / 2 + 1]`."""
    turns = np.outer(np.arange(n), np.arange(n // 2 + 1)) % n
    return np.cos(2 * math.pi / n * turns), np.where(turns % (n / 2) == 0, 0.0, np.sin(2 * math.pi / n * turns))


def _product(numbers: jax.Array, waves: jax.Array) -> jax.Array:
    """Product of matrices in full precision on every device."""
    return jnp.matmul(numbers, waves, precision=jax.lax.Precision.HIGHEST)


def random_modes(key: jax.Array, num_modes: int, smoothness: Number) -> jax.Array:
    """Modes of a normal random field with mean 0 and variance 1 at each point, complex64 `[num_modes / 2 + 1]`.

    The covariance of two points at a distance d is nearly exp(-(d / (2 l))^2), where l is the smoothness times the
    length of the circle.

    Args:
      key: Random key.
      num_modes: Number n of Fourier modes.
      smoothness: Length l as a share of the circle, traced.
    """
    inside = jnp.asarray(resolved(num_modes))
    # Modes 1, ..., n / 2 - 1 stand for two waves, with k and -k.
    copies = jnp.where(jnp.arange(num_modes // 2 + 1) == 0, 1.0, 2.0)
    spectrum = jnp.where(inside, jnp.exp(-jnp.square(wave_numbers(num_modes, 1.0) * smoothness)), 0.0)
    amplitude = num_modes * jnp.sqrt(spectrum / jnp.sum(copies * spectrum) / copies)
    real, imaginary = jax.random.normal(key, (2, num_modes // 2 + 1), jnp.float32)
    return amplitude * jax.lax.complex(real, jnp.where(copies > 1, imaginary, 0.0))


def phi(z: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The functions phi_k(z) = sum_j z^j / (j + k)! for k = 1, 2 and 3, of real z of any shape.

    A series where |z| < 1, and the recursion phi_(k + 1) = (phi_k - 1 / k!) / z elsewhere: to some roundings.
    """
    small = jnp.abs(z) < 1
    inside, outside = jnp.where(small, z, 0.0), jnp.where(small, 1.0, z)

    def series(k: int) -> jax.Array:
        total = jnp.full_like(z, 1 / math.factorial(k + _TERMS))
        for j in reversed(range(_TERMS)):
            total = total * inside + 1 / math.factorial(j + k)
        return total

    first = jnp.expm1(outside) / outside
    second = (first - 1) / outside
    third = (second - 0.5) / outside
    one, two, three = (jnp.where(small, series(k), far) for k, far in ((1, first), (2, second), (3, third)))
    return one, two, three


def stepping(rates: jax.Array, h: jax.Array | float) -> Stepping:
    """Factors of a step of dv/dt = L v + N(v) of the modes v.

    Args:
      rates: Rates L of the linear term, real `[n / 2 + 1]`, traced.
      h: Time of a step, traced.

    Source: Cox and Matthews (2002), "Exponential time differencing for stiff systems", ETDRK4; Kassam and Trefethen
    (2005) compute the same factors by contour integrals.
    """
    z = rates * h
    one, two, three = phi(z)
    return Stepping(
        whole=jnp.exp(z),
        half=jnp.exp(z / 2),
        inner=h / 2 * phi(z / 2)[0],
        first=h * (one - 3 * two + 4 * three),
        middle=h * (2 * two - 4 * three),
        last=h * (4 * three - two),
    )


def advance(modes: jax.Array, step: Stepping, nonlinear: Callable[[jax.Array], jax.Array], num_steps: int) -> jax.Array:
    """Modes after some steps of ETDRK4, of fourth order in the time of a step.

    Args:
      modes: Modes v, `[n / 2 + 1]`.
      step: Factors, see `stepping`.
      nonlinear: Function N of modes; constants in it are integrated exactly.
      num_steps: Number of steps, static.
    """

    def once(v: jax.Array, _: None) -> tuple[jax.Array, None]:
        now = nonlinear(v)
        a = step.half * v + step.inner * now
        at_a = nonlinear(a)
        b = step.half * v + step.inner * at_a
        at_b = nonlinear(b)
        c = step.half * a + step.inner * (2 * at_b - now)
        v = step.whole * v + step.first * now + step.middle * (at_a + at_b) + step.last * nonlinear(c)
        return v, None

    return scan(once, modes, length=num_steps)[0]
