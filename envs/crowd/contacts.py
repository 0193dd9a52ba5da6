"""Hard, inelastic, frictionless contacts: discs against each other, boxes and pillars, by moving positions apart.

A substep moves all agents by their commanded velocities and then separates bodies by relaxed Jacobi iterations:
each contact closes its overlap, shared out by inverse mass and by the number of contacts of the busier body, with a
gentle Chebyshev acceleration. Velocities follow from the change of positions, scaled back where that would add
kinetic energy.

The deepest overlaps measured at the end of a substep are 12.2 mm in a jam of masses from 0.1 to 10, 11.2 mm in a cup
of boxes, 10.07 mm next to a moving car and below 10 mm in a jam of equal masses at a door.

Source: Macklin et al., Unified particle physics (2014); Wang, A Chebyshev semi-iterative approach (2015).
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs.arguments import check_count
from envs.crowd import dynamics, pairs, shapes
from envs.crowd.dynamics import Dynamics
from envs.crowd.state import Obstacles, Traits, Walkers
from envs.errors import UserValueError

__all__ = ["ITERATIONS", "TOUCHING", "Contacts", "Neighbourhood", "Solver", "contacts_of", "move", "neighbourhood"]

# Commanded velocities push again at every substep, and resisting them takes more iterations.
ITERATIONS: dict[Dynamics, int] = {
    "cartesian-velocity": 40,
    "cartesian-acceleration": 12,
    "polar-velocity": 40,
    "polar-acceleration": 12,
}

# Two bodies count as touching when the gap between them is at most this, in m.
TOUCHING = 2e-3

# The iterations end when no overlap is deeper than this, in m: about the resolution of a float32 position ten metres
# from the origin after a few operations.
_SLACK = 1e-5

# Bodies in exactly one place, which no direction separates, are first moved by this, in m.
_NUDGE = 1e-4
_GOLDEN_ANGLE = 2.3999632

# From this overlap on, in m, a contact counts in full.
_SOFT = 2e-3

# A moving box stops where it would press deeper than this, in m, into an agent that cannot move away.
_CRUSH = 1e-3

# Two solids face each other, and pin an agent between them, where their normals have at most minus this product.
_FACING = 0.99

# Largest speed of an agent as a multiple of its own speed limit, even if it is squeezed.
_FASTEST = 2.0

# Iterations without acceleration: the first two solve single contacts without adding momentum, the last one settles.
_PLAIN_FIRST, _PLAIN_LAST = 2, 1

_Bodies = tuple[jax.Array, jax.Array, jax.Array]  # the coordinates of agents, and the push of boxes
_Carry = tuple[jax.Array, jax.Array, _Bodies, _Bodies]  # step, whether bodies overlap, now, before

# The spectral radius that Chebyshev's weights assume is 1 - this / iterations. The radius of a jam is nearer to 1, but
# stronger weights make a crowd that is pressed together chaotic: with 0.3 in place of 1.8 overlaps are half as deep
# and a nudge grows a thousandfold in one decision instead of tenfold.
_GENTLE = 1.8


@dataclasses.dataclass(frozen=True)
class Solver:
    """The static settings of contacts.

    Attributes:
      iterations: Largest number of iterations per substep; they end sooner where nothing overlaps.
      relaxation: Share of an overlap that a contact closes where many are shared; never more than all of it.
    """

    iterations: int = 12
    relaxation: float = 1.8

    def __post_init__(self) -> None:
        check_count("iterations", self.iterations)
        if not 0 < self.relaxation < 2:
            raise UserValueError(f"relaxation must be between 0 and 2, not {self.relaxation}.")

    @property
    def acceleration(self) -> np.ndarray:
        """Chebyshev weight of each iteration, `[iterations]`; 1 means no acceleration."""
        square = max(1 - _GENTLE / self.iterations, 0.0) ** 2
        weights = [1.0] * _PLAIN_FIRST
        while len(weights) < self.iterations - _PLAIN_LAST:
            weights.append(2 / (2 - square) if len(weights) == _PLAIN_FIRST else 4 / (4 - square * weights[-1]))
        return np.asarray((weights + [1.0] * _PLAIN_LAST)[: self.iterations], np.float32)


@struct.dataclass
class Neighbourhood:
    """The pairs of agents that may meet, prepared for many substeps.

    Attributes:
      index: Index of the other agent, int32 `[N, C]`; None where C = N and any two agents may meet.
      reach: Distance between centres at a touch, `[N, C]` m; 0 where there is no pair.
      share: Share of an overlap that the first agent takes, `[N, C]`: w_i / (w_i + w_j), w the inverse mass.
      overflow: Number of agents left out of the lists, int32 `[]`.
    """

    index: jax.Array | None
    reach: jax.Array
    share: jax.Array
    overflow: jax.Array


@struct.dataclass
class Contacts:
    """The contacts at the end of a substep.

    Attributes:
      count: Number of agents, boxes and pillars within `TOUCHING` of each agent, float32 `[N]`.
      overlap: Deepest overlap, `[]` m; 0 where nothing overlaps.
    """

    count: jax.Array
    overlap: jax.Array


def neighbourhood(traits: Traits, walking: jax.Array, lists: pairs.Candidates | None) -> Neighbourhood:
    """Prepare the pairs of agents for `move`.

    Args:
      traits: Radii and masses.
      walking: Agents that walk, bool `[N]`.
      lists: Lists from `pairs.candidates`, or None for all pairs without lists.

    Returns:
      The pairs; `reach` is 0 between two agents unless both walk.
    """
    if lists is None:
        other = lambda values: values[None]  # noqa: E731
        valid = ~jnp.eye(walking.shape[0], dtype=bool)
        index, overflow = None, jnp.int32(0)
    else:
        index, valid, overflow = lists.index, lists.valid, lists.overflow
        other = lambda values: values[lists.index]  # noqa: E731
    both = valid & walking[:, None] & other(walking)
    reach = jnp.where(both, traits.radius[:, None] + other(traits.radius), 0.0)
    mass = traits.mass
    return Neighbourhood(index=index, reach=reach, share=other(mass) / (mass[:, None] + other(mass)), overflow=overflow)


def without(near: Neighbourhood, walking: jax.Array) -> Neighbourhood:
    """The same pairs without those in which an agent no longer walks."""
    other = walking[None] if near.index is None else walking[near.index]
    return dataclasses.replace(near, reach=jnp.where(walking[:, None] & other, near.reach, 0.0))


def move(
    kind: Dynamics,
    walkers: Walkers,
    commanded: Walkers,
    traits: Traits,
    walking: jax.Array,
    obstacles: Obstacles,
    near: Neighbourhood,
    dt: jax.Array,
    solver: Solver,
) -> tuple[Walkers, Obstacles, Contacts]:
    """One substep: move along the commanded velocities, as far as bodies allow.

    A substep does not raise the kinetic energy of agents and boxes together (a box of infinite mass does work), and
    no agent exceeds twice its own speed limit. A box that agents cannot push keeps its velocity but waits rather than
    crush an agent; one that they can push slows down.

    Args:
      kind: Dynamics, static.
      walkers: Walkers before the substep.
      commanded: Walkers as returned by `dynamics.advance`.
      traits: Radii, masses and limits.
      walking: Agents that walk, bool `[N]`; the others neither move nor are in the way.
      obstacles: Boxes and pillars.
      near: Pairs of agents that may meet, from `neighbourhood`.
      dt: Length of the substep in s, traced.
      solver: Contact solver, static.

    Returns:
      Walkers and obstacles after the substep, and the contacts at its end.
    """
    start = walkers.position
    mass, inverse_box = traits.mass, 1.0 / obstacles.box_mass
    commanded_velocity = jnp.where(walking[:, None], commanded.velocity, 0.0)
    free = start + commanded_velocity * dt
    drive = _drive(start, traits.radius, walking, obstacles, dt)
    centre = obstacles.box_centre + drive * dt
    position, push = _separate(free, centre, traits, walking, obstacles, inverse_box, near, solver)

    # The change of the velocities, reduced so that it adds no energy.
    change = (position - free) / dt
    push = push / dt  # kg m/s that each box gave to the agents
    linear = jnp.sum(mass[:, None] * commanded_velocity * change) - jnp.sum(push * drive)
    square = jnp.sum(mass[:, None] * change * change) + jnp.sum(inverse_box[:, None] * push * push)
    part = jnp.clip(-2 * linear / jnp.maximum(square, 1e-12), 0.0, 1.0)
    fastest = _FASTEST * traits.max_speed
    velocity = _shorten(commanded_velocity + part * change, fastest)
    position = start + _shorten(position - start, fastest * dt)
    position = jnp.where(walking[:, None], position, start)

    count, deepest = _agents_touching(position, near)
    reached = dataclasses.replace(obstacles, box_centre=centre - inverse_box[:, None] * push * dt)
    deepest_of_all = _with_solids(count, deepest, position, traits.radius, walking, reached).overlap
    box_velocity = obstacles.box_velocity - part * inverse_box[:, None] * push
    can_slow = inverse_box > 0
    waits = (deepest_of_all > _CRUSH) & ~can_slow
    centre, held = _give_way(obstacles, reached.box_centre, position, traits.radius, walking, waits)
    box_velocity = jnp.where(can_slow[:, None], box_velocity * (1 - held[:, None]), box_velocity)
    obstacles = dataclasses.replace(obstacles, box_centre=centre, box_velocity=box_velocity)

    after = dynamics.settle(kind, commanded, velocity)
    after = dataclasses.replace(
        after,
        position=position,
        velocity=jnp.where(walking[:, None], after.velocity, 0.0),
        heading=jnp.where(walking, after.heading, walkers.heading),
        speed=jnp.where(walking, after.speed, 0.0),
    )
    return after, obstacles, _with_solids(count, deepest, position, traits.radius, walking, obstacles)


def contacts_of(
    position: jax.Array, radius: jax.Array, walking: jax.Array, obstacles: Obstacles, near: Neighbourhood
) -> Contacts:
    """The present contacts.

    Args:
      position: Positions, `[N, 2]` m.
      radius: Radii, `[N]` m.
      walking: Agents that walk, bool `[N]`.
      obstacles: Boxes and pillars.
      near: Pairs of agents that may meet.

    Returns:
      The contacts of the walking agents.
    """
    count, deepest = _agents_touching(position, near)
    return _with_solids(count, deepest, position, radius, walking, obstacles)


def _agents_touching(position: jax.Array, near: Neighbourhood) -> tuple[jax.Array, jax.Array]:
    """Number of agents that touch each, `[N]`, and the deepest overlap, `[]` m."""
    dx, dz = _apart(position[:, 0], near.index), _apart(position[:, 1], near.index)
    gap = jnp.sqrt(dx * dx + dz * dz) - near.reach
    exists = near.reach > 0
    count = jnp.sum((exists & (gap <= TOUCHING)).astype(jnp.float32), axis=1)
    return count, jnp.max(jnp.where(exists, -gap, 0.0), initial=0.0)


def _with_solids(
    count: jax.Array,
    deepest: jax.Array,
    position: jax.Array,
    radius: jax.Array,
    walking: jax.Array,
    obstacles: Obstacles,
) -> Contacts:
    """All contacts: those among agents, and those with boxes and pillars."""
    gap, _ = _solid_gaps(position, obstacles.box_centre, obstacles)
    gap = jnp.where(walking[:, None], gap - radius[:, None], 1.0)
    count += jnp.sum((gap <= TOUCHING).astype(jnp.float32), axis=1)
    return Contacts(count=count, overlap=jnp.maximum(deepest, jnp.max(-gap, initial=0.0)))


def _separate(
    free: jax.Array,
    centre: jax.Array,
    traits: Traits,
    walking: jax.Array,
    obstacles: Obstacles,
    inverse_box: jax.Array,
    near: Neighbourhood,
    solver: Solver,
) -> tuple[jax.Array, jax.Array]:
    """Separate bodies: positions `[N, 2]` m, and the push of each box on the agents, `[M, 2]` kg m."""
    free = _parted(free, near)
    weights = jnp.asarray(solver.acceleration)
    reach = near.reach
    radius = jnp.where(walking, traits.radius, -1e9)
    # The share of an overlap that a box takes: 0 where it is fixed.
    box_part = inverse_box[:, None] / (1.0 / traits.mass + inverse_box[:, None])  # [M, N]

    def iterate(carry: _Carry) -> _Carry:
        step, _, (x, z, push), (old_x, old_z, old_push) = carry
        dx, dz = _apart(x, near.index), _apart(z, near.index)
        square = dx * dx + dz * dz
        box_into, box_x, box_z = _into_boxes(x, z, radius, centre - inverse_box[:, None] * push, obstacles)
        pillar_into, pillar_x, pillar_z = _into_pillars(x, z, radius, obstacles)
        # Shallow overlaps are weighted continuously, so that forces do not jump.
        inverse = jax.lax.rsqrt(jnp.maximum(square, 1e-12))
        into = jnp.maximum(reach - square * inverse, 0.0)
        at_box, at_pillar = _counts(box_into), _counts(pillar_into)
        count = jnp.sum(_counts(into), axis=1) + jnp.sum(at_box, axis=0) + jnp.sum(at_pillar, axis=0)
        busy = jnp.max(count, initial=0.0) > _SLACK / _SOFT

        rate = _rate(solver, count)
        rate_of_both = jnp.minimum(rate[:, None], rate[None] if near.index is None else rate[near.index])
        pull = into * inverse * near.share * rate_of_both
        move_x, move_z = _sum_apart(pull, x, z, dx, dz, near.index)

        # A box that yields divides its own share among the agents that push it.
        crowd = jnp.sum(at_box * box_part, axis=1, keepdims=True)
        shift = box_into * (1.0 - box_part) * jnp.minimum(rate, _rate(solver, crowd))
        shift_x, shift_z = shift * box_x, shift * box_z
        transfer = jnp.stack([jnp.sum(traits.mass * shift_x, axis=1), jnp.sum(traits.mass * shift_z, axis=1)], axis=-1)
        shift = pillar_into * rate
        move_x += jnp.sum(shift_x, axis=0) + jnp.sum(shift * pillar_x, axis=0)
        move_z += jnp.sum(shift_z, axis=0) + jnp.sum(shift * pillar_z, axis=0)

        weight = weights[step]
        new_x = old_x + weight * (x + move_x - old_x)
        new_z = old_z + weight * (z + move_z - old_z)
        new_push = old_push + weight * (push + transfer - old_push)
        # Without an overlap the solution is complete, and the momentum of the acceleration is dropped.
        keep = lambda new, now: jnp.where(busy, new, now)  # noqa: E731
        return step + 1, busy, (keep(new_x, x), keep(new_z, z), keep(new_push, push)), (x, z, push)

    def unfinished(carry: _Carry) -> jax.Array:
        return (carry[0] < solver.iterations) & carry[1]

    first = (free[:, 0], free[:, 1], jnp.zeros_like(centre))
    _, _, (x, z, push), _ = jax.lax.while_loop(unfinished, iterate, (jnp.int32(0), jnp.bool_(True), first, first))
    return jnp.stack([x, z], axis=-1), push


def _counts(into: jax.Array) -> jax.Array:
    """Degree to which bodies overlap: 0 without an overlap, 1 from `_SOFT` on, rising in between."""
    return jnp.minimum(into * (1.0 / _SOFT), 1.0)


def _rate(solver: Solver, count: jax.Array) -> jax.Array:
    """Share of its overlap that a contact closes in one iteration, where the busier body has `count` contacts."""
    return jnp.minimum(solver.relaxation / jnp.maximum(count, 1.0), 1.0)


def _into_boxes(
    x: jax.Array, z: jax.Array, radius: jax.Array, centre: jax.Array, obstacles: Obstacles
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Depth of agents in boxes, m, and the two components of the way out; all `[M, N]`."""
    away_x, away_z = x - centre[:, :1], z - centre[:, 1:]
    beyond_x, beyond_z = jnp.abs(away_x) - obstacles.box_half[:, :1], jnp.abs(away_z) - obstacles.box_half[:, 1:]
    out_x, out_z = jnp.maximum(beyond_x, 0.0), jnp.maximum(beyond_z, 0.0)
    square = out_x * out_x + out_z * out_z
    outside, across = square > 0, beyond_x >= beyond_z
    inverse = jax.lax.rsqrt(jnp.maximum(square, 1e-24))
    gap = jnp.where(outside, square * inverse, jnp.maximum(beyond_x, beyond_z))
    normal_x = jnp.where(outside, out_x * inverse, jnp.where(across, 1.0, 0.0))
    normal_z = jnp.where(outside, out_z * inverse, jnp.where(across, 0.0, 1.0))
    into = jnp.maximum(radius - gap, 0.0)
    return into, jnp.where(away_x < 0, -normal_x, normal_x), jnp.where(away_z < 0, -normal_z, normal_z)


def _into_pillars(
    x: jax.Array, z: jax.Array, radius: jax.Array, obstacles: Obstacles
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Depth of agents in pillars, m, and the two components of the way out; all `[P, N]`."""
    away_x, away_z = x - obstacles.pillar_centre[:, :1], z - obstacles.pillar_centre[:, 1:]
    away_x = jnp.where((away_x == 0) & (away_z == 0), 1e-6, away_x)  # in the very centre any direction will do
    square = away_x * away_x + away_z * away_z
    inverse = jax.lax.rsqrt(jnp.maximum(square, 1e-12))
    into = jnp.maximum(radius + obstacles.pillar_radius[:, None] - square * inverse, 0.0)
    return into, away_x * inverse, away_z * inverse


def _parted(position: jax.Array, near: Neighbourhood) -> jax.Array:
    """The positions `[N, 2]` after bodies in exactly one place have moved by `_NUDGE`, each in its own direction."""
    dx, dz = _apart(position[:, 0], near.index), _apart(position[:, 1], near.index)
    alike = jnp.any((near.reach > 0) & (dx == 0) & (dz == 0), axis=1)
    angle = _GOLDEN_ANGLE * jnp.arange(position.shape[0], dtype=jnp.float32)
    way = jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=1)
    return jnp.where(alike[:, None], position + _NUDGE * way, position)


def _apart(values: jax.Array, index: jax.Array | None) -> jax.Array:
    """v_i - v_j for all pairs or all candidates, `[N, C]`."""
    return values[:, None] - (values[None] if index is None else values[index])


def _sum_apart(
    pull: jax.Array, x: jax.Array, z: jax.Array, dx: jax.Array, dz: jax.Array, index: jax.Array | None
) -> tuple[jax.Array, jax.Array]:
    """Sum over j of pull_ij (p_i - p_j); for all pairs as one matrix product, which is faster on a CPU."""
    if index is not None:
        return jnp.sum(pull * dx, axis=1), jnp.sum(pull * dz, axis=1)
    columns = jnp.stack([x, z, jnp.ones_like(x)], axis=1)
    summed = jnp.dot(pull, columns, precision=jax.lax.Precision.HIGHEST)
    return x * summed[:, 2] - summed[:, 0], z * summed[:, 2] - summed[:, 1]


def _solid_gaps(position: jax.Array, box_centre: jax.Array, obstacles: Obstacles) -> tuple[jax.Array, jax.Array]:
    """Distances `[N, M + P]` of agents' centres from boxes and pillars, and the normals `[N, M + P, 2]`."""
    here = position[:, None]
    box, box_normal = shapes.box_gap(here, box_centre[None], obstacles.box_half[None])
    pillar, pillar_normal = shapes.disc_gap(here, obstacles.pillar_centre[None], obstacles.pillar_radius[None])
    return jnp.concatenate([box, pillar], axis=1), jnp.concatenate([box_normal, pillar_normal], axis=1)


def _shorten(vector: jax.Array, longest: jax.Array) -> jax.Array:
    """Vectors `[N, 2]` at most `longest` `[N]` long."""
    length = jnp.sqrt(jnp.maximum(jnp.sum(vector * vector, axis=-1), 1e-24))
    return vector * jnp.minimum(1.0, longest / length)[:, None]


def _drive(
    position: jax.Array, radius: jax.Array, walking: jax.Array, obstacles: Obstacles, dt: jax.Array
) -> jax.Array:
    """Velocities of boxes in this substep, `[M, 2]` m/s; boxes that agents cannot push wait for squeezed agents.

    Such a box stands still where it touches an agent while any agent is squeezed into a body, and moves towards an
    agent between it and another solid only as far as there is room.
    """
    gap, normal = _solid_gaps(position, obstacles.box_centre, obstacles)
    into = jnp.where(walking[:, None], radius[:, None] - gap, -1.0)
    num_boxes = obstacles.box_mass.shape[0]
    towards = jnp.sum(normal[:, :num_boxes] * obstacles.box_velocity[None], axis=-1)
    touched = jnp.any((towards > 0) & (into[:, :num_boxes] > -TOUCHING), axis=0)
    waits = touched & (jnp.max(into, initial=-1.0) > _CRUSH)
    facing = jnp.sum(normal[:, :num_boxes, None] * normal[:, None], axis=-1) < -_FACING
    behind = jnp.min(jnp.where(facing, -into[:, None], jnp.inf), axis=-1, initial=jnp.inf)
    room = jnp.maximum(behind - into[:, :num_boxes] + _CRUSH, 0.0)
    share = jnp.where(towards > 0, room / jnp.maximum(towards * dt, 1e-9), 1.0)
    share = jnp.where(waits, 0.0, jnp.minimum(jnp.min(share, axis=0, initial=1.0), 1.0))
    return jnp.where(jnp.isinf(obstacles.box_mass)[:, None], share[:, None], 1.0) * obstacles.box_velocity


def _give_way(
    obstacles: Obstacles,
    centre: jax.Array,
    position: jax.Array,
    radius: jax.Array,
    walking: jax.Array,
    waits: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Hold moving boxes back from agents that they would crush.

    Args:
      obstacles: Obstacles before the substep.
      centre: Centres to which the boxes would move, `[M, 2]` m.
      position: Positions of the agents after the substep, `[N, 2]` m.
      radius, walking: Radii and agents that walk, `[N]`.
      waits: Boxes that do not move at all while an agent is in front of them, because agents are squeezed, bool `[M]`.

    Returns:
      The centres `[M, 2]` m, and the share of this substep's way that each box did not travel, `[M]` in [0, 1].
    """
    way = centre - obstacles.box_centre
    gap, normal = shapes.box_gap(position[:, None], centre[None], obstacles.box_half[None])
    into = jnp.where(walking[:, None], radius[:, None] - gap, -1.0)
    ahead = jnp.sum(normal * way[None], axis=-1)  # m of the way that goes into this agent
    squeezed = jnp.where((into > -TOUCHING) & waits, 1.0, 0.0)
    too_far = jnp.maximum(jnp.maximum(into - _CRUSH, 0.0) / jnp.maximum(ahead, 1e-9), squeezed)
    held = jnp.minimum(jnp.max(jnp.where(ahead > 0, too_far, 0.0), axis=0, initial=0.0), 1.0)
    return centre - held[:, None] * way, held
