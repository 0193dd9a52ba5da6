"""MountainCarContinuous: rock a weak car out of a valley, paying for the effort."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs import base
from envs.arguments import check_positive
from envs.base import spaces
from envs.control.trigonometry import sin_cos
from envs.threefry import unrolled


@struct.dataclass
class MountainCarContinuousState(base.EnvState):
    """Position along the valley (its floor is at -pi / 6) and its change in a step."""

    time: jax.Array
    position: jax.Array
    velocity: jax.Array


@struct.dataclass
class MountainCarContinuousParams(base.EnvParams):
    """Constants per step; the height of the road is sin(3 position).

    Attributes:
      gravity: Acceleration due to gravity on the steepest slope, per step.
      power: Acceleration due to the engine at full action, per step.
      min_position: Left end of the road.
      max_position: Right end of the road.
      max_speed: Largest speed, per step.
      goal_position: Position of the goal.
      goal_velocity: Smallest velocity at the goal, per step.
      goal_reward: Reward of reaching the goal.
      action_cost: Cost of the squared action, per step.
      max_steps_in_episode: Time limit, in steps.
    """

    gravity: float = 0.0025
    power: float = 0.0015
    min_position: float = -1.2
    max_position: float = 0.6
    max_speed: float = 0.07
    goal_position: float = 0.45
    goal_velocity: float = 0.0
    goal_reward: float = 100.0
    action_cost: float = 0.1
    max_steps_in_episode: int = 999


@dataclass(frozen=True)
class MountainCarContinuous(base.Environment):
    """MountainCarContinuous-v0: 100 at the goal, less a tenth of the squared action at every step.

    Source: dynamics, reward and reset of Gymnasium's MountainCarContinuous-v0.
    """

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "mountain-car-continuous"

    @property
    def default_params(self) -> MountainCarContinuousParams:
        """The constants of MountainCarContinuous-v0."""
        return MountainCarContinuousParams()

    def check_params(self, params: MountainCarContinuousParams) -> None:
        """Reject a speed limit that is not above 0."""
        check_positive(params, "max_speed")

    def reset_env(
        self, key: jax.Array, params: MountainCarContinuousParams
    ) -> tuple[jax.Array, MountainCarContinuousState]:
        """The first observation `[2]` and state: at rest, position uniform in [-0.6, -0.4]."""
        del params
        position = jax.random.uniform(unrolled(key), (), minval=-0.6, maxval=-0.4)
        state = MountainCarContinuousState(jnp.zeros((), jnp.int32), position, jnp.zeros((), jnp.float32))
        return _observe(state), state

    def step_env(
        self, key: jax.Array, state: MountainCarContinuousState, action: jax.Array, params: MountainCarContinuousParams
    ) -> tuple[jax.Array, MountainCarContinuousState, jax.Array, jax.Array, dict[Any, Any]]:
        """One step under the push `action[0]`, clipped to [-1, 1]; the cost is that of the unclipped action."""
        del key
        push = jnp.clip(action[0], -1.0, 1.0)
        velocity = state.velocity + push * params.power - sin_cos(3 * state.position)[1] * params.gravity
        velocity = jnp.clip(velocity, -params.max_speed, params.max_speed)
        position = jnp.clip(state.position + velocity, params.min_position, params.max_position)
        velocity = jnp.where((position <= params.min_position) & (velocity < 0), 0.0, velocity)
        terminated = (position >= params.goal_position) & (velocity >= params.goal_velocity)
        reward = jnp.where(terminated, params.goal_reward, 0.0) - params.action_cost * action[0] * action[0]
        state = MountainCarContinuousState(state.time + 1, position, velocity)
        return _observe(state), state, reward, terminated, {}

    def return_range(self, params: MountainCarContinuousParams) -> tuple[Any, Any]:
        """From the largest push in every step to the reward of the goal, or to no push."""
        limit, cost, goal = (
            np.asarray(number, np.float64)
            for number in (params.max_steps_in_episode, params.action_cost, params.goal_reward)
        )
        most = limit * np.abs(cost)
        return -most + np.minimum(goal, 0.0), most * (cost < 0) + np.maximum(goal, 0.0)

    def action_space(self, params: MountainCarContinuousParams | None = None) -> spaces.Box:
        """The push, `[1]`."""
        del params
        return spaces.Box(-1.0, 1.0, (1,), jnp.float32)

    def observation_space(self, params: MountainCarContinuousParams) -> spaces.Box:
        """Position and velocity."""
        low = jnp.array([params.min_position, -params.max_speed], jnp.float32)
        high = jnp.array([params.max_position, params.max_speed], jnp.float32)
        return spaces.Box(low, high, (2,), jnp.float32)


def _observe(state: MountainCarContinuousState) -> jax.Array:
    return jnp.stack([state.position, state.velocity])
