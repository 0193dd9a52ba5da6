"""Reacher: bring the tip of an arm of two links to a target in the plane."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs import base
from envs.arguments import check_at_least, check_positive
from envs.base import spaces
from envs.control.norms import norm
from envs.control.runge_kutta import integrate
from envs.control.trigonometry import sin_cos
from envs.threefry import unrolled

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@struct.dataclass
class ReacherState(base.EnvState):
    """Angles of the joints in rad, the second relative to the first, and their rates, `[2]` each; the target in m."""

    time: jax.Array
    angles: jax.Array
    rates: jax.Array
    target: jax.Array


@struct.dataclass
class ReacherParams(base.EnvParams):
    """Physical constants, and weights of the reward.

    Attributes:
      length_1, length_2: Distances from the shoulder to the elbow and from there to the tip, in m.
      mass_1, mass_2: Masses of the links, in kg.
      com_1, com_2: Distances of their centres of mass from their joints, in m.
      inertia_1, inertia_2: Moments of inertia about their centres of mass, in kg m^2.
      armature: Moment of inertia of either motor, in kg m^2.
      damping: Friction of either joint, in N m s/rad.
      gear: Torque of the actions -1 and 1, in N m.
      max_elbow: Largest angle of the elbow, where it stops, in rad.
      max_target: Largest distance of the target from the shoulder, in m.
      dt: Time of a step, in s, which is taken in two.
      control_cost: Cost of the squared action.
      max_steps_in_episode: Time limit, in steps.
    """

    length_1: float = 0.1
    length_2: float = 0.11
    mass_1: float = 0.03560471674
    mass_2: float = 0.03979350695
    com_1: float = 0.05
    com_2: float = 0.05631578947
    inertia_1: float = 3.91756604e-5
    inertia_2: float = 5.28357e-5
    armature: float = 1.0
    damping: float = 1.0
    gear: float = 200.0
    max_elbow: float = 3.0
    max_target: float = 0.2
    dt: float = 0.02
    control_cost: float = 1.0
    max_steps_in_episode: int = 50


@dataclass(frozen=True)
class Reacher(base.Environment):
    """The reward is minus the distance of the tip from the target and minus the squared action; it never terminates.

    Source: constants, reward, reset and observation of Gymnasium's Reacher-v5, which is simulated by MuJoCo. The elbow
    stops dead at its limit here, and yields in MuJoCo; all else is the same.
    """

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "reacher"

    @property
    def default_params(self) -> ReacherParams:
        """The constants of Reacher-v5."""
        return ReacherParams()

    def check_params(self, params: ReacherParams) -> None:
        """Reject lengths, moments of inertia, limits and times that are not above 0; negative masses and friction."""
        check_positive(params, "length_1", "length_2", "inertia_1", "inertia_2", "max_elbow", "max_target", "dt")
        check_at_least(params, mass_1=0, mass_2=0, armature=0, damping=0)

    def reset_env(self, key: jax.Array, params: ReacherParams) -> tuple[jax.Array, ReacherState]:
        """The first observation `[10]` and state: stretched out within 0.1 rad, and a target uniform in a disc."""
        draws = jax.random.uniform(unrolled(key), (6,), minval=-1.0)
        distance = params.max_target * jnp.sqrt((draws[4] + 1) / 2)
        sin, cos = sin_cos(math.pi * draws[5])
        target = jnp.stack([distance * cos, distance * sin])
        state = ReacherState(jnp.zeros((), jnp.int32), 0.1 * draws[:2], 0.005 * draws[2:4], target)
        return _observe(state, params), state

    def step_env(
        self, key: jax.Array, state: ReacherState, action: jax.Array, params: ReacherParams
    ) -> tuple[jax.Array, ReacherState, jax.Array, jax.Array, dict[Any, Any]]:
        """Two Runge-Kutta steps under the torques `action`, clipped to [-1, 1], times `gear`."""
        del key
        action = jnp.clip(action, -1.0, 1.0)

        def rates(joints: jax.Array) -> jax.Array:
            return jnp.concatenate([joints[2:], _accelerations(joints, params.gear * action, params)])

        joints = jnp.concatenate([state.angles, state.rates])
        for _ in range(2):
            joints = integrate(rates, joints, params.dt / 2)
            elbow = jnp.clip(joints[1], -params.max_elbow, params.max_elbow)
            joints = jnp.stack([joints[0], elbow, joints[2], jnp.where(elbow == joints[1], joints[3], 0.0)])
        state = ReacherState(state.time + 1, joints[:2], joints[2:], state.target)
        obs = _observe(state, params)
        reward = -norm(obs[8:]) - params.control_cost * jnp.sum(jnp.square(action))
        return obs, state, reward, jnp.zeros((), bool), {}

    def return_range(self, params: ReacherParams) -> tuple[Any, Any]:
        """From the farthest place and the largest action in every step to none."""
        numbers = params.max_steps_in_episode, params.length_1, params.length_2, params.max_target, params.control_cost
        limit, first, second, target, cost = (np.asarray(number, np.float64) for number in numbers)
        return -limit * (first + second + target + 2 * np.maximum(cost, 0)), -limit * 2 * np.minimum(cost, 0)

    def action_space(self, params: ReacherParams | None = None) -> spaces.Box:
        """The torques of shoulder and elbow as shares of `gear`, `[2]`."""
        del params
        return spaces.Box(-1.0, 1.0, (2,), jnp.float32)

    def observation_space(self, params: ReacherParams) -> spaces.Box:
        """Cosines and sines of the angles, the target, the rates, and the tip relative to the target."""
        limits = [1.0] * 4 + [params.max_target] * 2 + [jnp.inf] * 2
        reach = params.length_1 + params.length_2 + params.max_target
        high = jnp.stack([jnp.float32(limit) for limit in (*limits, reach, reach)])
        return spaces.Box(-high, high, (10,), jnp.float32)

    def draw(self, ax: "Axes", state: ReacherState, params: ReacherParams) -> None:
        """The arm and the target."""
        half = 1.3 * float(params.length_1 + params.length_2)
        ax.set_xlim(-1.5 * half, 1.5 * half)
        ax.set_ylim(-half, half)
        first, second = np.cumsum(np.asarray(state.angles, np.float64))
        elbow = float(params.length_1) * np.array([np.cos(first), np.sin(first)])
        tip = elbow + float(params.length_2) * np.array([np.cos(second), np.sin(second)])
        ax.plot(*np.asarray(state.target)[:, None], "o", color="#009E73", markersize=12)
        ax.plot(*np.stack([np.zeros(2), elbow, tip]).T, color="#0072B2", linewidth=9, solid_capstyle="round")
        ax.plot(*np.stack([np.zeros(2), elbow, tip]).T, "o", color="#222222", markersize=5)


def _accelerations(joints: jax.Array, torques: jax.Array, params: ReacherParams) -> jax.Array:
    """Angular accelerations `[2]` of two planar links, from M a = torques - damping - Coriolis."""
    sin, cos = sin_cos(joints[1])
    coupling = params.mass_2 * params.length_1 * params.com_2
    inertia_2 = params.inertia_2 + params.mass_2 * params.com_2 * params.com_2
    inertia_1 = params.inertia_1 + params.mass_1 * params.com_1 * params.com_1
    inertia_1 = inertia_1 + params.mass_2 * params.length_1 * params.length_1 + inertia_2
    m_11 = params.armature + inertia_1 + 2 * coupling * cos
    m_12 = inertia_2 + coupling * cos
    m_22 = params.armature + inertia_2
    first, second = joints[2], joints[3]
    load_1 = torques[0] - params.damping * first + coupling * sin * second * (2 * first + second)
    load_2 = torques[1] - params.damping * second - coupling * sin * first * first
    determinant = m_11 * m_22 - m_12 * m_12
    return jnp.stack([m_22 * load_1 - m_12 * load_2, m_11 * load_2 - m_12 * load_1]) / determinant


def _observe(state: ReacherState, params: ReacherParams) -> jax.Array:
    sin, cos = sin_cos(state.angles)
    sin_2, cos_2 = sin_cos(state.angles[0] + state.angles[1])
    tip = params.length_1 * jnp.stack([cos[0], sin[0]]) + params.length_2 * jnp.stack([cos_2, sin_2])
    return jnp.concatenate([cos, sin, state.target, state.rates, tip - state.target])
