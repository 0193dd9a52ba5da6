"""Many environments as a `gymnasium.vector.VectorEnv`; see `envs.adapters.outgoing.gymnasium`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from envs.adapters.outgoing import gymnasium_stepping
from envs.adapters.outgoing.gymnasium_single import MOST_SEED, check_seed
from envs.adapters.outgoing.gymnasium_spaces import METADATA, checked_action, settled, to_gymnasium
from envs.arguments import check_flag
from envs.errors import UserValueError
from envs.pytrees import Action, Observation, Params, PyTree
from envs.settings import methods_in_own_settings

__all__ = ["VectorEnv"]

_LEAF = jax.tree.structure(0)


@methods_in_own_settings("__init__", "__setstate__", "reset", "step", "render")
class VectorEnv(gymnasium.vector.VectorEnv):
    """The class returned by `as_gymnasium_vector`; `env` and `params` are its arguments."""

    def __init__(
        self,
        env: Any,
        num_envs: int,
        params: Params = None,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        device_arrays: bool = False,
        render_mode: str | None = None,
    ) -> None:
        check_flag("device_arrays", device_arrays)
        self.params = settled(env, params, "as_gymnasium_vector")
        if isinstance(num_envs, bool) or not isinstance(num_envs, int | np.integer) or num_envs < 1:
            raise UserValueError(f"num_envs is {num_envs!r}; it takes a whole number of at least 1.")
        if autoreset_mode not in (*AutoresetMode, *(mode.value for mode in AutoresetMode)):
            takes = ", ".join(repr(mode.value) for mode in AutoresetMode)
            raise UserValueError(f"autoreset_mode is {autoreset_mode!r}; it takes {takes}.")
        if render_mode not in (None, "rgb_array"):
            raise UserValueError(f"render_mode is {render_mode!r}; of many environments it takes None or 'rgb_array'.")
        self.env, self.num_envs, self.device_arrays = env, int(num_envs), device_arrays
        self.autoreset_mode, self.render_mode = AutoresetMode(autoreset_mode), render_mode
        self.metadata = {**METADATA, "render_modes": ["rgb_array"], "autoreset_mode": self.autoreset_mode}
        self._actions = env.action_space(self.params)
        self.single_action_space = to_gymnasium(self._actions, f"action space of {env.name}")
        obs_space = env.observation_space(self.params)
        self.single_observation_space = to_gymnasium(obs_space, f"observation space of {env.name}")
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self._programs = self._compiled()
        self._carry: Any = None
        self._pool: Any = None
        self._last: tuple[Any, Any] = (None, None)  # the last results, and their layout where they are packed
        self._done: Any = np.zeros(self.num_envs, bool)
        self._scene: Any = None

    def _compiled(self) -> gymnasium_stepping.Programs:
        values = gymnasium_stepping.known(self.params)
        return gymnasium_stepping.programs(
            self.env, values, self.num_envs, self.autoreset_mode.value, not self.device_arrays
        )

    def __getstate__(self) -> dict[str, Any]:
        """The attributes without compiled programs and drawings, which another process creates again."""
        return {**self.__dict__, "_programs": None, "_scene": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._programs = self._compiled()

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """New episodes, of all environments or of those in `options["reset_mask"]`, bool `[num_envs]`.

        A seed of None in a sequence is drawn at random.
        """
        chosen, seeds = self._chosen(options), self._given(seed)
        super().reset(seed=None if seeds is None else int(seeds[0]))
        if self._carry is None:
            if not chosen.all():
                raise gymnasium.error.ResetNeeded("the first reset takes all environments; leave reset_mask out of it.")
            seeds = self.np_random.integers(MOST_SEED, size=self.num_envs) if seeds is None else seeds
            self._carry, self._pool = self._programs.begin(seeds.astype(np.uint32))
        elif seeds is not None:
            self._carry, self._pool = self._programs.reseed(self._carry, self._pool, seeds.astype(np.uint32), chosen)
        self._carry, self._pool, shown = self._programs.reset(self._carry, self._pool, chosen)
        self._done = self._done & ~chosen
        if not self.device_arrays:
            shown = self._programs.shown_reset.view(np.array(shown))
        if not chosen.all():
            shown = shown._replace(obs=self._merged(chosen, shown.obs))
        self._last = (shown.obs, None)
        obs = shown.obs if self.device_arrays else jax.tree.map(np.array, shown.obs)
        return obs, _with_rows(shown.mask, chosen)

    def step(self, actions: Action) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """One step of every environment; with "NextStep" those whose episode has ended are reset instead."""
        if self._carry is None:
            raise gymnasium.error.ResetNeeded("step was called before reset; call envs.reset() first.")
        if not self.device_arrays:
            actions = checked_action(self._actions, actions, (self.num_envs,))
            if self.autoreset_mode is AutoresetMode.DISABLED and self._done.any():
                raise gymnasium.error.ResetNeeded(
                    f"step was called after the episodes of environments {np.flatnonzero(self._done).tolist()} had "
                    "ended; call envs.reset(options={'reset_mask': terminated | truncated}) first."
                )
        self._carry, self._pool, shown = self._programs.step(self._carry, self._pool, actions)
        if self.device_arrays:
            self._last = (shown.obs, None)
        else:
            self._last = (shown, self._programs.shown_step)
            shown = self._programs.shown_step.view(np.array(shown))
        began, self._done = self._done, shown.terminated | shown.truncated
        return shown.obs, shown.reward, shown.terminated, shown.truncated, self._infos(shown, began)

    def render(self) -> tuple[np.ndarray, ...] | None:
        """The images of all environments, each uint8 `[height, width, 3]`."""
        if self.render_mode is None:
            gymnasium.logger.warn("render was called without a render_mode; give render_mode='rgb_array' when making.")
            return None
        if self._carry is None:
            raise gymnasium.error.ResetNeeded("render was called before reset; call envs.reset() first.")
        if self._scene is None:
            from envs.rendering import Scene

            self._scene = Scene(self.env, self.params)
        state = self._programs.carry.view(np.array(self._carry)).state
        frames = (self._scene.frame(jax.tree.map(lambda leaf, i=i: leaf[i], state)) for i in range(self.num_envs))
        return tuple(frames)

    def _infos(self, shown: Any, began: Any) -> dict[str, Any]:
        """Infos as Gymnasium gathers them: each entry, and a mask of the rows that have it, under `_` + its name."""
        if not (shown.info or shown.mask or self.autoreset_mode is AutoresetMode.SAME_STEP):
            return {}
        ended, everybody = self._done, np.ones(self.num_envs, bool)
        if self.autoreset_mode is not AutoresetMode.SAME_STEP:
            stepped = ~began if self.autoreset_mode is AutoresetMode.NEXT_STEP else everybody
            return {**_with_rows(shown.info, stepped), **_with_rows(shown.mask, everybody)}
        infos = {**_with_rows(shown.info, ~ended), **_with_rows(shown.mask, everybody)}
        final_obs = shown.final_obs
        if not self.device_arrays:
            if not ended.any():
                return infos
            final_obs = _rows_alone(shown.final_obs, ended)
        final_info = _with_rows(shown.final_info, ended)
        return {**infos, "final_obs": final_obs, "_final_obs": ended, "final_info": final_info, "_final_info": ended}

    def _merged(self, chosen: np.ndarray, obs: Observation) -> Any:
        """New observations where chosen, the last ones elsewhere."""
        last, layout = self._last
        last = last if layout is None else layout.view(np.array(last)).obs
        return (
            gymnasium_stepping.picked(jax.device_put(chosen), obs, last)
            if self.device_arrays
            else _picked(chosen, obs, last)
        )

    def _chosen(self, options: dict[str, Any] | None) -> np.ndarray:
        """The environments to be reset, bool `[N]`."""
        if options is None or "reset_mask" not in options:
            return np.ones(self.num_envs, bool)
        mask = options["reset_mask"]
        chosen = np.array(mask)
        if chosen.shape != (self.num_envs,) or chosen.dtype != bool or not chosen.any():
            raise UserValueError(
                f"options['reset_mask'] is {mask!r}; it takes bool [{self.num_envs}], with at least one environment."
            )
        return chosen

    def _given(self, seed: Any) -> np.ndarray | None:
        """A seed for every environment; a single number gives itself and the following numbers."""
        if seed is None:
            return None
        if isinstance(seed, Sequence | np.ndarray):
            if len(seed) != self.num_envs:
                raise UserValueError(f"seed has {len(seed)} numbers; it takes one, or one for each of {self.num_envs}.")
            drawn = (int(self.np_random.integers(MOST_SEED)) if one is None else check_seed(one) for one in seed)
            return np.array([*drawn], np.int64)
        return (check_seed(seed) + np.arange(self.num_envs, dtype=np.int64)) % (MOST_SEED + 1)


def _with_rows(info: PyTree, rows: Any) -> dict[str, Any]:
    """Arrays `[N, ...]`, each with a mask `[N]` of the rows that have it; empty if it is known that no row has any.

    Tuples, on the host, become an array `[N]` of each environment's tuple, as Gymnasium gathers them.
    """
    gathered: dict[str, Any] = {}
    if isinstance(rows, np.ndarray) and not rows.any():
        return gathered
    for name, leaf in info.items():
        if isinstance(leaf, dict):
            leaf = _with_rows(leaf, rows)
        elif isinstance(leaf, tuple) and isinstance(jax.tree.leaves(leaf)[0], np.ndarray):
            leaf = _rows_alone(leaf, rows)
        gathered[name], gathered[f"_{name}"] = leaf, rows
    return gathered


def _rows_alone(tree: PyTree, rows: np.ndarray) -> np.ndarray:
    """An object array `[N]` of the trees of some rows of leaves `[N, ...]`; None in all other rows."""
    leaves, structure = jax.tree.flatten(tree)
    alone, chosen = np.full(rows.shape[0], None, object), np.flatnonzero(rows)
    for i, *parts in zip(chosen.tolist(), *(leaf[chosen] for leaf in leaves), strict=True):
        alone[i] = parts[0] if structure == _LEAF else jax.tree.unflatten(structure, parts)
    return alone


def _picked(chosen: np.ndarray, new: PyTree, old: PyTree) -> Any:
    return jax.tree.map(lambda a, b: np.where(chosen.reshape(chosen.shape + (1,) * (b.ndim - 1)), a, b), new, old)
