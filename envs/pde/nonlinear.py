"""Equations with the term u u_x of Burgers: steps of fourth order without aliases, ended where they blow up."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs.arguments import check_count, check_positive
from envs.pde import spectral
from envs.pde.field import Field, FieldParams, FieldState
from envs.pytrees import Number, Params

__all__ = ["NonlinearField", "NonlinearParams", "minus_half_slope_of_square"]


@struct.dataclass
class NonlinearParams(FieldParams):
    """Parameters of all nonlinear fields.

    Attributes:
      viscosity: Viscosity nu, above 0.
      max_field: Largest absolute value of the field, beyond which an episode terminates.
    """

    viscosity: float = 1.0
    max_field: float = 20.0


@dataclass(frozen=True)
class NonlinearField(Field):
    """Base of the tasks u_t = L u - (u^2 / 2)_x + f with real rates L; a field that blows up terminates.

    Two thirds of the modes are kept, so that products have no aliases. Where the field exceeds max_field or is not a
    number, the episode terminates and the step costs, in addition, the largest state cost of all the steps that are
    left, so that an early end has no better return, undiscounted.

    Attributes:
      substeps: Number of steps of ETDRK4 in a step of the task.
    """

    substeps: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("substeps", self.substeps)

    def rates(self, waves: Number, params: Params) -> Any:
        """Rates L of the modes with these wave numbers."""
        raise NotImplementedError

    def check_params(self, params: Params) -> None:
        """Reject, besides, a viscosity or a largest field that is not above 0."""
        super().check_params(params)
        check_positive(params, "viscosity", "max_field")

    def reset_env(self, key: jax.Array, params: Params) -> tuple[jax.Array, FieldState]:
        """The first observation and a smooth normal field."""
        first, measure = jax.random.split(key)
        field = spectral.to_field(self._kept(params.initial_scale * self.smooth_modes(first, params)))
        field = jnp.clip(field, -params.max_field, params.max_field)
        return self.observe(measure, field, params), FieldState(jnp.zeros((), jnp.int32), field)

    def step_env(
        self, key: jax.Array, state: FieldState, action: jax.Array, params: Params
    ) -> tuple[jax.Array, FieldState, jax.Array, jax.Array, dict[Any, Any]]:
        """One step under the action, clipped to its bounds; the reward is minus the cost of it and the state before."""
        noise, measure = jax.random.split(key)
        action = jnp.clip(jnp.asarray(action, jnp.float32), -params.max_action, params.max_action)
        cost = self.cost(state.field, action, params)
        modes = self.moved(spectral.to_modes(state.field), self.force(action, params), params)
        field = spectral.to_field(self._kept(modes + params.noise * self.smooth_modes(noise, params)))
        terminated = ~jnp.all(jnp.abs(field) <= params.max_field)  # also true if one is not a number
        field = jnp.clip(jnp.where(jnp.isnan(field), 0.0, field), -params.max_field, params.max_field)
        left = jnp.maximum(params.max_steps_in_episode - 1 - state.time, 0)
        rest = jnp.where(terminated, left * _worst(params), 0.0)
        observation = self.observe(measure, field, params)
        return observation, FieldState(state.time + 1, field), -cost - rest, terminated, {}

    def moved(self, modes: jax.Array, force: jax.Array, params: Params) -> jax.Array:
        """Modes after a step under a constant force, without noise.

        Args:
          modes: Modes `[n / 2 + 1]`; those beyond two thirds are ignored.
          force: Force `[n]`.
          params: Parameters, traced.
        """
        waves = spectral.wave_numbers(self.num_modes, params.length)
        step = spectral.stepping(self.rates(waves, params), params.dt / self.substeps)
        pushed = self._kept(spectral.to_modes(force))

        def nonlinear(v: jax.Array) -> jax.Array:
            return self._kept(minus_half_slope_of_square(v, waves)) + pushed

        return spectral.advance(self._kept(modes), step, nonlinear, self.substeps)

    def return_range(self, params: Params) -> tuple[Any, Any]:
        """From the largest field and action in every step to 0."""
        action = np.asarray(params.control_cost) * self.num_actuators * np.square(params.max_action)
        low = -np.asarray(params.max_steps_in_episode) * (_worst(params) + action)
        return low, np.zeros_like(low)

    def _kept(self, modes: jax.Array) -> jax.Array:
        return jnp.where(spectral.resolved(self.num_modes, 2 / 3), modes, 0.0)


def minus_half_slope_of_square(modes: jax.Array, waves: jax.Array) -> jax.Array:
    """Modes of -(u^2 / 2)_x, whose mean is 0 exactly.

    Args:
      modes: Modes of u, `[n / 2 + 1]`.
      waves: Wave numbers, see `spectral.wave_numbers`.
    """
    square = spectral.to_modes(jnp.square(spectral.to_field(modes)))
    return -0.5j * waves * square


def _worst(params: Params) -> Any:
    """State cost of a step at the largest field."""
    return params.state_cost * params.length * params.max_field**2
