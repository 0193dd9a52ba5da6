"""Interfaces of other libraries that `envs.adapt` supports: how to recognise, reset and step each."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from envs.adapters.incoming import suite
from envs.adapters.incoming.suite import LIMIT, Transition, unpacked
from envs.base import spaces
from envs.errors import UserTypeError
from envs.pytrees import Action, Observation, Params

__all__ = ["INTERFACES", "interface_of", "own_actions", "own_limit", "own_params", "refuse", "without_mask"]

_TIME_LIMIT = 1000
_FAR = 2**30  # steps
_KNOWN = """gymnax 1.x or 0.x (reset_env, step_env, default_params), Brax (reset(key) -> state with obs, reward and
 done; step(state, action)), jumanji (reset(key) -> (state, timestep)) and timesteps that hold their state
 (reset(key) -> timestep; step(timestep, action))""".replace("\n", "")


def refuse(env: Any) -> None:
    """Reject objects on the host, tasks of Jumanji, and objects that reset themselves.

    Raises:
      TypeError: The object is one of these.
    """
    name = type(env).__name__
    if isinstance(env, str):
        raise UserTypeError(f"env is {env!r}; it must be an object; envs.make({env!r}) takes names.")
    if isinstance(env, tuple):
        raise UserTypeError("env is a tuple; pass the environment alone, which gymnax.make returns first.")
    if any(kind.__module__.startswith("gymnasium.") for kind in type(env).__mro__):
        raise UserTypeError(f"{name} runs on the host; envs.make('gymnasium/ID') takes environments of Gymnasium.")
    if type(env).__module__.startswith("jumanji.environments"):
        raise UserTypeError(
            f"{name} reports its time limit as a termination; envs.make('jumanji/...') tells them apart, and "
            "jaxrl envs jumanji lists the names."
        )
    inner, seen = env, set()
    while inner is not None and id(inner) not in seen:
        seen.add(id(inner))
        kind = type(inner).__name__.lower().replace("_", "")
        if "autoreset" in kind and "noautoreset" not in kind:
            raise UserTypeError(
                f"{type(inner).__name__} resets episodes inside step, which hides their last observations; pass the "
                "environment without it."
            )
        inner = vars(inner).get("_env", vars(inner).get("env")) if hasattr(inner, "__dict__") else None


def interface_of(env: Any) -> str:
    """The name of an object's interface."""
    if hasattr(env, "reset_env") and hasattr(env, "step_env"):
        return "gymnax 1.x" if hasattr(env, "is_truncated") else "gymnax 0.x"
    if callable(getattr(env, "reset", None)) and callable(getattr(env, "step", None)):
        try:
            with jax.ensure_compile_time_eval():
                first = jax.eval_shape(env.reset, jax.eval_shape(lambda: jax.random.key(0)))
        except Exception as error:
            raise _unknown(
                env, f"reset(key) fails ({type(error).__name__}: {str(error).partition(chr(10))[0]})"
            ) from error
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
        f"{type(env).__name__} has none of the interfaces {_KNOWN}: {why}; envs.from_functions takes any "
        "reset and step."
    )


def _is_timestep(value: object) -> bool:
    return all(hasattr(value, name) for name in ("step_type", "reward", "observation", "last"))


def own_params(task: Any) -> Any:
    """The parameters of an object with gymnax's functions, or None."""
    params = getattr(task, "default_params", None)
    return params() if callable(params) else params


def own_limit(task: Any) -> int:
    """The limit in gymnax's parameters, or an attribute `time_limit`, `max_steps` or `episode_length`; or 1,000.

    Raises:
      TypeError: The limit is not a whole number.
    """
    limits = {LIMIT: getattr(own_params(task), LIMIT, None)}
    limits |= {name: getattr(task, name, None) for name in ("time_limit", "max_steps", "episode_length")}
    for name, limit in limits.items():
        if limit is None or callable(limit):
            continue
        if np.ndim(limit) or float(limit) != int(limit) or limit < 1:
            raise UserTypeError(f"{type(task).__name__}: {name} is {limit!r}; pass time_limit=, a whole number.")
        return int(limit)
    return _TIME_LIMIT


def own_actions(task: Any, name: str) -> Any:
    """The action space or its specification, or the number of actions, in the object's interface.

    Args:
      task: Object.
      name: Name of the object, for the error message.

    Raises:
      TypeError: The object has none of these.
    """
    for attribute in ("action_space", "action_spec", "num_actions", "action_size"):
        if not hasattr(task, attribute):
            continue
        value: Any = getattr(task, attribute)
        if callable(value):
            takes = inspect.signature(value).parameters
            value = value(own_params(task)) if takes and own_params(task) is not None else value()
        return spaces.Box(-1.0, 1.0, (int(value),), jnp.float32) if attribute == "action_size" else value
    raise UserTypeError(f"{name} has no action space; pass actions=, a number of actions or a space of envs.spaces.")


def _begin_gymnax(task: Any, key: jax.Array, params: Params) -> tuple[Any, Any]:
    return unpacked(task.reset_env(key, params), f"{type(task).__name__}.reset_env", ("obs", "state"))


def _advance_gymnax(task: Any, key: jax.Array, inner: Any, action: Action, params: Params) -> Transition:
    wanted = ("obs", "state", "reward", "done", "info")
    returned = task.step_env(key, inner, action, params)
    obs, inner, reward, terminated, _ = unpacked(returned, f"{type(task).__name__}.step_env", wanted)
    return Transition(obs, inner, reward, terminated)


def _advance_new_gymnax(task: Any, key: jax.Array, inner: Any, action: Action, params: Params) -> Transition:
    """The step, and whether the object truncates the episode after it."""
    step = _advance_gymnax(task, key, inner, action, params)
    return step._replace(truncated=task.is_truncated(step.inner, params))


def _advance_old_gymnax(task: Any, key: jax.Array, inner: Any, action: Action, params: Params) -> Transition:
    """The step, of which only `done` comes from the same step with a limit that is far away."""
    step = _advance_gymnax(task, key, inner, action, params)
    if not hasattr(params, LIMIT):
        return step
    later = dataclasses.replace(params, **{LIMIT: _FAR})
    return step._replace(terminated=_advance_gymnax(task, key, inner, action, later).terminated)


def _begin_brax(task: Any, key: jax.Array, params: Params) -> tuple[Any, Any]:
    del params
    state = task.reset(key)
    return state.obs, state


def _advance_brax(task: Any, key: jax.Array, inner: Any, action: Action, params: Params) -> Transition:
    del key, params
    state = task.step(inner, action)
    info = getattr(state, "info", None)
    reported = info.get("truncation", 0) if isinstance(info, Mapping) else 0  # by Brax's EpisodeWrapper
    truncated = jnp.asarray(reported, bool)
    return Transition(state.obs, state, state.reward, (state.done > 0) & ~truncated, truncated=truncated)


def _begin_jumanji(task: Any, key: jax.Array, params: Params) -> tuple[Any, Any]:
    del params
    state, timestep = task.reset(key)
    return timestep.observation, state


def _advance_jumanji(task: Any, key: jax.Array, inner: Any, action: Action, params: Params) -> Transition:
    del key, params
    state, timestep = task.step(inner, action)
    return _transition(timestep, state)


def _begin_timestep(task: Any, key: jax.Array, params: Params) -> tuple[Any, Any]:
    del params
    timestep = task.reset(key)
    return timestep.observation, timestep


def _advance_timestep(task: Any, key: jax.Array, inner: Any, action: Action, params: Params) -> Transition:
    del key, params
    timestep = task.step(inner, action)
    return _transition(timestep, timestep)


def _transition(timestep: Any, inner: Any) -> Transition:
    """The transition of a timestep: the last one terminates if it has no value after it, and otherwise truncates."""
    last = timestep.last()
    terminated = last & jnp.all(timestep.discount == 0) if hasattr(timestep, "discount") else last
    return Transition(timestep.observation, inner, timestep.reward, terminated, truncated=last & ~terminated)


def without_mask(obs: Observation, actions: spaces.Space, name: str) -> tuple[Any, Any]:
    """An observation as dictionaries, without its entry `action_mask`, and that entry.

    Args:
      obs: Observation of an object.
      actions: Action space.
      name: Name of the object, for the error message.

    Returns:
      The observation, and the allowed actions, bool `[num_actions]`, all where none is; None without an entry.

    Raises:
      TypeError: The mask is not one of the actions.
    """
    named = suite.as_dictionaries(obs)
    if not isinstance(named, dict) or "action_mask" not in named:
        return named, None
    mask = jnp.asarray(named.pop("action_mask"), bool)
    if not isinstance(actions, spaces.Discrete) or mask.shape != (actions.n,):
        raise UserTypeError(
            f"{name}: the mask has the shape {list(mask.shape)}, and the actions are {actions!r}; masks of a single "
            "number of choices are supported."
        )
    return (next(iter(named.values())) if len(named) == 1 else named), mask | ~jnp.any(mask)


INTERFACES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "gymnax 1.x": (_begin_gymnax, _advance_new_gymnax),
    "gymnax 0.x": (_begin_gymnax, _advance_old_gymnax),
    "Brax": (_begin_brax, _advance_brax),
    "jumanji": (_begin_jumanji, _advance_jumanji),
    "timesteps": (_begin_timestep, _advance_timestep),
}
