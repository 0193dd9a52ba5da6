"""An endless linear task that a time limit cuts every few steps, whose values are known in closed form."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs.base import Environment, EnvParams, EnvState, spaces

DECAY, PUSH = 0.8, 0.2


@struct.dataclass
class LinearParams(EnvParams):
    """The time limit."""

    max_steps_in_episode: jax.Array | int = 5


@struct.dataclass
class LinearState(EnvState):
    """The number of steps and the place, float32 `[]`."""

    time: jax.Array
    place: jax.Array


@dataclass(frozen=True)
class LinearTask(Environment):
    """The reward is the place x, which becomes 0.8 x + 0.2 u; u is the mean of two actions from -1 to 3, less 1, by 2.

    The observation is the place and the remaining share of the time limit, which is 1 again at the limit, so that the
    observation after a limit is one that can also follow a reset. The best u is always 1.

    Attributes:
      discrete: Whether there are two actions, u = -1 and u = 1, in place of a Box.
      edge: Places beyond which the episode terminates.
    """

    discrete: bool = False
    edge: float = 10.0

    @property
    def default_params(self) -> LinearParams:
        return LinearParams()

    def reset_env(self, key: jax.Array, params: LinearParams) -> tuple[jax.Array, LinearState]:
        place = jax.random.uniform(key, (), minval=-1.0, maxval=1.0)
        state = LinearState(jnp.zeros((), jnp.int32), place)
        return self._observe(state, params), state

    def step_env(
        self, key: jax.Array, state: LinearState, action: jax.Array, params: LinearParams
    ) -> tuple[jax.Array, LinearState, jax.Array, jax.Array, dict[Any, Any]]:
        del key
        push = 2.0 * action - 1.0 if self.discrete else (jnp.mean(action) - 1.0) / 2.0
        after = LinearState(state.time + 1, DECAY * state.place + PUSH * push)
        return self._observe(after, params), after, state.place, jnp.abs(after.place) > self.edge, {}

    def action_space(self, params: LinearParams | None = None) -> spaces.Discrete | spaces.Box:
        del params
        return spaces.Discrete(2) if self.discrete else spaces.Box(-1.0, 3.0, (2,), jnp.float32)

    def observation_space(self, params: LinearParams | None = None) -> spaces.Box:
        del params
        return spaces.Box(-1.0, 1.0, (2,), jnp.float32)

    def _observe(self, state: LinearState, params: LinearParams) -> jax.Array:
        left = 1.0 - (state.time % params.max_steps_in_episode) / params.max_steps_in_episode
        return jnp.stack([state.place, left.astype(jnp.float32)])


def action_values(obs: np.ndarray, next_place: np.ndarray, rate: float, limit: int | None = None) -> np.ndarray:
    """Values of actions followed by the best ones, under one rate.

    The best place after t steps from x is 1 + 0.8^t (x - 1), and so the sum over t of rate^t times it is geometric.

    Args:
      obs: Observations before the actions, `[B, 2]`.
      next_place: Places after them, `[B]`.
      rate: Rate of the discount, below 1.
      limit: Time limit at which the value is 0; None for the endless task.
    """
    steps = np.inf if limit is None else np.rint(obs[:, 1] * limit) - 1  # those that follow
    of_one = (1 - rate**steps) / (1 - rate)
    of_rest = (1 - (rate * DECAY) ** steps) / (1 - rate * DECAY)
    return obs[:, 0] + rate * (of_one + (next_place - 1) * of_rest)
