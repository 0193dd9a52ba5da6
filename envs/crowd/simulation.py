"""One decision of a crowd: its control is held for some substeps of dynamics and contacts."""

import dataclasses

import jax
import jax.numpy as jnp
from flax import struct

from envs.arguments import check_choice, check_count
from envs.crowd import contacts, dynamics, pairs, shapes
from envs.crowd.dynamics import Dynamics
from envs.crowd.state import Goals, Obstacles, Traits, Walkers

__all__ = ["Physics", "Simulated", "simulate"]


@dataclasses.dataclass(frozen=True)
class Physics:
    """What is static about the mechanics of a crowd.

    Attributes:
      kind: the dynamics.
      substeps: integration steps per decision.
      backwards: whether polar acceleration may go backwards for a substep.
      iterations: contact iterations per substep at most; None for the dynamics' own, `contacts.ITERATIONS`.
      search: how agents that may meet are found.
      capacity: how many an agent may have in its list, where lists are used.
      rebuilds: how often per decision lists are built; more of them are shorter.
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
        """The contact solver of these dynamics."""
        return contacts.Solver(contacts.ITERATIONS[self.kind] if self.iterations is None else self.iterations)


@struct.dataclass
class Simulated:
    """What one decision came to. Integrals run over the substeps in which an agent still walked.

    Attributes:
      walkers, obstacles: at its end.
      arrived: bool `[N]`, touched the goal in this decision.
      touches: `[N]`, contacts summed over substeps: one that lasts the decision counts `substeps` times.
      deepest: `[]` m, the largest overlap at the end of any substep.
      duration: `[N]` s, how long each walked.
      commanded_square, moved_square: `[N]` m^2/s, integrals of the squared speed: as commanded, before
        contacts, and as moved.
      travelled: `[N]` m, length of the path.
      commanded: `[N, 2]` m, integral of the commanded velocity.
      overflow: int32 `[]`, agents left out of lists, or faster than these foresaw.
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

    Who touches the own goal stands still from then on, with no body for others to run into.

    Args:
      physics: static.
      walkers: now.
      control: `[N, 2]`, from `dynamics.squash`.
      traits: who they are.
      walking: bool `[N]`; the others neither move nor are in the way.
      goals: where they want to go.
      obstacles: what is in the way.
      turn_rate: rad per substep at full turn, traced.
      dt: s per substep, traced.

    Returns:
      The state after the decision, and what happened in it.
    """
    listed = pairs.resolve(physics.search, walking.shape[0]) == "cells"
    solver = physics.solver
    block = -(-physics.substeps // physics.rebuilds) if listed else physics.substeps
    radius = jnp.max(jnp.where(walking, traits.radius, 0.0))
    # Who goes farther than this within a block, which takes a hard push, may meet an agent that is not in the list.
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

    def substep(carry, _):
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
        wanted = jnp.where(active[:, None], wants.velocity, 0.0)
        so_far = Simulated(
            walkers=after,
            obstacles=obstacles,
            arrived=so_far.arrived | there,
            touches=so_far.touches + touched.count,
            deepest=jnp.maximum(so_far.deepest, touched.overlap),
            duration=so_far.duration + jnp.where(active, dt, 0.0),
            commanded_square=so_far.commanded_square + jnp.sum(wanted * wanted, axis=-1) * dt,
            moved_square=so_far.moved_square + moved / dt,
            travelled=so_far.travelled + jnp.sqrt(moved),
            commanded=so_far.commanded + wanted * dt,
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
