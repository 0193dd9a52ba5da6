"""Racing: drive a car around a random closed track, seen by the distances of its borders."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from scipy.interpolate import CubicSpline

from envs import base
from envs.arguments import check_at_least, check_order, check_positive
from envs.base import spaces
from envs.control.norms import norm
from envs.control.trigonometry import sin_cos
from envs.errors import UserValueError
from envs.threefry import unrolled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NUM_KNOTS, NUM_POINTS, NUM_RAYS = 20, 160, 19
_FIELD = math.pi / 3  # angle between the first and the last ray
_SPLINE = CubicSpline(
    np.arange(NUM_KNOTS + 1), np.vstack([np.eye(NUM_KNOTS), np.eye(NUM_KNOTS)[:1]]), bc_type="periodic"
)
_PLACES = np.arange(NUM_POINTS) * NUM_KNOTS / NUM_POINTS
# From knots to points of the track and to its directions there, `[NUM_POINTS, NUM_KNOTS]`.
_POINTS, _DIRECTIONS = np.float32(_SPLINE(_PLACES)), np.float32(_SPLINE(_PLACES, 1))
_FAILURE = -3.0


@struct.dataclass
class RacingState(base.EnvState):
    """Middle line and borders `[3, NUM_POINTS, 2]`, place, heading in rad, speed, and points of the line passed."""

    time: jax.Array
    track: jax.Array
    place: jax.Array
    heading: jax.Array
    speed: jax.Array
    point: jax.Array
    passed: jax.Array


@struct.dataclass
class RacingParams(base.EnvParams):
    """Constants of the car and of the track.

    Attributes:
      acceleration: Change of the speed in a unit of time at the actions -1 and 1.
      max_turn: Largest change of the heading in a step, in rad.
      grip: Acceleration to a side that the tyres hold, which limits the change of the heading to grip dt / speed.
      start_speed: Speed at the start, at least `least_speed`.
      least_speed: Speed below which the episode terminates with -3.
      width: Distance between the borders.
      roughness: Largest share by which a knot is closer to the centre than 1, in [0, 1). Above 0.5 a track may lead
        back around the origin, where it cannot be driven.
      dt: Time of a step.
      max_steps_in_episode: Time limit, in steps.
    """

    acceleration: float = 0.1
    max_turn: float = math.pi / 6
    grip: float = 1.741
    start_speed: float = 0.2
    least_speed: float = 0.05
    width: float = 0.08
    roughness: float = 0.2
    dt: float = 0.04
    max_steps_in_episode: int = 1000


@dataclass(frozen=True)
class Racing(base.Environment):
    """A step pays the distance driven. A lap terminates; for -3, so do leaving the track, low speed and steps back.

    A step is one back if it does not bring the car further around the origin, counterclockwise as the track leads.

    The middle of the track is a periodic cubic spline through 20 knots, at equal angles around the origin and random
    distances. The car sees the longest of 19 rays over 60 degrees, its neighbours, and its speed.

    Source: dynamics and sensors of MicroRacer, Asperti and Del Brutto (2022), with borders as closed polygons of 160
    sides instead of a bitmap, and laps counterclockwise; the distribution of the tracks, the speed at the start and the
    width are of this package.
    """

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "racing"

    @property
    def default_params(self) -> RacingParams:
        """MicroRacer's car."""
        return RacingParams()

    def check_params(self, params: RacingParams) -> None:
        """Reject numbers that are not above 0, a roughness of 1 or more, and a start below the least speed."""
        check_positive(params, "max_turn", "grip", "start_speed", "width", "dt")
        check_at_least(params, roughness=0)
        if np.any(np.asarray(params.roughness) >= 1):
            raise UserValueError(f"env.roughness must be below 1, got {params.roughness}")
        check_order(params, "least_speed", "start_speed")

    def reset_env(self, key: jax.Array, params: RacingParams) -> tuple[jax.Array, RacingState]:
        """The first observation `[5]` and state: a new track, on its middle, along it."""
        distances = 1 - params.roughness * jax.random.uniform(unrolled(key), (NUM_KNOTS,))
        sin, cos = sin_cos(jnp.float32(2 * math.pi / NUM_KNOTS) * jnp.arange(NUM_KNOTS))
        knots = distances[:, None] * jnp.stack([cos, sin], axis=1)
        middle, along = jnp.asarray(_POINTS) @ knots, jnp.asarray(_DIRECTIONS) @ knots
        along = along / norm(along)[:, None]
        left = params.width / 2 * jnp.stack([-along[:, 1], along[:, 0]], axis=1)
        heading = jnp.arctan2(along[0, 1], along[0, 0])
        zero = jnp.zeros((), jnp.int32)
        track = jnp.stack([middle, middle + left, middle - left])
        state = RacingState(zero, track, middle[0], heading, jnp.float32(params.start_speed), zero, zero)
        return _observe(state), state

    def step_env(
        self, key: jax.Array, state: RacingState, action: jax.Array, params: RacingParams
    ) -> tuple[jax.Array, RacingState, jax.Array, jax.Array, dict[Any, Any]]:
        """Accelerate by `action[0]`, turn by `action[1]`, then drive straight for a step."""
        del key
        pedal, wheel = jnp.clip(action, -1.0, 1.0)
        speed = jnp.maximum(state.speed + params.acceleration * params.dt * pedal, 0.0)
        most = jnp.minimum(params.max_turn, params.grip * params.dt / jnp.maximum(speed, 1e-6))
        heading = state.heading + most * wheel
        heading = heading - 2 * math.pi * jnp.round(heading / (2 * math.pi))
        sin, cos = sin_cos(heading)
        place = state.place + speed * params.dt * jnp.stack([cos, sin])

        starts, ends = state.track[0], jnp.roll(state.track[0], -1, axis=0)
        squared = _squared_distances(place, starts, ends)
        point = jnp.argmin(squared).astype(jnp.int32)
        half = NUM_POINTS // 2
        passed = state.passed + (point - state.point + half) % NUM_POINTS - half
        off = jnp.min(squared) > jnp.square(params.width / 2)
        # The step's turn around the origin has the sign of place x heading: no difference of two close places.
        back = (state.place[0] * sin - state.place[1] * cos <= 0) | (speed <= 0)
        fails = off | back | (speed < params.least_speed)
        laps = (passed >= NUM_POINTS) & ~fails
        reward = jnp.where(fails, _FAILURE, speed * params.dt)
        state = RacingState(state.time + 1, state.track, place, heading, speed, point, passed)
        return _observe(state), state, reward, fails | laps, {"metrics": {"laps": laps}}

    @property
    def metric_rules(self) -> dict[str, base.MetricRule]:
        """`laps`: 1 in an episode that completed its lap."""
        return {"laps": "sum"}

    def action_space(self, params: RacingParams | None = None) -> spaces.Box:
        """Acceleration and turn to the left as shares of the largest, `[2]`."""
        del params
        return spaces.Box(-1.0, 1.0, (2,), jnp.float32)

    def observation_space(self, params: RacingParams) -> spaces.Box:
        """Angle of the longest ray, length of the ray to its left, of itself and of the one to its right, and speed."""
        del params
        low = jnp.array([-_FIELD / 2, 0.0, 0.0, 0.0, 0.0], jnp.float32)
        high = jnp.array([_FIELD / 2, jnp.inf, jnp.inf, jnp.inf, jnp.inf], jnp.float32)
        return spaces.Box(low, high, (5,), jnp.float32)

    def draw(self, ax: "Axes", state: RacingState, params: RacingParams) -> None:
        """The track, the car and its longest ray."""
        ax.set_xlim(-1.65, 1.65)
        ax.set_ylim(-1.1, 1.1)
        for border in np.asarray(state.track[1:]):
            ax.plot(*np.vstack([border, border[:1]]).T, color="#222222", linewidth=1)
        ax.plot(*np.asarray(state.track[:, 0][1:]).T, color="#009E73", linewidth=3)
        angle, _, length, _, _ = map(float, _observe(state))
        x, y = map(float, state.place)
        direction = float(state.heading) + angle
        ax.plot([x, x + length * np.cos(direction)], [y, y + length * np.sin(direction)], color="#D55E00", linewidth=1)
        ax.plot([x], [y], marker=(3, 0, np.degrees(float(state.heading)) - 90), color="#0072B2", markersize=13)


def _squared_distances(place: jax.Array, starts: jax.Array, ends: jax.Array) -> jax.Array:
    """Squared distances of a place from line segments `[n]`."""
    sides, offset = ends - starts, place - starts
    share = jnp.clip(jnp.sum(offset * sides, axis=1) / jnp.sum(sides * sides, axis=1), 0.0, 1.0)
    return jnp.sum(jnp.square(offset - share[:, None] * sides), axis=1)


def ray_lengths(place: jax.Array, angles: jax.Array, borders: jax.Array) -> jax.Array:
    """Distances at which rays meet closed polygons first, `[R]`; infinite for rays that meet none.

    Args:
      place: Start of the rays, `[2]`.
      angles: Their directions in rad, `[R]`.
      borders: Corners of the polygons, `[K, P, 2]`.
    """
    sin, cos = sin_cos(angles)
    starts = borders.reshape(-1, 2) - place
    sides = (jnp.roll(borders, -1, axis=1) - borders).reshape(-1, 2)
    # start + share side = length direction, solved by Cramer's rule.
    across = cos[:, None] * sides[:, 1] - sin[:, None] * sides[:, 0]
    length = (starts[:, 0] * sides[:, 1] - starts[:, 1] * sides[:, 0]) / across
    share = (starts[:, 0] * sin[:, None] - starts[:, 1] * cos[:, None]) / across
    meets = (share >= 0) & (share <= 1) & (length >= 0) & (across != 0)
    return jnp.min(jnp.where(meets, length, jnp.inf), axis=1)


def _observe(state: RacingState) -> jax.Array:
    angles = jnp.linspace(-_FIELD / 2, _FIELD / 2, NUM_RAYS, dtype=jnp.float32)
    lengths = ray_lengths(state.place, state.heading + angles, state.track[1:])
    lengths = jnp.where(lengths < 10.0, lengths, 10.0)  # outside of the track a ray may meet no border
    longest = jnp.argmax(lengths)
    left, right = jnp.minimum(longest + 1, NUM_RAYS - 1), jnp.maximum(longest - 1, 0)
    return jnp.stack([angles[longest], lengths[left], lengths[longest], lengths[right], state.speed])
