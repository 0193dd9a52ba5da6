"""An environment in Gymnasium's functional form; see `envs.adapters.outgoing.gymnasium`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from gymnasium.experimental.functional import FuncEnv

from envs.adapters.outgoing.gymnasium_single import masks
from envs.adapters.outgoing.gymnasium_spaces import native_action, settled, shown, to_gymnasium
from envs.pytrees import Action, Params
from envs.settings import methods_in_own_settings

__all__ = ["FuncState", "FunctionalEnv"]


@struct.dataclass
class FuncState:
    """A state with the results of the transition to it, which Gymnasium queries function by function.

    Attributes:
      state: State of the environment.
      obs: Observation in Gymnasium's form.
      reward, terminated, truncated: Results of the transition; 0 and False at the start.
      info: Info of the transition; zeros at the start.
    """

    state: Any
    obs: Any
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    info: Any


@methods_in_own_settings("__init__", "initial", "transition", "state_info", "render_init")
class FunctionalEnv(FuncEnv):
    """The class returned by `as_func_env`; all functions are pure, so that `transform(jax.jit)` works."""

    def __init__(self, env: Any, params: Params = None) -> None:
        self.env, self._params = env, settled(env, params, "as_func_env")
        self._actions = env.action_space(self._params)
        self.action_space = to_gymnasium(self._actions, f"action space of {env.name}")
        obs_space = env.observation_space(self._params)
        self.observation_space = to_gymnasium(obs_space, f"observation space of {env.name}")
        super().__init__()

    def get_default_params(self, **kwargs: Any) -> Any:
        """The parameters with which the environment was adapted, after replacing those in `kwargs`."""
        return self._params.replace(**kwargs) if kwargs else self._params

    def initial(self, rng: jax.Array, params: Params = None) -> FuncState:
        """The first state: `env.reset_env(rng, params)`."""
        params = self._params if params is None else params
        obs, state = self.env.reset_env(rng, params)
        action = self._actions.sample(rng)
        info = jax.eval_shape(self.env.step_env, rng, state, action, params)[4]
        info = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), info)
        no = jnp.zeros((), bool)
        return FuncState(state, shown(self.env.observation_space(params), obs), jnp.zeros(()), no, no, info)

    def transition(self, state: FuncState, action: Action, rng: jax.Array, params: Params = None) -> FuncState:
        """The next state: `env.step_env(rng, ...)`."""
        params = self._params if params is None else params
        native = native_action(self._actions, jax.tree.map(jnp.asarray, action))
        obs, next_state, reward, terminated, info = self.env.step_env(rng, state.state, native, params)
        obs = shown(self.env.observation_space(params), obs)
        return FuncState(next_state, obs, reward, terminated, self.env.is_truncated(next_state, params), info)

    def observation(self, state: FuncState, rng: jax.Array, params: Params = None) -> Any:
        """The observation of a state."""
        del rng, params
        return state.obs

    def reward(
        self, state: FuncState, action: Action, next_state: FuncState, rng: jax.Array, params: Params = None
    ) -> jax.Array:
        """The reward of the transition to the next state."""
        del state, action, rng, params
        return next_state.reward

    def terminal(self, state: FuncState, rng: jax.Array, params: Params = None) -> jax.Array:
        """Whether the transition to this state terminated the episode, disregarding the time limit."""
        del rng, params
        return state.terminated

    def state_info(self, state: FuncState, params: Params = None) -> dict[str, Any]:
        """The allowed actions, where some are forbidden."""
        return masks(self.env, state.state, self._params if params is None else params)

    def transition_info(
        self, state: FuncState, action: Action, next_state: FuncState, params: Params = None
    ) -> dict[str, Any]:
        """The environment's info, the allowed actions, and "truncated", whether the time limit is reached."""
        del state, action
        return {**next_state.info, **self.state_info(next_state, params), "truncated": next_state.truncated}

    def render_init(self, params: Params = None, **kwargs: Any) -> Any:
        """A drawing, see `envs.rendering.Scene`."""
        del kwargs
        from envs.rendering import Scene

        return Scene(self.env, self._params if params is None else params)

    def render_image(self, state: FuncState, render_state: Any, params: Params = None) -> tuple[Any, np.ndarray]:
        """The drawing and the image of a state, uint8 `[height, width, 3]`."""
        del params
        return render_state, render_state.frame(jax.device_get(state.state))

    def render_close(self, render_state: Any, params: Params = None) -> None:
        """Do nothing, because no window is open."""
        del render_state, params
