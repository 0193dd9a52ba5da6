"""Quadrotor: hold a small helicopter with four rotors in place, or let it follow a moving point."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs import base
from envs.arguments import check_at_least, check_choice, check_positive
from envs.base import spaces
from envs.control.norms import norm
from envs.control.runge_kutta import integrate
from envs.control.trigonometry import sin_cos
from envs.errors import UserValueError
from envs.threefry import unrolled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TASKS = ("hover", "tracking")
# Directions of the rotors from the centre, forward and to the left, and of the torques by which they turn the body.
ARMS = np.array([(1, -1), (-1, -1), (-1, 1), (1, 1)], np.float32)
SPINS = np.array([-1, 1, -1, 1], np.float32)
_DISTANCE, _TILT, _SPEED, _TURNING, _EFFORT = 2.0, 0.5, 0.05, 0.005, 0.05  # weights of the reward


@struct.dataclass
class QuadrotorState(base.EnvState):
    """Place in m, attitude as a unit quaternion, velocities in m/s and (of the body's axes) rad/s, rotors in rpm."""

    time: jax.Array
    place: jax.Array
    attitude: jax.Array
    velocity: jax.Array
    rates: jax.Array
    rotors: jax.Array
    phase: jax.Array


@struct.dataclass
class QuadrotorParams(base.EnvParams):
    """Physical constants, the start, and the path of the point to follow.

    Attributes:
      mass: Mass, in kg.
      inertia_xy, inertia_z: Moments of inertia about the horizontal axes and the vertical one, in kg m^2.
      arm: Distance of the rotors from the centre along either horizontal axis, in m.
      thrust: Thrust of a rotor by its squared speed, in N/rpm^2.
      drag: Torque of a rotor by its thrust, in m.
      max_rpm: Largest speed of a rotor, in rpm.
      lag: Time constant of the motors, in s.
      gravity: Gravitational acceleration, in m/s^2.
      start_distance, start_angle: Largest distance along each axis, in m, and tilt, in rad, at the start.
      max_distance: Distance from the point beyond which the episode terminates, in m.
      radius, period: Size of the figure of eight, in m, and the time of one, in s, in the task "tracking".
      dt: Time of a step, in s.
      max_steps_in_episode: Time limit, in steps.
    """

    mass: float = 0.027
    inertia_xy: float = 3.85e-6
    inertia_z: float = 5.97e-6
    arm: float = 0.028
    thrust: float = 3.16e-10
    drag: float = 0.00596
    max_rpm: float = 21702.0
    lag: float = 0.15
    gravity: float = 9.81
    start_distance: float = 0.2
    start_angle: float = math.pi / 2
    max_distance: float = 0.6
    radius: float = 0.3
    period: float = 5.5
    dt: float = 0.01
    max_steps_in_episode: int = 500


@dataclass(frozen=True)
class Quadrotor(base.Environment):
    """A step pays 1 minus costs, at least 0; the episode terminates far from the point.

    The costs are 2 for each metre from the point, 1/2 for the tilt from 0 to 2 by which the body's axis differs from
    the vertical, 0.05 for each m/s relative to the point, 0.005 for each rad/s, and 0.05 for the mean squared
    difference of the actions from the one that carries the weight.

    Source: constants of the Crazyflie and integration of Eschmann, Albani and Loianno (2024), "Learning to fly in
    seconds"; the reward, the start and the path of the point are of this package.

    Attributes:
      task: "hover", or "tracking" along a figure of eight in a horizontal plane.
    """

    task: Literal["hover", "tracking"] = "hover"

    def __post_init__(self) -> None:
        check_choice("task", self.task, TASKS)

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return f"quadrotor/{self.task}"

    @property
    def default_params(self) -> QuadrotorParams:
        """The constants of the Crazyflie."""
        return QuadrotorParams()

    def check_params(self, params: QuadrotorParams) -> None:
        """Reject masses, moments of inertia, times and distances that are not above 0, and rotors that are too weak.

        Motors whose lag is less than half of a step are rejected as well: there, a Runge-Kutta step may diverge.
        """
        names = ("mass", "inertia_xy", "inertia_z", "arm", "thrust", "max_rpm", "lag", "max_distance", "period", "dt")
        check_positive(params, *names)
        check_at_least(params, gravity=0, drag=0, start_distance=0, radius=0)
        limits = (
            ("max_rpm", _hovering(params), "to carry the weight"),
            ("lag", np.divide(params.dt, 2), "half of env.dt"),
        )
        for name, least, why in limits:
            value, bound = map(np.atleast_1d, np.broadcast_arrays(np.asarray(getattr(params, name)), least))
            for wrong, needed in zip(value[value < bound][:1], bound[value < bound][:1], strict=True):
                raise UserValueError(f"env.{name} must be at least {needed:.6g}, {why}, got {wrong:.6g}")

    def reset_env(self, key: jax.Array, params: QuadrotorParams) -> tuple[jax.Array, QuadrotorState]:
        """The first observation `[25]` and state: near the point, tilted about a random axis, rotors as in hovering."""
        draws = jax.random.uniform(unrolled(key), (8,), minval=-1.0)
        axis = draws[3:6] / jnp.maximum(norm(draws[3:6]), 1e-6)
        sin, cos = sin_cos(params.start_angle / 2 * draws[6])
        phase = math.pi * draws[7] if self.task == "tracking" else jnp.zeros((), jnp.float32)
        target, moving = self._target(phase, params)
        state = QuadrotorState(
            time=jnp.zeros((), jnp.int32),
            place=target + params.start_distance * draws[:3],
            attitude=jnp.concatenate([cos[None], sin * axis]),
            velocity=moving,
            rates=jnp.zeros(3, jnp.float32),
            rotors=jnp.full(4, _hovering(params), jnp.float32),
            phase=phase,
        )
        return self._observe(state, params), state

    def step_env(
        self, key: jax.Array, state: QuadrotorState, action: jax.Array, params: QuadrotorParams
    ) -> tuple[jax.Array, QuadrotorState, jax.Array, jax.Array, dict[Any, Any]]:
        """One Runge-Kutta step while the rotors approach the speeds `action`, from none at -1 to the largest at 1."""
        del key
        action = jnp.clip(action, -1.0, 1.0)
        commanded = (action + 1) / 2 * params.max_rpm
        parts = [state.place, state.attitude, state.velocity, state.rates, state.rotors]
        moved = integrate(lambda numbers: _rates(numbers, commanded, params), jnp.concatenate(parts), params.dt)
        place, attitude, velocity, rates, rotors = jnp.split(moved, [3, 7, 10, 13])
        attitude = attitude / norm(attitude)
        phase = state.phase
        if self.task == "tracking":
            phase = phase + 2 * math.pi / params.period * params.dt
            phase = phase - 2 * math.pi * jnp.round(phase / (2 * math.pi))
        state = QuadrotorState(state.time + 1, place, attitude, velocity, rates, rotors, phase)

        obs = self._observe(state, params)
        distance, speed = norm(obs[:3]), norm(obs[12:15])
        effort = jnp.mean(jnp.square(action - (2 * _hovering(params) / params.max_rpm - 1)))
        cost = _DISTANCE * distance + _TILT * (1 - obs[11]) + _SPEED * speed + _EFFORT * effort
        cost = cost + _TURNING * norm(rates)
        terminated = distance > params.max_distance
        return obs, state, jnp.maximum(1 - cost, 0.0), terminated, {}

    def return_range(self, params: QuadrotorParams) -> tuple[Any, Any]:
        """From no reward to 1 in every step up to the time limit."""
        return 0.0, np.asarray(params.max_steps_in_episode, np.float64)

    def action_space(self, params: QuadrotorParams | None = None) -> spaces.Box:
        """Speeds that the rotors approach, `[4]`, from none at -1 to the largest at 1."""
        del params
        return spaces.Box(-1.0, 1.0, (4,), jnp.float32)

    def observation_space(self, params: QuadrotorParams) -> spaces.Box:
        """Place relative to the point, rotation matrix by rows, relative velocity, rates, rotors from 0 to 1, velocity.

        The last three numbers are the velocity of the point.
        """
        del params
        low = jnp.concatenate([jnp.full(18, -jnp.inf), jnp.zeros(4), jnp.full(3, -jnp.inf)]).astype(jnp.float32)
        return spaces.Box(low, jnp.full(25, jnp.inf, jnp.float32), (25,), jnp.float32)

    def draw(self, ax: "Axes", state: QuadrotorState, params: QuadrotorParams) -> None:
        """The quadrotor, four times as large, and the point, seen from the side."""
        half = 1.3 * float(params.max_distance)
        ax.set_xlim(-1.5 * half, 1.5 * half)
        ax.set_ylim(-half, half)
        target = np.asarray(self._target(state.phase, params)[0])
        ax.plot(*target[[0, 2], None], "o", color="#009E73", markersize=10)
        arms = 4 * float(params.arm) * np.column_stack([ARMS, np.zeros(4)])
        turn = np.asarray(_matrix(state.attitude), np.float64)
        tips = np.asarray(state.place, np.float64) + arms @ turn.T
        for first, last in ((0, 2), (1, 3)):
            ax.plot(tips[[first, last], 0], tips[[first, last], 2], color="#0072B2", linewidth=5)
        ax.plot(tips[:, 0], tips[:, 2], "o", color="#D55E00", markersize=9)

    def _target(self, phase: jax.Array, params: QuadrotorParams) -> tuple[jax.Array, jax.Array]:
        """The point and its velocity: at rest, or on a Lissajous curve with frequencies 1 and 2."""
        if self.task == "hover":
            return jnp.zeros(3, jnp.float32), jnp.zeros(3, jnp.float32)
        sin, cos = sin_cos(phase)
        sin_2, cos_2 = 2 * sin * cos, cos * cos - sin * sin
        speed = 2 * math.pi / params.period * params.radius
        zero = jnp.zeros((), jnp.float32)
        place = params.radius * jnp.stack([sin, sin_2 / 2, zero])
        return place, speed * jnp.stack([cos, cos_2, zero])

    def _observe(self, state: QuadrotorState, params: QuadrotorParams) -> jax.Array:
        target, moving = self._target(state.phase, params)
        matrix = _matrix(state.attitude).ravel()
        parts = [state.place - target, matrix, state.velocity - moving, state.rates, state.rotors / params.max_rpm]
        return jnp.concatenate([*parts, moving])


def _hovering(params: QuadrotorParams) -> jax.Array:
    """The speed of the rotors at which they carry the weight, in rpm."""
    return jnp.sqrt(jnp.asarray(params.mass * params.gravity / (4 * params.thrust)))


def _matrix(attitude: jax.Array) -> jax.Array:
    """The rotation matrix of a unit quaternion `(w, x, y, z)`, from the body's axes to the world's."""
    w, x, y, z = attitude
    return jnp.stack(
        [
            jnp.stack([1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)]),
            jnp.stack([2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)]),
            jnp.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)]),
        ]
    )


def _rates(numbers: jax.Array, commanded: jax.Array, params: QuadrotorParams) -> jax.Array:
    """Derivatives of place, attitude, velocity, rates and rotors `[17]`, by Newton and Euler."""
    attitude, velocity, spin, rotors = numbers[3:7], numbers[7:10], numbers[10:13], numbers[13:]
    thrusts = params.thrust * jnp.square(rotors)
    lift = _matrix(attitude)[:, 2] * (jnp.sum(thrusts) / params.mass)
    torque = jnp.stack(
        [
            params.arm * jnp.sum(jnp.asarray(ARMS[:, 1]) * thrusts),
            -params.arm * jnp.sum(jnp.asarray(ARMS[:, 0]) * thrusts),
            params.drag * jnp.sum(jnp.asarray(SPINS) * thrusts),
        ]
    )
    p, q, r = spin
    turning = torque - (params.inertia_z - params.inertia_xy) * jnp.stack([q * r, -p * r, jnp.zeros_like(p)])
    spinning = turning / jnp.stack([jnp.asarray(params.inertia_xy)] * 2 + [jnp.asarray(params.inertia_z)])
    w, x, y, z = attitude
    turned = [-x * p - y * q - z * r, w * p + y * r - z * q, w * q + z * p - x * r, w * r + x * q - y * p]
    falling = lift - params.gravity * jnp.array([0.0, 0.0, 1.0])
    return jnp.concatenate([velocity, jnp.stack(turned) / 2, falling, spinning, (commanded - rotors) / params.lag])
