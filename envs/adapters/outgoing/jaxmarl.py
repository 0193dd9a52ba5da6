"""Crowds for JaxMARL's trainers: `as_jaxmarl(env)`, pure and compiled, without a dependency on JaxMARL.

env = as_jaxmarl(envs.make("crowd/circle", num_agents=8))
obs, state = env.reset(key)                                   # {"agent_0": ..., ...}
obs, state, reward, done, info = env.step(key, state, actions)  # done has "__all__"
"""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from envs import base
from envs.adapters.outgoing.agents import agent_names, broken_up, crowd
from envs.base import agent_axes, spaces
from envs.errors import UserTypeError, UserValueError
from envs.pytrees import Params, PyTree
from envs.settings import methods_in_own_settings

__all__ = ["JaxMARLEnv", "State", "as_jaxmarl"]


@struct.dataclass
class State:
    """The state of an episode in JaxMARL's form.

    Attributes:
      env_state: State of the environment.
      obs: Observations of this state, leaves `[N, ...]`.
      done: Whether each agent has finished, in the last step or before, bool `[N]`.
      step: Number of steps taken, int32.
    """

    env_state: Any
    obs: Any
    done: jax.Array
    step: jax.Array


@methods_in_own_settings("__init__", "reset", "step", "step_env", "get_obs", "get_avail_actions")
class JaxMARLEnv:
    """The class returned by `as_jaxmarl`: the methods and attributes of `MultiAgentEnv` in JaxMARL 0.2.

    `reset`, `step`, `step_env` and `get_avail_actions` are compiled at their first call, with `params` traced: equal
    environments share the programs, for any parameters.

    `step` resets once an episode has ended for all agents, by termination or by the time limit. An agent
    that has finished before remains in place, with `done` true and rewards of 0, and the last one to finish ends the
    episode. Entries of `info` have the shape `[N]`: "active" (took part in this step, having not finished before),
    "terminated" (in this step or before), "truncated" (by the time limit, in this step), and the environment's metrics,
    the same for every agent.

    Attributes:
      env, params: Environment and its parameters.
      num_agents, agents: Number of agents, and their names `agent_0`, ....
      observation_spaces, action_spaces: Spaces by agent.
    """

    def __init__(self, env: base.Environment, params: Params = None) -> None:
        """See `as_jaxmarl`."""
        self.env = env
        self.params, self.num_agents = crowd(env, params, "as_jaxmarl")
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
        """One class with all agents."""
        return {"agent": list(self.agents)}

    def observation_space(self, agent: str) -> Any:
        """The space of an agent's observations; one of gymnax's spaces, which resemble JaxMARL's."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        """The space of an agent's actions."""
        return self.action_spaces[agent]

    def reset(self, key: jax.Array) -> tuple[dict[str, Any], State]:
        """The first observations and state of an episode."""
        return _reset(self.env, key, self.params)

    def step(
        self, key: jax.Array, state: State, actions: Mapping[str, Any], reset_state: State | None = None
    ) -> tuple[dict[str, Any], State, dict[str, jax.Array], dict[str, jax.Array], dict[str, jax.Array]]:
        """One transition and, where the episode has ended, the next episode's first observations and state.

        Args:
          key, state: Random key and state, traced.
          actions: Actions by agent.
          reset_state: First state of the next episode; None for `reset` with a separate key.

        Returns:
          Observations, state, rewards, dones (those of the transition, including `"__all__"`), and info.
        """
        return _step(self.env, key, state, self._all(actions), self.params, reset_state)

    def step_env(
        self, key: jax.Array, state: State, actions: Mapping[str, Any]
    ) -> tuple[dict[str, Any], State, dict[str, jax.Array], dict[str, jax.Array], dict[str, jax.Array]]:
        """One transition, without a reset."""
        return _step_env(self.env, key, state, self._all(actions), self.params)

    def get_obs(self, state: State) -> dict[str, Any]:
        """Observations of a state, by agent."""
        return _seen(state)

    def get_avail_actions(self, state: State) -> dict[str, Any]:
        """The allowed discrete actions, bool `[num_actions]` by agent; all of them where the environment has no masks.

        Raises:
          TypeError: The actions are not discrete.
        """
        space = self.env.action_space(self.params)
        mask = _mask(self.env, state.env_state, self.params)
        if mask is not None:
            return broken_up(mask, self.agents)
        if not isinstance(space, spaces.Discrete):
            raise UserTypeError(
                f"get_avail_actions is for Discrete actions, and those of {self.env.name} are {space!r}."
            )
        return dict.fromkeys(self.agents, jnp.ones(space.n, bool))

    def _all(self, actions: Mapping[str, Any]) -> dict[str, Any]:
        """The actions of the agents, without other entries."""
        missing = [agent for agent in self.agents if agent not in actions]
        if missing:
            raise UserValueError(
                f"actions takes one for each of {', '.join(self.agents)}, and misses {', '.join(missing)}."
            )
        return {agent: actions[agent] for agent in self.agents}


@functools.partial(jax.jit, static_argnums=0)
def _reset(env: base.Environment, key: jax.Array, params: Params) -> tuple[dict[str, Any], State]:
    obs, env_state = env.reset_env(key, params)
    agents = agent_axes(env.observation_space(params), obs)
    state = State(env_state, obs, jnp.zeros(agents, bool), jnp.zeros((), jnp.int32))
    return _seen(state), state


@functools.partial(jax.jit, static_argnums=0)
def _step(
    env: base.Environment, key: jax.Array, state: State, actions: dict[str, Any], params: Params, reset_state: PyTree
) -> Any:
    step_key, reset_key = jax.random.split(key)
    _, state, reward, done, info = _step_env(env, step_key, state, actions, params)
    fresh = _reset(env, reset_key, params)[1] if reset_state is None else reset_state
    state = jax.tree.map(lambda new, old: jnp.where(done["__all__"], new, old), fresh, state)
    return _seen(state), state, reward, done, info


@functools.partial(jax.jit, static_argnums=0)
def _step_env(env: base.Environment, key: jax.Array, state: State, actions: dict[str, Any], params: Params) -> Any:
    names = agent_names(state.done.size)
    action = jax.tree.map(lambda *parts: jnp.stack(parts), *(actions[name] for name in names))
    obs, env_state, reward, ended, info = env.step_env(key, state.env_state, action, params)
    cut = env.is_truncated(env_state, params) & ~ended
    left = ~state.done
    finished = info.get("agent_terminated", False) | ended | state.done  # a termination is only reported in its step
    state = State(env_state, obs, finished | cut, state.step + 1)
    done = broken_up(state.done, names) | {"__all__": ended | cut | jnp.all(finished)}
    infos = {"active": info.get("active", True) & left, "terminated": finished, "truncated": cut & ~finished}
    infos |= info.get("metrics", {})
    infos = {name: jnp.broadcast_to(value, reward.shape) for name, value in infos.items()}
    return _seen(state), state, broken_up(jnp.where(left, reward, 0), names), done, infos


@functools.partial(jax.jit, static_argnums=0)
def _mask(env: base.Environment, state: PyTree, params: Params) -> Any:
    return env.action_mask(state, params)


def _seen(state: State) -> dict[str, Any]:
    return broken_up(state.obs, agent_names(state.done.size))


def as_jaxmarl(env: base.Environment, params: Params = None) -> JaxMARLEnv:
    """Adapt a crowd to JaxMARL's interface.

    Args:
      env: Environment whose rewards have the shape `(agents,)`.
      params: Parameters of the environment, which may be traced, and are then not checked; None for its defaults.

    Returns:
      An object with JaxMARL's methods, all of them compiled, and pure functions for `jax.jit` and `jax.vmap`.

    Raises:
      TypeError: `env` is not an environment, or `params` belong to another environment.
      ValueError: `env` has a single agent or breaks the contract, or parameters are out of range.
    """
    return JaxMARLEnv(env, params)
