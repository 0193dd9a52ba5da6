"""Walkers of a crowd of one type: the side on which they evade, their patience and their pace."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs.base import spaces
from envs.cooperation.partners import Partner, check_parts
from envs.crowd import steering
from envs.crowd.state import CrowdState
from envs.pytrees import Memory, Observation, Params

SIDES = ("left", "right")

# Widest angle in rad by which a walker evades, and the distance in m to the centre of another at which it begins.
WIDEST, REACH = np.pi / 3, 3.0

__all__ = ["REACH", "SIDES", "WIDEST", "Manner", "MannerRule", "evading"]


@struct.dataclass
class Manner:
    """The behaviour vector of a walker, traced; leaves `[]`, or `[P]` for a population.

    Attributes:
      side: Side on which it evades, 0 for left and 1 for right, int32.
      patience: Share of its speed that it gives up in front of another, float32 in [0, 1].
      pace: Speed without others, as a multiple of the preferred speed, float32 in [0.5, 1.5].
    """

    side: Any
    patience: Any
    pace: Any


_BOUNDS = {"side": (0, 1), "patience": (0, 1), "pace": (0.5, 1.5)}


@dataclass(frozen=True)
class MannerRule(Partner):
    """Walkers that head for their goals and evade the nearest person in front of them, all of one type.

    The default population has both sides, patience 0, 0.5 and 1, and pace 0.7, 1 and 1.3.
    """

    def population(self, task: Any) -> Manner:
        """Every side with every patience and pace, `[18]`."""
        del task
        side, patience, pace = np.meshgrid([0, 1], [0.0, 0.5, 1.0], [0.7, 1.0, 1.3], indexing="ij")
        return Manner(np.int32(side.ravel()), np.float32(patience.ravel()), np.float32(pace.ravel()))

    def act(
        self,
        key: jax.Array,
        task: Any,
        state: CrowdState,
        obs: Observation,
        member: Manner,
        memory: Memory,
        params: Params,
    ) -> tuple[jax.Array, Any]:
        """Actions of all people `[N, 2]`; the task replaces that of the agent."""
        del key, obs
        return steering.steer(task.crowd, params, state, evading(state, member)), memory

    def behaviour_space(self, task: Any) -> spaces.Tuple:
        """The side, and patience and pace."""
        del task
        low, high = np.array([_BOUNDS[name] for name in ("patience", "pace")], np.float32).T  # read while tracing
        return spaces.Tuple((spaces.Discrete(len(SIDES)), spaces.Box(low, high, (2,), jnp.float32)))

    def behaviour(self, member: Manner) -> tuple[jax.Array, ...]:
        """The side, and patience and pace `[2]`."""
        return member.side, jnp.stack([member.patience, member.pace])

    def check(self, task: Any, population: Manner) -> None:
        """Reject a side other than 0 and 1, a patience outside [0, 1] and a pace outside [0.5, 1.5]."""
        del task
        check_parts(population, _BOUNDS, ("side",))


def evading(state: CrowdState, manner: Manner) -> jax.Array:
    """The velocities of walkers of this type.

    A walker whose nearest neighbour in front, within 90 degrees of the way to its goal, has its centre at a distance d
    of less than `REACH` turns its velocity to its side by `WIDEST` (1 - d / REACH), and multiplies it by
    1 - patience (1 - d / REACH).

    Args:
      state: State of the crowd.
      manner: Manners of all walkers, leaves `[]`.

    Returns:
      Velocities `[N, 2]` m/s.
    """
    ahead = manner.pace * steering.preferred(state)
    position = state.walkers.position
    away = position[None] - position[:, None]
    in_front = jnp.einsum("ijk,ik->ij", away, ahead) > 0
    in_front &= state.walking[None] & ~jnp.eye(len(position), dtype=bool)
    distance = jnp.sqrt(jnp.min(jnp.where(in_front, jnp.sum(away**2, axis=-1), REACH**2), axis=1))
    near = jnp.maximum(1.0 - distance / REACH, 0.0)
    angle = near * WIDEST * jnp.where(manner.side == 0, 1.0, -1.0)
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    turned = jnp.stack([cos * ahead[:, 0] - sin * ahead[:, 1], sin * ahead[:, 0] + cos * ahead[:, 1]], axis=-1)
    return (1.0 - manner.patience * near)[:, None] * turned
