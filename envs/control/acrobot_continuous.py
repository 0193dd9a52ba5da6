"""Acrobot with any torque between its limits."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from envs.base import spaces
from envs.control.acrobot import Acrobot, AcrobotParams, AcrobotState


@dataclass(frozen=True)
class ContinuousAcrobot(Acrobot):
    """Acrobot-v1 with a torque in [-max_torque, max_torque]: those of -1, 0 and 1 are Acrobot's actions."""

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "acrobot-continuous"

    def step_env(
        self, key: jax.Array, state: AcrobotState, action: jax.Array, params: AcrobotParams
    ) -> tuple[jax.Array, AcrobotState, jax.Array, jax.Array, dict[Any, Any]]:
        """One Runge-Kutta step under the torque `action[0]`, clipped to [-1, 1], times `max_torque`."""
        del key
        return self._under_torque(state, jnp.clip(action[0], -1.0, 1.0) * params.max_torque, params)

    def return_range(self, params: AcrobotParams) -> tuple[Any, Any]:
        """As in Acrobot."""
        return super().return_range(params)

    def action_space(  # pyright: ignore[reportIncompatibleMethodOverride] -- torques in place of choices
        self, params: AcrobotParams | None = None
    ) -> spaces.Box:
        """The torque as a share of `max_torque`, `[1]`."""
        del params
        return spaces.Box(-1.0, 1.0, (1,), jnp.float32)
