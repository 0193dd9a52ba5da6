"""Environment objects of other interfaces, recognised by their methods: `envs.adapt(env)`."""

import dataclasses
import inspect
import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from envs import base
from envs.adapters.incoming.interfaces import (
    INTERFACES,
    interface_of,
    own_actions,
    own_limit,
    own_params,
    refuse,
    without_mask,
)
from envs.adapters.incoming.suite import LIMIT, Adapter, SuiteParams, Transition, check_returned
from envs.adapters.incoming.their_spaces import as_space, value_of
from envs.arguments import check_count, check_flag
from envs.base import spaces
from envs.errors import UserTypeError
from envs.pytrees import Action, Params, State
from envs.settings import in_own_settings

__all__ = ["AdaptedEnvironment", "AdaptedParams", "adapt"]


@struct.dataclass
class AdaptedParams(base.EnvParams):
    """The parameters of an adapted object whose own parameters have no time limit.

    Attributes:
      inner: Parameters in its own interface.
      max_steps_in_episode: Time limit.
    """

    inner: Any = None
    max_steps_in_episode: int = 1000


class Held(NamedTuple):
    """What an adapter holds of an object.

    Attributes:
      state: State of the object.
      mask: Allowed actions, bool `[num_actions]`; None if all are.
      truncated: Whether the object ended the episode by a time limit of its own, bool `[]`.
    """

    state: Any
    mask: Any
    truncated: jax.Array


@dataclass(frozen=True, eq=False)
class AdaptedEnvironment(Adapter):
    """An environment object of another interface; create it by `envs.adapt`.

    Two adapters are equal if they hold the same object.

    Attributes:
      task: Object, which must not be changed afterwards.
      interface: Name of its interface.
      time_limit: Default of `max_steps_in_episode`.
      actions: Action space.
    """

    task: Any
    interface: str
    time_limit: int
    actions: Any

    def __deepcopy__(self, memo: Any) -> "AdaptedEnvironment":
        """The adapter itself: neither it nor its object changes."""
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AdaptedEnvironment) and self.task is other.task and self._contents == other._contents

    def __hash__(self) -> int:
        return hash((id(self.task), self._contents))

    @property
    def _contents(self) -> tuple[Any, ...]:
        return self.interface, self.time_limit, value_of(self.actions)

    @property
    def name(self) -> str:
        """The name of the object's class."""
        return type(self.task).__name__

    def __repr__(self) -> str:
        """The class, the interface and the time limit."""
        return f"<{self.name} as an environment of {self.interface}, at most {self.time_limit} steps>"

    @property
    def default_params(self) -> Any:
        """The object's own parameters with the time limit, or `AdaptedParams`, or the time limit alone."""
        own = own_params(self.task)
        if own is None:
            return SuiteParams(max_steps_in_episode=self.time_limit)
        if hasattr(own, LIMIT):
            return dataclasses.replace(own, **{LIMIT: self.time_limit})
        return AdaptedParams(inner=own, max_steps_in_episode=self.time_limit)

    def begin(self, key: jax.Array, params: Params) -> tuple[Any, Any]:
        """The object's reset."""
        obs, inner = INTERFACES[self.interface][0](self.task, key, _theirs(params))
        obs, mask = without_mask(obs, self.actions, self.name)
        return obs, Held(inner, mask, jnp.zeros((), bool))

    def advance(self, key: jax.Array, inner: Any, action: Action, params: Params) -> Transition:
        """The object's step."""
        step = INTERFACES[self.interface][1](self.task, key, inner.state, action, _theirs(params))
        obs, mask = without_mask(step.obs, self.actions, self.name)
        held = Held(step.inner, mask, jnp.asarray(step.truncated, bool).reshape(()))
        return Transition(obs, held, step.reward, step.terminated)

    def is_truncated(self, state: State, params: Params) -> jax.Array:
        """The time limit, or the end of an episode that the object reports as one."""
        return super().is_truncated(state, params) | state.inner.truncated

    def action_mask(self, state: State, params: Params) -> Any:
        """The entry `action_mask` of the object's observations; None without one."""
        del params
        return state.inner.mask

    def action_space(self, params: Params = None) -> spaces.Space:
        """The object's action space."""
        return self.actions


@in_own_settings
def adapt(
    env: Any, *, time_limit: int | None = None, actions: int | spaces.Space | None = None, verbose: bool = True
) -> base.Environment:
    """An environment object of another library's interface under the contract of `envs`.

    Recognised are objects in JAX with the methods of gymnax 1.x and 0.x, Brax, jumanji, and of interfaces whose
    timestep holds the state; an automatic reset inside `step` must be left out, so pass the environment without such
    a wrapper. What ends an episode terminates it, except for the limit `max_steps_in_episode` of gymnax's parameters,
    its `is_truncated`, the truncations of Brax's `EpisodeWrapper`, and the last timestep with a discount above 0, which
    truncate: a limit of another name that is part of `done` cannot be told apart. The object is kept as long as the
    process.

    Args:
      env: Environment object; an `envs.Environment` is returned unchanged.
      time_limit: Number of steps after which an episode is truncated; None for the object's own limit where it is
        known, or 1,000.
      actions: Number of actions, or action space; None for the object's own.
      verbose: Whether to print the interface that the object was recognised by.

    Returns:
      The environment. Numbers in gymnax's parameters are traced.

    Raises:
      TypeError: The object has none of these interfaces, its action space or its mask is not supported, its step
        returns other shapes than its reset, or it is a task that `envs.make` takes by its name.
      ValueError: `time_limit` or `actions` is below 1.
    """
    check_flag("verbose", verbose)
    if isinstance(env, base.Environment):
        return env
    if inspect.isclass(env):
        raise UserTypeError(f"env is the class {env.__name__}; it must be an object, such as {env.__name__}().")
    refuse(env)
    interface = interface_of(env)
    name = type(env).__name__
    if actions is not None and not isinstance(actions, spaces.Space):
        check_count("actions", actions, why=", or an action space of envs.spaces")
    space = as_space(own_actions(env, name) if actions is None else actions, name)
    if time_limit is not None:
        check_count("time_limit", time_limit)
    adapted = AdaptedEnvironment(env, interface, time_limit or own_limit(env), space)
    check_returned(adapted, f"the reset of {name}", "its step", "done")
    if verbose:
        print(f"envs.adapt: {adapted!r}", file=sys.stderr)
    return adapted


def _theirs(params: Params) -> Any:
    """The parameters in the object's interface."""
    if isinstance(params, SuiteParams):
        return None
    return params.inner if isinstance(params, AdaptedParams) else params
