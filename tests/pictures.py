"""An environment whose images all differ, with random terminations and a time limit, for one agent or a crowd."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from envs.base import Environment, EnvParams, EnvState, spaces

SHAPE = (3, 2, 1)  # of an image
LIMIT = 5
ACTIONS = 3


@struct.dataclass
class PicturesParams(EnvParams):
    """The parameters.

    Attributes:
      max_steps_in_episode: Time limit, in steps.
      ending: Probability that a step terminates the episode.
    """

    max_steps_in_episode: int = LIMIT
    ending: float = 0.12


@struct.dataclass
class PicturesState(EnvState):
    """The state.

    Attributes:
      time: Number of steps of the episode, int32 `[]`.
      image: Image, uint8 `[*A, *SHAPE]`.
    """

    image: jax.Array


@dataclass(frozen=True)
class Pictures(Environment):
    """Random pictures, which differ in every step, and rewards for actions that fit them.

    Attributes:
      discrete: Whether actions are discrete.
      num_agents: Number of agents of a crowd; 0 for a single one.
    """

    discrete: bool = True
    num_agents: int = 0

    @property
    def agents(self) -> tuple[int, ...]:
        """Axes of agents."""
        return (self.num_agents,) if self.num_agents else ()

    @property
    def default_params(self) -> PicturesParams:
        return PicturesParams()

    def reset_env(self, key: jax.Array, params: PicturesParams) -> tuple[jax.Array, PicturesState]:
        del params
        image = jax.random.bits(key, (*self.agents, *SHAPE), jnp.uint8)
        time: Any = jnp.zeros((), jnp.int32)
        return image, PicturesState(time, image)

    def step_env(
        self, key: jax.Array, state: PicturesState, action: jax.Array, params: PicturesParams
    ) -> tuple[jax.Array, PicturesState, jax.Array, jax.Array, dict[Any, Any]]:
        image_key, end_key = jax.random.split(key)
        shown = jnp.mean(state.image.astype(jnp.float32), axis=(-3, -2, -1)) / 255
        number = action.astype(jnp.float32) if self.discrete else jnp.sum(action, axis=-1)
        image = jax.random.bits(image_key, (*self.agents, *SHAPE), jnp.uint8)
        terminated = jax.random.bernoulli(end_key, params.ending)
        return image, PicturesState(state.time + 1, image), shown * number, terminated, {}

    def action_space(self, params: PicturesParams | None = None) -> spaces.Discrete | spaces.Box:
        del params
        return spaces.Discrete(ACTIONS) if self.discrete else spaces.Box(-1.0, 1.0, (2,), jnp.float32)

    def observation_space(self, params: PicturesParams | None = None) -> spaces.Box:
        del params
        return spaces.Box(0, 255, SHAPE, jnp.uint8)
