"""Episodes of crowds, reduced to what is known of pedestrians: speeds by density, flows, lanes and free speeds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs.crowd import Crowd, CrowdParams, Trajectory, roll
from envs.crowd.pedestrians import door_flow, free_speed, lane_order, lane_order_by_chance
from envs.crowd.scenarios import Choke, Corridor
from envs.crowd.spawning import push_apart
from envs.crowd.state import Goals
from jaxrl.policies.crowds import crowd_like, for_any_number

if TYPE_CHECKING:
    from envs.crowd.state import CrowdState, Scene, Traits
    from envs.crowd.trajectories import Act
    from jaxrl.results.policy import TrainedPolicy

BINS, LARGEST = 12, 3.0  # bins of density up to this one, in 1/m^2
LANE = 0.6  # m, the width of a lane: three radii
NEAR = 2.0  # m, below which others are near
DECISIONS = {"circle": 200, "corridor": 200, "choke": 400}
_RADIUS = 1.5  # m, the distance up to which others count for the density around a person
_SQUARE_HALF = 2.0  # m, half the side of the square, as wide as the corridor, in which speeds are measured
_LANES_HALF = 4.0  # m, half the length of the corridor in which lanes are measured
_SETTLING = 36  # decisions, 3 s, before free speeds count: people start standing, and forces take 0.6 s to speed up
_DOOR_HALF = 1.0  # m, half the depth of a door
_ARENA = 9.75  # m, the inner face of the arena

__all__ = [
    "BINS",
    "DECISIONS",
    "LANE",
    "LARGEST",
    "NEAR",
    "Walks",
    "learned",
    "planned",
    "speeds_by_density",
    "to_the_door",
]


@struct.dataclass
class Numbers:
    """Numbers of a scene.

    Attributes:
      noise: Half the side, in m, of the square in which starts scatter.
      width: Width in m of the door, where there is one.
    """

    noise: Any = 0.3
    width: Any = 1.0


class _Scattered:
    """Starts that differ between episodes."""

    @property
    def default_params(self) -> Numbers:
        return Numbers()

    def place(self, key: jax.Array, params: Numbers, present: jax.Array, traits: Traits) -> Scene:
        scene = super().place(key, params, present, traits)  # pyright: ignore[reportAttributeAccessIssue]
        scene = self.opened(scene, params)
        moved = scene.position + params.noise * jax.random.uniform(key, scene.position.shape, minval=-1.0)
        position = push_apart(moved, traits.radius, present, scene.obstacles)
        return dataclasses.replace(scene, position=position)

    def opened(self, scene: Scene, params: Numbers) -> Scene:
        """The scene with a door of the width of the parameters."""
        del params
        return scene


@dataclasses.dataclass(frozen=True)
class ScatteredCorridor(_Scattered, Corridor):
    """`Corridor` with scattered starts."""

    name: ClassVar[str] = "scattered-corridor"


@dataclasses.dataclass(frozen=True)
class Door(_Scattered, Choke):
    """`Choke` with scattered starts and a door of any width."""

    name: ClassVar[str] = "door"

    def opened(self, scene: Scene, params: Numbers) -> Scene:
        edge, sides = params.width / 2, jnp.array([1.0, -1.0])
        things = dataclasses.replace(
            scene.obstacles,
            box_centre=scene.obstacles.box_centre.at[-2:, 1].set(sides * (_ARENA + edge) / 2),
            box_half=scene.obstacles.box_half.at[-2:, 1].set((_ARENA - edge) / 2),
        )
        return dataclasses.replace(scene, obstacles=things)


SCENES = {"circle": "circle", "corridor": ScatteredCorridor(), "choke": Door()}


class Walks:
    """Episodes of a policy in one of the `SCENES`, compiled once.

    Args:
      scene: Name of the scene, which decides on the measures.
      env: Crowd.
      act: Policy, for `envs.crowd.roll`.
      params: Parameters of the crowd.

    Attributes:
      interval: Time between two positions in s.
    """

    def __init__(self, scene: str, env: Crowd, act: Act, params: CrowdParams) -> None:
        measure = {"circle": _alone, "corridor": _in_counterflow, "choke": _through_door}[scene]
        steps = DECISIONS[scene]

        def measured(key: jax.Array, params: CrowdParams) -> dict[str, jax.Array]:
            return measure(roll(env, act, key, params, steps))

        self.params, self.interval = params, float(params.dt) * env.substeps
        self._measured = jax.jit(jax.vmap(measured, in_axes=(0, None)))

    def __call__(self, keys: jax.Array, num_present: int | None = None, **numbers: float) -> dict[str, np.ndarray]:
        """The measures of an episode for each key, `[episodes, ...]`.

        Args:
          keys: Random keys, `[episodes]`.
          num_present: Number of people; None for all.
          **numbers: Numbers of the scene.
        """
        params = self.params
        if num_present is not None:
            params = dataclasses.replace(params, num_present=num_present)
        if numbers:
            params = dataclasses.replace(params, scenario=dataclasses.replace(params.scenario, **numbers))
        return {name: np.asarray(values, np.float64) for name, values in self._measured(keys, params).items()}


def planned(scene: str, planner: Callable[[Crowd], Act], dynamics: str, num_agents: int) -> Walks:
    """A planner in a scene.

    Planners walk straight on where a wall is in the way; here they go to the door first.
    """
    env = Crowd(SCENES[scene], num_agents=num_agents, dynamics=dynamics)  # pyright: ignore[reportArgumentType]
    act = planner(env)
    return Walks(scene, env, to_the_door(act) if scene == "choke" else act, env.default_params)


def learned(scene: str, policy: TrainedPolicy, num_agents: int) -> Walks:
    """A learned policy in a scene, with greedy actions."""
    env, params = crowd_like(policy, SCENES[scene], num_agents)
    crowd = for_any_number(policy)
    return Walks(scene, env, lambda key, obs, state: crowd.act(obs, None)[0], params)


def to_the_door(act: Act) -> Act:
    """The policy with the door as everybody's goal up to the door."""

    def led(key: jax.Array, obs: Any, state: CrowdState) -> jax.Array:
        walls, goals = state.obstacles, state.goals
        edge = walls.box_centre[-2, 1] - walls.box_half[-2, 1]
        before = (state.walkers.position[:, 0] < -_DOOR_HALF)[:, None]
        room = jnp.maximum(edge - state.traits.radius, 0.0)
        opening = jnp.stack([jnp.zeros_like(room), room], axis=-1)
        goals = Goals(
            centre=jnp.where(before, jnp.array([-_DOOR_HALF, 0.0]), goals.centre),
            half=jnp.where(before, opening, goals.half),
        )
        return act(key, obs, dataclasses.replace(state, goals=goals))

    return led


def _in_counterflow(track: Trajectory) -> dict[str, jax.Array]:
    """Speeds by density in the middle of the corridor, and the order of lanes while both groups are there."""
    forwards = jnp.arange(track.position.shape[1]) % 2 == 0
    step = (track.position[1:, :, 0] - track.position[:-1, :, 0]) / track.interval
    walks = track.walking[1:] & track.walking[:-1]
    speed, moments = speeds_by_density(track.position[1:], jnp.where(forwards, step, -step), walks)
    middle = track.walking & (jnp.abs(track.position[..., 0]) < _LANES_HALF)
    both = jnp.any(middle & forwards, axis=-1) & jnp.any(middle & ~forwards, axis=-1)
    lanes = {"order": lane_order, "order_by_chance": lane_order_by_chance}
    return {
        "speed": speed,
        "moments": moments,
        **{
            name: jnp.where(both, order(track.position, middle, forwards, LANE), jnp.nan)
            for name, order in lanes.items()
        },
    }


def speeds_by_density(position: jax.Array, ahead: jax.Array, walking: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The mean speed of people in the middle of the corridor by the density around each of them.

    The density is the number of other people within 1.5 m over the part of that disc between the walls. The person
    does not count, so that the density is unbiased where people are spread at random.

    Args:
      position: Positions, `[T, N, 2]` m.
      ahead: Velocities in the direction of each person's goal, `[T, N]` m/s.
      walking: Agents that walk, bool `[T, N]`.

    Returns:
      Mean speeds `[BINS]` m/s, nan where a density does not occur, and the numbers of times a person had that density,
      `[BINS]`. The last bin also takes all larger densities.
    """
    counts = walking & jnp.all(jnp.abs(position) < _SQUARE_HALF, axis=-1)

    def around(now: tuple[jax.Array, jax.Array]) -> jax.Array:
        place, here = now
        apart = place[:, None] - place[None]
        return jnp.sum((jnp.sum(apart * apart, axis=-1) <= _RADIUS**2) & here[None], axis=-1) - 1

    others = jax.lax.map(around, (position, walking))
    to_walls = jnp.clip(jnp.stack([_SQUARE_HALF - position[..., 1], _SQUARE_HALF + position[..., 1]]), 0.0, _RADIUS)
    beyond = _RADIUS**2 * jnp.arccos(to_walls / _RADIUS) - to_walls * jnp.sqrt(_RADIUS**2 - to_walls**2)
    density = others / (jnp.pi * _RADIUS**2 - jnp.sum(beyond, axis=0))
    place = jnp.clip((density / LARGEST * BINS).astype(jnp.int32), 0, BINS - 1)
    moments = jnp.zeros(BINS).at[place].add(counts)
    total = jnp.zeros(BINS).at[place].add(jnp.where(counts, ahead, 0.0))
    return jnp.where(moments > 0, total / jnp.maximum(moments, 1), jnp.nan), moments


def _through_door(track: Trajectory) -> dict[str, jax.Array]:
    through = track.present & (track.position[-1, :, 0] > _DOOR_HALF)
    some_left = jnp.any(track.present & ~through)
    flow = door_flow(
        track.position,
        track.walking,
        (_DOOR_HALF, _ARENA),
        (_DOOR_HALF, -_ARENA),
        track.interval,
        to_end=some_left,
    )
    return {"flow": flow, "passed": jnp.sum(through) / jnp.sum(track.present)}


def _alone(track: Trajectory) -> dict[str, jax.Array]:
    return {"free_speed": free_speed(track.position[_SETTLING:], track.walking[_SETTLING:], NEAR, track.interval)}
