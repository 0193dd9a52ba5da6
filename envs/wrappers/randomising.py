"""Worlds that vary: parameters of an environment drawn anew for every episode."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs import base
from envs.arguments import check_at_least, check_number, described
from envs.base import spaces
from envs.errors import UserTypeError, UserValueError
from envs.pytrees import Action, Number, Params
from envs.settings import in_own_settings
from envs.spelling import near
from envs.wrappers.wrapper import ParamsWrapper, Wrapper, WrapperParams, WrapperState, agents_of

__all__ = [
    "Randomise",
    "RandomiseParams",
    "RandomiseState",
    "Sampler",
    "drawn_parameters",
    "randomise",
    "without_draws",
]

_CHECKED = 256  # draws of which a wrapper checks that the environment accepts them


@runtime_checkable
class Sampler(Protocol):
    """A distribution of one parameter, such as `jaxrl.Uniform(0.5, 2.0)`; equal ones must be equal and hashable."""

    def sample(self, key: jax.Array) -> jax.Array:
        """One value, `[]`."""
        ...


def randomise(
    env: base.Environment, parameters: Mapping[str, Sampler] | Callable[[jax.Array], dict[str, Any]]
) -> base.Environment:
    """An environment whose parameters are drawn anew at every reset and hold for the episode.

    Args:
      env: Any environment with parameters.
      parameters: Distributions, by the names of the parameters, such as `{"length": jaxrl.Uniform(0.25, 1.0)}`, which
        are drawn independently; or a function of a random key, in JAX, that returns values by name, for draws that
        depend on each other. A named function compiles once; every new lambda is another one.

    Returns:
      An environment with the parameters `RandomiseParams`: those of `env` as `inner`, and the width of the draws, which
      may grow during training. The values of an episode are `info["randomised"]` and, for critics,
      `privileged(state, params)`; observations do not show them. Its optimum and its range of returns are not known.

    Raises:
      TypeError: `env` is not an environment, `parameters` is neither a mapping nor a function, or a distribution has no
        method `sample`.
      ValueError: `env` has no such parameter, or refuses a value: a bound of a distribution with `low` and `high`, one
        of a distribution with `values`, a tuple, or one of 256 draws.
    """
    named = isinstance(parameters, Mapping) and all(isinstance(name, str) for name in parameters)
    if not named and not callable(parameters):
        raise UserTypeError(
            "randomise takes distributions by the names of parameters, such as {'length': jaxrl.Uniform(0.5, 1)}, or "
            f"a function of a random key, got {parameters!r}"
        )
    return Randomise(env, tuple(sorted(parameters.items())) if isinstance(parameters, Mapping) else parameters)


@struct.dataclass
class RandomiseParams(WrapperParams):
    """The parameters of an environment whose parameters are drawn.

    Attributes:
      inner: Parameters of the inner environment; those that are drawn keep their default values.
      max_steps_in_episode: Time limit, which replaces the one in `inner`.
      width: Share of the way from the default value of a parameter to the drawn one, in [0, 1]: 0 gives the default
        value, and 1 the drawn one. Whole numbers are rounded.
      widening_env_steps: Number of environment steps of training over which the width grows linearly from 0; 0 for
        the full width from the first step on.
    """

    width: float = 1.0
    widening_env_steps: float = 0.0


@struct.dataclass
class RandomiseState(WrapperState):
    """The state of an environment whose parameters are drawn.

    Attributes:
      drawn: Values of the parameters in this episode, `[]` each, by name.
    """

    drawn: dict[str, jax.Array]


@dataclass(frozen=True)
class Randomise(ParamsWrapper):
    """The class returned by `randomise`.

    Attributes:
      inner: Environment whose parameters are drawn.
      parameters: Distributions, as sorted (name, distribution) pairs, or a function of a key.
    """

    parameters: tuple[tuple[str, Sampler], ...] | Callable[[jax.Array], dict[str, Any]]
    made_by: ClassVar[str] = "randomise"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.parameters:
            raise UserValueError("parameters of randomise takes at least one distribution, got none")
        if isinstance(self.parameters, tuple):
            for name, distribution in self.parameters:
                if not isinstance(distribution, Sampler):
                    raise UserTypeError(
                        f"{name} of randomise takes a distribution with a method sample(key), such as "
                        f"jaxrl.Uniform(0.5, 2.0), got {distribution!r}"
                    )
        self._check_draws()

    @in_own_settings
    def _check_draws(self) -> None:
        """Reject names that are no parameters, and values that the inner environment refuses.

        The values are 256 draws and, of distributions with `low` and `high` or with `values`, these. Of others, values
        that are drawn more seldom are not checked.
        """
        params = self.inner.default_params
        shapes: Any = jax.eval_shape(self._draw, jax.random.key(0))
        if not isinstance(shapes, dict) or not shapes:
            raise UserTypeError(f"the function of randomise returns values by name, got {described(shapes)}")
        known = [name for name in names_of(params) if not name.endswith("max_steps_in_episode")]
        if not known:
            raise UserValueError(
                f"randomise takes an environment with parameters that are numbers, apart from its time limit, got "
                f"{self.inner.name}"
            )
        for name, shape in shapes.items():
            if name not in known:
                hint = near(name, known) or f"; its parameters are {', '.join(known)}."
                raise UserValueError(f"randomise takes parameters of {self.inner.name}, got {name!r}{hint}")
            if shape.shape:
                raise UserValueError(f"{name} of randomise takes one number a draw, got shape {shape.shape}")
        with jax.ensure_compile_time_eval():
            drawn = jax.vmap(self._draw)(jax.random.split(jax.random.key(0), _CHECKED))
        draws = {name: np.asarray(values) for name, values in drawn.items()}
        self._check_values(draws)
        for name, distribution in self.parameters if isinstance(self.parameters, tuple) else ():
            ends = tuple(getattr(distribution, end, None) for end in ("low", "high"))
            values = getattr(distribution, "values", ends)  # which few draws need not contain
            if isinstance(values, tuple) and values and all(isinstance(value, int | float) for value in values):
                self._check_values({name: np.asarray(values)})

    def _check_values(self, draws: Mapping[str, np.ndarray]) -> None:
        """Reject values `[count]` that are no values of a parameter, or that change a space."""
        params = self.inner.default_params
        for name, values in draws.items():
            if not np.all(np.isfinite(values)):
                raise UserValueError(f"{name} of randomise takes finite numbers, got {values[~np.isfinite(values)][0]}")
            if np.asarray(_value(params, name)).dtype.kind in "iu" and np.any(values != np.round(values)):
                raise UserValueError(
                    f"{name} of randomise takes whole numbers, such as jaxrl.Choice([1, 2]), got "
                    f"{values[values != np.round(values)][0]}"
                )
        try:
            self.inner.check_params(_replaced(params, draws))
        except ValueError as error:
            names = " and ".join(draws)
            raise UserValueError(
                f"randomise takes values of {names} that {self.inner.name} accepts: {error}"
            ) from error
        for name, values in draws.items():
            for value in (values.min(), values.max()):
                other = _replaced(params, {name: value})
                for space in ("observation_space", "action_space"):
                    of_params = getattr(self.inner, space)
                    if _bounds(of_params(other)) != _bounds(of_params(params)):
                        raise UserValueError(
                            f"randomise takes parameters that leave the spaces of {self.inner.name} as they are, got "
                            f"{name!r}, which changes its {space}"
                        )

    @property
    def default_params(self) -> RandomiseParams:
        """The inner environment's parameters, and draws of full width."""
        inner = self.inner.default_params
        return RandomiseParams(inner=inner, max_steps_in_episode=inner.max_steps_in_episode)

    @property
    def drawn_names(self) -> list[str]:
        """Names of the drawn parameters of the inner environment, sorted."""
        return sorted(jax.eval_shape(self._draw, jax.random.key(0)))

    def inner_state(self, state: RandomiseState) -> Any:
        """The state of the inner environment."""
        return state.inner

    def episode_params(self, state: RandomiseState, params: Params) -> Any:
        """The parameters of the inner environment with the values of the episode."""
        return _replaced(self.inner_params(params), state.drawn)

    def params_at(self, params: RandomiseParams, env_steps: Number) -> RandomiseParams:
        """The parameters after this many environment steps of training, with the width that the draws then have."""
        steps = jnp.asarray(params.widening_env_steps, jnp.float32)
        share = jnp.where(steps > 0, jnp.minimum(env_steps / jnp.where(steps > 0, steps, 1.0), 1.0), 1.0)
        return super().params_at(params, env_steps).replace(width=params.width * share)

    def check_params(self, params: RandomiseParams) -> None:
        """Reject a width outside [0, 1], changed values of drawn parameters, and parameters that `inner` rejects."""
        super().check_params(params)
        check_number("env.width", params.width, 0.0, 1.0, "[]")
        check_at_least(params, widening_env_steps=0.0)
        for name in self.drawn_names:
            of_inner = self.default_params.inner, params.inner
            usual, value = (np.asarray(_value(each, name), np.float32) for each in of_inner)
            if np.any(value != usual):
                raise UserValueError(
                    f"inner.{name} of {self.name} must have its default value, {float(usual):g}, because every episode "
                    f"draws it, got {value[value != usual].flat[0]:g}; env.inner, without draws, takes other values"
                )

    def privileged(self, state: RandomiseState, params: Params) -> dict[str, Any]:
        """The values of the episode's parameters, `[*A]`, and what is privileged in the inner environment."""
        agents = agents_of(self.inner)
        facts = {
            name: jnp.broadcast_to(value.astype(jnp.float32), agents) for name, value in sorted(state.drawn.items())
        }
        inner = super().privileged(state, params)
        return facts if inner is None else {"drawn": facts, "inner": inner}

    def privileged_space(self, params: Params) -> spaces.Space | None:
        """The space of the inner environment's privileged facts beside the values; None if it is not stated."""
        inner = super().privileged_space(params)
        if inner is None:
            return None
        number = spaces.Box(-jnp.inf, jnp.inf, (), jnp.float32)
        return spaces.Dict({"drawn": spaces.Dict(dict.fromkeys(self.drawn_names, number)), "inner": inner})

    def reset_env(self, key: jax.Array, params: Params) -> tuple[Any, RandomiseState]:
        """The inner environment's reset, with parameters drawn by a part of the key."""
        draw_key, reset_key = jax.random.split(key)
        inner_params = self.inner_params(params)
        drawn = {
            name: _towards(_value(inner_params, name), value, params.width)
            for name, value in self._draw(draw_key).items()
        }
        obs, inner = self.inner.reset_env(reset_key, _replaced(inner_params, drawn))
        return obs, RandomiseState(inner.time, inner, drawn)

    def step_env(
        self, key: jax.Array, state: RandomiseState, action: Action, params: Params
    ) -> tuple[Any, RandomiseState, jax.Array, jax.Array, dict[Any, Any]]:
        """The inner environment's step, with the parameters of the episode."""
        obs, inner, reward, terminated, info = super().step_env(key, state, action, params)
        state = RandomiseState(inner.time, inner, state.drawn)
        return obs, state, reward, terminated, info | {"randomised": info.get("randomised", {}) | state.drawn}

    def _draw(self, key: jax.Array) -> dict[str, jax.Array]:
        """Values by name, numbers of 32 bits."""
        if isinstance(self.parameters, tuple):
            keys = jax.random.split(key, len(self.parameters))
            drawn: Any = {
                name: distribution.sample(own) for own, (name, distribution) in zip(keys, self.parameters, strict=True)
            }
        else:
            drawn = self.parameters(key)
        if not isinstance(drawn, dict):
            return drawn
        return {name: jnp.asarray(value) for name, value in drawn.items()}


def without_draws(env: base.Environment) -> base.Environment:
    """The environment without `randomise`, at any depth of its wrappers."""
    if isinstance(env, Randomise):
        return without_draws(env.inner)
    if isinstance(env, Wrapper) and (inner := without_draws(env.inner)) != env.inner:
        return dataclasses.replace(env, inner=inner)
    return env


def drawn_parameters(env: base.Environment, prefix: str = "") -> list[str]:
    """Names of the parameters that the episodes of an environment draw, at any depth of its wrappers."""
    if not isinstance(env, Wrapper):
        return []
    if jax.tree.structure(env.default_params) != jax.tree.structure(env.inner.default_params):
        prefix = f"{prefix}inner."
    names = [f"{prefix}{name}" for name in env.drawn_names] if isinstance(env, Randomise) else []
    return names + drawn_parameters(env.inner, prefix)


def _bounds(space: Any) -> Any:
    """Shape and bounds of a space, or of its parts, for comparison."""
    if isinstance(space, spaces.Dict):
        return {name: _bounds(part) for name, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return [_bounds(part) for part in space.spaces]
    if isinstance(space, spaces.Discrete):
        return space.n
    box: Any = space
    return box.shape, np.broadcast_to(box.low, box.shape).tolist(), np.broadcast_to(box.high, box.shape).tolist()


def names_of(params: Params, prefix: str = "") -> list[str]:
    """Names of the numbers among parameters; those of nested ones are joined by dots."""
    names = []
    for name in type(params).__dataclass_fields__:
        value = getattr(params, name)
        if hasattr(type(value), "__dataclass_fields__"):
            names += names_of(value, f"{prefix}{name}.")
        elif np.ndim(value) == 0 and np.asarray(value).dtype.kind in "biuf":
            names.append(f"{prefix}{name}")
    return names


def _towards(usual: Number, drawn: jax.Array, width: jax.Array | float) -> jax.Array:
    """A number between the usual one and the drawn one, of the type of the usual one; at a width of 1 the drawn one."""
    kind = jnp.asarray(usual).dtype
    between = (1 - width) * usual + width * drawn
    between = between if jnp.issubdtype(kind, jnp.floating) else jnp.round(between)
    return jnp.where(width >= 1, drawn.astype(kind), between.astype(kind))


def _value(params: Params, name: str) -> Any:
    for part in name.split("."):
        params = getattr(params, part)
    return params


def _replaced(params: Params, values: Mapping[str, Any]) -> Any:
    """Parameters with other values, by name, of the types of those that they replace."""
    for name, value in values.items():
        params = _with(params, name.split("."), value.astype(jnp.asarray(_value(params, name)).dtype))
    return params


def _with(params: Params, path: list[str], value: object) -> Any:
    if len(path) > 1:
        value = _with(getattr(params, path[0]), path[1:], value)
    return params.replace(**{path[0]: value})
