"""The Kuramoto-Sivashinsky equation: still a flame front that is chaotic."""

from dataclasses import dataclass
from typing import Any

from flax import struct

from envs.pde.nonlinear import NonlinearField, NonlinearParams
from envs.pytrees import Number, Params

__all__ = ["KuramotoSivashinsky", "KuramotoSivashinskyParams"]


@struct.dataclass
class KuramotoSivashinskyParams(NonlinearParams):
    """Parameters of `NonlinearParams`, with the defaults of this task."""

    length: float = 22.0
    dt: float = 0.5
    viscosity: float = 1.0
    initial_scale: float = 1.0
    smoothness: float = 0.05
    max_action: float = 1.0
    max_field: float = 20.0
    max_steps_in_episode: int = 200


@dataclass(frozen=True)
class KuramotoSivashinsky(NonlinearField):
    """u_t = -u_xx - nu u_xxxx - u u_x + f: waves longer than 2 pi sqrt(nu) grow, and the mean stays.

    The default length of 22, whose chaos Cvitanovic et al. (2010) describe, has three pairs of waves that grow;
    controlgym's is 32 pi, for 256 modes.

    Source: Kassam and Trefethen (2005) for the method; the equation and dt of controlgym 1.0 (Zhang et al., 2023).
    """

    substeps: int = 5

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "pde/kuramoto-sivashinsky"

    @property
    def default_params(self) -> KuramotoSivashinskyParams:
        """A circle of length 22."""
        return KuramotoSivashinskyParams(**self.placed())

    def rates(self, waves: Number, params: Params) -> Any:
        """Growth of long waves and decay of short ones, k^2 - nu k^4."""
        return waves**2 - params.viscosity * waves**4
