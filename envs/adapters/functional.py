"""Gymnasium's functional environments: `envs.make("functional/phys2d/CartPole-v1")`, or `from_func_env` for any."""

import dataclasses
import functools
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from gymnasium.experimental.functional import FuncEnv

from envs import base
from envs.adapters import from_gymnasium
from envs.adapters.casting import cast, held_types
from envs.base import spaces
from envs.errors import UserTypeError, UserValueError
from envs.spelling import near

_PREFIXES = ("phys2d/", "tabular/")
_TIME_LIMIT = 1000
_LIMIT = "max_steps_in_episode"


@struct.dataclass
class FunctionalState(base.EnvState):
    """An episode.

    Attributes:
      time: steps taken.
      inner: the environment's own state.
    """

    time: jax.Array
    inner: Any


@dataclass(frozen=True, eq=False)
class FunctionalEnvironment(base.Environment):
    """One of Gymnasium's functional environments.

    The numbers among its parameters that are floats are traced, under their own names, beside the time limit;
    everything else of it is static. One key serves a whole step, as in Gymnasium. Two adapters are equal where the
    environments are of one class and hold equal values.

    Attributes:
      func_env: the environment, written in JAX.
      time_limit: steps of an episode where the parameters do not say otherwise.
      env_id: Gymnasium's name of it, or None.
      fields: static parameters that differ from the environment's own, as sorted (name, value) pairs.
    """

    func_env: Any
    time_limit: int = _TIME_LIMIT
    env_id: str | None = None
    fields: tuple[tuple[str, Hashable], ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.func_env, FuncEnv):
            raise UserTypeError(f"func_env takes a gymnasium.experimental.functional.FuncEnv, got {self.func_env!r}.")
        if isinstance(self.time_limit, bool) or not isinstance(self.time_limit, int) or self.time_limit < 1:
            raise UserValueError(f"time_limit takes a whole number of at least 1, got {self.time_limit!r}.")
        _ = self._contents
        self.action_space()
        from_gymnasium.observation_space(self.func_env.observation_space, self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FunctionalEnvironment) and self._contents == other._contents

    def __hash__(self) -> int:
        return hash(self._contents)

    @property
    def name(self) -> str:
        """The name that `envs.make` takes, or the class's."""
        return type(self.func_env).__name__ if self.env_id is None else f"functional/{self.env_id}"

    @property
    def default_params(self) -> Any:
        """The environment's own floats, and the time limit."""
        own: Any = self.func_env.default_params
        numbers = {name: getattr(own, name) for name in _traced(own)}
        return _params({_LIMIT: self.time_limit, **numbers})

    def reset_env(self, key: jax.Array, params: Any) -> tuple[Any, FunctionalState]:
        """`initial`, then `observation`."""
        inner = cast(self.func_env.initial(key, **self._inner(params)), _types(self)[0])
        return self._observe(key, inner, params), FunctionalState(jnp.zeros((), jnp.int32), inner)

    def step_env(
        self, key: jax.Array, state: FunctionalState, action: Any, params: Any
    ) -> tuple[Any, FunctionalState, jax.Array, jax.Array, dict[Any, Any]]:
        """`transition`, then `observation`, `reward` and `terminal`."""
        theirs = from_gymnasium.action_value(self.func_env.action_space, action, jnp)
        own = self._inner(params)
        inner = cast(self.func_env.transition(state.inner, theirs, key, **own), _types(self)[0])
        reward = jnp.asarray(self.func_env.reward(state.inner, theirs, inner, key, **own), jnp.float32).reshape(())
        terminated = jnp.asarray(self.func_env.terminal(inner, key, **own), bool).reshape(())
        state = FunctionalState(state.time + 1, inner)
        return self._observe(key, inner, params), state, reward, terminated, {}

    def action_space(self, params: Any = None) -> spaces.Space:
        """Gymnasium's action space."""
        return from_gymnasium.action_space(self.func_env.action_space, self.name)

    def observation_space(self, params: Any) -> spaces.Space:
        """Gymnasium's observation space."""
        return from_gymnasium.observation_space(self.func_env.observation_space, self.name)

    def _observe(self, key: jax.Array, inner: Any, params: Any) -> Any:
        obs = self.func_env.observation(inner, key, **self._inner(params))
        return from_gymnasium.observation_value(self.func_env.observation_space, obs, jnp)

    def _inner(self, params: Any) -> dict[str, Any]:
        """The argument `params` of the environment's functions, which some without parameters do not take."""
        own: Any = self.func_env.default_params
        if own is None:
            return {}
        names = _traced(own)
        return {"params": dataclasses.replace(own, **{name: getattr(params, name) for name in names}) if names else own}

    @property
    def _contents(self) -> tuple[Hashable, ...]:
        held = tuple((name, _hashable(self, name, value)) for name, value in sorted(vars(self.func_env).items()))
        return type(self.func_env), held, self.time_limit, self.env_id, self.fields


def from_func_env(func_env: Any, time_limit: int = _TIME_LIMIT) -> FunctionalEnvironment:
    """A functional environment of Gymnasium's, of anyone's, under our contract.

    Args:
      func_env: a `gymnasium.experimental.functional.FuncEnv` in JAX, not transformed by `jax.vmap`.
      time_limit: steps of an episode, a default of the parameter `max_steps_in_episode`.

    Raises:
      TypeError: it is none, or holds what cannot be hashed.
      ValueError: its spaces cannot be adapted, or `time_limit` is no whole number of at least 1.
    """
    return FunctionalEnvironment(func_env, time_limit)


def environment_ids() -> tuple[str, ...]:
    """Gymnasium's own functional environments, by their ids."""
    return tuple(env_id for env_id in gymnasium.registry if env_id.startswith(_PREFIXES))


def make(env_id: str, **fields: object) -> FunctionalEnvironment:
    """The adapter of one environment; see `envs.make`.

    Raises:
      ValueError: the environment has no such static parameter.
      TypeError: its value cannot be hashed.
    """
    with jax.ensure_compile_time_eval():
        # Gymnasium compiles the functions of the one that it makes, which static parameters cannot pass.
        func_env = type(gymnasium.make(env_id).unwrapped.func_env)()  # pyright: ignore[reportAttributeAccessIssue]
    own: Any = func_env.default_params
    known = [] if own is None else [each.name for each in dataclasses.fields(own) if each.name not in _traced(own)]
    for name, value in fields.items():
        if name not in known:
            takes = f"its static fields are {', '.join(known)}" if known else "it has no static fields"
            hint = near(name, known) or f"; {takes}."
            raise UserValueError(f"The environment 'functional/{env_id}' has no static field {name!r}{hint}")
        if not isinstance(value, Hashable):
            raise UserTypeError(f"functional/{env_id}: the static field {name!r} is {value!r}, which cannot be hashed.")
    if fields:
        func_env.default_params = _with_fields(own, fields)
    limit = gymnasium.spec(env_id).max_episode_steps or _TIME_LIMIT
    return FunctionalEnvironment(func_env, limit, env_id, tuple(sorted(fields.items())))


@functools.cache
def _types(env: FunctionalEnvironment) -> tuple[Any]:
    """The types of the environment's own state; a tuple, as states may be tuples themselves."""
    with jax.ensure_compile_time_eval():
        params, theirs = env.default_params, env.func_env.action_space
        key = jax.eval_shape(lambda: jax.random.key(0))
        first = jax.eval_shape(lambda key: env.func_env.initial(key, **env._inner(params)), key)

        def step(state: Any, key: jax.Array) -> Any:
            action = from_gymnasium.action_value(theirs, env.action_space().sample(key), jnp)
            return env.func_env.transition(state, action, key, **env._inner(params))

        return (held_types(first, lambda state: jax.eval_shape(step, state, key)),)


def _with_fields(own: Any, fields: Any) -> Any:
    return dataclasses.replace(own, **fields)


def _traced(own: Any) -> list[str]:
    """The parameters that are traced: numbers with a point, and a time limit by our name."""
    if not dataclasses.is_dataclass(own):
        return []
    names = [each.name for each in dataclasses.fields(own)]
    return [name for name in names if name == _LIMIT or jnp.issubdtype(_dtype(getattr(own, name)), np.inexact)]


def _dtype(value: Any) -> Any:
    return np.asarray(value).dtype


@functools.cache
def _params_class(names: tuple[str, ...]) -> Any:
    """An `EnvParams` with these numbers beside the time limit."""
    annotations = dict.fromkeys(names, Any)
    body = {"__annotations__": annotations, "__reduce__": _reduced, **dict.fromkeys(annotations, 0.0)}
    return struct.dataclass(type("FunctionalParams", (base.EnvParams,), body))


def _params(numbers: dict[str, Any]) -> Any:
    return _params_class(tuple(name for name in numbers if name != _LIMIT))(**numbers)


def _reduced(params: Any) -> tuple[Any, ...]:
    """For `pickle`, which finds no class by its name that is made here."""
    return _params, ({each.name: getattr(params, each.name) for each in dataclasses.fields(params)},)


def _hashable(env: FunctionalEnvironment, name: str, value: Any) -> Hashable:
    """What two values have in common that are equal; arrays are compared number by number."""
    if isinstance(value, np.ndarray | jax.Array):
        return np.shape(value), np.asarray(value).tobytes()
    if isinstance(value, gymnasium.spaces.Box | spaces.Box):
        return str(value.dtype), value.shape, np.asarray(value.low).tobytes(), np.asarray(value.high).tobytes()
    if isinstance(value, gymnasium.spaces.Space | spaces.Space):
        return repr(value)
    leaves, structure = jax.tree.flatten(value)
    if not jax.tree_util.treedef_is_leaf(structure):
        return structure, tuple(_hashable(env, name, leaf) for leaf in leaves)
    try:
        hash(value)
    except TypeError as error:
        raise UserTypeError(
            f"{type(env.func_env).__name__}.{name} is {value!r}, which cannot be hashed; what an environment holds is "
            "numbers, strings, arrays, spaces, or trees of these."
        ) from error
    return value
