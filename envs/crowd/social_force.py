"""A social-force model as a policy: a common model of crowds that does not learn."""

import dataclasses

import jax
import jax.numpy as jnp
from flax import struct

from envs.crowd import pairs, shapes
from envs.crowd.crowd import Crowd
from envs.crowd.params import CrowdParams
from envs.crowd.state import CrowdState, Obstacles
from envs.crowd.steering import preferred, steer

__all__ = ["Forces", "SocialForce", "obstacle_forces", "social_forces"]


@struct.dataclass
class Forces:
    """The constants of the model, all traced.

    The defaults are tuned, by a random search over 224 settings, for `crowd/circle` with 30 people and
    `crowd/corridor` with 50, both in polar acceleration.

    Attributes:
      relaxation: Time in s in which a walker approaches the preferred velocity.
      strength: Acceleration in m/s^2 due to another person at distance 0.
      foresight: Weight of the relative velocity against the direction to the other person.
      reach: Range in m per m/s of the interaction vector.
      slowing, sidestep: Angular narrowness of braking and of stepping aside.
      wall_strength: Acceleration in m/s^2 due to an obstacle at the body's surface.
      wall_range: Distance in m over which that falls to 1/e.
      cut_off: Distance in m beyond which other people have no effect.
    """

    relaxation: float = 0.6
    strength: float = 4.0
    foresight: float = 1.9
    reach: float = 0.32
    slowing: float = 3.6
    sidestep: float = 1.3
    wall_strength: float = 3.8
    wall_range: float = 0.22
    cut_off: float = 2.2


def social_forces(
    position: jax.Array,
    velocity: jax.Array,
    candidates: pairs.Candidates,
    forces: Forces,
) -> jax.Array:
    """The accelerations by which people avoid each other.

    With e the direction to the other and D = foresight (v_i - v_j) + e, |D| t = D, theta the angle from t to e,
    and range B = reach |D|: -strength exp(-d / B) [exp(-(slowing B theta)^2) t + sign(theta)
    exp(-(sidestep B theta)^2) n], n to the left of t.

    Args:
      position: Positions, `[N, 2]` m.
      velocity: Velocities, `[N, 2]` m/s.
      candidates: Other agents that each one avoids.
      forces: Constants of the model, traced.

    Returns:
      Accelerations, `[N, 2]` m/s^2.

    Source: Moussaid et al. (2009), "Experimental study of the behavioural mechanisms underlying
    self-organization in human crowds".
    """
    x, z = position[:, 0], position[:, 1]
    u, w = velocity[:, 0], velocity[:, 1]
    index = candidates.index
    away_x, away_z = x[index] - x[:, None], z[index] - z[:, None]
    distance = jnp.sqrt(jnp.maximum(away_x * away_x + away_z * away_z, 1e-12))
    towards_x, towards_z = away_x / distance, away_z / distance
    along_x = forces.foresight * (u[:, None] - u[index]) + towards_x
    along_z = forces.foresight * (w[:, None] - w[index]) + towards_z
    size = jnp.sqrt(jnp.maximum(along_x * along_x + along_z * along_z, 1e-12))
    along_x, along_z = along_x / size, along_z / size
    reach = forces.reach * size
    theta = jnp.arctan2(along_x * towards_z - along_z * towards_x, along_x * towards_x + along_z * towards_z)
    near = jnp.where(candidates.valid, forces.strength * jnp.exp(-distance / reach), 0.0)
    wide = (reach * theta) ** 2
    brake = near * jnp.exp(-(forces.slowing**2) * wide)
    aside = near * jnp.exp(-(forces.sidestep**2) * wide) * jnp.sign(theta)
    force_x = -brake * along_x + aside * along_z
    force_z = -brake * along_z - aside * along_x
    return jnp.stack([jnp.sum(force_x, axis=1), jnp.sum(force_z, axis=1)], axis=-1)


def obstacle_forces(position: jax.Array, radius: jax.Array, obstacles: Obstacles, forces: Forces) -> jax.Array:
    """The accelerations `[N, 2]` m/s^2 away from boxes and pillars: wall_strength exp(-gap / wall_range) outwards."""
    total = jnp.zeros_like(position)
    for gap, outwards in (
        shapes.box_gap(position[:, None], obstacles.box_centre, obstacles.box_half),
        shapes.disc_gap(position[:, None], obstacles.pillar_centre, obstacles.pillar_radius),
    ):
        size = forces.wall_strength * jnp.exp(-jnp.maximum(gap - radius[:, None], 0.0) / forces.wall_range)
        total += jnp.sum(size[..., None] * outwards, axis=1)
    return total


@dataclasses.dataclass(frozen=True)
class SocialForce:
    """A policy that walks by social forces, updated once per decision.

    Attributes:
      env: Crowd that it steers.
      params: Parameters with the turn rate and time step; None for the environment's default ones.
      forces: Constants of the model.
      search: Method of finding the others within `forces.cut_off`, static.
      capacity: Number of others that each agent avoids where lists are used, static, see `pairs.candidates`.
    """

    env: Crowd
    params: CrowdParams | None = None
    forces: Forces = dataclasses.field(default_factory=Forces)
    search: pairs.Search = "auto"
    capacity: int = 32

    def __call__(self, key: jax.Array, obs: object, state: CrowdState) -> jax.Array:
        """Actions `[N, 2]`, for `envs.crowd.roll`."""
        del key, obs
        params = self.params or self.env.default_params
        velocity = state.walkers.velocity + self.acceleration(state) * (params.dt * self.env.substeps)
        speed = jnp.sqrt(jnp.maximum(jnp.sum(velocity * velocity, axis=-1), 1e-12))
        slower = jnp.minimum(1.0, state.traits.max_speed / speed)
        return steer(self.env, params, state, slower[:, None] * velocity)

    def acceleration(self, state: CrowdState) -> jax.Array:
        """The sum of all forces, `[N, 2]` m/s^2."""
        position, velocity, forces = state.walkers.position, state.walkers.velocity, self.forces
        return (
            (preferred(state) - velocity) / forces.relaxation
            + social_forces(position, velocity, self._candidates(state), forces)
            + obstacle_forces(position, state.traits.radius, state.obstacles, forces)
        )

    def overflow(self, state: CrowdState) -> jax.Array:
        """Number of agents within reach that are left out because `capacity` is full, int32 `[]`; 0 for all pairs."""
        return self._candidates(state).overflow

    def _candidates(self, state: CrowdState) -> pairs.Candidates:
        reach = jnp.float32(self.forces.cut_off)
        return pairs.candidates(state.walkers.position, state.walking, reach, self.search, self.capacity)
