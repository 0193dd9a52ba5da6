"""One environment as a `gymnasium.Env`; see `envs.adapters.outgoing.gymnasium`."""

from __future__ import annotations

import functools
from typing import Any

import gymnasium
import jax
import numpy as np

from envs.adapters.outgoing.gymnasium_spaces import (
    METADATA,
    checked_action,
    native_action,
    settled,
    shown,
    to_gymnasium,
)
from envs.errors import UserValueError
from envs.pytrees import Action, Observation, Params, PyTree, State
from envs.registry import make
from envs.settings import methods_in_own_settings

__all__ = ["MadeEnv", "SingleEnv", "check_seed", "masks"]

MOST_SEED = 2**32 - 1


@methods_in_own_settings("__init__", "reset", "step", "render")
class SingleEnv(gymnasium.Env):
    """The class returned by `as_gymnasium`; `env` and `params` are its arguments, `state` is the current state."""

    metadata = METADATA

    def __init__(self, env: Any, params: Params = None, render_mode: str | None = None) -> None:
        known = settled(env, params, "as_gymnasium")
        if render_mode not in (None, *METADATA["render_modes"]):
            raise UserValueError(f"render_mode is {render_mode!r}; it takes None, 'human' or 'rgb_array'.")
        self.env, self.render_mode, self.state = env, render_mode, None
        self.metadata = dict(METADATA)  # a copy, because Gymnasium's vector forms write into it
        self._actions = env.action_space(known)
        self.action_space = to_gymnasium(self._actions, f"action space of {env.name}")
        self.observation_space = to_gymnasium(env.observation_space(known), f"observation space of {env.name}")
        self.params = jax.device_put(known)
        self._keys: Any = None
        self._resets = self._steps = 0
        self._finished = False
        self._scene: Any = None
        self._window: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start a new episode; `options` are not used."""
        del options
        seed = None if seed is None else check_seed(seed)
        super().reset(seed=seed)
        if seed is not None or self._keys is None:
            seed = int(self.np_random.integers(MOST_SEED)) if seed is None else seed
            self._keys, self._resets, self._steps = _split(np.uint32(seed)), 0, 0
        self.state, out = _reset(self.env, self._keys[0], self._resets, self.params)
        self._resets += 1
        self._finished = False
        obs, info = jax.device_get(out)
        if self.render_mode == "human":
            self._show()
        return self._observed(obs), _scalars(info)

    def step(self, action: Action) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step of the episode."""
        if self.state is None:
            raise gymnasium.error.ResetNeeded("step was called before reset; call env.reset() first.")
        if self._finished:
            raise gymnasium.error.ResetNeeded(
                "step was called after the episode had terminated or been truncated; call env.reset() first."
            )
        action = checked_action(self._actions, action)
        self.state, out = _step(self.env, self._keys[1], self._steps, self.state, action, self.params)
        self._steps += 1
        obs, reward, terminated, truncated, info = jax.device_get(out)
        self._finished = bool(terminated or truncated)
        if self.render_mode == "human":
            self._show()
        return self._observed(obs), float(reward), bool(terminated), bool(truncated), _scalars(info)

    def render(self) -> Any:
        """The image of the current state, uint8 `[height, width, 3]`; None in a window, which shows it already."""
        if self.render_mode is None:
            gymnasium.logger.warn("render was called without a render_mode; give render_mode='rgb_array' when making.")
        if self.render_mode != "rgb_array":
            return None
        if self.state is None:
            raise gymnasium.error.ResetNeeded("render was called before reset; call env.reset() first.")
        return self._picture()

    def close(self) -> None:
        """Close the window, if there is one."""
        if self._window is not None:
            self._window.close()
            self._window = None

    def _observed(self, obs: Observation) -> Any:
        """Whole numbers in Gymnasium's types, and writable arrays."""
        if isinstance(self.observation_space, gymnasium.spaces.Discrete):
            return np.int64(obs)
        return jax.tree.map(np.array, obs)

    def _picture(self) -> np.ndarray:
        if self._scene is None:
            from envs.rendering import Scene

            self._scene = Scene(self.env, self.params)
        return self._scene.frame(jax.device_get(self.state))

    def _show(self) -> None:
        if self._window is None:
            from envs.adapters.outgoing.window import Window

            self._window = Window(self.env.name, METADATA["render_fps"])
        self._window.show(self._picture())


class MadeEnv(SingleEnv):
    """An environment by its name in `envs.names()`, for Gymnasium's registry; `static` are its static fields."""

    def __init__(self, name: str, params: Params = None, render_mode: str | None = None, **static: Any) -> None:
        super().__init__(make(name, **static), params, render_mode)


def check_seed(seed: Any) -> int:
    """A seed of 32 bits: a smaller seed unchanged, a larger one hashed by NumPy's `SeedSequence`.

    Raises:
      ValueError: `seed` is not a whole number of at least 0.
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise UserValueError(f"seed is {seed!r}; it takes a whole number of at least 0.")
    return int(seed) if seed <= MOST_SEED else int(np.random.SeedSequence(int(seed)).generate_state(1)[0])


def masks(env: Any, state: State, params: Params) -> dict[str, Any]:
    """The allowed actions as masks for sampling from Gymnasium's spaces, int8, where the environment forbids some."""
    mask = env.action_mask(state, params)
    return {} if mask is None else {"action_mask": jax.tree.map(lambda leaf: leaf.astype(np.int8), mask)}


@jax.jit
def _split(seed: Any) -> Any:
    keys = jax.random.split(jax.random.key(seed))
    return keys[0], keys[1]


@functools.partial(jax.jit, static_argnums=0)
def _reset(env: Any, key: jax.Array, count: Any, params: Params) -> Any:
    obs, state = env.reset_env(jax.random.fold_in(key, count), params)
    return state, (shown(env.observation_space(params), obs), masks(env, state, params))


@functools.partial(jax.jit, static_argnums=0)
def _step(env: Any, key: jax.Array, count: Any, state: State, action: Action, params: Params) -> Any:
    action = native_action(env.action_space(params), action)
    obs, state, reward, terminated, info = env.step_env(jax.random.fold_in(key, count), state, action, params)
    obs = shown(env.observation_space(params), obs)
    return state, (obs, reward, terminated, env.is_truncated(state, params), {**info, **masks(env, state, params)})


def _scalars(info: PyTree) -> Any:
    """Scalars as NumPy's or Python's own, which Gymnasium's vector forms gather; arrays are left unchanged."""

    def scalar(leaf: PyTree) -> Any:
        leaf = np.asarray(leaf)
        return leaf if leaf.ndim else bool(leaf) if leaf.dtype == bool else leaf[()]

    return jax.tree.map(scalar, info)
