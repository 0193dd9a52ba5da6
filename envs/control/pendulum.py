"""Pendulum: swing a rod up with too little torque and hold it there."""

import math
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
class PendulumState(base.EnvState):
    """Angle in radians (0 is upright, never wrapped) and its rate per second."""

    time: jax.Array
    theta: jax.Array
    theta_dot: jax.Array


@struct.dataclass
class PendulumParams(base.EnvParams):
    """Physical constants of a uniform rod.

    Attributes:
      gravity: Gravitational acceleration, in m/s^2.
      mass: Mass of the rod, in kg.
      length: Length of the rod, in m.
      dt: Time of a step, in s.
      max_speed: Largest angular velocity, in rad/s.
      max_torque: Largest torque, in N m.
      max_steps_in_episode: Time limit, in steps.
    """

    gravity: float = 10.0
    mass: float = 1.0
    length: float = 1.0
    dt: float = 0.05
    max_speed: float = 8.0
    max_torque: float = 2.0
    max_steps_in_episode: int = 200


@dataclass(frozen=True)
class Pendulum(base.Environment):
    """Pendulum-v1: the cost is the squared angle plus small costs of speed and torque; it never terminates.

    Source: dynamics (semi-implicit Euler), reward and reset of Gymnasium's Pendulum-v1.
    """

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "pendulum"

    @property
    def default_params(self) -> PendulumParams:
        """The constants of Pendulum-v1."""
        return PendulumParams()

    def check_params(self, params: PendulumParams) -> None:
        """Reject masses, lengths, times and limits that are not above 0."""
        check_positive(params, "mass", "length", "dt", "max_speed", "max_torque")

    def reset_env(self, key: jax.Array, params: PendulumParams) -> tuple[jax.Array, PendulumState]:
        """The first observation `[3]` and state: angle uniform in [-pi, pi], rate in [-1, 1]."""
        del params
        high = jnp.array([math.pi, 1.0], jnp.float32)
        theta, theta_dot = jax.random.uniform(unrolled(key), (2,), minval=-high, maxval=high)
        state = PendulumState(jnp.zeros((), jnp.int32), theta, theta_dot)
        return _observe(state), state

    def step_env(
        self, key: jax.Array, state: PendulumState, action: jax.Array, params: PendulumParams
    ) -> tuple[jax.Array, PendulumState, jax.Array, jax.Array, dict[Any, Any]]:
        """One step under the torque `action[0]`, clipped to its limit; the reward is that of the state before it."""
        del key
        torque = jnp.clip(action[0], -params.max_torque, params.max_torque)
        angle = state.theta - 2 * math.pi * jnp.round(state.theta / (2 * math.pi))
        cost = angle * angle + 0.1 * state.theta_dot * state.theta_dot + 0.001 * torque * torque

        acceleration = 3 * params.gravity / (2 * params.length) * sin_cos(state.theta)[0] + torque * (
            3 / (params.mass * params.length * params.length)
        )
        theta_dot = jnp.clip(state.theta_dot + acceleration * params.dt, -params.max_speed, params.max_speed)
        state = PendulumState(state.time + 1, state.theta + theta_dot * params.dt, theta_dot)
        return _observe(state), state, -cost, jnp.zeros((), bool), {}

    def return_range(self, params: PendulumParams) -> tuple[Any, Any]:
        """From the largest cost in every step, upside down at full speed and torque, to no cost."""
        numbers = params.max_steps_in_episode, params.max_speed, params.max_torque
        limit, speed, torque = (np.asarray(number, np.float64) for number in numbers)
        first = np.maximum(speed, 1.0)  # the rate of the first state reaches 1
        return -limit * (math.pi**2 + 0.1 * first**2 + 0.001 * torque**2), 0.0

    def action_space(self, params: PendulumParams | None = None) -> spaces.Box:
        """The motor's torque, `[1]`, in newton metres."""
        params = self.default_params if params is None else params
        return spaces.Box(-params.max_torque, params.max_torque, (1,), jnp.float32)

    def observation_space(self, params: PendulumParams) -> spaces.Box:
        """cos theta, sin theta, theta_dot."""
        high = jnp.array([1.0, 1.0, params.max_speed], jnp.float32)
        return spaces.Box(-high, high, (3,), jnp.float32)


def _observe(state: PendulumState) -> jax.Array:
    sin, cos = sin_cos(state.theta)
    return jnp.stack([cos, sin, state.theta_dot])
