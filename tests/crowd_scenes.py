"""Crowds for tests: a jam at a door, walkers at given places, and their actions."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from envs.crowd import dynamics
from envs.crowd.simulation import Physics, simulate
from envs.crowd.state import Goals, Obstacles, Traits, Walkers


class Preset(NamedTuple):
    """The mechanics under the settings of the two papers."""

    max_speed: float
    turn_rate: float
    dt: float
    backwards: bool


PRESETS = {"2022": Preset(2.0, np.pi / 180, 1 / 120, False), "2023": Preset(4.0, np.pi / 60, 0.01, True)}

_ARENA = [(0, 10.25, 10.5, 0.5), (0, -10.25, 10.5, 0.5), (10.25, 0, 0.5, 10.5), (-10.25, 0, 0.5, 10.5)]


def obstacles(boxes=(), pillars=(), velocity=(), mass=()) -> Obstacles:
    """Boxes (x, z, half x, half z) and pillars (x, z, radius); fixed by default."""
    box = jnp.asarray(boxes, jnp.float32).reshape(-1, 4)
    pillar = jnp.asarray(pillars, jnp.float32).reshape(-1, 3)
    return Obstacles(
        box_centre=box[:, :2],
        box_half=box[:, 2:],
        box_velocity=jnp.asarray(velocity, jnp.float32).reshape(-1, 2) if len(velocity) else jnp.zeros_like(box[:, :2]),
        box_mass=jnp.asarray(mass, jnp.float32) if len(mass) else jnp.full(len(box), jnp.inf),
        pillar_centre=pillar[:, :2],
        pillar_radius=pillar[:, 2],
    )


def door() -> Obstacles:
    """A wall two metres thick with a door one metre wide, inside four walls."""
    return obstacles([(0, 5.125, 1, 4.625), (0, -5.125, 1, 4.625), *_ARENA])


def car(mass: float) -> Obstacles:
    """A car that drives at 1 m/s towards a wall, inside four walls."""
    boxes = [*_ARENA, (0, -7, 1, 4.95)]
    return obstacles(boxes, velocity=[(0, 0)] * 4 + [(0, 1)], mass=[np.inf] * 4 + [mass])


def walkers(position, heading=None, velocity=None) -> Walkers:
    """Walkers at places, standing unless they have a velocity."""
    position = jnp.asarray(position, jnp.float32)
    zero = jnp.zeros(position.shape[0])
    velocity = jnp.zeros_like(position) if velocity is None else jnp.asarray(velocity, jnp.float32)
    return Walkers(
        position=position,
        velocity=velocity,
        heading=zero if heading is None else jnp.asarray(heading, jnp.float32),
        speed=jnp.linalg.norm(velocity, axis=-1),
    )


def grid(num_agents: int, half: float = 1.5, centre: float = -7.5) -> Walkers:
    """Walkers on a square grid, as people are spawned."""
    side = np.linspace(-half, half, int(np.ceil(np.sqrt(num_agents))))
    return walkers(np.stack(np.meshgrid(side + centre, side), -1).reshape(-1, 2)[:num_agents])


def traits(num_agents: int, max_speed: float = 2.0, radius: float = 0.2, mass: float = 1.0) -> Traits:
    """The same traits for all."""
    one = jnp.ones(num_agents)
    return Traits(
        radius=radius * one,
        mass=mass * one,
        size_mass=one,
        resting=2.23 * one,
        walking=1.26 * one,
        max_speed=max_speed * one,
        max_acceleration=5 * one,
    )


def nowhere(num_agents: int) -> Goals:
    """Goals out of reach."""
    return Goals(centre=jnp.full((num_agents, 2), 1e3), half=jnp.full((num_agents, 2), 0.375))


def steer(kind, now: Walkers, target, turn_rate: float, substeps: int = 10) -> jax.Array:
    """Full throttle towards a target `[N, 2]`."""
    away = target - now.position
    angle = jnp.arctan2(away[:, 1], away[:, 0])
    if kind.startswith("cartesian"):
        return dynamics.direction(angle)
    turn = jnp.clip(dynamics.wrap(angle - now.heading) / (substeps * turn_rate), -1, 1)
    return jnp.stack([turn, jnp.ones_like(turn)], axis=-1)


def through_the_door(position: jax.Array) -> jax.Array:
    """The next targets on the way through the door, `[N, 2]`."""
    x = position[:, :1]
    inside = jnp.concatenate([x + 5, jnp.zeros_like(x)], axis=-1)
    target = jnp.where(x < -1.2, jnp.array([-0.9, 0.0]), jnp.array([12.0, 0.0]))
    return jnp.where((x >= -1.2) & (x < 1.3), inside, target)


def in_front_of_the_car(position: jax.Array) -> jax.Array:
    """Places at which the car will press people against the wall."""
    return jnp.broadcast_to(jnp.array([0.0, 8.0]), position.shape)


class Substeps(NamedTuple):
    """Measures of every substep of a jam, `[decisions * 10]`: NumPy."""

    overlap: Any
    energy_gain: Any
    speed: Any
    way: Any
    position: Any
    box_centre: Any


@functools.partial(jax.jit, static_argnames=("kind", "backwards", "target", "decisions"))
def _press(kind, backwards, target, decisions, now, solids, who, turn_rate, dt):
    physics = Physics(kind, substeps=1, backwards=backwards)
    num_agents = now.position.shape[0]
    goals, walking = nowhere(num_agents), jnp.ones(num_agents, bool)
    box_mass = jnp.where(jnp.isfinite(solids.box_mass), solids.box_mass, 0.0)[:, None]

    def decide(carry, _):
        control = steer(kind, carry[0], target(carry[0].position), turn_rate)

        def substep(carry, _):
            now, solids = carry
            wants = dynamics.advance(kind, now, control, who, turn_rate, dt, backwards)
            result = simulate(physics, now, control, who, walking, goals, solids, turn_rate, dt)
            after, box, old_box = result.walkers, result.obstacles.box_velocity, solids.box_velocity
            gain = 0.5 * jnp.sum(who.mass[:, None] * (after.velocity**2 - wants.velocity**2))
            gain += 0.5 * jnp.sum(box_mass * (box - old_box) * (box + old_box))
            length = lambda vector: jnp.max(jnp.linalg.norm(vector, axis=-1) / who.max_speed)  # noqa: E731
            seen = Substeps(
                overlap=result.deepest,
                energy_gain=gain,
                speed=length(after.velocity),
                way=length((after.position - now.position) / dt),
                position=after.position,
                box_centre=result.obstacles.box_centre,
            )
            return (after, result.obstacles), seen

        return jax.lax.scan(substep, carry, None, length=10)

    return jax.lax.scan(decide, (now, solids), None, length=decisions)[1]


def press(kind, preset: str, solids: Obstacles, target, decisions: int, num_agents: int = 50) -> Substeps:
    """All walkers at full throttle to one place, with measures of each substep.

    `energy_gain` is the kinetic energy, in J, that contacts added in a substep to agents and boxes of finite mass;
    `speed` and `way` are the fastest agent's, by velocity and by way per time, in speed limits.
    """
    settings = PRESETS[preset]
    seen = _press(
        kind,
        settings.backwards,
        target,
        decisions,
        grid(num_agents),
        solids,
        traits(num_agents, settings.max_speed),
        settings.turn_rate,
        settings.dt,
    )
    return Substeps(*(np.asarray(leaf).reshape(-1, *leaf.shape[2:]) for leaf in seen))


def overlaps(position: np.ndarray, radius: float, solids: Obstacles, box_centre: np.ndarray) -> float:
    """The deepest overlap in m of discs of one radius, in float64, written independently of the library."""
    position = np.asarray(position, np.float64)
    distance = np.linalg.norm(position[:, None] - position[None], axis=-1) + 1e9 * np.eye(len(position))
    deepest = 2 * radius - distance.min()
    for centre, half in zip(np.asarray(box_centre, np.float64), np.asarray(solids.box_half, np.float64), strict=True):
        beyond = np.abs(position - centre) - half
        outside = np.hypot(*np.maximum(beyond, 0).T)
        signed = np.where(outside > 0, outside, beyond.max(axis=1))
        deepest = max(deepest, radius - signed.min())
    return deepest
