"""gymnax's environments: hashable by value, and with the types that a scan needs."""

import functools
import inspect
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from envs import base
from envs.arguments import check_flag
from envs.base import spaces
from envs.casting import cast, held_types
from envs.errors import UserTypeError, UserValueError
from envs.pytrees import Action, DiscountLike, Observation, Params, State
from envs.settings import own_settings

with own_settings():  # gymnax makes arrays while it is imported
    import gymnax
    from gymnax.environments import environment as gymnax_environment

# MemoryChain's context bits are -1 or 1 in bounds from 0; MetaMaze shows a reward of 10 in bounds up to 1;
# GaussianBandit shows rewards of either sign, and a time of -1, in bounds from 0.
_WRONG_BOUNDS = ("MemoryChain-bsuite", "MetaMaze-misc", "GaussianBandit-misc")
# Names of environments whose constructor downloads data.
DOWNLOADED = ("gymnax/MNISTBandit-bsuite",)
# Best expected returns under the defaults, undiscounted, which follow from the definitions.
_OPTIMA = {
    "CartPole-v1": 500.0,  # 1 for each step up to the limit
    "Catch-bsuite": 1.0,  # the paddle reaches every column before the ball lands
    "DeepSea-bsuite": 0.99,  # 1 at the end of 8 moves to the right, which cost 0.01 together
    "MemoryChain-bsuite": 1.0,
    "UmbrellaChain-bsuite": 1.0,  # the last reward; those before it have the mean 0
    "DiscountingChain-bsuite": 1.1,  # the largest of five rewards
    "SimpleBandit-bsuite": 0.5,  # the mean of the arms, which are shuffled before each episode of a single step
}


@dataclass(frozen=True)
class GymnaxEnvironment(base.Environment):
    """One of gymnax's environments.

    Its semantics are unchanged. Its states and observations get the same strong dtypes
    from a reset and from a step, its rewards become float32 and its termination a bool; and
    two adapters of the same environment are equal, which gymnax's own objects are not.

    Attributes:
      env_id: Name in gymnax, for instance `Breakout-MinAtar`.
      fields: Arguments of gymnax's constructor, as sorted (name, value) pairs.
    """

    env_id: str
    fields: tuple[tuple[str, Hashable], ...] = ()

    @property
    def inner(self) -> Any:
        """The environment as gymnax creates it."""
        return _inner(self)

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return f"gymnax/{self.env_id}"

    @property
    def default_params(self) -> Any:
        """gymnax's defaults."""
        return self.inner.default_params

    @property
    def num_actions(self) -> int:
        """The number of actions according to gymnax."""
        return self.inner.num_actions

    def optimum(
        self, params: Params = None, discount: DiscountLike = None, kind: base.OptimumKind = "precommitted"
    ) -> float | None:
        """The best return where it follows from the definition, undiscounted and under the defaults; otherwise None.

        All kinds are equal, except in MemoryChain, which a policy without memory does not solve.
        """
        if base.check_optimum_kind(kind) == "stationary" and self.env_id == "MemoryChain-bsuite":
            return None
        if self.fields or discount is not None:
            return None
        if params is not None:
            pairs = zip(jax.tree.leaves(params), jax.tree.leaves(self.default_params), strict=True)
            if any(np.any(value != default) for value, default in pairs):
                return None
        return _OPTIMA.get(self.env_id)

    def reset_env(self, key: jax.Array, params: Params) -> tuple[Any, Any]:
        """gymnax's reset."""
        return self._outward(*self.inner.reset_env(key, params))

    def step_env(
        self, key: jax.Array, state: State, action: Action, params: Params
    ) -> tuple[Any, Any, jax.Array, jax.Array, dict[Any, Any]]:
        """gymnax's step."""
        state = cast(state, _types(self)[1])
        obs, state, reward, terminated, info = self.inner.step_env(key, state, action, params)
        obs, state = self._outward(obs, state)
        return obs, state, jnp.asarray(reward, jnp.float32), jnp.asarray(terminated, bool), info

    @functools.partial(jax.jit, static_argnames=("self",))
    def step(  # pyright: ignore[reportIncompatibleMethodOverride] -- compiled, as gymnax's is
        self, key: jax.Array, state: State, action: Action, params: Params = None
    ) -> tuple[Any, Any, jax.Array, jax.Array, jax.Array, dict[Any, Any]]:
        """One transition with time limit and automatic reset; gymnax's own where it differs (DeepSea)."""
        if type(self.inner).step is gymnax_environment.Environment.step:
            return super().step(key, state, action, params)
        params = self.default_params if params is None else params
        state = cast(state, _types(self)[1])
        obs, state, reward, terminated, truncated, info = self.inner.step(key, state, action, params)
        final = cast(info["final_observation"], _types(self)[0])
        obs, state = self._outward(obs, state)
        terminated = jnp.asarray(terminated, bool)
        info = {**info, "final_observation": final, "terminated": terminated}
        return obs, state, jnp.asarray(reward, jnp.float32), terminated, truncated, info

    def is_truncated(self, state: State, params: Params) -> jax.Array:
        """gymnax's time limit."""
        return jnp.asarray(self.inner.is_truncated(state, params), bool)

    def action_space(self, params: Params = None) -> spaces.Space:
        """gymnax's action space."""
        return self.inner.action_space(self.default_params if params is None else params)

    def observation_space(self, params: Params) -> spaces.Space:
        """gymnax's observation space, without bounds that its observations exceed."""
        space = self.inner.observation_space(params)
        return spaces.Box(-jnp.inf, jnp.inf, space.shape, space.dtype) if self.env_id in _WRONG_BOUNDS else space

    def state_space(self, params: Params) -> spaces.Space:
        """gymnax's state space."""
        return self.inner.state_space(params)

    def _outward(self, obs: Observation, state: State) -> tuple[Any, Any]:
        """Observation and state in gymnax's types, because some of its environments count time in floats."""
        obs_type, state_types = _types(self)
        return cast(obs, obs_type), cast(state, state_types.replace(time=jax.ShapeDtypeStruct((), jnp.int32)))


def environment_ids() -> tuple[str, ...]:
    """The names that gymnax can make."""
    return tuple(gymnax.registered_envs)


def make(env_id: str, **fields: object) -> GymnaxEnvironment:
    """The adapter of one environment; see `envs.make`.

    Raises:
      ValueError: gymnax's constructor does not accept such a field.
      TypeError: A field's value cannot be hashed.
    """
    for name, value in fields.items():
        if not isinstance(value, Hashable):
            raise UserTypeError(f"gymnax/{env_id}: the static field {name!r} is {value!r}, which cannot be hashed.")
    env = GymnaxEnvironment(env_id, tuple(sorted(fields.items())))
    _inner(env)
    return env


@functools.cache
@own_settings()
def _inner(env: GymnaxEnvironment) -> Any:
    # Some constructors draw random numbers, which would be tracers inside a trace, and leak if kept.
    with jax.ensure_compile_time_eval():
        inner, _ = gymnax.make(env.env_id)
        parameters = inspect.signature(type(inner).__init__).parameters
        takes = [name for name in parameters if name not in ("self", "args", "kwargs")]
        for name, value in env.fields:
            if name in takes and isinstance(parameters[name].default, bool):
                check_flag(name, value)
            if name not in takes:
                has = f"its static fields are {', '.join(takes)}" if takes else "it has no static fields"
                raise UserValueError(f"The environment {env.name!r} has no static field {name!r}; {has}.")
        return gymnax.make(env.env_id, **dict(env.fields))[0] if env.fields else inner


@functools.cache
@own_settings()
def _types(env: GymnaxEnvironment) -> tuple[Any, Any]:
    """The types of observation and gymnax's state that hold a reset's values and any step's."""
    params = env.default_params
    key = jax.eval_shape(lambda: jax.random.key(0))

    def step(obs_and_state: Any, key: jax.Array) -> Any:
        action = env.action_space(params).sample(key)
        return env.inner.step_env(key, obs_and_state[1], action, params)[:2]

    first = jax.eval_shape(env.inner.reset_env, key, params)
    obs, state = held_types(first, lambda held: jax.eval_shape(step, held, key))
    space = env.observation_space(params)
    return (jax.ShapeDtypeStruct(obs.shape, space.dtype) if isinstance(space, spaces.Box) else obs), state
