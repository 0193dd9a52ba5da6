"""A task in which the place of the goal is privileged: observations are dictionaries, and the actor has to search."""

from dataclasses import dataclass
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from envs.base import Environment, EnvParams, EnvState, spaces

LIMIT = 6


@flax.struct.dataclass
class BeaconParams(EnvParams):
    """Parameters of the task.

    Attributes:
      scale: Factor of the privileged entry, which changes nothing else.
      max_steps_in_episode: Time limit.
    """

    scale: Any = 1.0
    max_steps_in_episode: Any = LIMIT


@flax.struct.dataclass
class BeaconState(EnvState):
    """The task.

    Attributes:
      time: int32 `[]`.
      goal: Place of the goal of each agent, float32 `[*A]`.
      last: Last action of each agent, float32 `[*A]`.
    """

    time: jax.Array
    goal: jax.Array
    last: jax.Array


@dataclass(frozen=True)
class Beacon(Environment):
    """The reward falls with the distance of the action from a goal that stays for an episode.

    An episode terminates after a step that comes very close; observations have "state", the share of time and the last
    action, and "privileged_state", the goal and the share of time.

    Attributes:
      discrete: Whether actions are -1 and 1 by number.
      num_agents: Number of agents; 0 for one without an axis.
    """

    discrete: bool = False
    num_agents: int = 0

    @property
    def name(self) -> str:
        """A name for messages."""
        return "beacon"

    @property
    def default_params(self) -> BeaconParams:
        """Episodes of six steps."""
        return BeaconParams()

    @property
    def agents(self) -> tuple[int, ...]:
        """Axes of the agents."""
        return (self.num_agents,) if self.num_agents else ()

    def reset_env(self, key: jax.Array, params: Any) -> tuple[Any, BeaconState]:
        """A goal drawn uniformly."""
        goal = jax.random.uniform(key, self.agents, minval=-1.0, maxval=1.0)
        state = BeaconState(jnp.zeros((), jnp.int32), goal, jnp.zeros(self.agents))
        return self._observe(state, params), state

    def step_env(
        self, key: jax.Array, state: BeaconState, action: Any, params: Any
    ) -> tuple[Any, BeaconState, jax.Array, jax.Array, dict[Any, Any]]:
        """The reward of an action."""
        del key
        action = 2 * action.astype(jnp.float32) - 1 if self.discrete else action[..., 0]
        state = BeaconState(state.time + 1, state.goal, action)
        distance = jnp.abs(action - state.goal)
        return self._observe(state, params), state, -distance, jnp.any(distance < 0.05), {}

    def privileged(self, state: BeaconState, params: Any) -> jax.Array:
        """The goal, scaled."""
        return params.scale * state.goal[..., None]

    def _observe(self, state: BeaconState, params: Any) -> dict[str, jax.Array]:
        time = jnp.broadcast_to(state.time / LIMIT, self.agents)
        shown = jnp.stack([time, state.last], axis=-1)
        return {"state": shown, "privileged_state": params.scale * jnp.stack([state.goal, time], axis=-1)}

    def action_space(self, params: Any = None) -> spaces.Space:
        """Two numbers, or all from -1 to 1."""
        del params
        return spaces.Discrete(2) if self.discrete else spaces.Box(-1.0, 1.0, (1,), jnp.float32)

    def observation_space(self, params: Any) -> spaces.Dict:
        """Vectors of two numbers."""
        del params
        box = spaces.Box(-jnp.inf, jnp.inf, (2,), jnp.float32)
        return spaces.Dict({"state": box, "privileged_state": box})
