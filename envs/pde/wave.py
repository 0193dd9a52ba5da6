"""Waves: calm a string that is a circle, seen by its displacement and speed at sensors."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs.arguments import check_at_least
from envs.base import spaces
from envs.pde.field import FieldParams
from envs.pde.linear import LinearField, circulant
from envs.pde.spectral import resolved, to_field, to_modes, wave_numbers

__all__ = ["Wave", "WaveParams"]


@struct.dataclass
class WaveParams(FieldParams):
    """Constants of the equation, and the parameters of all fields.

    Attributes:
      wave_speed: Speed c of waves, at least 0.
      initial_speed: Standard deviation of the first speed at a point.
      speed_cost: Cost of the integral of the squared speed in a step.
      noise: Standard deviation of the noise that a step adds to the speed at a point.
    """

    wave_speed: float = 0.1
    initial_speed: float = 0.1
    speed_cost: float = 0.0
    noise: float = 0.02


@dataclass(frozen=True)
class Wave(LinearField):
    """u_tt = c^2 u_xx + f without damping: left alone, the energy of (u_t^2 + c^2 u_x^2) / 2 stays; a step is exact.

    Source: the equation and the constants of controlgym 1.0 (Zhang et al., 2023), with normal smooth first fields,
    smooth actuators and noise; controlgym adds the action to the speed without the time of the step.
    """

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "pde/wave"

    @property
    def default_params(self) -> WaveParams:
        """controlgym's constants."""
        return WaveParams(**self.placed())

    def check_params(self, params: WaveParams) -> None:
        """Reject speeds and costs below 0, and what `LinearField` rejects."""
        check_at_least(params, wave_speed=0, initial_speed=0, speed_cost=0)
        super().check_params(params)

    def scales(self, params: WaveParams) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Of the displacement and the speed."""
        return (params.initial_scale, params.initial_speed), (0.0, params.noise)

    def costs(self, params: WaveParams) -> tuple[Any, ...]:
        """Of the displacement and the speed."""
        return params.state_cost, params.speed_cost

    def generator(self, params: WaveParams) -> tuple[np.ndarray, np.ndarray]:
        """The displacement changes by the speed, the speed by the tension and the force."""
        n = self.num_modes
        waves = 2 * np.pi * np.arange(n // 2 + 1) / float(params.length)
        tension = circulant(-((float(params.wave_speed) * waves) ** 2), n)
        zero, identity = np.zeros((n, n)), np.eye(n)
        return np.block([[zero, identity], [tension, zero]]), np.concatenate([zero, identity])

    def held(self, field: jax.Array, force: jax.Array, noise: jax.Array, params: WaveParams) -> jax.Array:
        """Each mode is an oscillator, whose angle turns by its frequency times dt."""
        frequency, dt = params.wave_speed * wave_numbers(self.num_modes, params.length), params.dt
        angle = frequency * dt
        turned = dt * jnp.sinc(angle / jnp.pi)  # sin(angle) / frequency
        pushed = jnp.square(dt * jnp.sinc(angle / (2 * jnp.pi))) / 2  # (1 - cos(angle)) / frequency^2
        (u, v), push = to_modes(field), to_modes(force)
        moved = jnp.cos(angle) * u + turned * v + pushed * push
        faster = -frequency * jnp.sin(angle) * u + jnp.cos(angle) * v + turned * push + params.noise * noise
        return to_field(jnp.where(resolved(self.num_modes), jnp.stack([moved, faster]), 0.0))

    def observation_space(self, params: WaveParams) -> spaces.Box:
        """The displacement and then the speed that the sensors show, without bounds."""
        del params
        return spaces.Box(-jnp.inf, jnp.inf, (2 * self.num_sensors,), jnp.float32)
