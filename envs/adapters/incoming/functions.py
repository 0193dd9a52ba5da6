"""Environments from two functions, a reset and a step: `envs.from_functions(reset, step, ...)`."""

import inspect
import keyword
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from envs.adapters.incoming.suite import LIMIT, Adapter, Transition, check_returned, params_with, unpacked
from envs.adapters.incoming.their_spaces import value_of
from envs.arguments import check_count, described
from envs.base import spaces
from envs.errors import UserTypeError, UserValueError
from envs.pytrees import Action, Params, State
from envs.settings import in_own_settings


@dataclass(frozen=True, eq=False)
class FunctionEnvironment(Adapter):
    """An environment whose reset and step are functions; create it by `envs.from_functions`.

    Attributes:
      reset_of, step_of, action_mask_of: Functions, see `envs.from_functions`.
      actions: Number of actions, or action space.
      time_limit: Default of `max_steps_in_episode`.
      numbers: Default parameters, as sorted (name, value) pairs.
      observations: Observation space, or None for that of the observations' types.
    """

    reset_of: Callable[..., Any]
    step_of: Callable[..., Any]
    actions: Any
    time_limit: int
    numbers: tuple[tuple[str, float], ...] = ()
    observations: Any = None
    action_mask_of: Callable[..., Any] | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FunctionEnvironment) and self._contents == other._contents

    def __hash__(self) -> int:
        return hash(self._contents)

    def __repr__(self) -> str:
        """The functions, and the time limit."""
        return f"<{self.name}, at most {self.time_limit} steps>"

    @property
    def _contents(self) -> tuple[Any, ...]:
        observations = None if self.observations is None else value_of(self.observations)
        functions = self.reset_of, self.step_of, self.action_mask_of
        return *functions, value_of(self.action_space()), self.time_limit, self.numbers, observations

    @property
    def name(self) -> str:
        """The names of both functions."""
        return f"from_functions({_name(self.reset_of)}, {_name(self.step_of)})"

    @property
    def default_params(self) -> Any:
        """The default parameters and the time limit."""
        return params_with(dict(self.numbers), self.time_limit)

    def begin(self, key: jax.Array, params: Params) -> tuple[Any, Any]:
        """`reset`."""
        return unpacked(self._call(self.reset_of, (key,), params), _name(self.reset_of), ("obs", "state"))

    def advance(self, key: jax.Array, inner: Any, action: Action, params: Params) -> Transition:
        """`step`."""
        returned = self._call(self.step_of, (key, inner, action), params)
        return Transition(*unpacked(returned, _name(self.step_of), ("obs", "state", "reward", "terminated")))

    def action_mask(self, state: State, params: Params) -> Any:
        """`action_mask`, or None."""
        return None if self.action_mask_of is None else self._call(self.action_mask_of, (state.inner,), params)

    def action_space(self, params: Params = None) -> spaces.Space:
        """The action space."""
        return spaces.Discrete(self.actions) if isinstance(self.actions, int) else self.actions

    def observation_space(self, params: Params) -> spaces.Space:
        """The observation space."""
        return super().observation_space(params) if self.observations is None else self.observations

    def _call(self, function: Callable[..., Any], arguments: tuple[Any, ...], params: Params) -> Any:
        return function(*arguments, params) if self.numbers else function(*arguments)


@in_own_settings
def from_functions(
    reset: Callable[..., Any],
    step: Callable[..., Any],
    *,
    actions: int | spaces.Space,
    time_limit: int,
    params: Mapping[str, float] | None = None,
    observations: spaces.Space | None = None,
    action_mask: Callable[..., Any] | None = None,
) -> FunctionEnvironment:
    """An environment from a reset and a step in JAX, with time limit, automatic reset and vectorisation added.

    Equal arguments make equal environments, which share one compilation. A result can be loaded by another process if
    the functions are in a module and `actions` is a number.

    Args:
      reset: Function `reset(key) -> (obs, state)`; states are pytrees of arrays.
      step: Function `step(key, state, action) -> (obs, state, reward, terminated)`, where `terminated` does not include
        the time limit.
      actions: Number of actions, or action space of `envs.spaces`.
      time_limit: Number of steps after which an episode is truncated.
      params: Numbers by name, traced, so that settings of a sweep can differ in them. With them, every function takes
        one more argument, an object with these numbers as attributes.
      observations: Observation space; None for that of the observations' types without bounds.
      action_mask: Function `action_mask(state)` to the allowed actions, bool `[num_actions]`; None if all are allowed.

    Raises:
      TypeError: An argument has another type, or a function takes or returns other values.
      ValueError: `actions` or `time_limit` is below 1, or a parameter has an invalid name or value.
    """
    functions = {"reset": reset, "step": step} | ({} if action_mask is None else {"action_mask": action_mask})
    numbers = _checked_numbers(params)
    for name, function in functions.items():
        _check_function(name, function, bool(numbers))
    if not isinstance(actions, spaces.Space):
        check_count("actions", actions, why=", or an action space of envs.spaces")
    check_count("time_limit", time_limit)
    if observations is not None and not isinstance(observations, spaces.Space):
        raise UserTypeError(f"observations must be a space of envs.spaces, or None, got {observations!r}")
    env = FunctionEnvironment(reset, step, actions, time_limit, numbers, observations, action_mask)
    _check_returned(env)
    return env


def _check_returned(env: FunctionEnvironment) -> None:
    """Reject functions whose values have other shapes than the contract, or than those of the reset."""
    first = jax.eval_shape(env.begin, jax.eval_shape(lambda: jax.random.key(0)), env.default_params)
    for leaf in jax.tree.leaves(first):
        if not hasattr(leaf, "dtype"):
            raise UserTypeError(f"{_name(env.reset_of)} must return arrays, got {described(leaf)}")
    check_returned(env, _name(env.reset_of), _name(env.step_of))


_ARGUMENTS = {"reset": ("key",), "step": ("key", "state", "action"), "action_mask": ("state",)}


def _check_function(name: str, function: Any, with_params: bool) -> None:
    wanted = (*_ARGUMENTS[name], "params") if with_params else _ARGUMENTS[name]
    takes = f"{name} must be a function of ({', '.join(wanted)})"
    if not callable(function):
        raise UserTypeError(f"{takes}, got {function!r}")
    try:
        inspect.signature(function).bind(*wanted)
    except TypeError as error:
        hint = "" if with_params else "; with params=, it takes them as its last argument"
        raise UserTypeError(f"{takes}, got {_name(function)}{inspect.signature(function)}{hint}") from error
    except ValueError:  # built-in functions without a signature
        pass


def _checked_numbers(params: Params) -> tuple[tuple[str, float], ...]:
    if params is None:
        return ()
    if not isinstance(params, Mapping):
        raise UserTypeError(f"params must be a dictionary of numbers by name, or None, got {params!r}")
    for name, value in params.items():
        if name == LIMIT:
            raise UserValueError(f"params must not have {LIMIT}, which is the time limit; pass time_limit={value!r}")
        if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name) or name == "replace":
            raise UserValueError(f"params must have names that Python allows for attributes, got {name!r}")
        if isinstance(value, bool) or np.ndim(value) or np.asarray(value).dtype.kind not in "iuf":
            raise UserValueError(f"params must be numbers, got {value!r} for {name!r}")
    return tuple(sorted((name, float(value)) for name, value in params.items()))


def _name(function: Any) -> str:
    return getattr(function, "__name__", type(function).__name__)
