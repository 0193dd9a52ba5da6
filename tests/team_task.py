"""A team whose members observe only themselves, while rewards depend on all of them."""

from dataclasses import dataclass
from typing import Any, Literal

import flax.struct
import jax
import jax.numpy as jnp

from envs.base import Environment, EnvParams, EnvState, spaces

LIMIT = 5


@flax.struct.dataclass
class TeamParams(EnvParams):
    """Parameters of the task.

    Attributes:
      max_steps_in_episode: Time limit, int.
    """

    max_steps_in_episode: jax.Array | int = LIMIT


@flax.struct.dataclass
class TeamState(EnvState):
    """The task.

    Attributes:
      time: int32 `[]`.
      level: Level of each agent, float32 `[N]`.
    """

    time: jax.Array
    level: jax.Array


@dataclass(frozen=True)
class Team(Environment):
    """Levels are drawn at a reset, halve with each step, and are raised a little by actions; all are paid their mean.

    An agent's episode ends if its level exceeds 1, and all episodes end at the time limit.

    Attributes:
      seen: Global observation: "rows", one for each agent; "vector", the mean and the share of time; or "nothing".
      shows: Whether an agent observes its own level, otherwise 0.
      num_agents: Number of agents.
    """

    seen: Literal["rows", "vector", "nothing"] = "vector"
    shows: bool = True
    num_agents: int = 3

    @property
    def name(self) -> str:
        """A name for messages."""
        return "team"

    @property
    def default_params(self) -> TeamParams:
        """Episodes of five steps."""
        return TeamParams()

    def reset_env(self, key: jax.Array, params: Any) -> tuple[jax.Array, TeamState]:
        """Levels of normal distribution."""
        del params
        state = TeamState(jnp.zeros((), jnp.int32), jax.random.normal(key, (self.num_agents,)))
        return self._observe(state), state

    def step_env(self, key: jax.Array, state: TeamState, action: jax.Array, params: Any) -> Any:
        """The mean of the levels before the step."""
        del key, params
        level = 0.5 * state.level + 0.1 * jnp.tanh(action[:, 0])
        reward = jnp.broadcast_to(jnp.mean(state.level), (self.num_agents,))
        state = TeamState(state.time + 1, level)
        return self._observe(state), state, reward, jnp.zeros((), bool), {"agent_terminated": level > 1}

    def global_observation(self, state: TeamState, params: Any) -> Any:
        """The global observation that `seen` selects."""
        if self.seen == "nothing":
            return None
        if self.seen == "rows":
            return {"agents": state.level[:, None], "agents_present": jnp.ones(self.num_agents)}
        return jnp.stack([jnp.mean(state.level), state.time / params.max_steps_in_episode])

    def action_space(self, params: Any = None) -> spaces.Box:
        """A number."""
        del params
        return spaces.Box(-1.0, 1.0, (1,), jnp.float32)

    def observation_space(self, params: Any) -> spaces.Box:
        """A number."""
        del params
        return spaces.Box(-jnp.inf, jnp.inf, (1,), jnp.float32)

    def _observe(self, state: TeamState) -> jax.Array:
        return state.level[:, None] * jnp.float32(self.shows)
