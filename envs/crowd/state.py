"""The state of a crowd: walkers, their traits, obstacles and goals."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from envs.base import EnvState


@struct.dataclass
class Walkers:
    """The moving state. Ground axes are (x, z) in metres; headings count counter-clockwise.

    Attributes:
      position: Positions, `[N, 2]` m.
      velocity: Velocities, `[N, 2]` m/s.
      heading: Headings, `[N]` rad in [-pi, pi); the direction is (cos, sin).
      speed: Signed speeds along the heading, which polar acceleration changes, `[N]` m/s.
    """

    position: jax.Array
    velocity: jax.Array
    heading: jax.Array
    speed: jax.Array


@struct.dataclass
class Traits:
    """Traits of the agents, constant within an episode.

    Attributes:
      radius: Radii, `[N]` m.
      mass: Masses of the rigid bodies, `[N]` kg.
      size_mass: Observed masses, by which bodies are scaled, `[N]`; 1 unless masses are random.
      resting: Energy constants e_s, the power spent standing, `[N]` J/(kg s).
      walking: Energy constants e_w, the power spent per squared speed, `[N]` J s/(kg m^2).
      max_speed: Largest speeds, `[N]` m/s.
      max_acceleration: Largest accelerations, `[N]` m/s^2.
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
        """The speed at which a metre costs the least energy, `[N]` m/s: sqrt(e_s / e_w)."""
        return jnp.sqrt(self.resting / self.walking)


@struct.dataclass
class Obstacles:
    """Bodies that stand or drive in the way: axis-aligned boxes, and pillars. M and P may be 0.

    Attributes:
      box_centre, box_half: Centres and half sides of the boxes, `[M, 2]` m.
      box_velocity: Velocities, `[M, 2]` m/s; a box keeps its velocity unless agents stop it.
      box_mass: Masses, `[M]` kg; inf for boxes that agents cannot push.
      pillar_centre: Centres of the pillars, `[P, 2]` m.
      pillar_radius: Radii of the pillars, `[P]` m.
    """

    box_centre: jax.Array
    box_half: jax.Array
    box_velocity: jax.Array
    box_mass: jax.Array
    pillar_centre: jax.Array
    pillar_radius: jax.Array

    @classmethod
    def none(cls) -> "Obstacles":
        """No obstacles."""
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
    """The goal of each agent: a box, reached when the agent's disc touches it.

    Attributes:
      centre, half: Centres and half sides of the boxes, `[N, 2]` m.
    """

    centre: jax.Array
    half: jax.Array


@struct.dataclass
class Scene:
    """The scene that a scenario creates at a reset.

    Attributes:
      position: Positions, `[N, 2]` m.
      heading: Headings, `[N]` rad.
      goals: Goals of the agents.
      obstacles: Boxes and pillars.
      entry: Times at which agents enter, `[N]` s; None if all are present from the start.
    """

    position: jax.Array
    heading: jax.Array
    goals: Goals
    obstacles: Obstacles
    entry: Any = None


@struct.dataclass
class CrowdState(EnvState):
    """The state of an episode between decisions; `time` counts decisions.

    Attributes:
      walkers, traits, goals, obstacles: See their classes.
      present: Agents that take part in this episode, bool `[N]`.
      arrived: Agents that have touched their goals, bool `[N]`.
      start_distance, distance: Distances from the goal's centre, at the start and now, `[N]` m.
      arrival_time: Time from an agent's entry to its arrival, `[N]` s; 0 for agents that have not arrived.
      previous_velocity: Velocities one decision ago, `[N, 2]` m/s.
      frames: Stacked rays of the last decisions, or None where nothing is stacked.
      totals: Running totals for the metrics.
      entry: Times at which agents enter, `[N]` s; None if all are present from the start.
      waiting: Agents that take part and have not entered, bool `[N]`; None where `entry` is None.
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
    entry: Any = None
    waiting: Any = None

    @property
    def on_the_way(self) -> jax.Array:
        """Agents that take part and have not arrived, bool `[N]`."""
        return self.present & ~self.arrived

    @property
    def walking(self) -> jax.Array:
        """Agents that have entered and have not arrived, bool `[N]`."""
        return self.on_the_way if self.waiting is None else self.on_the_way & ~self.waiting
