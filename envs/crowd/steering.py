"""Steering: actions for target velocities under any of the dynamics, for policies that plan velocities."""

import dataclasses

import jax
import jax.numpy as jnp

from envs.crowd import shapes
from envs.crowd.crowd import Crowd
from envs.crowd.dynamics import direction, wrap
from envs.crowd.params import CrowdParams
from envs.crowd.state import CrowdState

__all__ = ["Straight", "preferred", "steer"]

# Largest target control, because the squashing reaches 1 only at infinity.
_FULL = 1 - 1e-4

# Speed in m/s; an agent whose target speed is lower keeps its heading.
_SLOW = 1e-3


def preferred(state: CrowdState) -> jax.Array:
    """The velocity `[N, 2]` m/s at the preferred speed, straight to the nearest point of the agent's own goal."""
    away = shapes.box_point(state.walkers.position, state.goals.centre, state.goals.half) - state.walkers.position
    distance = jnp.sqrt(jnp.maximum(jnp.sum(away * away, axis=-1, keepdims=True), 1e-12))
    speed = jnp.minimum(state.traits.preferred_speed, state.traits.max_speed)
    return speed[:, None] * away / distance


def steer(env: Crowd, params: CrowdParams, state: CrowdState, velocity: jax.Array) -> jax.Array:
    """The actions that bring each agent as near to a velocity as one decision can.

    Polar walkers turn towards it at up to their turn rate, and meanwhile move at its component along the new
    heading. Accelerated walkers choose the push with which they reach it at the end of the decision.

    Args:
      env: Crowd with its dynamics and substeps, static.
      params: Parameters with the turn rate and time step.
      state: Present state.
      velocity: Target velocities, `[N, 2]` m/s.

    Returns:
      Actions `[N, 2]`, which `dynamics.squash` turns into controls.
    """
    walkers, traits = state.walkers, state.traits
    top = traits.max_speed
    kept = (1 - traits.max_acceleration / top * params.dt) ** env.substeps  # share of a velocity kept over a decision
    if env.dynamics.startswith("cartesian"):
        if env.dynamics == "cartesian-velocity":
            control = velocity / top[:, None]
        else:
            control = (velocity - kept[:, None] * walkers.velocity) / (top * (1 - kept))[:, None]
        size = jnp.sqrt(jnp.maximum(jnp.sum(control * control, axis=-1, keepdims=True), 1e-12))
        return control / size * jnp.arctanh(jnp.minimum(size, _FULL))
    speed = jnp.sqrt(jnp.maximum(jnp.sum(velocity * velocity, axis=-1), 1e-12))
    target = jnp.arctan2(velocity[:, 1], velocity[:, 0])
    most = params.turn_rate * env.substeps
    turn = jnp.where(speed > _SLOW, jnp.clip(wrap(target - walkers.heading), -most, most), 0.0)
    along = jnp.maximum(jnp.sum(velocity * direction(walkers.heading + turn), axis=-1), 0.0)
    at_once = along / top
    pushed = (along - kept * walkers.speed) / (top * (1 - kept))
    forward = at_once if env.dynamics == "polar-velocity" else pushed
    control = jnp.stack([turn / most, forward], axis=-1)
    return jnp.arctanh(jnp.clip(control, -_FULL, _FULL))


@dataclasses.dataclass(frozen=True)
class Straight:
    """A policy that walks straight to the goal at the preferred speed, regardless of others: the simplest baseline.

    Attributes:
      env: Crowd that it steers.
      params: Parameters with the turn rate and time step; None for the environment's default ones.
    """

    env: Crowd
    params: CrowdParams | None = None

    def __call__(self, key: jax.Array, obs: object, state: CrowdState) -> jax.Array:
        """Actions `[N, 2]`, for `envs.crowd.roll`."""
        del key, obs
        return steer(self.env, self.params or self.env.default_params, state, preferred(state))
