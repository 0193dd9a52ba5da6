"""Changed observations: any function of them, one vector, or noise."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs import base
from envs.base import spaces
from envs.choices import columns_of, one_hot
from envs.errors import UserTypeError, UserValueError
from envs.pytrees import Action, Number, Observation, Params, State
from envs.wrappers.wrapper import (
    ParamsWrapper,
    Wrapper,
    WrapperParams,
    agents_of,
    map_space,
    number,
    observation_of,
    registered_name,
)

__all__ = [
    "FlattenObservation",
    "ObservationNoise",
    "ObservationNoiseParams",
    "TransformObservation",
    "flatten_observation",
    "observation_noise",
    "transform_observation",
]


def transform_observation(
    env: base.Environment, function: Callable[[Any], Any], low: float = -np.inf, high: float = np.inf
) -> base.Environment:
    """An environment whose observations are a function of the original ones.

    Args:
      env: Any environment; its parameters, dynamics, actions and metrics are unchanged.
      function: Function, in JAX, from one agent's observation to an array or a dictionary or tuple of arrays. A
        named function compiles once; every new lambda is another function.
      low, high: Bounds of its results.

    Returns:
      An environment whose observation space is a `Box`, or boxes, with these bounds.

    Raises:
      TypeError: `env` is not an environment, `function` is not callable, or it returns something else.
      ValueError: A bound is not a number.
    """
    low, high = (number("transform_observation", *values) for values in (("low", low), ("high", high)))
    return TransformObservation(env, function, low, high)


def flatten_observation(env: base.Environment) -> base.Environment:
    """An environment whose observations are one vector.

    Args:
      env: Any environment; its parameters, dynamics, actions and metrics are unchanged.

    Returns:
      An environment whose observations are float32 `[*A, D]`: the numbers of every part, those of a
      dictionary in the order of its sorted keys; choices, of `Discrete` or `MultiDiscrete`, as one-hot vectors.

    Raises:
      TypeError: `env` is not an environment.
    """
    return FlattenObservation(env)


def observation_noise(env: base.Environment, scale: float) -> base.Environment:
    """An environment with independent normal noise on every number of its observations.

    Args:
      env: Any environment whose observations are real numbers.
      scale: Standard deviation of the noise, in the units of the observation.

    Returns:
      An environment whose scale is traced and can be swept as `env.scale`; the parameters of `env` itself
      are `env.inner.gravity` and the like. Its observations have no bounds; integers among them are unchanged, and only
      observations have noise.

    Raises:
      TypeError: `env` is not an environment.
      ValueError: `scale` is negative, or observations of `env` are not real numbers.
    """
    return ObservationNoise(env, number("observation_noise", "scale", scale))


@dataclass(frozen=True)
class TransformObservation(Wrapper):
    """The class returned by `transform_observation`.

    Attributes:
      inner: Environment with the observations that the function takes.
      function: Function of one agent's observation.
      low, high: Bounds of its results.
    """

    function: Callable[[Any], Any]
    low: float = -np.inf
    high: float = np.inf
    made_by: ClassVar[str] = "transform_observation"
    keeps_returns: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.function):
            raise UserTypeError(f"transform_observation takes a function of an observation, not {self.function!r}.")
        self._space(jax.eval_shape(self.function, observation_of(self.inner)))

    def observation_space(self, params: Params) -> spaces.Space:
        """Boxes of the shapes that the function returns."""
        del params
        return self._space(jax.eval_shape(self.function, observation_of(self.inner)))

    def reset_env(self, key: jax.Array, params: Params) -> tuple[Any, Any]:
        """The inner environment's reset, with the function applied to the observation."""
        obs, state = self.inner.reset_env(key, params)
        return self._transform(obs), state

    def step_env(
        self, key: jax.Array, state: State, action: Action, params: Params
    ) -> tuple[Any, Any, jax.Array, jax.Array, dict[Any, Any]]:
        """The inner environment's step, with the function applied to the observation."""
        obs, state, reward, terminated, info = self.inner.step_env(key, state, action, params)
        return self._transform(obs), state, reward, terminated, info

    def _transform(self, obs: Observation) -> Any:
        function = self.function
        for _ in agents_of(self.inner):
            function = jax.vmap(function)
        return jax.tree.map(lambda leaf: jax.lax.convert_element_type(leaf, jnp.asarray(leaf).dtype), function(obs))

    def _space(self, obs: Observation) -> spaces.Space:
        return space_of(obs, "the function of transform_observation", self.low, self.high)


def space_of(obs: Observation, what: str, low: float = -np.inf, high: float = np.inf) -> spaces.Space:
    """The space of the results of a function, of which integers have the bounds of their type.

    Args:
      obs: Shapes of one result.
      what: Name of the function, for error messages.
      low, high: Bounds of real numbers, and of integers that could exceed them.

    Raises:
      TypeError: A part is not an array.
    """
    if isinstance(obs, dict):
        return spaces.Dict({name: space_of(part, what, low, high) for name, part in obs.items()})
    if isinstance(obs, tuple):
        return spaces.Tuple([space_of(part, what, low, high) for part in obs])
    if not hasattr(obs, "dtype"):
        raise UserTypeError(f"{what} must return an array, or a dictionary or tuple of arrays, got {obs!r}.")
    if not jnp.issubdtype(obs.dtype, jnp.floating):  # bounds of integers are finite
        ends = (0, 1) if obs.dtype == bool else (jnp.iinfo(obs.dtype).min, jnp.iinfo(obs.dtype).max)
        low, high = (int(np.clip(bound, *ends)) for bound in (low, high))
    return spaces.Box(low, high, obs.shape, obs.dtype)


@dataclass(frozen=True)
class FlattenObservation(Wrapper):
    """The class returned by `flatten_observation`.

    Attributes:
      inner: Environment with observations of any kind.
    """

    made_by: ClassVar[str] = "flatten_observation"
    keeps_returns: ClassVar[bool] = True
    keeps_optimum: ClassVar[tuple[base.OptimumKind, ...]] = base.OPTIMUM_KINDS

    def observation_space(self, params: Params) -> spaces.Box:
        """The bounds of every part, one after the other."""
        low, high = (jnp.concatenate(ends) for ends in zip(*_bounds(self.inner.observation_space(params)), strict=True))
        return spaces.Box(low, high, low.shape, jnp.float32)

    def reset_env(self, key: jax.Array, params: Params) -> tuple[jax.Array, Any]:
        """The inner environment's reset, with the observation as a vector."""
        obs, state = self.inner.reset_env(key, params)
        return self._flat(obs, params), state

    def step_env(
        self, key: jax.Array, state: State, action: Action, params: Params
    ) -> tuple[jax.Array, Any, jax.Array, jax.Array, dict[Any, Any]]:
        """The inner environment's step, with the observation as a vector."""
        obs, state, reward, terminated, info = self.inner.step_env(key, state, action, params)
        return self._flat(obs, params), state, reward, terminated, info

    def _flat(self, obs: Observation, params: Params) -> jax.Array:
        return jnp.concatenate(_vectors(self.inner.observation_space(params), obs, agents_of(self.inner)), axis=-1)


def _bounds(space: Any) -> list[tuple[jax.Array, jax.Array]]:
    """The bounds of each part of a space as vectors, in the order of `_vectors`."""
    if isinstance(space, spaces.Dict):
        return [pair for name in sorted(space.spaces) for pair in _bounds(space.spaces[name])]
    if isinstance(space, spaces.Tuple):
        return [pair for part in space.spaces for pair in _bounds(part)]
    columns = columns_of(space)
    if columns is not None:
        width = math.prod(space.shape[:-1]) * sum(count for _, count in columns)
        return [(jnp.zeros(width), jnp.ones(width))]
    low, high = (
        jnp.broadcast_to(jnp.asarray(bound, jnp.float32), space.shape).ravel() for bound in (space.low, space.high)
    )
    return [(low, high)]


def _vectors(space: Any, obs: Observation, agents: tuple[int, ...]) -> list[jax.Array]:
    """Each part of an observation as float32 `[*A, D]`."""
    if isinstance(space, spaces.Dict):
        return [part for name in sorted(space.spaces) for part in _vectors(space.spaces[name], obs[name], agents)]
    if isinstance(space, spaces.Tuple):
        pairs = zip(space.spaces, obs, strict=True)
        return [vector for part, value in pairs for vector in _vectors(part, value, agents)]
    columns = columns_of(space)
    if columns is not None:
        obs = one_hot(obs.reshape(*agents, *(space.shape or (1,))), columns)
    return [obs.reshape(*agents, -1).astype(jnp.float32)]


@struct.dataclass
class ObservationNoiseParams(WrapperParams):
    """The parameters of `observation_noise`.

    Attributes:
      inner: Parameters of the inner environment, whose time limit does not apply.
      scale: Standard deviation, in the units of the observation.
      max_steps_in_episode: Time limit.
    """

    scale: jax.Array | float = 0.0


@dataclass(frozen=True)
class ObservationNoise(ParamsWrapper):
    """The class returned by `observation_noise`.

    Attributes:
      inner: Environment without noise.
      scale: Default of the parameter.
    """

    scale: float
    made_by: ClassVar[str] = "observation_noise"
    keeps_returns: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_scale(self.scale)
        if not any(jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in jax.tree.leaves(observation_of(self.inner))):
            space = self.inner.observation_space(self.inner.default_params)
            raise UserValueError(
                f"observation_noise takes an environment that shows real numbers; {self.inner.name} shows {space!r}."
            )

    @property
    def name(self) -> str:
        """The name that `envs.make` takes, or the inner environment's with the wrapper's around it."""
        return registered_name(self) or super().name

    @property
    def default_params(self) -> ObservationNoiseParams:
        """The inner environment's parameters, with the scale."""
        inner = self.inner.default_params
        return ObservationNoiseParams(inner=inner, scale=self.scale, max_steps_in_episode=inner.max_steps_in_episode)

    def check_params(self, params: ObservationNoiseParams) -> None:
        """Reject a negative scale, and parameters that the inner environment rejects."""
        super().check_params(params)
        _require_scale(params.scale)

    def observation_space(self, params: ObservationNoiseParams) -> spaces.Space:
        """The inner environment's space, without the bounds of real numbers."""

        def unbounded(space: Any) -> spaces.Space:
            real = isinstance(space, spaces.Box) and jnp.issubdtype(space.dtype, jnp.floating)
            return spaces.Box(-jnp.inf, jnp.inf, space.shape, space.dtype) if real else space

        return map_space(unbounded, super().observation_space(params))

    def reset_env(self, key: jax.Array, params: ObservationNoiseParams) -> tuple[Any, Any]:
        """The inner environment's reset, with noise on the observation."""
        noise_key, reset_key = jax.random.split(key)
        obs, state = super().reset_env(reset_key, params)
        return _noisy(noise_key, obs, params.scale), state

    def step_env(
        self, key: jax.Array, state: State, action: Action, params: ObservationNoiseParams
    ) -> tuple[Any, Any, jax.Array, jax.Array, dict[Any, Any]]:
        """The inner environment's step, with noise on the observation."""
        noise_key, step_key = jax.random.split(key)
        obs, state, reward, terminated, info = super().step_env(step_key, state, action, params)
        return _noisy(noise_key, obs, params.scale), state, reward, terminated, info


def _noisy(key: jax.Array, obs: Observation, scale: Number) -> Any:
    leaves, structure = jax.tree.flatten(obs)
    for i, leaf in enumerate(leaves):
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            noise = jax.random.normal(jax.random.fold_in(key, i), leaf.shape, leaf.dtype)
            leaves[i] = leaf + jnp.asarray(scale, leaf.dtype) * noise
    return jax.tree.unflatten(structure, leaves)


def _require_scale(value: object) -> None:
    values = np.asarray(value)
    if values.dtype.kind not in "iuf" or not np.all((values >= 0) & np.isfinite(values)):
        wrong = value if values.dtype.kind not in "iuf" else values[~((values >= 0) & np.isfinite(values))].flat[0]
        raise UserValueError(f"scale of observation_noise is {wrong}; it takes a finite number of at least 0.")
