"""Hidden observations: some components are left out, so that a policy has to remember."""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from envs import base
from envs.base import spaces
from envs.choices import MultiDiscrete
from envs.errors import UserTypeError, UserValueError
from envs.pytrees import Action, Observation, Params, State
from envs.wrappers.wrapper import Wrapper, registered_name

__all__ = ["Hide", "hide"]


def hide(env: base.Environment, *components: int | str) -> base.Environment:
    """An environment without some components of its observations.

    Args:
      env: Any environment whose observations are arrays or dictionaries; its parameters, dynamics, actions, masks and
        metrics are unchanged, and its optimum is no longer known.
      components: Components to leave out: indices along the last axis of an array, from 0, or names of a dictionary.

    Returns:
      An environment of one agent or a crowd, like `env`; `hide(envs.make("cartpole"), 1, 3)` is `memory/cartpole`,
      CartPole without velocities.

    Raises:
      TypeError: `env` is not an environment, or a component is neither a whole number nor a name.
      ValueError: There is no such component, or no component would be hidden, or none would remain.
    """
    for each in components:
        if isinstance(each, bool) or not isinstance(each, int | np.integer | str):
            raise UserTypeError(f"a component of hide is an index or a name, not {each!r}.")
    plain = {each if isinstance(each, str) else int(each) for each in components}
    return Hide(env, tuple(sorted(plain, key=lambda each: (isinstance(each, str), each))))


@dataclass(frozen=True)
class Hide(Wrapper):
    """The class returned by `hide`.

    Attributes:
      inner: Environment that shows all components.
      components: Hidden components, sorted: indices along the last axis of an array, or names of a dictionary.
    """

    components: tuple[int | str, ...]
    made_by: ClassVar[str] = "hide"
    keeps_returns: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        space = self.inner.observation_space(self.inner.default_params)
        if isinstance(space, spaces.Dict):
            known: list[Any] = list(space.spaces)
            has = f"observations of {self.inner.name} have {', '.join(map(repr, known))}"
        elif isinstance(space, spaces.Box) and space.shape:
            known = list(range(space.shape[-1]))
            has = f"observations of {self.inner.name} have the indices 0 to {known[-1]}"
        else:
            raise UserValueError(
                f"hide takes an environment that shows an array or a dictionary, and {self.inner.name} shows {space!r}."
            )
        if not self.components:
            raise UserValueError(f"hide takes at least one component to leave out; {has}.")
        for each in self.components:
            if each not in known:
                raise UserValueError(f"hide takes an environment with the component {each!r}; {has}.")
        if len(set(self.components)) == len(known):
            raise UserValueError(f"hide must leave at least one component of an observation; {has}.")

    @property
    def name(self) -> str:
        """The name that `envs.make` takes, or the inner environment's with the wrapper's around it."""
        return registered_name(self) or super().name

    def observation_space(self, params: Params) -> spaces.Space:
        """The inner environment's space, without the hidden components."""
        space: Any = super().observation_space(params)
        if isinstance(space, spaces.Dict):
            return spaces.Dict({name: part for name, part in space.spaces.items() if name not in self.components})
        if isinstance(space, MultiDiscrete):
            return MultiDiscrete(self._visible(space.counts), self._visible(space.low), space.dtype)
        low, high = (
            self._visible(jnp.broadcast_to(jnp.asarray(bound), space.shape)) for bound in (space.low, space.high)
        )
        return spaces.Box(low, high, low.shape, space.dtype)

    def reset_env(self, key: jax.Array, params: Params) -> tuple[Any, Any]:
        """The inner environment's reset, without the hidden components."""
        obs, state = self.inner.reset_env(key, params)
        return self._visible(obs), state

    def step_env(
        self, key: jax.Array, state: State, action: Action, params: Params
    ) -> tuple[Any, Any, jax.Array, jax.Array, dict[Any, Any]]:
        """The inner environment's step, without the hidden components."""
        obs, state, reward, terminated, info = self.inner.step_env(key, state, action, params)
        return self._visible(obs), state, reward, terminated, info

    def _visible(self, obs: Observation) -> Any:
        if isinstance(obs, dict):
            return {name: part for name, part in obs.items() if name not in self.components}
        return obs[..., np.array([index for index in range(obs.shape[-1]) if index not in self.components])]
