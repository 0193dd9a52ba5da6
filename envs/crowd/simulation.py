"""One decision of a crowd: its control is held for several substeps of dynamics and contacts."""

import dataclasses

import jax
import jax.numpy as jnp
from flax import struct

from envs.arguments import CheckedFlags, check_choice, check_count
from envs.crowd import contacts, dynamics, pairs, shapes
from envs.crowd.dynamics import Dynamics
from envs.crowd.state import Goals, Obstacles, Traits, Walkers

__all__ = ["Physics", "Simulated", "simulate"]


@dataclasses.dataclass(frozen=True)
class Physics(CheckedFlags):
    """The static settings of a crowd's mechanics.

    Attributes:
      kind: Dynamics.
      substeps: Number of integration steps per decision.
      backwards: Whether polar acceleration may go backwards for a substep.
      iterations: Largest number of contact iterations per substep; None for the dynamics' own, `contacts.ITERATIONS`.
      search: Method of finding agents that may meet.
      capacity: Number of other agents that an agent's list holds, where lists are used.
      rebuilds: Number of times per decision that lists are built; with more of them the lists are shorter.
    """

    kind: Dynamics = "polar-acceleration"
    substeps: int = 10
    backwards: bool = False
    iterations: int | None = None
    search: pairs.Search = "auto"
    capacity: int = 12
    rebuilds: int = 2

    def __post_init__(self) -> None:
        check_choice("dynamics", self.kind, dynamics.DYNAMICS)
        for name in ("substeps", "capacity", "rebuilds"):
            check_count(name, getattr(self, name))
        check_choice("search", self.search, pairs.SEARCHES)
        _ = self.solver

    @property
    def solver(self) -> contacts.Solver:
        """The contact solver for these dynamics."""
        return contacts.Solver(contacts.ITERATIONS[self.kind] if self.iterations is None else self.iterations)


@struct.dataclass
class Simulated:
    """The result of one decision. Integrals run over the substeps in which an agent still walked.

    Attributes:
      walkers, obstacles: State at the end of the decision.
      arrived: Agents that touched the goal in this decision, bool `[N]`.
      touches: Number of contacts summed over substeps, `[N]`; one that lasts the decision counts `substeps` times.
      deepest: Largest overlap at the end of any substep, `[]` m.
      duration: Time that each agent walked, `[N]` s.
      commanded_square, moved_square: Integrals of the squared speed, `[N]` m^2/s: as commanded, before
        contacts, and as moved.
      travelled: Length of the path, `[N]` m.
      commanded: Integral of the commanded velocity, `[N, 2]` m.
      overflow: Number of agents left out of lists, or faster than the lists allow for, int32 `[]`.
    """

    walkers: Walkers
    obstacles: Obstacles
    arrived: jax.Array
    touches: jax.Array
    deepest: jax.Array
    duration: jax.Array
    commanded_square: jax.Array
    moved_square: jax.Array
    travelled: jax.Array
    commanded: jax.Array
    overflow: jax.Array


_Carry = tuple[Simulated, contacts.Neighbourhood]


def simulate(
    physics: Physics,
    walkers: Walkers,
    control: jax.Array,
    traits: Traits,
    walking: jax.Array,
    goals: Goals,
    obstacles: Obstacles,
    turn_rate: jax.Array,
    dt: jax.Array,
) -> Simulated:
    """Hold a control for the substeps of one decision.

    An agent that touches its own goal stands still from then on and no longer has a body with which others could
    collide.

    Args:
      physics: Mechanics, static.
      walkers: Present walkers.
      control: Controls `[N, 2]`, from `dynamics.squash`.
      traits: Traits of the agents.
      walking: Agents that walk, bool `[N]`; the others neither move nor are in the way.
      goals: Goals of the agents.
      obstacles: Boxes and pillars.
      turn_rate: Rate in rad per substep at full turn, traced.
      dt: Length of a substep in s, traced.

    Returns:
      The state after the decision, and the integrals over it.
    """
    listed = pairs.resolve(physics.search, walking.shape[0]) == "cells"
    solver = physics.solver
    block = -(-physics.substeps // physics.rebuilds) if listed else physics.substeps
    radius = jnp.max(jnp.where(walking, traits.radius, 0.0))
    # An agent that travels farther than this within a block, which takes a hard push, may meet agents not in its list.
    way = 1.3 * block * dt * jnp.max(jnp.where(walking, traits.max_speed, 0.0)) + 1e-3
    none = jnp.zeros_like(traits.radius)
    first = Simulated(
        walkers=walkers,
        obstacles=obstacles,
        arrived=jnp.zeros_like(walking),
        touches=none,
        deepest=jnp.float32(0),
        duration=none,
        commanded_square=none,
        moved_square=none,
        travelled=none,
        commanded=jnp.zeros_like(walkers.position),
        overflow=jnp.int32(0),
    )

    def substep(carry: _Carry, _: None) -> tuple[_Carry, None]:
        so_far, near = carry
        active = walking & ~so_far.arrived
        here = contacts.without(near, active)
        before = so_far.walkers
        wants = dynamics.advance(physics.kind, before, control, traits, turn_rate, dt, physics.backwards)
        after, obstacles, touched = contacts.move(
            physics.kind, before, wants, traits, active, so_far.obstacles, here, dt, solver
        )
        there = active & shapes.touches_box(after.position, traits.radius, goals.centre, goals.half)
        after = dataclasses.replace(
            after, velocity=jnp.where(there[:, None], 0.0, after.velocity), speed=jnp.where(there, 0.0, after.speed)
        )
        moved = jnp.sum((after.position - before.position) ** 2, axis=-1)
        intended = jnp.where(active[:, None], wants.velocity, 0.0)
        so_far = Simulated(
            walkers=after,
            obstacles=obstacles,
            arrived=so_far.arrived | there,
            touches=so_far.touches + touched.count,
            deepest=jnp.maximum(so_far.deepest, touched.overlap),
            duration=so_far.duration + jnp.where(active, dt, 0.0),
            commanded_square=so_far.commanded_square + jnp.sum(intended * intended, axis=-1) * dt,
            moved_square=so_far.moved_square + moved / dt,
            travelled=so_far.travelled + jnp.sqrt(moved),
            commanded=so_far.commanded + intended * dt,
            overflow=so_far.overflow,
        )
        return (so_far, near), None

    result, done = first, 0
    while done < physics.substeps:
        length = min(block, physics.substeps - done)
        active = walking & ~result.arrived
        start = result.walkers.position
        lists = None
        if listed:
            lists = pairs.candidates(start, active, 2 * (radius + way), "cells", physics.capacity)
        near = contacts.neighbourhood(traits, active, lists)
        (result, _), _ = jax.lax.scan(substep, (result, near), None, length=length)
        if listed:
            gone = jnp.sum((result.walkers.position - start) ** 2, axis=-1) > way * way
            result = dataclasses.replace(
                result, overflow=result.overflow + near.overflow + jnp.sum(gone).astype(jnp.int32)
            )
        done += length
    return result
