"""The class that `as_pettingzoo` returns, in a separate module because its definition needs PettingZoo."""

import copy
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from pettingzoo import ParallelEnv

from envs import base
from envs.adapters.outgoing.agents import agent_names, crowd, present
from envs.adapters.outgoing.gymnasium_single import check_seed, masks
from envs.adapters.outgoing.gymnasium_spaces import checked_action, native_action, shown, to_gymnasium
from envs.errors import UserValueError
from envs.pytrees import Action, Params, PyTree, State
from envs.settings import methods_in_own_settings

__all__ = ["MODES", "Parallel"]

MODES = ("rgb_array",)


@methods_in_own_settings("__init__", "reset", "step", "render")
class Parallel(ParallelEnv):
    """A crowd for PettingZoo; see `as_pettingzoo`.

    A seed, hashed from 2**32 on, gives a JAX key, which is split at each reset and each step: the second key is used,
    the first is kept for the next split.
    """

    def __init__(self, env: base.Environment, params: Params, render_mode: str | None) -> None:
        self._env = env
        self._params, self._count = crowd(env, params, "as_pettingzoo")
        self.metadata = {"render_modes": [*MODES], "name": env.name, "is_parallelizable": True, "render_fps": 10}
        self.render_mode = render_mode
        self.possible_agents = agent_names(self._count)
        self.agents: list[str] = []
        self._actions = env.action_space(self._params)
        seen = to_gymnasium(env.observation_space(self._params), f"observation space of {env.name}")
        done = to_gymnasium(self._actions, f"action space of {env.name}")
        self.observation_spaces: dict[str, Any] = {agent: copy.deepcopy(seen) for agent in self.possible_agents}
        self.action_spaces: dict[str, Any] = {agent: copy.deepcopy(done) for agent in self.possible_agents}
        action = jax.eval_shape(lambda key: shown(self._actions, self._actions.sample(key)), jax.random.key(0))
        self._idle = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), action)
        self._key = self._state = self._scene = None

    def observation_space(self, agent: str) -> Any:
        """The space of an agent's observations."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        """The space of an agent's actions."""
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        """Observations and infos of the agents that take part; `options` has no effect.

        Raises:
          ValueError: `seed` is not a whole number of at least 0.
        """
        del options
        if seed is not None or self._key is None:
            self._key = jax.random.key(np.random.default_rng().integers(2**31) if seed is None else check_seed(seed))
        self._key, key = jax.random.split(self._key)
        obs, self._state, mask, taking_part = _reset(self._env, key, self._params, self._count)
        there = np.asarray(taking_part)
        self.agents = [agent for agent, is_there in zip(self.possible_agents, there, strict=True) if is_there]
        return self._of(obs), self._of(mask)

    def step(self, actions: dict[str, Any]) -> tuple[dict, dict, dict, dict, dict]:
        """Observations, rewards, terminations, truncations and infos of the agents that remained before it.

        Raises:
          RuntimeError: There was no reset, or no agent remains.
          ValueError: `actions` are not those of the remaining agents, or one of them does not have its space's shape
            or is not among its choices.
        """
        if self._key is None or not self.agents:
            why = "before the first reset()" if self._key is None else "after every agent has finished"
            raise RuntimeError(f"step() was called {why}; call reset() first.")
        if set(actions) != set(self.agents):
            got = ", ".join(map(str, actions)) or "none"
            raise UserValueError(f"actions takes one for each agent that is left, {', '.join(self.agents)}, got {got}.")
        action = jax.tree.map(lambda *each: np.stack(each), *(self._action(actions, a) for a in self.possible_agents))
        self._key, key = jax.random.split(self._key)
        stepped = _step(self._env, key, self._state, action, self._params)
        obs, self._state, reward, finished, cut, metrics, mask = stepped
        report = {name: float(value) for name, value in jax.device_get(metrics).items()}
        rewards = {agent: float(value) for agent, value in self._of(reward).items()}
        terminations = {agent: bool(flag) for agent, flag in self._of(finished).items()}
        truncations = {agent: bool(flag) for agent, flag in self._of(cut).items()}
        seen, infos = self._of(obs), {agent: {"metrics": dict(report), **may} for agent, may in self._of(mask).items()}
        self.agents = [agent for agent in self.agents if not (terminations[agent] or truncations[agent])]
        return seen, rewards, terminations, truncations, infos

    def render(self) -> np.ndarray | None:
        """The image of the state, uint8 `[height, width, 3]`; None without a `render_mode`.

        Raises:
          RuntimeError: There was no reset.
          ValueError: The environment cannot be drawn.
        """
        from envs.rendering import Scene

        if self.render_mode is None:
            return None
        if self._key is None:
            raise RuntimeError("render() was called before the first reset(); call reset() first.")
        self._scene = Scene(self._env, self._params) if self._scene is None else self._scene
        return self._scene.frame(jax.device_get(self._state))

    def _action(self, actions: dict[str, Any], agent: str) -> Any:
        """An agent's action as arrays; zeros for an agent that has left."""
        if agent not in actions:
            return self._idle
        try:
            return checked_action(self._actions, actions[agent])
        except ValueError as error:
            raise UserValueError(f"{agent}'s {error}") from None

    def _of(self, tree: PyTree) -> dict[str, Any]:
        """The parts of the remaining agents."""
        held = jax.tree.map(np.array, tree)
        numbers = [(agent, self.possible_agents.index(agent)) for agent in self.agents]
        return {agent: jax.tree.map(lambda leaf, i=i: leaf[i], held) for agent, i in numbers}


@functools.partial(jax.jit, static_argnums=(0, 3))
def _reset(env: base.Environment, key: jax.Array, params: Params, count: int) -> Any:
    obs, state = env.reset_env(key, params)
    obs = shown(env.observation_space(params), obs)
    return obs, state, masks(env, state, params), present(env, state, params, count)


@functools.partial(jax.jit, static_argnums=0)
def _step(env: base.Environment, key: jax.Array, state: State, action: Action, params: Params) -> Any:
    action = native_action(env.action_space(params), action)
    obs, state, reward, ended, info = env.step_env(key, state, action, params)
    cut = env.is_truncated(state, params) & ~ended
    finished = jnp.broadcast_to(info.get("agent_terminated", ended), reward.shape) | ended
    obs, mask = shown(env.observation_space(params), obs), masks(env, state, params)
    return obs, state, reward, finished, cut & ~finished, info.get("metrics", {}), mask
