"""Acrobot: swing the tip of two linked rods above a line, with torque at the middle joint only."""

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

_Joints = tuple[jax.Array, jax.Array, jax.Array, jax.Array]


@struct.dataclass
class AcrobotState(base.EnvState):
    """Joint angles in radians, in [-pi, pi], and their rates per second.

    Angle 1 is the angle of the upper rod (0 hangs down), angle 2 the angle of the lower rod relative to the upper one.
    """

    time: jax.Array
    joint_angle_1: jax.Array
    joint_angle_2: jax.Array
    velocity_1: jax.Array
    velocity_2: jax.Array


@struct.dataclass
class AcrobotParams(base.EnvParams):
    """Physical constants.

    Attributes:
      gravity: Gravitational acceleration, in m/s^2.
      link_length_1, link_length_2: Lengths of the rods, in m.
      link_mass_1, link_mass_2: Masses of the rods, in kg.
      link_com_pos_1, link_com_pos_2: Distances of the rods' centres of mass from their upper ends, in m.
      link_moi: Moment of inertia of either rod, in kg m^2.
      max_torque: Torque of actions 0 and 2, in N m.
      max_velocity_1, max_velocity_2: Largest angular velocities of the rods, in rad/s.
      goal_height: Height above the pivot that the tip must pass, in m.
      dt: Time of a step, in s.
      max_steps_in_episode: Time limit, in steps.
    """

    gravity: float = 9.8
    link_length_1: float = 1.0
    link_length_2: float = 1.0
    link_mass_1: float = 1.0
    link_mass_2: float = 1.0
    link_com_pos_1: float = 0.5
    link_com_pos_2: float = 0.5
    link_moi: float = 1.0
    max_torque: float = 1.0
    max_velocity_1: float = 4 * math.pi
    max_velocity_2: float = 9 * math.pi
    goal_height: float = 1.0
    dt: float = 0.2
    max_steps_in_episode: int = 500


@dataclass(frozen=True)
class Acrobot(base.Environment):
    """Acrobot-v1: reward -1 per step until the tip is above the goal, 0 on the step that gets there.

    Source: Sutton and Barto (2018), section 11.3 of the first edition (the "book" dynamics);
    one Runge-Kutta step of fourth order, bounds and reset of Gymnasium's Acrobot-v1.
    """

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "acrobot"

    @property
    def default_params(self) -> AcrobotParams:
        """The constants of Acrobot-v1."""
        return AcrobotParams()

    def check_params(self, params: AcrobotParams) -> None:
        """Reject masses, lengths, times and limits that are not above 0."""
        check_positive(
            params, "link_length_1", "link_mass_1", "link_mass_2", "link_moi", "max_velocity_1", "max_velocity_2", "dt"
        )

    def reset_env(self, key: jax.Array, params: AcrobotParams) -> tuple[jax.Array, AcrobotState]:
        """The first observation `[6]` and state: each coordinate uniform in [-0.1, 0.1]."""
        del params
        joints = jax.random.uniform(unrolled(key), (4,), minval=-0.1, maxval=0.1)
        state = AcrobotState(jnp.zeros((), jnp.int32), *joints)
        return _observe(state), state

    def step_env(
        self, key: jax.Array, state: AcrobotState, action: jax.Array, params: AcrobotParams
    ) -> tuple[jax.Array, AcrobotState, jax.Array, jax.Array, dict[Any, Any]]:
        """One Runge-Kutta step under torque -max, 0 or max (actions 0, 1, 2)."""
        del key
        return self._under_torque(state, (action - 1) * jnp.float32(1) * params.max_torque, params)

    def _under_torque(
        self, state: AcrobotState, torque: jax.Array, params: AcrobotParams
    ) -> tuple[jax.Array, AcrobotState, jax.Array, jax.Array, dict[Any, Any]]:
        """One Runge-Kutta step under a torque in N m; returns what `step_env` does."""
        # Without the barrier XLA on CPUs would repeat the integration for each output that reads it.
        angle_1, angle_2, velocity_1, velocity_2 = jax.lax.optimization_barrier(_runge_kutta(state, torque, params))
        state = AcrobotState(
            time=state.time + 1,
            joint_angle_1=_wrap(angle_1),
            joint_angle_2=_wrap(angle_2),
            velocity_1=jnp.clip(velocity_1, -params.max_velocity_1, params.max_velocity_1),
            velocity_2=jnp.clip(velocity_2, -params.max_velocity_2, params.max_velocity_2),
        )
        observation = _observe(state)
        cos_1, sin_1, cos_2, sin_2 = observation[0], observation[1], observation[2], observation[3]
        cos_both = cos_1 * cos_2 - sin_1 * sin_2
        height = -params.link_length_1 * cos_1 - params.link_length_2 * cos_both
        terminated = height > params.goal_height
        return observation, state, jnp.where(terminated, jnp.float32(0), jnp.float32(-1)), terminated, {}

    def return_range(self, params: AcrobotParams) -> tuple[Any, Any]:
        """From -1 in every step up to the time limit to 0, which is the reward of reaching the goal."""
        return -np.asarray(params.max_steps_in_episode, np.float64), 0.0

    def action_space(self, params: AcrobotParams | None = None) -> spaces.Discrete:
        """Torque to one side, no torque, torque to the other side."""
        del params
        return spaces.Discrete(3)

    def observation_space(self, params: AcrobotParams) -> spaces.Box:
        """cos and sin of angle 1, cos and sin of angle 2, the two rates."""
        high = jnp.array([1.0, 1.0, 1.0, 1.0, params.max_velocity_1, params.max_velocity_2], jnp.float32)
        return spaces.Box(-high, high, (6,), jnp.float32)


def _observe(state: AcrobotState) -> jax.Array:
    sin_1, cos_1 = sin_cos(state.joint_angle_1)
    sin_2, cos_2 = sin_cos(state.joint_angle_2)
    return jnp.stack([cos_1, sin_1, cos_2, sin_2, state.velocity_1, state.velocity_2])


def _wrap(angle: jax.Array) -> jax.Array:
    return angle - 2 * math.pi * jnp.round(angle / (2 * math.pi))


def _derivative(joints: _Joints, torque: jax.Array, params: AcrobotParams) -> _Joints:
    """Rates of the angles and of their rates, from the two equations of motion.

    With inertias d1 = A + 2 B cos(angle_2), d2 = C + B cos(angle_2) and load phi, they are
    d1 a1 + d2 a2 = -phi1 and d2 a1 + C a2 = torque - B velocity_1^2 sin(angle_2) - phi2.
    """
    angle_1, angle_2, velocity_1, velocity_2 = joints
    com_1, com_2 = params.link_com_pos_1, params.link_com_pos_2
    coupling = params.link_mass_2 * params.link_length_1 * com_2
    inertia_2 = params.link_mass_2 * com_2 * com_2 + params.link_moi
    inertia_1 = (
        params.link_mass_1 * com_1 * com_1
        + params.link_mass_2 * params.link_length_1 * params.link_length_1
        + params.link_moi
        + inertia_2
    )
    weight_1 = (params.link_mass_1 * com_1 + params.link_mass_2 * params.link_length_1) * params.gravity
    weight_2 = params.link_mass_2 * com_2 * params.gravity

    sin_1, cos_1 = sin_cos(angle_1)
    sin_2, cos_2 = sin_cos(angle_2)
    swing, reach = coupling * sin_2, coupling * cos_2
    d1 = inertia_1 + 2 * reach
    d2 = inertia_2 + reach
    phi_2 = weight_2 * (sin_1 * cos_2 + cos_1 * sin_2)
    phi_1 = weight_1 * sin_1 + phi_2 - swing * velocity_2 * (velocity_2 + 2 * velocity_1)
    load_2 = torque - swing * velocity_1 * velocity_1 - phi_2
    acceleration_2 = (d1 * load_2 + d2 * phi_1) / (d1 * inertia_2 - d2 * d2)
    acceleration_1 = -(d2 * acceleration_2 + phi_1) / d1
    return velocity_1, velocity_2, acceleration_1, acceleration_2


def _runge_kutta(state: AcrobotState, torque: jax.Array, params: AcrobotParams) -> _Joints:
    start = (state.joint_angle_1, state.joint_angle_2, state.velocity_1, state.velocity_2)

    def after(rate: _Joints, time: float | jax.Array) -> _Joints:
        a, b, c, d = (x + time * x_dot for x, x_dot in zip(start, rate, strict=True))
        return a, b, c, d

    half = params.dt / 2
    rate_1 = _derivative(start, torque, params)
    rate_2 = _derivative(after(rate_1, half), torque, params)
    rate_3 = _derivative(after(rate_2, half), torque, params)
    rate_4 = _derivative(after(rate_3, params.dt), torque, params)
    a, b, c, d = (p + 2 * (q + r) + s for p, q, r, s in zip(rate_1, rate_2, rate_3, rate_4, strict=True))
    return after((a, b, c, d), params.dt / 6)
