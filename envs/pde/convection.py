"""Convection, diffusion and reaction: keep a substance that flows, spreads and grows on a circle near 0."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs.arguments import check_at_least
from envs.pde.field import FieldParams
from envs.pde.linear import LinearField, circulant
from envs.pde.spectral import resolved, to_field, to_modes, wave_numbers
from envs.pytrees import Number

__all__ = ["ConvectionDiffusionReaction", "ConvectionParams"]


@struct.dataclass
class ConvectionParams(FieldParams):
    """Constants of the equation, and the parameters of all fields.

    Attributes:
      diffusivity: Diffusivity nu, at least 0.
      velocity: Velocity c of the flow.
      reaction: Rate r of growth, or of decay where it is negative.
    """

    diffusivity: float = 0.002
    velocity: float = 0.1
    reaction: float = 0.1
    noise: float = 0.05


@dataclass(frozen=True)
class ConvectionDiffusionReaction(LinearField):
    """u_t = nu u_xx - c u_x + r u + f, in which waves longer than 2 pi sqrt(nu / r) grow; a step is exact.

    Source: the equation and its constants of controlgym 1.0 (Zhang et al., 2023), with normal smooth first fields,
    smooth actuators and noise.
    """

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "pde/convection-diffusion-reaction"

    @property
    def default_params(self) -> ConvectionParams:
        """controlgym's constants."""
        return ConvectionParams(**self.placed())

    def check_params(self, params: ConvectionParams) -> None:
        """Reject a diffusivity below 0, and what `LinearField` rejects."""
        check_at_least(params, diffusivity=0)
        super().check_params(params)

    def growth(self, waves: np.ndarray, params: ConvectionParams) -> np.ndarray:
        """Reaction less diffusion."""
        return np.real(_symbol(waves, *map(float, (params.diffusivity, params.velocity, params.reaction))))

    def generator(self, params: ConvectionParams) -> tuple[np.ndarray, np.ndarray]:
        """The circulant matrix of the equation; the force is added as it is."""
        waves = 2 * np.pi * np.arange(self.num_modes // 2 + 1) / float(params.length)
        constants = (params.diffusivity, params.velocity, params.reaction)
        return circulant(_symbol(waves, *map(float, constants)), self.num_modes), np.eye(self.num_modes)

    def held(self, field: jax.Array, force: jax.Array, noise: jax.Array, params: ConvectionParams) -> jax.Array:
        """exp(z) u + (exp(z) - 1) / z dt f for each mode, where z is its rate times dt."""
        waves = wave_numbers(self.num_modes, params.length)
        z = params.dt * _symbol(waves, params.diffusivity, params.velocity, params.reaction)
        still = z == 0
        divided = jnp.where(still, 1.0, jnp.expm1(z) / jnp.where(still, 1.0, z))
        modes = jnp.exp(z) * to_modes(field) + params.dt * divided * to_modes(force)
        return to_field(jnp.where(resolved(self.num_modes), modes, 0.0) + params.noise * noise)


def _symbol(waves: Number, diffusivity: Number, velocity: Number, reaction: Number) -> Any:
    """Rates of the modes."""
    return reaction - diffusivity * waves**2 - 1j * velocity * waves
