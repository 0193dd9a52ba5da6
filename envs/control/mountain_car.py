"""MountainCar: rock a weak car out of a valley, with three choices of push."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs import base
from envs.arguments import check_positive
from envs.base import spaces
from envs.control.trigonometry import sin_cos
from envs.threefry import unrolled


@struct.dataclass
class MountainCarState(base.EnvState):
    """Position along the valley (its floor is at -pi / 6) and its change in a step."""

    time: jax.Array
    position: jax.Array
    velocity: jax.Array


@struct.dataclass
class MountainCarParams(base.EnvParams):
    """Constants per step; the height of the road is sin(3 position).

    Attributes:
      gravity: Acceleration due to gravity on the steepest slope, per step.
      force: Acceleration due to the engine, per step.
      min_position: Left end of the road.
      max_position: Right end of the road.
      max_speed: Largest speed, per step.
      goal_position: Position of the goal.
      goal_velocity: Smallest velocity at the goal, per step.
      max_steps_in_episode: Time limit, in steps.
    """

    gravity: float = 0.0025
    force: float = 0.001
    min_position: float = -1.2
    max_position: float = 0.6
    max_speed: float = 0.07
    goal_position: float = 0.5
    goal_velocity: float = 0.0
    max_steps_in_episode: int = 200


@dataclass(frozen=True)
class MountainCar(base.Environment):
    """MountainCar-v0: reward -1 for every step until the goal.

    Source: Moore (1990); dynamics, reward and reset of Gymnasium's MountainCar-v0.
    """

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "mountain-car"

    @property
    def default_params(self) -> MountainCarParams:
        """The constants of MountainCar-v0."""
        return MountainCarParams()

    def check_params(self, params: MountainCarParams) -> None:
        """Reject a speed limit that is not above 0."""
        check_positive(params, "max_speed")

    def reset_env(self, key: jax.Array, params: MountainCarParams) -> tuple[jax.Array, MountainCarState]:
        """The first observation `[2]` and state: at rest, position uniform in [-0.6, -0.4]."""
        del params
        position = jax.random.uniform(unrolled(key), (), minval=-0.6, maxval=-0.4)
        state = MountainCarState(jnp.zeros((), jnp.int32), position, jnp.zeros((), jnp.float32))
        return _observe(state), state

    def step_env(
        self, key: jax.Array, state: MountainCarState, action: jax.Array, params: MountainCarParams
    ) -> tuple[jax.Array, MountainCarState, jax.Array, jax.Array, dict[Any, Any]]:
        """One step under a push to the left, none, or to the right (actions 0, 1, 2)."""
        del key
        velocity = state.velocity + (action - 1) * params.force - sin_cos(3 * state.position)[1] * params.gravity
        velocity = jnp.clip(velocity, -params.max_speed, params.max_speed)
        position = jnp.clip(state.position + velocity, params.min_position, params.max_position)
        velocity = jnp.where((position <= params.min_position) & (velocity < 0), 0.0, velocity)
        terminated = (position >= params.goal_position) & (velocity >= params.goal_velocity)
        state = MountainCarState(state.time + 1, position, velocity)
        return _observe(state), state, jnp.full((), -1, jnp.float32), terminated, {}

    def return_range(self, params: MountainCarParams) -> tuple[Any, Any]:
        """From -1 in every step up to the time limit to a single step."""
        return -np.asarray(params.max_steps_in_episode, np.float64), -1.0

    def action_space(self, params: MountainCarParams | None = None) -> spaces.Discrete:
        """0 pushes to the left, 1 not at all, 2 to the right."""
        del params
        return spaces.Discrete(3)

    def observation_space(self, params: MountainCarParams) -> spaces.Box:
        """Position and velocity."""
        low = jnp.array([params.min_position, -params.max_speed], jnp.float32)
        high = jnp.array([params.max_position, params.max_speed], jnp.float32)
        return spaces.Box(low, high, (2,), jnp.float32)


def _observe(state: MountainCarState) -> jax.Array:
    return jnp.stack([state.position, state.velocity])
