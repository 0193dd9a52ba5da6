"""From a wanted velocity to an action: how policies that plan velocities steer any of the dynamics."""

import dataclasses

import jax
import jax.numpy as jnp

from envs.crowd import shapes
from envs.crowd.crowd import Crowd
from envs.crowd.dynamics import direction, wrap
from envs.crowd.params import CrowdParams
from envs.crowd.state import CrowdState

__all__ = ["Straight", "preferred", "steer"]

# The squashing reaches 1 only at infinity; wanted controls end here.
_FULL = 1 - 1e-4

# m/s; who wants to go slower than this keeps the heading.
_SLOW = 1e-3


def preferred(state: CrowdState) -> jax.Array:
    """The velocity `[N, 2]` m/s at the preferred speed, straight to the nearest point of the own goal."""
    away = shapes.box_point(state.walkers.position, state.goals.centre, state.goals.half) - state.walkers.position
    distance = jnp.sqrt(jnp.maximum(jnp.sum(away * away, axis=-1, keepdims=True), 1e-12))
    speed = jnp.minimum(state.traits.preferred_speed, state.traits.max_speed)
    return speed[:, None] * away / distance


def steer(env: Crowd, params: CrowdParams, state: CrowdState, velocity: jax.Array) -> jax.Array:
    """The actions that bring everybody as near to a velocity as one decision can.

    Polar walkers turn towards it, as fast as they may, and while they do are only as fast as it is along the new
    heading. Accelerated walkers choose the push after which they have it at the end of the decision.

    Args:
      env: static; its dynamics and substeps.
      params: its turn rate and time step.
      state: now.
      velocity: `[N, 2]` m/s.

    Returns:
      Actions `[N, 2]`, of which `dynamics.squash` makes the controls.
    """
    walkers, traits = state.walkers, state.traits
    top = traits.max_speed
    kept = (1 - traits.max_acceleration / top * params.dt) ** env.substeps  # of a velocity, after one decision
    if env.dynamics.startswith("cartesian"):
        if env.dynamics == "cartesian-velocity":
            control = velocity / top[:, None]
        else:
            control = (velocity - kept[:, None] * walkers.velocity) / (top * (1 - kept))[:, None]
        size = jnp.sqrt(jnp.maximum(jnp.sum(control * control, axis=-1, keepdims=True), 1e-12))
        return control / size * jnp.arctanh(jnp.minimum(size, _FULL))
    speed = jnp.sqrt(jnp.maximum(jnp.sum(velocity * velocity, axis=-1), 1e-12))
    wanted = jnp.arctan2(velocity[:, 1], velocity[:, 0])
    most = params.turn_rate * env.substeps
    turn = jnp.where(speed > _SLOW, jnp.clip(wrap(wanted - walkers.heading), -most, most), 0.0)
    along = jnp.maximum(jnp.sum(velocity * direction(walkers.heading + turn), axis=-1), 0.0)
    at_once = along / top
    pushed = (along - kept * walkers.speed) / (top * (1 - kept))
    forward = at_once if env.dynamics == "polar-velocity" else pushed
    control = jnp.stack([turn / most, forward], axis=-1)
    return jnp.arctanh(jnp.clip(control, -_FULL, _FULL))


@dataclasses.dataclass(frozen=True)
class Straight:
    """Walks straight to the goal at the preferred speed, whoever is in the way: the floor for every policy.

    Attributes:
      env: the crowd that it steers.
      params: its turn rate and time step; None for the environment's default ones.
    """

    env: Crowd
    params: CrowdParams | None = None

    def __call__(self, key: jax.Array, obs: object, state: CrowdState) -> jax.Array:
        """Actions `[N, 2]`, for `envs.crowd.roll`."""
        del key, obs
        return steer(self.env, self.params or self.env.default_params, state, preferred(state))
