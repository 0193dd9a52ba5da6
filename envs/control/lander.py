"""Lander: bring a spacecraft down softly between two flags, with a main engine and two side engines."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs import base
from envs.arguments import check_at_least, check_flag, check_positive
from envs.base import spaces
from envs.control.norms import norm
from envs.control.trigonometry import sin_cos
from envs.threefry import unrolled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Points of the craft in m, from its centre: corners of the hull, and feet.
HULL = np.array([(-14, 17), (-17, 0), (-17, -10), (17, -10), (17, 0), (14, 17)]) / 30
FEET = np.array([(-22, -25), (22, -25)]) / 30
HALF_WIDTH, HEIGHT = 10.0, 10.0  # of the scene, in m: from the centre to a side, from the ground to the top
_PARTS = 4  # of a step, for the contacts


@struct.dataclass
class LanderState(base.EnvState):
    """Centre in m from the middle of the pad, angle in rad, their rates, feet on the ground, steps at rest."""

    time: jax.Array
    place: jax.Array
    angle: jax.Array
    velocity: jax.Array
    rate: jax.Array
    landed: jax.Array
    still: jax.Array


@struct.dataclass
class LanderParams(base.EnvParams):
    """Physical constants, and weights of the reward.

    Attributes:
      gravity: Gravitational acceleration, in m/s^2.
      mass: Mass, in kg.
      inertia: Moment of inertia, in kg m^2.
      main_force, side_force: Forces of the engines at full power, in N.
      side_height: Height of the side engines above the centre, in m.
      dispersion: Scale of the random parts of the forces, which at 1 are uniform, up to half of the main engine's force
        and a quarter of a side engine's.
      start_speed: Largest velocity at the start along either axis, in m/s.
      stiffness, foot_damping: Force of a foot by its depth, in N/m, and by its speed into the ground, in N s/m.
      friction: Friction coefficient of the feet.
      dt: Time of a step, in s.
      main_cost, side_cost: Costs of a step at full power.
      max_steps_in_episode: Time limit, in steps.
    """

    gravity: float = 10.0
    mass: float = 4.96
    inertia: float = 1.13
    main_force: float = 86.7
    side_force: float = 12.0
    side_height: float = 0.467
    dispersion: float = 1.0
    start_speed: float = 4.0
    stiffness: float = 1500.0
    foot_damping: float = 60.0
    friction: float = 0.6
    dt: float = 0.02
    main_cost: float = 0.3
    side_cost: float = 0.03
    max_steps_in_episode: int = 1000


@dataclass(frozen=True)
class Lander(base.Environment):
    """The task of LunarLander-v3 for a rigid craft on level ground; 100 for coming to rest, -100 for a crash.

    A step's reward is the increase of -100 (distance + speed + |angle|) + 10 for each foot on the ground, in the units
    of the observation, minus the costs of the engines. The episode terminates with -100 where the hull touches the
    ground or the craft leaves the sides, and with 100 after half a second at rest on both feet.

    Source: engines, scales, reward, reset and observation of Gymnasium's LunarLander-v3. There, Box2D simulates legs on
    joints and hills beside the pad; here feet are springs with friction, and the ground is level.

    Attributes:
      continuous: Flag for two numbers as an action instead of four choices.
    """

    continuous: bool = False

    def __post_init__(self) -> None:
        check_flag("continuous", self.continuous)

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "lander-continuous" if self.continuous else "lander"

    @property
    def default_params(self) -> LanderParams:
        """Mass, forces and costs of LunarLander-v3."""
        return LanderParams()

    def check_params(self, params: LanderParams) -> None:
        """Reject masses, inertias, times and stiffnesses that are not above 0, and negative damping or friction."""
        check_positive(params, "mass", "inertia", "dt", "stiffness")
        check_at_least(params, foot_damping=0, friction=0, dispersion=0, start_speed=0)

    def reset_env(self, key: jax.Array, params: LanderParams) -> tuple[jax.Array, LanderState]:
        """The first observation `[8]` and state: at the top, upright, with a random velocity."""
        velocity = params.start_speed * jax.random.uniform(unrolled(key), (2,), minval=-1.0)
        zero, time = jnp.zeros((), jnp.float32), jnp.zeros((), jnp.int32)
        place = jnp.array([0.0, HEIGHT], jnp.float32)
        state = LanderState(time, place, zero, velocity, zero, jnp.zeros(2, bool), time)
        return _observe(state), state

    def step_env(
        self, key: jax.Array, state: LanderState, action: jax.Array, params: LanderParams
    ) -> tuple[jax.Array, LanderState, jax.Array, jax.Array, dict[Any, Any]]:
        """The engines' forces for a step, then the motion in four parts."""
        main, side = self._powers(action)
        noise = params.dispersion * jax.random.uniform(unrolled(key), (3,), minval=-1.0)
        # Along the craft and across it, in its own frame.
        along = main * params.main_force * (1 + 0.5 * noise[0])
        push = side * params.side_force * (1 + 0.25 * noise[1])
        across = push + main * params.main_force * 0.25 * noise[2]
        before = _shaping(_observe(state))
        moved = _moved(state, jnp.stack([across, along]), -push * params.side_height, params)

        obs = _observe(moved)
        sin, cos = sin_cos(moved.angle)
        crashed = jnp.any(moved.place[1] + HULL[:, 0] * sin + HULL[:, 1] * cos < 0) | (jnp.abs(obs[0]) >= 1)
        landed = (moved.still * params.dt >= 0.5) & ~crashed
        cost = params.main_cost * main + params.side_cost * jnp.abs(side)
        reward = jnp.where(crashed, -100.0, jnp.where(landed, 100.0, _shaping(obs) - before - cost))
        return obs, moved, reward, crashed | landed, {}

    def action_space(self, params: LanderParams | None = None) -> spaces.Discrete | spaces.Box:
        """No engine, the left, the main or the right one; or two numbers `[2]`.

        Of the numbers, the first is the main engine's: off up to 0, and half of its power to all of it above. The
        second is a side engine's, the left one's if negative: off within 0.5, and that share of its power beyond.
        """
        del params
        return spaces.Box(-1.0, 1.0, (2,), jnp.float32) if self.continuous else spaces.Discrete(4)

    def observation_space(self, params: LanderParams) -> spaces.Box:
        """Place and velocity in units of the scene, angle, rate (times 0.4 s), and a 1 for each foot on the ground."""
        high = jnp.array([jnp.inf] * 6 + [1.0] * 2, jnp.float32)
        return spaces.Box(jnp.concatenate([-high[:6], jnp.zeros(2)]), high, (8,), jnp.float32)

    def draw(self, ax: "Axes", state: LanderState, params: LanderParams) -> None:
        """The craft between the flags."""
        from matplotlib.patches import Polygon

        ax.set_xlim(-HALF_WIDTH, HALF_WIDTH)
        ax.set_ylim(-2.0, HEIGHT + 1.3)
        ax.fill_between([-HALF_WIDTH, HALF_WIDTH], -2.0, 0.0, color="#bdbdbd")
        for flag in (-2.0, 2.0):
            ax.plot([flag, flag], [0, 1.2], color="#222222", linewidth=1.5)
            ax.plot([flag, flag + 0.4], [1.05, 1.05], color="#009E73", linewidth=6)
        place, angle = np.asarray(state.place, np.float64), float(state.angle)
        turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
        for foot, corner in zip(FEET, HULL[[2, 3]], strict=True):
            ax.plot(*(place + np.stack([corner, foot]) @ turn).T, color="#222222", linewidth=3)
        ax.add_patch(Polygon(place + HULL @ turn, color="#0072B2"))

    def _powers(self, action: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Power of the main engine, and of the right one minus the left one, as shares."""
        if not self.continuous:
            return jnp.float32(action == 2), jnp.float32(action == 3) - jnp.float32(action == 1)
        main, side = jnp.clip(action, -1.0, 1.0)
        return jnp.where(main > 0, 0.5 + 0.5 * main, 0.0), jnp.where(jnp.abs(side) > 0.5, side, 0.0)


def _moved(state: LanderState, force: jax.Array, torque: jax.Array, params: LanderParams) -> LanderState:
    """The state after a step under a force in the frame of the craft `[2]` and a torque."""
    place, angle, velocity, rate = state.place, state.angle, state.velocity, state.rate
    dt, weight = params.dt / _PARTS, params.mass * params.gravity
    touching = jnp.zeros(2, bool)
    for _ in range(_PARTS):
        sin, cos = sin_cos(angle)
        across, along = cos * FEET[:, 0] - sin * FEET[:, 1], sin * FEET[:, 0] + cos * FEET[:, 1]
        depth, sinking = -(place[1] + along), -(velocity[1] + rate * across)
        up = jnp.where(depth > 0, jnp.maximum(params.stiffness * depth + params.foot_damping * sinking, 0.0), 0.0)
        # Coulomb friction, and in proportion to the speed where that is less.
        most = params.friction * up
        drag = jnp.clip(-params.foot_damping * (velocity[0] - rate * along), -most, most)
        total = jnp.stack(
            [
                cos * force[0] - sin * force[1] + drag[0] + drag[1],
                sin * force[0] + cos * force[1] - weight + up[0] + up[1],
            ]
        )
        turning = torque + jnp.sum(across * up - along * drag)
        touching = touching | (depth > 0)
        velocity = velocity + dt / params.mass * total
        rate = rate + dt / params.inertia * turning
        place, angle = place + dt * velocity, angle + dt * rate
    at_rest = jnp.all(touching) & (jnp.sum(jnp.square(velocity)) < 0.01**2) & (jnp.abs(rate) < 0.035)
    return LanderState(state.time + 1, place, angle, velocity, rate, touching, jnp.where(at_rest, state.still + 1, 0))


def _observe(state: LanderState) -> jax.Array:
    half_height = 20 / 3
    x, y = state.place[0] / HALF_WIDTH, (state.place[1] + FEET[0, 1]) / half_height
    speed = state.velocity * jnp.array([HALF_WIDTH, half_height], jnp.float32) / 50
    numbers = jnp.stack([x, y, speed[0], speed[1], state.angle, 0.4 * state.rate])
    return jnp.concatenate([numbers, state.landed.astype(jnp.float32)])


def _shaping(obs: jax.Array) -> jax.Array:
    return -100 * (norm(obs[:2]) + norm(obs[2:4]) + jnp.abs(obs[4])) + 10 * (obs[6] + obs[7])
