"""Environment objects of other interfaces, recognised by their methods: `envs.adapt(env)`."""

import dataclasses
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs import base
from envs.adapters.incoming.suite import LIMIT, Adapter, SuiteParams, Transition, types_of
from envs.adapters.incoming.their_spaces import as_space
from envs.arguments import check_count
from envs.base import spaces
from envs.errors import UserTypeError
from envs.settings import in_own_settings

__all__ = ["AdaptedEnvironment", "AdaptedParams", "adapt"]

_TIME_LIMIT = 1000
_LATER = np.iinfo(np.int32).max
_INTERFACES = """gymnax 1.x or 0.x (reset_env, step_env, default_params), Brax (reset(key) -> state with obs, reward and
 done; step(state, action)), jumanji (reset(key) -> (state, timestep)) and timesteps that hold their state
 (reset(key) -> timestep; step(timestep, action))""".replace("\n", "")


@struct.dataclass
class AdaptedParams(base.EnvParams):
    """The parameters of an adapted object whose own parameters have no time limit.

    Attributes:
      inner: Parameters in its own interface.
      max_steps_in_episode: Time limit.
    """

    inner: Any = None
    max_steps_in_episode: int = _TIME_LIMIT


@dataclass(frozen=True)
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
        return isinstance(other, AdaptedEnvironment) and self._contents == other._contents

    def __hash__(self) -> int:
        return hash(self._contents)

    @property
    def _contents(self) -> tuple[Any, ...]:
        return id(self.task), self.interface, self.time_limit, repr(self.actions)

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
        own = _own_params(self.task)
        if own is None:
            return SuiteParams(max_steps_in_episode=self.time_limit)
        if hasattr(own, LIMIT):
            return dataclasses.replace(own, **{LIMIT: self.time_limit})
        return AdaptedParams(inner=own, max_steps_in_episode=self.time_limit)

    def begin(self, key: jax.Array, params: Any) -> tuple[Any, Any]:
        """The object's reset."""
        obs, inner = _INTERFACE[self.interface][0](self.task, key, _theirs(params))
        return _without_mask(obs)[0], (inner, _without_mask(obs)[1])

    def advance(self, key: jax.Array, inner: Any, action: Any, params: Any) -> Transition:
        """The object's step."""
        step = _INTERFACE[self.interface][1](self.task, key, inner[0], action, _theirs(params))
        obs, mask = _without_mask(step.obs)
        return step._replace(obs=obs, inner=(step.inner, mask))

    def action_mask(self, state: Any, params: Any) -> Any:
        """The entry `action_mask` of the object's observations, of one number of choices; otherwise None."""
        del params
        mask = state.inner[1]
        if mask is None or not isinstance(self.actions, spaces.Discrete):
            return None
        return mask if mask.shape == (self.actions.n,) else None

    def action_space(self, params: Any = None) -> spaces.Space:
        """The object's action space."""
        return self.actions


@in_own_settings
def adapt(
    env: Any, *, time_limit: int | None = None, actions: int | spaces.Space | None = None, verbose: bool = True
) -> base.Environment:
    """An environment object of another library's interface under the contract of `envs`.

    Recognised are objects in JAX with the methods of gymnax 1.x and 0.x, Brax, jumanji, and of interfaces whose
    timestep holds the state; an automatic reset inside `step` must be left out, so pass the environment without such
    a wrapper. What ends an episode terminates it, except for the limit `max_steps_in_episode` of gymnax's parameters
    and for the end of a timestep whose discount is above 0.

    Args:
      env: Environment object; an `envs.Environment` is returned unchanged.
      time_limit: Number of steps after which an episode is truncated; None for the object's own limit where it is
        known, or 1,000.
      actions: Number of actions, or action space; None for the object's own.
      verbose: Whether to print the interface that the object was recognised by.

    Returns:
      The environment. Numbers in gymnax's parameters are traced.

    Raises:
      TypeError: The object has none of these interfaces, or its action space is not known.
      ValueError: `time_limit` or `actions` is below 1.
    """
    if isinstance(env, base.Environment):
        return env
    if inspect.isclass(env):
        raise UserTypeError(f"env is the class {env.__name__}; it must be an object, such as {env.__name__}().")
    _refuse(env)
    interface = _interface(env)
    name = type(env).__name__
    if actions is not None and not isinstance(actions, spaces.Space):
        check_count("actions", actions, why=", or an action space of envs.spaces")
    space = as_space(_own_actions(env, name) if actions is None else actions, name)
    if time_limit is not None:
        check_count("time_limit", time_limit)
    adapted = AdaptedEnvironment(env, interface, time_limit or _own_limit(env), space)
    types_of(adapted)
    if verbose:
        print(f"envs.adapt: {adapted!r}", file=sys.stderr)
    return adapted


def _refuse(env: Any) -> None:
    """Reject objects on the host and those that reset themselves."""
    name = type(env).__name__
    if any(kind.__module__.startswith("gymnasium.") for kind in type(env).__mro__):
        raise UserTypeError(f"{name} runs on the host; envs.make('gymnasium/ID') takes environments of Gymnasium.")
    inner = env
    while inner is not None:
        if "autoreset" in type(inner).__name__.lower():
            raise UserTypeError(
                f"{type(inner).__name__} resets episodes inside step, which hides their last observations; pass the "
                "environment without it."
            )
        inner = vars(inner).get("_env", vars(inner).get("env")) if hasattr(inner, "__dict__") else None


def _interface(env: Any) -> str:
    """The name of an object's interface."""
    if hasattr(env, "reset_env") and hasattr(env, "step_env"):
        return "gymnax 1.x" if hasattr(env, "is_truncated") else "gymnax 0.x"
    if callable(getattr(env, "reset", None)) and callable(getattr(env, "step", None)):
        try:
            with jax.ensure_compile_time_eval():
                first = jax.eval_shape(env.reset, jax.eval_shape(lambda: jax.random.key(0)))
        except Exception as error:
            raise _unknown(env, f"reset(key) fails ({type(error).__name__}: {str(error).splitlines()[0]})") from error
        if isinstance(first, tuple) and len(first) == 2 and _is_timestep(first[1]):
            return "jumanji"
        if _is_timestep(first):
            return "timesteps"
        if all(hasattr(first, name) for name in ("obs", "reward", "done")):
            return "Brax"
        raise _unknown(env, f"reset(key) returns {type(first).__name__}")
    raise _unknown(env, "it has no functions reset and step")


def _unknown(env: Any, why: str) -> UserTypeError:
    return UserTypeError(
        f"{type(env).__name__} has none of the interfaces {_INTERFACES}: {why}; envs.from_functions takes any "
        "reset and step."
    )


def _is_timestep(value: Any) -> bool:
    return all(hasattr(value, name) for name in ("step_type", "reward", "observation"))


def _own_params(task: Any) -> Any:
    params = getattr(task, "default_params", None)
    return None if callable(params) else params


def _own_limit(task: Any) -> int:
    """The limit in gymnax's parameters, or an attribute `time_limit`, `max_steps` or `episode_length`; or 1,000."""
    limits = [getattr(_own_params(task), LIMIT, None)]
    limits += [getattr(task, name, None) for name in ("time_limit", "max_steps", "episode_length")]
    known = [limit for limit in limits if isinstance(limit, int) and not isinstance(limit, bool) and limit > 0]
    return known[0] if known else _TIME_LIMIT


def _theirs(params: Any) -> Any:
    """The parameters in the object's interface: gymnax's without a limit, so that it is no termination."""
    if isinstance(params, SuiteParams):
        return None
    return params.inner if isinstance(params, AdaptedParams) else dataclasses.replace(params, **{LIMIT: _LATER})


def _own_actions(task: Any, name: str) -> Any:
    for attribute in ("action_space", "action_spec", "num_actions", "action_size"):
        if not hasattr(task, attribute):
            continue
        value: Any = getattr(task, attribute)
        if callable(value):
            takes = inspect.signature(value).parameters
            value = value(_own_params(task)) if takes and _own_params(task) is not None else value()
        return spaces.Box(-1.0, 1.0, (int(value),), jnp.float32) if attribute == "action_size" else value
    raise UserTypeError(f"{name} has no action space; pass actions=, a number of actions or a space of envs.spaces.")


def _begin_gymnax(task: Any, key: jax.Array, params: Any) -> tuple[Any, Any]:
    return task.reset_env(key, params)


def _advance_gymnax(task: Any, key: jax.Array, inner: Any, action: Any, params: Any) -> Transition:
    obs, inner, reward, terminated, _ = task.step_env(key, inner, action, params)
    return Transition(obs, inner, reward, terminated)


def _begin_brax(task: Any, key: jax.Array, params: Any) -> tuple[Any, Any]:
    del params
    state = task.reset(key)
    return state.obs, state


def _advance_brax(task: Any, key: jax.Array, inner: Any, action: Any, params: Any) -> Transition:
    del key, params
    state = task.step(inner, action)
    terminated = (state.done > 0) & ~jnp.asarray(state.info.get("truncation", 0), bool)  # of Brax's EpisodeWrapper
    return Transition(state.obs, state, state.reward, terminated)


def _begin_jumanji(task: Any, key: jax.Array, params: Any) -> tuple[Any, Any]:
    del params
    state, timestep = task.reset(key)
    return timestep.observation, state


def _advance_jumanji(task: Any, key: jax.Array, inner: Any, action: Any, params: Any) -> Transition:
    del key, params
    state, timestep = task.step(inner, action)
    return Transition(timestep.observation, state, timestep.reward, _terminated(timestep))


def _begin_timestep(task: Any, key: jax.Array, params: Any) -> tuple[Any, Any]:
    del params
    timestep = task.reset(key)
    return timestep.observation, timestep


def _advance_timestep(task: Any, key: jax.Array, inner: Any, action: Any, params: Any) -> Transition:
    del key, params
    timestep = task.step(inner, action)
    return Transition(timestep.observation, timestep, timestep.reward, _terminated(timestep))


def _terminated(timestep: Any) -> jax.Array:
    """Whether a timestep is the last and has no value after it."""
    last = timestep.last()
    return last & jnp.all(timestep.discount == 0) if hasattr(timestep, "discount") else last


def _without_mask(obs: Any) -> tuple[Any, Any]:
    """An observation as dictionaries, without its entry `action_mask`, and that entry or None."""
    named = _as_dictionaries(obs)
    if not isinstance(named, dict) or "action_mask" not in named:
        return named, None
    mask = named.pop("action_mask")
    return (next(iter(named.values())) if len(named) == 1 else named), mask


def _as_dictionaries(obs: Any) -> Any:
    if isinstance(obs, Mapping):
        return {name: _as_dictionaries(part) for name, part in obs.items()}
    if hasattr(obs, "_asdict"):
        return _as_dictionaries(obs._asdict())
    if dataclasses.is_dataclass(obs):
        return {field.name: _as_dictionaries(getattr(obs, field.name)) for field in dataclasses.fields(obs)}
    return obs


_INTERFACE: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "gymnax 1.x": (_begin_gymnax, _advance_gymnax),
    "gymnax 0.x": (_begin_gymnax, _advance_gymnax),
    "Brax": (_begin_brax, _advance_brax),
    "jumanji": (_begin_jumanji, _advance_jumanji),
    "timesteps": (_begin_timestep, _advance_timestep),
}
