"""Optimal reciprocal collision avoidance: a policy that chooses velocities without collisions for some seconds.

Each neighbour forbids a half-plane of velocities, and so does each solid; an agent takes the allowed velocity that
is closest to its preferred one. Half-planes are `normal . v >= offset`; solids come first and then agents, nearest
first.

Source: van den Berg et al. (2011), "Reciprocal n-body collision avoidance"; Seidel (1991), "Small-dimensional linear
programming and convex hulls made easy".
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from flax import struct

from envs.crowd import neighbours, shapes
from envs.crowd.crowd import Crowd
from envs.crowd.pairs import Candidates
from envs.crowd.params import CrowdParams
from envs.crowd.state import CrowdState, Obstacles
from envs.crowd.steering import preferred, steer
from envs.errors import UserValueError

__all__ = ["NEIGHBOURS", "HalfPlanes", "Orca", "avoid", "box_planes", "closest_velocity", "disc_planes"]

# Largest number of agents, the nearest ones, that an agent avoids.
NEIGHBOURS = 10

# Speed in m/s by which a velocity may violate a half-plane, and the sine below which two half-planes count as parallel.
_TOLERANCE = 1e-5


@struct.dataclass
class HalfPlanes:
    """Allowed velocities: those with `normal . v >= offset`.

    Attributes:
      normal: Normals of length 1, `[*B, 2]`.
      offset: Offsets, `[*B]` m/s; -inf allows everything.
    """

    normal: jax.Array
    offset: jax.Array


@dataclasses.dataclass(frozen=True)
class Orca:
    """A policy `(key, observations, state) -> actions` that avoids collisions reciprocally.

    Each agent prefers to walk towards its goal at the preferred speed, relies on each neighbour for half of the
    avoidance, and keeps clear of solids alone. It does not plan paths around walls.

    Attributes:
      env: Crowd whose agents it steers.
      params: Concrete parameters; None for the environment's own.
      horizon: Time in s for which two agents keep apart.
      obstacle_horizon: Time in s for which agents keep off solids.
      margin: Distance in m added to each radius.
      noise: Standard deviation of the noise in the preferred velocity, as a share of the preferred speed;
        without noise, agents exactly in each other's way stop.
    """

    env: Crowd
    params: CrowdParams | None = None
    horizon: float = 2.7
    obstacle_horizon: float = 0.6
    margin: float = 0.01
    noise: float = 0.02

    def __post_init__(self) -> None:
        for name in ("horizon", "obstacle_horizon"):
            if not getattr(self, name) > 0:
                raise UserValueError(f"{name} must be above 0 s, got {getattr(self, name)}")
        for name in ("margin", "noise"):
            if not getattr(self, name) >= 0:
                raise UserValueError(f"{name} must be at least 0, got {getattr(self, name)}")

    def __call__(self, key: jax.Array, obs: object, state: CrowdState) -> jax.Array:
        """Actions `[N, 2]` of the environment's dynamics."""
        del obs
        params = self.env.default_params if self.params is None else self.params
        walkers, traits, walking = state.walkers, state.traits, state.walking
        position, radius = walkers.position, traits.radius + self.margin
        aside = self.noise * traits.preferred_speed[:, None] * jax.random.normal(key, position.shape)
        velocity = avoid(
            position,
            walkers.velocity,
            radius,
            preferred(state) + aside,
            traits.max_speed,
            walking,
            state.obstacles,
            _nearest(self.env, params, state),
            horizon=jnp.float32(self.horizon),
            obstacle_horizon=jnp.float32(self.obstacle_horizon),
            interval=jnp.float32(params.dt) * self.env.substeps,
        )
        return steer(self.env, params, state, velocity)


def _nearest(env: Crowd, params: CrowdParams, state: CrowdState) -> Candidates:
    """The nearest agents within sight, in all directions."""
    near = neighbours.nearest(
        state.walkers.position,
        state.walkers.heading,
        state.walking,
        jnp.float32(params.sight_radius),
        jnp.float32(jnp.pi),
        min(NEIGHBOURS, max(env.num_agents - 1, 1)),
        env.search,
    )
    return Candidates(index=near.index, valid=near.valid, overflow=jnp.int32(0))


@jax.jit
def avoid(
    position: jax.Array,
    velocity: jax.Array,
    radius: jax.Array,
    preferred_velocity: jax.Array,
    max_speed: jax.Array,
    walking: jax.Array,
    obstacles: Obstacles,
    candidates: Candidates,
    *,
    horizon: jax.Array,
    obstacle_horizon: jax.Array,
    interval: jax.Array,
) -> jax.Array:
    """The velocity closest to the preferred one that avoids collisions if all agents do the same.

    If no velocity is within all half-planes, solids are still avoided, and the largest violation of another agent's
    half-plane, in m/s, is minimised. If not even the half-planes of solids leave a velocity, solids are treated like
    agents.

    Args:
      position, velocity: Positions and velocities, `[N, 2]` m and m/s.
      radius: Radii, `[N]` m.
      preferred_velocity: Preferred velocities, `[N, 2]` m/s.
      max_speed: Largest speeds, `[N]` m/s.
      walking: Agents that walk, bool `[N]`; the others are not avoided.
      obstacles: Boxes and pillars.
      candidates: Agents that may be avoided; the nearest `NEIGHBOURS` of them are avoided.
      horizon: Time for which agents keep apart, `[]` s, traced.
      obstacle_horizon: Time for which agents keep off solids, `[]` s, traced.
      interval: Time in which overlapping agents separate, `[]` s, traced.

    Returns:
      Velocities, `[N, 2]` m/s; 0 for agents that do not walk.
    """
    solids = _solid_planes(position, velocity, radius, obstacles, obstacle_horizon, interval)
    others = _agent_planes(position, velocity, radius, walking, candidates, horizon, interval)
    planes = HalfPlanes(
        normal=jnp.concatenate([solids.normal, others.normal], axis=1),
        offset=jnp.concatenate([solids.offset, others.offset], axis=1),
    )
    solve = functools.partial(closest_velocity, num_hard=solids.offset.shape[1])
    chosen = jax.vmap(solve)(planes, max_speed, preferred_velocity)
    return jnp.where(walking[:, None], chosen, 0.0)


# --- half-planes -------------------------------------------------------------------------


def disc_planes(
    away: jax.Array,
    velocity: jax.Array,
    relative_velocity: jax.Array,
    reach: jax.Array,
    share: float,
    horizon: jax.Array,
    interval: jax.Array,
) -> HalfPlanes:
    """Velocities that a disc allows: the truncated velocity obstacle, linearised at its point closest to the velocity.

    Args:
      away: Vector from the agent to the other one, `[*B, 2]` m.
      velocity: Velocity of the agent, `[*B, 2]` m/s.
      relative_velocity: Velocity of the agent less that of the other one, `[*B, 2]` m/s.
      reach: Sum of the radii, `[*B]` m.
      share: Share of the change of the relative velocity that the agent makes; 1/2 where the other does as much.
      horizon: Time without a collision in s.
      interval: Time in s that replaces the horizon for overlapping agents.

    Returns:
      Half-planes `[*B]`.
    """
    square = jnp.sum(away * away, axis=-1)
    overlap = square < reach * reach
    rate = 1 / jnp.where(overlap, interval, horizon)
    # The obstacle is a cone of discs that begins with the disc of the horizon: its round end ...
    from_end = relative_velocity - away * rate[..., None]
    length = jnp.sqrt(jnp.sum(from_end * from_end, axis=-1))
    ahead = jnp.sum(from_end * away, axis=-1)
    is_end = overlap | (ahead < -reach * length)
    straight = -away / jnp.sqrt(jnp.maximum(square, 1e-12))[..., None]
    known = length > 1e-6
    end_normal = jnp.where(known[..., None], from_end / jnp.where(known, length, 1.0)[..., None], straight)
    end_depth = reach * rate - length
    # ... and its legs, which touch all discs: the left leg is the axis, turned by asin(reach / distance).
    side = jnp.where(away[..., 0] * from_end[..., 1] - away[..., 1] * from_end[..., 0] > 0, 1.0, -1.0)
    leg = jnp.sqrt(jnp.maximum(square - reach * reach, 0.0))
    across = jnp.stack([-away[..., 1], away[..., 0]], axis=-1) * side[..., None]
    leg_normal = (leg[..., None] * across - reach[..., None] * away) / jnp.maximum(square, 1e-12)[..., None]
    leg_depth = -jnp.sum(leg_normal * relative_velocity, axis=-1)
    normal = jnp.where(is_end[..., None], end_normal, leg_normal)
    depth = jnp.where(is_end, end_depth, leg_depth)
    return HalfPlanes(normal=normal, offset=jnp.sum(normal * velocity, axis=-1) + share * depth)


def box_planes(
    position: jax.Array,
    radius: jax.Array,
    centre: jax.Array,
    half: jax.Array,
    velocity: jax.Array,
    horizon: jax.Array,
    interval: jax.Array,
) -> HalfPlanes:
    """Velocities that a box allows: those that do not use up the gap to its nearest point within the horizon.

    A box is convex, so it lies behind the line through that point at right angles to the gap, and an agent that does
    not reach the line does not reach the box.

    Args:
      position: Positions of the agents, `[*B, 2]` m.
      radius: Radii of the agents, `[*B]` m.
      centre, half: Centres and half sides of the boxes, `[*B, 2]` m.
      velocity: Velocities of the boxes, `[*B, 2]` m/s.
      horizon: Time without a collision in s.
      interval: Time in s that replaces the horizon for overlapping agents.

    Returns:
      Half-planes `[*B]`. Standing still is always allowed next to a box that does not move.
    """
    distance, normal = shapes.box_gap(position, centre, half)
    gap = distance - radius
    rate = 1 / jnp.where(gap < 0, interval, horizon)
    return HalfPlanes(normal=normal, offset=jnp.sum(normal * velocity, axis=-1) - gap * rate)


def _solid_planes(
    position: jax.Array,
    velocity: jax.Array,
    radius: jax.Array,
    obstacles: Obstacles,
    horizon: jax.Array,
    interval: jax.Array,
) -> HalfPlanes:
    """Half-planes `[N, M + P]` of boxes and pillars."""
    here = position[:, None]
    boxes = box_planes(
        here,
        radius[:, None],
        obstacles.box_centre[None],
        obstacles.box_half[None],
        obstacles.box_velocity[None],
        horizon,
        interval,
    )
    away = obstacles.pillar_centre[None] - here
    now = jnp.broadcast_to(velocity[:, None], away.shape)
    pillars = disc_planes(away, now, now, radius[:, None] + obstacles.pillar_radius, 1.0, horizon, interval)
    return HalfPlanes(
        normal=jnp.concatenate([boxes.normal, pillars.normal], axis=1),
        offset=jnp.concatenate([boxes.offset, pillars.offset], axis=1),
    )


def _agent_planes(
    position: jax.Array,
    velocity: jax.Array,
    radius: jax.Array,
    walking: jax.Array,
    candidates: Candidates,
    horizon: jax.Array,
    interval: jax.Array,
) -> HalfPlanes:
    """Half-planes `[N, K]` of the nearest candidates, the nearest first."""
    away = position[candidates.index] - position[:, None]
    valid = candidates.valid & walking[candidates.index] & walking[:, None]
    closeness = jnp.where(valid, -jnp.sum(away * away, axis=-1), -jnp.inf)
    closeness, place = jax.lax.top_k(closeness, min(NEIGHBOURS, closeness.shape[1]))
    other = jnp.take_along_axis(candidates.index, place, axis=1)
    now = jnp.broadcast_to(velocity[:, None], (*other.shape, 2))
    planes = disc_planes(
        position[other] - position[:, None],
        now,
        now - velocity[other],
        radius[:, None] + radius[other],
        0.5,
        horizon,
        interval,
    )
    return dataclasses.replace(planes, offset=jnp.where(closeness > -jnp.inf, planes.offset, -jnp.inf))


# --- linear programmes of one agent ------------------------------------------------------


def closest_velocity(planes: HalfPlanes, max_speed: jax.Array, preferred: jax.Array, *, num_hard: int) -> jax.Array:
    """The velocity within half-planes and a largest speed that is closest to a preferred one.

    Args:
      planes: Half-planes `[K]`.
      max_speed: Largest speed, `[]` m/s, never exceeded.
      preferred: Preferred velocity, `[2]` m/s.
      num_hard: Number of hard half-planes, the first ones, static. If no velocity is within all half-planes, these are
        satisfied where possible, and the largest violation of any other half-plane is minimised.

    Returns:
      The velocity, `[2]` m/s.
    """
    velocity, failed = _nearest_allowed(planes, max_speed, preferred, towards=False)
    number = planes.offset.shape[0]
    place = jnp.arange(number)
    hard = (place < num_hard) & (failed >= num_hard)

    # A third dimension, s >= 0, is the violation of the soft half-planes: minimise s, adding them one by one. If the
    # current s does not suffice, the new half-plane is violated by exactly s, which gives a programme within its plane.
    def unfinished(carry: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        return jnp.any(_missed(planes, hard, *carry))

    def add(carry: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        velocity, _, _ = carry
        new = jnp.argmax(_missed(planes, hard, *carry))
        normal, offset = planes.normal[new], planes.offset[new]
        between = jnp.where(hard[:, None], planes.normal, planes.normal - normal)
        bound = jnp.where(hard, planes.offset, planes.offset - offset)
        length = jnp.sqrt(jnp.sum(between * between, axis=-1))
        # Of two half-planes with the same normal the earlier one is violated less, or else the new one would not be
        # violated.
        counts = (hard | (place < new)) & (length > _TOLERANCE)
        length = jnp.where(counts, length, 1.0)
        inner = HalfPlanes(between / length[:, None], jnp.where(counts, bound / length, -jnp.inf))
        candidate, lost = _nearest_allowed(inner, max_speed, normal, towards=True)
        velocity = jnp.where(lost == number, candidate, velocity)
        return velocity, jnp.maximum(offset - jnp.dot(normal, velocity), 0.0), new + 1

    start = velocity, jnp.float32(0), failed
    return jax.lax.while_loop(unfinished, add, start)[0]


def _missed(planes: HalfPlanes, hard: jax.Array, velocity: jax.Array, by: jax.Array, done: jax.Array) -> jax.Array:
    """Soft half-planes from `done` on that a velocity violates by more than allowed."""
    late = jnp.arange(hard.shape[0]) >= done
    return late & ~hard & (planes.offset - planes.normal @ velocity > by + _TOLERANCE)


def _nearest_allowed(
    planes: HalfPlanes, max_speed: jax.Array, target: jax.Array, *, towards: bool
) -> tuple[jax.Array, jax.Array]:
    """A linear programme in the plane: add half-planes one by one; where one excludes the optimum, move to its edge.

    Args:
      planes: Half-planes `[K]`.
      max_speed: Largest speed, `[]` m/s.
      target: Velocity, or direction of length 1, `[2]`.
      towards: Whether to find the velocity farthest in the direction, not the one closest to the velocity; static.

    Returns:
      The velocity, `[2]` m/s, and the index of the first half-plane that leaves no velocity, int32 `[]`; K if a
      velocity remains.
    """
    number = planes.offset.shape[0]
    place = jnp.arange(number)
    length = jnp.sqrt(jnp.maximum(jnp.sum(target * target), 1e-24))
    first = max_speed * target if towards else target * jnp.minimum(1.0, max_speed / length)

    def excludes(velocity: jax.Array, done: jax.Array) -> jax.Array:
        return (place >= done) & (planes.offset - planes.normal @ velocity > _TOLERANCE)

    def unfinished(carry: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        velocity, done, failed = carry
        return (failed == number) & jnp.any(excludes(velocity, done))

    def add(carry: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        velocity, done, _ = carry
        new = jnp.argmax(excludes(velocity, done)).astype(jnp.int32)
        normal, offset = planes.normal[new], planes.offset[new]
        point, along = offset * normal, jnp.stack([-normal[1], normal[0]])
        # The edge is point + t along; the disc of speeds and all half-planes before leave an interval of t.
        slope = planes.normal @ along
        rest = planes.offset - planes.normal @ point
        before = place < new
        parallel = jnp.abs(slope) < _TOLERANCE
        bound = rest / jnp.where(parallel, 1.0, slope)
        room = max_speed * max_speed - offset * offset
        reach = jnp.sqrt(jnp.maximum(room, 0.0))
        low = jnp.maximum(jnp.max(jnp.where(before & ~parallel & (slope > 0), bound, -jnp.inf)), -reach)
        high = jnp.minimum(jnp.min(jnp.where(before & ~parallel & (slope < 0), bound, jnp.inf)), reach)
        shut = (room < 0) | (low > high) | jnp.any(before & parallel & (rest > _TOLERANCE))
        best = jnp.dot(along, target)
        t = jnp.where(best > 0, high, low) if towards else jnp.clip(best, low, high)
        return jnp.where(shut, velocity, point + t * along), new + 1, jnp.where(shut, new, number)

    start = first, jnp.int32(0), jnp.int32(number)
    velocity, _, failed = jax.lax.while_loop(unfinished, add, start)
    return velocity, failed
