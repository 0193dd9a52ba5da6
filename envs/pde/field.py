"""The parts that all tasks on fields share: sensors, actuators, costs, noise, first states and pictures."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs import base
from envs.arguments import check_at_least, check_count, check_positive
from envs.base import spaces
from envs.errors import UserValueError
from envs.pde import devices
from envs.pde.spectral import random_modes, to_field
from envs.pytrees import Params, State
from envs.threefry import unrolled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Field", "FieldParams", "FieldState"]


@struct.dataclass
class FieldState(base.EnvState):
    """Values of the field at the points of the grid, `[n]`; of a wave and of its speed, `[2, n]`."""

    time: jax.Array
    field: jax.Array


@struct.dataclass
class FieldParams(base.EnvParams):
    """Parameters of all tasks on fields.

    Attributes:
      length: Length of the circle.
      dt: Time of a step.
      state_cost: Cost of the integral of the squared field in a step.
      control_cost: Cost of the sum of the squared actions in a step.
      initial_scale: Standard deviation of the first field at a point.
      noise: Standard deviation of the noise that a step adds to the field at a point.
      smoothness: Length of correlation of the first field and of the noise, as a share of the circle, see
        `spectral.random_modes`.
      measurement_noise: Standard deviation of the noise of an observation.
      sensors: Weights by sensor and point, `[p, n]`, see `devices.sensors`.
      actuators: Force by point and actuator, `[n, m]`, see `devices.actuators`.
      max_action: Largest absolute value of each number of an action.
      max_steps_in_episode: Time limit, in steps.
    """

    length: float = 1.0
    dt: float = 0.1
    state_cost: float = 1.0
    control_cost: float = 0.1
    initial_scale: float = 1.0
    noise: float = 0.0
    smoothness: float = 0.05
    measurement_noise: float = 0.1
    sensors: Any = None
    actuators: Any = None
    max_action: float = 5.0
    max_steps_in_episode: int = 100


@dataclass(frozen=True)
class Field(base.Environment):
    """A field on a circle that actions, as forces of actuators, keep near 0; base of the tasks.

    A step costs state_cost times the integral of u^2, for the field u before the step, plus control_cost times the sum
    of the squared actions, which are constant in the step. Sensors see the field after the step, with noise.

    Attributes:
      num_modes: Number n of Fourier modes and of points, even.
      num_sensors, num_actuators: Numbers p and m of those that are placed evenly by default; the parameters `sensors`
        and `actuators` have these sizes.
    """

    num_modes: int = 64
    num_sensors: int = 10
    num_actuators: int = 8

    def __post_init__(self) -> None:
        check_count("num_modes", self.num_modes, 8, 4096)
        if self.num_modes % 2:
            raise UserValueError(f"num_modes must be even, got {self.num_modes}")
        check_count("num_sensors", self.num_sensors)
        check_count("num_actuators", self.num_actuators)

    def placed(self) -> dict[str, Any]:
        """The default sensors and actuators; those between sensors, as in controlgym."""
        places = devices.evenly(self.num_sensors), devices.evenly(self.num_actuators, 0.5)
        seen, moved = devices.sensors(places[0], self.num_modes), devices.actuators(places[1], self.num_modes)
        return {"sensors": np.float32(seen), "actuators": np.float32(moved)}

    def check_params(self, params: Params) -> None:
        """Reject times and costs of actions that are not above 0, and sensors or actuators of other sizes."""
        check_positive(params, "length", "dt", "control_cost", "max_action")
        check_at_least(params, state_cost=0, initial_scale=0, noise=0, smoothness=0, measurement_noise=0)
        sizes = {"sensors": (self.num_sensors, self.num_modes), "actuators": (self.num_modes, self.num_actuators)}
        for name, takes in sizes.items():
            value = np.asarray(getattr(params, name))
            if value.shape[-2:] != takes or value.ndim > 3:
                raise UserValueError(f"env.{name} must have the shape {takes}, got {value.shape}")
            if not np.all(np.isfinite(value)):
                raise UserValueError(f"env.{name} must be finite, got {value[~np.isfinite(value)][0]}")

    def observe(self, key: jax.Array, field: jax.Array, params: Params) -> jax.Array:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Means of the field at the sensors, with noise; of a wave, then those of its speed."""
        seen = jnp.matmul(field, jnp.asarray(params.sensors, jnp.float32).T, precision="highest").reshape(-1)
        return seen + params.measurement_noise * jax.random.normal(key, seen.shape, jnp.float32)

    def force(self, action: jax.Array, params: Params) -> jax.Array:
        """Force at each point, `[n]`, of an action within its bounds."""
        return jnp.matmul(jnp.asarray(params.actuators, jnp.float32), action, precision="highest")

    def smooth_modes(self, key: jax.Array, params: Params) -> jax.Array:
        """Modes of a random field of variance 1."""
        return random_modes(unrolled(key), self.num_modes, params.smoothness)

    def smooth_field(self, key: jax.Array, scale: jax.Array | float, params: Params) -> jax.Array:
        """A random field with this standard deviation at each point."""
        return scale * to_field(self.smooth_modes(key, params))

    def costs(self, params: Params) -> tuple[Any, ...]:
        """Costs of the integrals of the squared rows of a field."""
        return (params.state_cost,)

    def cost(self, field: jax.Array, action: jax.Array, params: Params) -> jax.Array:
        """Cost of a step from a field `[n]` or `[rows, n]` under an action."""
        integrals = jnp.sum(jnp.square(field), axis=-1) * (params.length / self.num_modes)
        weights = jnp.stack([jnp.asarray(each, jnp.float32) for each in self.costs(params)])
        return jnp.sum(weights * integrals) + params.control_cost * jnp.sum(jnp.square(action))

    def privileged(self, state: FieldState, params: Params) -> jax.Array:
        """The field itself, for critics that see more than the sensors."""
        del params
        return state.field

    def action_space(self, params: Params = None) -> spaces.Box:
        """Forces of the actuators, `[m]`."""
        params = self.default_params if params is None else params
        return spaces.Box(-params.max_action, params.max_action, (self.num_actuators,), jnp.float32)

    def observation_space(self, params: Params) -> spaces.Box:
        """What the sensors show, without bounds."""
        del params
        return spaces.Box(-jnp.inf, jnp.inf, (self.num_sensors,), jnp.float32)

    def draw(self, ax: "Axes", state: State, params: Params) -> None:
        """The field over the circle, the target, and the places of actuators and sensors."""
        n, rows = self.num_modes, np.atleast_2d(np.asarray(state.field, np.float64))
        height = 4 * max(float(params.initial_scale), 1e-6)
        shares = np.arange(n + 1) / n
        ax.set(xlim=(0.0, 1.0), ylim=(-1.3, 1.15), aspect="auto")
        ax.plot([0, 1], [0, 0], color="#009E73", linewidth=2)
        for row, color in zip(rows[::-1], ("#0072B2", "#bdbdbd")[: len(rows)][::-1], strict=True):
            ax.plot(shares, np.clip(row / height, -1.1, 1.1)[np.arange(n + 1) % n], color=color, linewidth=3)
        for shapes, y, marker, color in (
            (np.asarray(params.actuators).T, -1.15, "^", "#D55E00"),
            (np.asarray(params.sensors), -1.25, "|", "#222222"),
        ):
            ax.plot(np.argmax(np.abs(shapes), axis=1) / n, np.full(len(shapes), y), marker, color=color, markersize=6)
