"""Burgers' equation: calm a flow that steepens into shocks."""

from dataclasses import dataclass
from typing import Any

from flax import struct

from envs.pde.nonlinear import NonlinearField, NonlinearParams
from envs.pytrees import Number, Params

__all__ = ["Burgers", "BurgersParams"]


@struct.dataclass
class BurgersParams(NonlinearParams):
    """Parameters of `NonlinearParams`, with the defaults of this task."""

    dt: float = 0.05
    viscosity: float = 0.01
    initial_scale: float = 0.5
    smoothness: float = 0.1
    measurement_noise: float = 0.05
    max_action: float = 1.0
    max_field: float = 10.0


@dataclass(frozen=True)
class Burgers(NonlinearField):
    """u_t = nu u_xx - u u_x + f: left alone, the mean stays, and energy is lost to viscosity alone.

    Shocks have the width 4 nu / (jump of u), which the modes must resolve: 128 modes suffice for jumps of 1.

    Source: the equation, dt and sizes of controlgym 1.0 (Zhang et al., 2023), with ten times its viscosity, half of its
    modes and smooth normal first fields.
    """

    num_modes: int = 128

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "pde/burgers"

    @property
    def default_params(self) -> BurgersParams:
        """A viscosity of 0.01 on a circle of length 1."""
        return BurgersParams(**self.placed())

    def rates(self, waves: Number, params: Params) -> Any:
        """Diffusion, -nu k^2."""
        return -params.viscosity * waves**2
