"""The base of all wrappers, which forward everything to the inner environment except their changes."""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np
from flax import struct

from envs import base, registry
from envs.base import agent_axes, spaces
from envs.errors import UserTypeError, UserValueError
from envs.pytrees import Action, DiscountLike, Number, Params, State
from envs.settings import own_settings

__all__ = [
    "ParamsWrapper",
    "Wrapper",
    "WrapperParams",
    "WrapperState",
    "agents_of",
    "has_masks",
    "limit",
    "map_space",
    "number",
    "observation_of",
    "params_for",
    "registered_name",
    "whole_number",
    "with_defaults",
]


@struct.dataclass
class WrapperParams(base.EnvParams):
    """The parameters of a wrapper that has parameters of its own.

    Attributes:
      inner: Parameters of the inner environment, swept as `env.inner.gravity`.
      max_steps_in_episode: Time limit, which replaces the one in `inner`.
    """

    inner: Any = dataclasses.field(default_factory=base.EnvParams)


@struct.dataclass
class WrapperState(base.EnvState):
    """The state of a wrapper with its own memory.

    Attributes:
      time: Number of steps of the wrapped environment, int32 `[]`.
      inner: State of the inner environment.
    """

    time: jax.Array
    inner: Any


@dataclass(frozen=True)
class Wrapper(base.Environment):
    """An environment around another one, which it leaves unchanged by default; a subclass overrides some methods.

    A subclass whose parameters or states contain more than those of the inner environment defines
    `inner_params` and `inner_state`, which return the latter. One that changes parameters of the inner environment for
    an episode defines `episode_params`, which films show too, and a `reset_env` with the same parameters.

    Attributes:
      inner: Inner environment.
      made_by: Name of the function that makes such environments, for names and messages.
      keeps_returns: Whether the sum of an episode's rewards is one that the inner environment can have.
      keeps_optimum: Kinds of optimum that are those of the inner environment, under any discount; read of the class
        itself, as `keeps_observations` is.
      keeps_observations: Whether every observation is that of the inner environment; read of the class itself, not of
        its bases, because a subclass may change `step_env`.
    """

    inner: base.Environment
    made_by: ClassVar[str] = "Wrapper"
    keeps_returns: ClassVar[bool] = False
    keeps_optimum: ClassVar[tuple[base.OptimumKind, ...]] = ()
    keeps_observations: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not isinstance(self.inner, base.Environment):
            raise UserTypeError(
                f"{self.made_by} takes an environment, such as envs.make('cartpole'), not {self.inner!r}."
            )

    def inner_params(self, params: Params) -> Any:
        """The parameters of the inner environment; by default all of them."""
        return params

    def inner_state(self, state: State) -> Any:
        """The state of the inner environment; by default all of it."""
        return state

    def episode_params(self, state: State, params: Params) -> Any:
        """The parameters of the inner environment that hold in the episode of `state`; by default `inner_params`."""
        del state
        return self.inner_params(params)

    @property
    def name(self) -> str:
        """The inner environment's name inside the wrapper's."""
        return f"{self.made_by}({self.inner.name})"

    @property
    def default_params(self) -> Any:
        """The inner environment's default parameters."""
        return self.inner.default_params

    @property
    def metric_rules(self) -> Mapping[str, base.MetricRule]:
        """The inner environment's metric rules."""
        return self.inner.metric_rules

    @property
    def num_actions(self) -> int:
        """The inner environment's number of actions."""
        return self.inner.num_actions

    def params_at(self, params: Params, env_steps: Number) -> Any:
        """The inner environment's parameters after this many environment steps."""
        return self.inner.params_at(params, env_steps)

    def check_params(self, params: Params) -> None:
        """Reject parameters that the inner environment rejects."""
        self.inner.check_params(self.inner_params(params))

    def pays_beyond_limit(self, params: Params) -> bool:
        """Whether the inner environment's reward at the time limit includes the value of the rest."""
        return self.inner.pays_beyond_limit(self.inner_params(params))

    def return_range(self, params: Params) -> tuple[Any, Any] | None:
        """The range of the inner environment's returns, where the wrapper keeps them."""
        return self.inner.stated_return_range(self.inner_params(params)) if self.keeps_returns else None

    @property
    def kept_optima(self) -> tuple[base.OptimumKind, ...]:
        """Kinds of optimum that are those of the inner environment; by default `keeps_optimum` of the class itself."""
        return vars(type(self)).get("keeps_optimum", ())

    def optimum(
        self, params: Params = None, discount: DiscountLike = None, kind: base.OptimumKind = "precommitted"
    ) -> float | None:
        """The optimum of the inner environment where the wrapper keeps it; None elsewhere.

        Where observations show more than the inner ones, but nothing that a policy could not remember, the stationary
        optimum lies between the inner stationary and the inner precommitted one, and is known if these are equal up to
        rounding.
        """
        base.check_optimum_kind(kind)
        kept = self.kept_optima
        if not kept:
            return None
        params = self.inner_params(self.default_params if params is None else params)
        value = base.optimum_of(self.inner, params, discount, kind)
        if kind in kept or value is None:
            return value
        best = base.optimum_of(self.inner, params, discount)
        return value if best is not None and math.isclose(value, best, rel_tol=1e-12) else None

    def bound(self, params: Params = None, discount: DiscountLike = None) -> float | None:
        """The bound of the inner environment where the wrapper keeps its precommitted optimum; None elsewhere."""
        if "precommitted" not in self.kept_optima:
            return None
        return base.bound_of(self.inner, self.inner_params(self.default_params if params is None else params), discount)

    def action_mask(self, state: State, params: Params) -> Any:
        """The inner environment's action mask."""
        return self.inner.action_mask(self.inner_state(state), self.episode_params(state, params))

    def behaviour_space(self, params: Params = None) -> spaces.Tuple | None:
        """The inner environment's behaviour space."""
        return self.inner.behaviour_space(self.inner_params(self.default_params if params is None else params))

    def global_observation(self, state: State, params: Params) -> Any:
        """The inner environment's global observation."""
        return self.inner.global_observation(self.inner_state(state), self.episode_params(state, params))

    def privileged(self, state: State, params: Params) -> Any:
        """The facts that a critic of the inner environment may see."""
        return self.inner.privileged(self.inner_state(state), self.episode_params(state, params))

    def privileged_space(self, params: Params) -> spaces.Space | None:
        """The space of the inner environment's privileged facts."""
        return self.inner.privileged_space(self.inner_params(params))

    def is_truncated(self, state: State, params: Params) -> jax.Array:
        """Whether the inner environment has reached its time limit."""
        return self.inner.is_truncated(self.inner_state(state), self.episode_params(state, params))

    def limit(self, params: Params) -> Any:
        """The number of steps after which an episode is truncated; by default the inner environment's."""
        return limit(self.inner, self.inner_params(params))

    def action_space(self, params: Params = None) -> spaces.Space:
        """The inner environment's action space."""
        return self.inner.action_space(self.inner_params(self.default_params if params is None else params))

    def observation_space(self, params: Params) -> spaces.Space:
        """The inner environment's observation space."""
        return self.inner.observation_space(self.inner_params(params))

    def reset_env(self, key: jax.Array, params: Params) -> tuple[Any, Any]:
        """The inner environment's reset."""
        return self.inner.reset_env(key, self.inner_params(params))

    def step_env(
        self, key: jax.Array, state: State, action: Action, params: Params
    ) -> tuple[Any, Any, jax.Array, jax.Array, dict[Any, Any]]:
        """The inner environment's step."""
        return self.inner.step_env(key, self.inner_state(state), action, self.episode_params(state, params))


@dataclass(frozen=True)
class ParamsWrapper(Wrapper):
    """A wrapper with its own parameters: a `WrapperParams` around those of the inner environment."""

    def inner_params(self, params: Params) -> Any:
        """The inner parameters, with the time limit that applies."""
        return params.inner.replace(max_steps_in_episode=params.max_steps_in_episode)

    def params_at(self, params: Params, env_steps: Number) -> Any:
        """The inner environment's curriculum."""
        return params.replace(inner=self.inner.params_at(params.inner, env_steps))

    def check_params(self, params: Params) -> None:
        """Reject parameters that the inner environment rejects, and an inner time limit, which would not apply."""
        super().check_params(params)
        usual = self.default_params.inner.max_steps_in_episode
        values = np.asarray(params.inner.max_steps_in_episode)
        if np.any(values != usual):
            raise UserValueError(
                f"inner.max_steps_in_episode of {self.name} is {values[values != usual].flat[0]}, which would change "
                "nothing; its time limit is max_steps_in_episode."
            )


def registered_name(env: Wrapper) -> str | None:
    """The name that `envs.make` takes for a wrapped environment; None if no name means it."""
    kind = (type(env).__module__, type(env).__name__)
    rows = (name for name, row in registry.ROWS.items() if (row.module, row.class_name) == kind)
    return next((name for name in rows if registry.make(name) == env), None)


def limit(env: base.Environment, params: Params) -> Any:
    """The time limit that applies, int32 `[]`: the earliest one of nested wrappers."""
    return env.limit(params) if isinstance(env, Wrapper) else params.max_steps_in_episode


def params_for(env: base.Environment, other: base.Environment, params: Params) -> Any:
    """The parameters of one environment as those of another with the same one inside, through the wrappers of both.

    Args:
      env: Environment.
      other: Environment of the parameters.
      params: Parameters of `other`.

    Returns:
      Parameters of `env`; those of a wrapper are the ones of a wrapper of the same kind in `other`, and its defaults
      where `other` has none.
    """
    if jax.tree.structure(params) == jax.tree.structure(env.default_params):
        return params
    levels = [(other, params)]  # from the outermost wrapper of `other` to the environment inside all wrappers
    while isinstance(other, Wrapper):
        params, other = other.inner_params(params), other.inner
        levels.append((other, params))
    return _outwards(env, levels)


def _outwards(env: base.Environment, levels: list[tuple[base.Environment, Any]]) -> Any:
    """Parameters of a wrapped environment from those of another one at each level of its wrappers."""
    for level, params in levels:
        if level == env:
            return params
    if not isinstance(env, Wrapper):
        return levels[-1][1]
    own = env.default_params
    if jax.tree.structure(own) == jax.tree.structure(env.inner.default_params):  # no parameters of its own
        return _outwards(env.inner, levels)
    for depth, (level, params) in enumerate(levels):
        if type(level) is type(env) and type(params) is type(own):
            kept = {field.name: getattr(params, field.name) for field in dataclasses.fields(params)}
            own, levels = own.replace(**kept | _of_inner(own)), levels[depth + 1 :]
            break
    inner = _outwards(env.inner, levels)
    if not isinstance(env, ParamsWrapper):
        return own.replace(inner=inner)
    limit_of_all = inner.max_steps_in_episode  # in place of the inner one, which has no effect
    inner = inner.replace(max_steps_in_episode=own.inner.max_steps_in_episode)
    return own.replace(inner=inner, max_steps_in_episode=limit_of_all)


def _of_inner(params: Any) -> dict[str, Any]:
    """The fields of a wrapper's parameters that follow from those of the inner environment."""
    return {name: getattr(params, name) for name in ("inner", "max_steps_in_episode")}


def with_defaults(env: base.Environment, params: Params, usual: Params) -> Any:
    """Parameters with the defaults of an environment in place of the defaults of another one.

    Args:
      env: Environment.
      params: Parameters of the other one as those of `env`, see `params_for`.
      usual: Default parameters of the other one, likewise; NaN for each that `params` keeps in any case.

    Returns:
      The default of `env` for every number of `params` that is equal to `usual`, and all others as they are; `params`
      where `env` rejects this mixture, such as a longer corridor than its time limit allows.
    """
    own = env.default_params
    if not jax.tree.structure(params) == jax.tree.structure(usual) == jax.tree.structure(own):
        return params

    def chosen(value: Any, usual: Any, own: Any) -> Any:
        array, default = np.asarray(value), np.asarray(usual)
        kept = default.dtype.kind == "f" and bool(np.isnan(default).any())
        if kept or not np.array_equal(array, default.astype(array.dtype)):
            return value
        return np.asarray(own, array.dtype) if hasattr(value, "dtype") else own

    mixture = jax.tree.map(chosen, params, usual, own)
    try:
        env.check_params(mixture)
    except ValueError:
        return params
    return mixture


def agents_of(env: base.Environment) -> tuple[int, ...]:
    """The axes `*A` of an environment's agents; `()` for one agent."""
    return _first(env).agents


def observation_of(env: base.Environment) -> Any:
    """The shapes and types of one agent's observation."""
    first = _first(env)
    skip = len(first.agents)
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[skip:], leaf.dtype), first.obs)


def has_masks(env: base.Environment) -> bool:
    """Whether an environment forbids actions in some of its states."""
    return _first(env).masked


class _First(NamedTuple):
    """Properties of an environment that follow from the shapes of a reset."""

    agents: tuple[int, ...]
    obs: Any
    masked: bool


@functools.cache
@own_settings()
def _first(env: base.Environment) -> _First:
    params = env.default_params
    obs, state = jax.eval_shape(env.reset_env, jax.eval_shape(lambda: jax.random.key(0)), params)
    mask = jax.eval_shape(env.action_mask, state, params)
    return _First(agent_axes(env.observation_space(params), obs), obs, mask is not None)


def map_space(change: Callable[[Any], spaces.Space], space: Any) -> spaces.Space:
    """A space in which every part that is neither a `Dict` nor a `Tuple` is changed."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({name: map_space(change, part) for name, part in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([map_space(change, part) for part in space.spaces])
    return change(space)


def whole_number(made_by: str, name: str, value: object, least: int = 1) -> int:
    """Return `value` if it is a whole number of at least `least`; otherwise raise an error."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise UserValueError(f"{name} of {made_by} is {value!r}; it takes a whole number of at least {least}.")
    return int(value)


def number(made_by: str, name: str, value: object) -> float:
    """Return a number as a Python float, which can be hashed; raise an error for any other value."""
    values = np.asarray(value)
    if values.ndim or values.dtype.kind not in "iuf" or np.isnan(values):
        raise UserValueError(f"{name} of {made_by} is {value!r}; it takes a number.")
    return float(values)
