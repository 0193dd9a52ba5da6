"""Crowds for trainers of JaxMARL: `as_jaxmarl(env)`, pure and jittable, and without JaxMARL itself.

env = as_jaxmarl(envs.make("crowd/circle", num_agents=8))
obs, state = env.reset(key)                                   # {"agent_0": ..., ...}
obs, state, reward, done, info = env.step(key, state, actions)  # done has "__all__"
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from envs import base
from envs.adapters.agents import agent_names, broken_up, num_agents
from envs.base import spaces

__all__ = ["JaxMARLEnv", "State", "as_jaxmarl"]


@struct.dataclass
class State:
    """An episode of JaxMARL's.

    Attributes:
      env_state: of the environment.
      obs: leaves `[N, ...]`, of this state.
      done: bool `[N]`, who has finished.
      step: int32, steps taken.
    """

    env_state: Any
    obs: Any
    done: jax.Array
    step: jax.Array


class JaxMARLEnv:
    """What `as_jaxmarl` returns: the methods and attributes of JaxMARL's `MultiAgentEnv`, by its version 0.2.

    `step` resets where an episode has ended, at its end for all agents by termination or the time limit. An agent
    that has finished before keeps its place, with `done` true and rewards of 0. Entries of `info` have
    the shape `[N]`: "active" (took part in this step), "terminated", "truncated", and the environment's metrics,
    the same for every agent.

    Attributes:
      env, params: the environment.
      num_agents, agents: how many, and their names `agent_0`, ....
      observation_spaces, action_spaces: by agent.
    """

    def __init__(self, env: base.Environment, params: Any = None):
        """See `as_jaxmarl`."""
        self.env = env
        self.params = env.default_params if params is None and isinstance(env, base.Environment) else params
        self.num_agents = num_agents(env, self.params, "as_jaxmarl")
        self.agents = agent_names(self.num_agents)
        seen, done = env.observation_space(self.params), env.action_space(self.params)
        self.observation_spaces: dict[str, Any] = dict.fromkeys(self.agents, seen)
        self.action_spaces: dict[str, Any] = dict.fromkeys(self.agents, done)

    @property
    def name(self) -> str:
        """The environment's."""
        return self.env.name

    @property
    def agent_classes(self) -> dict[str, list[str]]:
        """One class, of all agents."""
        return {"agent": list(self.agents)}

    def observation_space(self, agent: str) -> Any:
        """What an agent observes; gymnax's spaces, which JaxMARL's are like."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        """What an agent chooses from."""
        return self.action_spaces[agent]

    def reset(self, key: jax.Array) -> tuple[dict[str, Any], State]:
        """The first observations and state of an episode."""
        obs, env_state = self.env.reset_env(key, self.params)
        state = State(env_state, obs, jnp.zeros(self.num_agents, bool), jnp.zeros((), jnp.int32))
        return self.get_obs(state), state

    def step(
        self, key: jax.Array, state: State, actions: Mapping[str, Any], reset_state: State | None = None
    ) -> tuple[dict[str, Any], State, dict[str, jax.Array], dict[str, jax.Array], dict[str, jax.Array]]:
        """One transition and, where the episode has ended, the next episode's first observations and state.

        Args:
          key, state: traced.
          actions: by agent.
          reset_state: where the next episode starts; None for `reset` with a key of its own.

        Returns:
          Observations, state, rewards, dones (those of the transition, `"__all__"` among them), and info.
        """
        step_key, reset_key = jax.random.split(key)
        _, state, reward, done, info = self.step_env(step_key, state, actions)
        fresh = self.reset(reset_key)[1] if reset_state is None else reset_state
        state = jax.tree.map(lambda new, old: jnp.where(done["__all__"], new, old), fresh, state)
        return self.get_obs(state), state, reward, done, info

    def step_env(
        self, key: jax.Array, state: State, actions: Mapping[str, Any]
    ) -> tuple[dict[str, Any], State, dict[str, jax.Array], dict[str, jax.Array], dict[str, jax.Array]]:
        """One transition, without a reset."""
        missing = [agent for agent in self.agents if agent not in actions]
        if missing:
            raise ValueError(
                f"actions takes one for each of {', '.join(self.agents)}, and misses {', '.join(missing)}."
            )
        action = jax.tree.map(lambda *parts: jnp.stack(parts), *(actions[agent] for agent in self.agents))
        obs, env_state, reward, ended, info = self.env.step_env(key, state.env_state, action, self.params)
        cut = self.env.is_truncated(env_state, self.params) & ~ended
        finished = jnp.broadcast_to(info.get("agent_terminated", ended), reward.shape) | ended
        state = State(env_state, obs, finished | cut, state.step + 1)
        done = broken_up(state.done, self.agents) | {"__all__": ended | cut | jnp.all(finished)}
        told = {"active": info.get("active", True), "terminated": finished, "truncated": cut & ~finished}
        told |= info.get("metrics", {})
        told = {name: jnp.broadcast_to(value, reward.shape) for name, value in told.items()}
        return self.get_obs(state), state, broken_up(reward, self.agents), done, told

    def get_obs(self, state: State) -> dict[str, Any]:
        """Observations of a state, by agent."""
        return broken_up(state.obs, self.agents)

    def get_avail_actions(self, state: State) -> dict[str, Any]:
        """Which discrete actions are allowed, bool `[num_actions]` by agent; all where the environment masks none.

        Raises:
          TypeError: the actions are not discrete.
        """
        space = self.env.action_space(self.params)
        mask = self.env.action_mask(state.env_state, self.params)
        if mask is not None:
            return broken_up(mask, self.agents)
        if not isinstance(space, spaces.Discrete):
            raise TypeError(f"get_avail_actions is for Discrete actions, and those of {self.env.name} are {space!r}.")
        return dict.fromkeys(self.agents, jnp.ones(space.n, bool))


def as_jaxmarl(env: base.Environment, params: Any = None) -> JaxMARLEnv:
    """A crowd under JaxMARL's interface.

    Args:
      env: an environment whose rewards have the shape `(agents,)`.
      params: its parameters; None for its defaults.

    Returns:
      An object with JaxMARL's methods, all of them pure functions for `jax.jit` and `jax.vmap`.

    Raises:
      TypeError: `env` is no environment.
      ValueError: it has a single agent, or breaks the contract.
    """
    return JaxMARLEnv(env, params)
