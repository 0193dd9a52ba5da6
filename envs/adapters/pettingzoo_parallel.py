"""The class that `as_pettingzoo` makes, apart from it as it needs PettingZoo to be defined."""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from pettingzoo import ParallelEnv

from envs import base
from envs.adapters.agents import agent_names, num_agents, present
from envs.base import spaces

__all__ = ["MODES", "Parallel"]

MODES = ("rgb_array",)


class Parallel(ParallelEnv):
    """A crowd for PettingZoo; see `as_pettingzoo`.

    A seed is that of a JAX key, which is split at each reset and each step: the second half is used, the first is
    kept for the next split.
    """

    def __init__(self, env: base.Environment, params: Any, render_mode: str | None):
        self._count = num_agents(env, params, "as_pettingzoo")
        self._env, self._params = env, env.default_params if params is None else params
        self.metadata = {"render_modes": [*MODES], "name": env.name, "is_parallelizable": True, "render_fps": 10}
        self.render_mode = render_mode
        self.possible_agents = agent_names(self._count)
        self.agents: list[str] = []
        action_space = env.action_space(self._params)
        seen, done = (
            {agent: spaces.gymnax_space_to_gym_space(space) for agent in self.possible_agents}
            for space in (env.observation_space(self._params), action_space)
        )
        self.observation_spaces, self.action_spaces = seen, done
        action = _plain(jax.eval_shape(action_space.sample, jax.random.key(0)))
        self._idle = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), action)
        self._key = self._state = self._scene = None

    def observation_space(self, agent: str) -> Any:
        """What an agent observes."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        """What an agent chooses from."""
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        """Observations and empty infos of those who take part; `options` has no effect."""
        del options
        if seed is not None or self._key is None:
            self._key = jax.random.key(np.random.default_rng().integers(2**31) if seed is None else seed)
        self._key, key = jax.random.split(self._key)
        obs, self._state, taking_part = _reset(self._env, key, self._params, self._count)
        there = np.asarray(taking_part)
        self.agents = [agent for agent, is_there in zip(self.possible_agents, there, strict=True) if is_there]
        return self._of(obs), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[dict, dict, dict, dict, dict]:
        """Observations, rewards, terminations, truncations and infos of those who were left before it.

        Raises:
          RuntimeError: there was no reset, or nobody is left.
          ValueError: `actions` are not those of the agents who are left.
        """
        if self._key is None or not self.agents:
            why = "before the first reset()" if self._key is None else "after every agent has finished"
            raise RuntimeError(f"step() was called {why}; call reset() first.")
        if set(actions) != set(self.agents):
            got = ", ".join(map(str, actions)) or "none"
            raise ValueError(f"actions takes one for each agent that is left, {', '.join(self.agents)}, got {got}.")
        action = jax.tree.map(lambda *each: np.stack(each), *(self._action(actions, a) for a in self.possible_agents))
        self._key, key = jax.random.split(self._key)
        stepped = _step(self._env, key, self._state, action, self._params)
        obs, self._state, reward, finished, cut, metrics = stepped
        told = {name: float(value) for name, value in jax.device_get(metrics).items()}
        rewards = {agent: float(value) for agent, value in self._of(reward).items()}
        terminations = {agent: bool(flag) for agent, flag in self._of(finished).items()}
        truncations = {agent: bool(flag) for agent, flag in self._of(cut).items()}
        seen, infos = self._of(obs), {agent: {"metrics": told} for agent in self.agents}
        self.agents = [agent for agent in self.agents if not (terminations[agent] or truncations[agent])]
        return seen, rewards, terminations, truncations, infos

    def render(self) -> np.ndarray | None:
        """The picture of the state, uint8 `[height, width, 3]`; None without a `render_mode`.

        Raises:
          RuntimeError: there was no reset.
          ValueError: there is no drawing of this environment.
        """
        from envs.rendering import Scene

        if self.render_mode is None:
            return None
        if self._key is None:
            raise RuntimeError("render() was called before the first reset(); call reset() first.")
        self._scene = Scene(self._env, self._params) if self._scene is None else self._scene
        return self._scene.frame(jax.device_get(self._state))

    def _action(self, actions: dict[str, Any], agent: str) -> Any:
        """An agent's action as arrays; of who has left, zeros."""
        if agent not in actions:
            return self._idle
        given = _plain(actions[agent])
        return jax.tree.map(lambda like, part: np.asarray(part, like.dtype).reshape(like.shape), self._idle, given)

    def _of(self, tree: Any) -> dict[str, Any]:
        """The parts of the agents that are there."""
        held = jax.tree.map(np.array, tree)
        numbers = [(agent, self.possible_agents.index(agent)) for agent in self.agents]
        return {agent: jax.tree.map(lambda leaf, i=i: leaf[i], held) for agent, i in numbers}


@functools.partial(jax.jit, static_argnums=(0, 3))
def _reset(env: base.Environment, key: jax.Array, params: Any, count: int) -> Any:
    obs, state = env.reset_env(key, params)
    return obs, state, present(env, state, params, count)


@functools.partial(jax.jit, static_argnums=0)
def _step(env: base.Environment, key: jax.Array, state: Any, action: Any, params: Any) -> Any:
    obs, state, reward, ended, info = env.step_env(key, state, action, params)
    cut = env.is_truncated(state, params) & ~ended
    finished = jnp.broadcast_to(info.get("agent_terminated", ended), reward.shape) | ended
    return obs, state, reward, finished, cut & ~finished, info.get("metrics", {})


def _plain(tree: Any) -> Any:
    """Dictionaries of every kind as plain ones."""
    if isinstance(tree, Mapping):
        return {name: _plain(part) for name, part in tree.items()}
    return tuple(map(_plain, tree)) if isinstance(tree, tuple) else tree
