"""What a crowd is made of: who walks, who they are, what stands in the way and where they want to go."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from envs.base import EnvState


@struct.dataclass
class Walkers:
    """What moves. Ground axes (x, z) in metres; headings count counter-clockwise.

    Attributes:
      position: `[N, 2]` m.
      velocity: `[N, 2]` m/s.
      heading: `[N]` rad in [-pi, pi); the direction is (cos, sin).
      speed: `[N]` m/s, signed, along the heading: what polar acceleration accelerates.
    """

    position: jax.Array
    velocity: jax.Array
    heading: jax.Array
    speed: jax.Array


@struct.dataclass
class Traits:
    """Who they are: constant within an episode.

    Attributes:
      radius: `[N]` m.
      mass: `[N]` kg of the rigid body.
      size_mass: `[N]` the observed mass, by which bodies are scaled; 1 unless masses are random.
      resting: `[N]` e_s, J/(kg s), the power spent standing.
      walking: `[N]` e_w, J s/(kg m^2), the power spent per squared speed.
      max_speed: `[N]` m/s.
      max_acceleration: `[N]` m/s^2.
    """

    radius: jax.Array
    mass: jax.Array
    size_mass: jax.Array
    resting: jax.Array
    walking: jax.Array
    max_speed: jax.Array
    max_acceleration: jax.Array

    @property
    def preferred_speed(self) -> jax.Array:
        """`[N]` m/s, the speed at which a metre costs the least: sqrt(e_s / e_w)."""
        return jnp.sqrt(self.resting / self.walking)


@struct.dataclass
class Obstacles:
    """What stands or drives in the way: boxes along the axes and pillars. M and P may be 0.

    Attributes:
      box_centre, box_half: `[M, 2]` m.
      box_velocity: `[M, 2]` m/s; a box keeps its velocity unless agents stop it.
      box_mass: `[M]` kg; inf for what nobody can push.
      pillar_centre: `[P, 2]` m.
      pillar_radius: `[P]` m.
    """

    box_centre: jax.Array
    box_half: jax.Array
    box_velocity: jax.Array
    box_mass: jax.Array
    pillar_centre: jax.Array
    pillar_radius: jax.Array

    @classmethod
    def none(cls) -> "Obstacles":
        """No obstacle at all."""
        return cls(
            box_centre=jnp.zeros((0, 2)),
            box_half=jnp.zeros((0, 2)),
            box_velocity=jnp.zeros((0, 2)),
            box_mass=jnp.zeros((0,)),
            pillar_centre=jnp.zeros((0, 2)),
            pillar_radius=jnp.zeros((0,)),
        )


@struct.dataclass
class Goals:
    """Where each agent wants to go: a box, reached when the agent's disc touches it.

    Attributes:
      centre, half: `[N, 2]` m.
    """

    centre: jax.Array
    half: jax.Array


@struct.dataclass
class Scene:
    """What a scenario gives at a reset.

    Attributes:
      position: `[N, 2]` m.
      heading: `[N]` rad.
      goals: where they want to go.
      obstacles: what is in the way.
    """

    position: jax.Array
    heading: jax.Array
    goals: Goals
    obstacles: Obstacles


@struct.dataclass
class CrowdState(EnvState):
    """Everything that an episode carries from decision to decision; `time` counts decisions.

    Attributes:
      walkers, traits, goals, obstacles: see there.
      present: bool `[N]`, takes part in this episode.
      arrived: bool `[N]`, has touched its goal.
      start_distance, distance: `[N]` m from the goal's centre, at the start and now.
      arrival_time: `[N]` s since the start, of those that arrived; 0 for the others.
      previous_velocity: `[N, 2]` m/s, one decision ago.
      frames: stacked rays of the last decisions, or None where nothing is stacked.
      totals: running numbers that the metrics need.
    """

    time: Any
    walkers: Walkers
    traits: Traits
    goals: Goals
    obstacles: Obstacles
    present: jax.Array
    arrived: jax.Array
    start_distance: jax.Array
    distance: jax.Array
    arrival_time: jax.Array
    previous_velocity: jax.Array
    frames: Any
    totals: dict[str, jax.Array]

    @property
    def walking(self) -> jax.Array:
        """bool `[N]`: takes part and has not arrived."""
        return self.present & ~self.arrived
