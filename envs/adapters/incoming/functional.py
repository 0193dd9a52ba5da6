"""Gymnasium's functional environments: `envs.make("functional/phys2d/CartPole-v1")`, or `from_func_env` for others."""

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
from envs.adapters.incoming import from_gymnasium
from envs.adapters.incoming.suite import LIMIT, params_with
from envs.base import spaces
from envs.casting import cast, held_types
from envs.errors import UserTypeError, UserValueError
from envs.pytrees import Action, Params, PyTree, State
from envs.settings import own_settings
from envs.spelling import near

_PREFIXES = ("phys2d/", "tabular/")
_TIME_LIMIT = 1000


@struct.dataclass
class FunctionalState(base.EnvState):
    """The state of an episode.

    Attributes:
      time: Number of steps taken.
      inner: State of the adapted environment.
    """

    time: jax.Array
    inner: Any


@dataclass(frozen=True, eq=False)
class FunctionalEnvironment(base.Environment):
    """One of Gymnasium's functional environments.

    The floats among its parameters are traced, under their own names, together with the time limit; all other
    parameters are static. One key serves a whole step, as in Gymnasium. Two adapters are equal if their environments
    are of one class and hold equal values.

    Attributes:
      func_env: Environment, written in JAX.
      time_limit: Default number of steps of an episode.
      env_id: Name in Gymnasium, or None.
      fields: Static parameters that differ from the environment's own, as sorted (name, value) pairs.
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
        """The name that `envs.make` takes, or the name of the class."""
        return type(self.func_env).__name__ if self.env_id is None else f"functional/{self.env_id}"

    @property
    def default_params(self) -> Any:
        """The environment's own floats, and the time limit."""
        own: Any = self.func_env.default_params
        numbers = {name: getattr(own, name) for name in _traced(own)}
        time_limit = numbers.pop(LIMIT, self.time_limit)
        return params_with(numbers, time_limit)

    def reset_env(self, key: jax.Array, params: Params) -> tuple[Any, FunctionalState]:
        """`initial`, then `observation`."""
        inner = cast(self.func_env.initial(key, **self._inner(params)), _types(self)[0])
        return self._observe(key, inner, params), FunctionalState(jnp.zeros((), jnp.int32), inner)

    def step_env(
        self, key: jax.Array, state: FunctionalState, action: Action, params: Params
    ) -> tuple[Any, FunctionalState, jax.Array, jax.Array, dict[Any, Any]]:
        """`transition`, then `observation`, `reward` and `terminal`."""
        theirs = from_gymnasium.action_value(self.func_env.action_space, action, jnp)
        own = self._inner(params)
        inner = cast(self.func_env.transition(state.inner, theirs, key, **own), _types(self)[0])
        reward = jnp.asarray(self.func_env.reward(state.inner, theirs, inner, key, **own), jnp.float32).reshape(())
        terminated = jnp.asarray(self.func_env.terminal(inner, key, **own), bool).reshape(())
        state = FunctionalState(state.time + 1, inner)
        return self._observe(key, inner, params), state, reward, terminated, {}

    def action_space(self, params: Params = None) -> spaces.Space:
        """Gymnasium's action space."""
        return from_gymnasium.action_space(self.func_env.action_space, self.name)

    def observation_space(self, params: Params) -> spaces.Space:
        """Gymnasium's observation space."""
        return from_gymnasium.observation_space(self.func_env.observation_space, self.name)

    def _observe(self, key: jax.Array, inner: Any, params: Params) -> Any:
        obs = self.func_env.observation(inner, key, **self._inner(params))
        return from_gymnasium.observation_value(self.func_env.observation_space, obs, jnp)

    def _inner(self, params: Params) -> dict[str, Any]:
        """The argument `params` of the environment's functions, which some environments do not take."""
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
    """Adapt any functional environment of Gymnasium's kind to the contract of `envs`.

    Args:
      func_env: `gymnasium.experimental.functional.FuncEnv` in JAX, not transformed by `jax.vmap`.
      time_limit: Largest number of steps of an episode, the default of the parameter `max_steps_in_episode`.

    Raises:
      TypeError: `func_env` is not a `FuncEnv`, or holds a value that cannot be hashed.
      ValueError: Its spaces cannot be adapted, or `time_limit` is not a whole number of at least 1.
    """
    return FunctionalEnvironment(func_env, time_limit)


def environment_ids() -> tuple[str, ...]:
    """Gymnasium's own functional environments, by their ids."""
    return tuple(env_id for env_id in gymnasium.registry if env_id.startswith(_PREFIXES))


def make(env_id: str, **fields: object) -> FunctionalEnvironment:
    """The adapter of one environment; see `envs.make`.

    Raises:
      ValueError: The environment has no such static parameter.
      TypeError: A parameter's value cannot be hashed.
    """
    with jax.ensure_compile_time_eval():
        # Gymnasium compiles the functions of its own instance, to which static parameters cannot be passed.
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
@own_settings()
def _types(env: FunctionalEnvironment) -> tuple[Any]:
    """The types of the environment's own state; in a tuple, because states may be tuples themselves."""
    with jax.ensure_compile_time_eval():
        params, theirs = env.default_params, env.func_env.action_space
        key = jax.eval_shape(lambda: jax.random.key(0))
        first = jax.eval_shape(lambda key: env.func_env.initial(key, **env._inner(params)), key)

        def step(state: State, key: jax.Array) -> Any:
            action = from_gymnasium.action_value(theirs, env.action_space().sample(key), jnp)
            return env.func_env.transition(state, action, key, **env._inner(params))

        return (held_types(first, lambda state: jax.eval_shape(step, state, key)),)


def _with_fields(own: PyTree, fields: Any) -> Any:
    return dataclasses.replace(own, **fields)


def _traced(own: PyTree) -> list[str]:
    """The names of the traced parameters: floats, and a time limit if it is called `max_steps_in_episode`."""
    if not dataclasses.is_dataclass(own):
        return []
    names = [each.name for each in dataclasses.fields(own)]
    return [name for name in names if name == LIMIT or jnp.issubdtype(_dtype(getattr(own, name)), np.inexact)]


def _dtype(value: object) -> Any:
    return np.asarray(value).dtype


def _hashable(env: FunctionalEnvironment, name: str, value: object) -> Hashable:
    """A key that is equal for equal values; arrays are compared by number."""
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
            f"{type(env.func_env).__name__}.{name} is {value!r}, which cannot be hashed; environments may hold "
            "numbers, strings, arrays, spaces, or trees of these."
        ) from error
    return value
