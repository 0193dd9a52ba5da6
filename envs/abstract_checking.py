"""The laws of the environment contract that can be tested by types and shapes alone, without taking a step."""

import copy
import dataclasses
import inspect
import math
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from envs import base
from envs.arguments import described
from envs.base import spaces
from envs.choices import MultiDiscrete, choice_sizes
from envs.errors import UserTypeError, UserValueError
from envs.pytrees import Action, Mask, Observation, Params, PyTree, State
from envs.settings import in_own_settings

__all__ = ["ContractError", "check_abstractly", "fail", "sample"]


class ContractError(UserValueError):
    """Error for an environment that violates the contract; the message names the law and the cause."""


@in_own_settings
def check_abstractly(env: base.Environment, params: Params = None) -> tuple[int, ...]:
    """Test an environment on the laws of methods, hashing, types and shapes, without running or compiling it.

    Args:
      env: Environment.
      params: Parameters of the environment; None for its defaults.

    Returns:
      The agents' axes: the reward's shape, and the leading axes of observations and actions; `()` for one agent.

    Raises:
      ContractError: A law does not hold. The message is one sentence that names it.
      TypeError: `env` is not an `envs.Environment`.
    """
    if not isinstance(env, base.Environment):
        raise UserTypeError(
            f"env is {env!r}; it must be an instance of a subclass of envs.Environment; envs.adapt takes objects of "
            "other interfaces."
        )
    _check_methods(env)
    _check_hash(env)
    params = env.default_params if params is None else params
    _check_limit_is_given(params)
    return _check_shapes(env, jax.tree.map(jnp.asarray, params))


def fail(sentence: str) -> NoReturn:
    """Raise ContractError."""
    raise ContractError(sentence)


def _check_methods(env: base.Environment) -> None:
    needed = ("reset_env", "step_env", "action_space", "observation_space")
    missing = [name for name in needed if inspect.unwrap(getattr(type(env), name)) is getattr(base.Environment, name)]
    if missing:
        got = f"{type(env).__name__} does not define {', '.join(missing)}"
        fail(f"method law: {got}; an environment defines {', '.join(needed)}.")


def _check_hash(env: base.Environment) -> None:
    try:
        equal = hash(env) == hash(copy.deepcopy(env)) and env == copy.deepcopy(env)
    except TypeError as error:
        raise ContractError(f"hash law: {env!r} cannot be hashed ({error}); make it a frozen dataclass.") from error
    if not equal:
        fail(f"hash law: {env!r} differs from its copy, so each copy is compiled again; make it a frozen dataclass.")


def _check_limit_is_given(params: Params) -> None:
    """Reject gymnax's default limit of one step, unless a class defined by the user declares the field."""
    while hasattr(getattr(params, "inner", None), "max_steps_in_episode"):
        params = params.inner
    own = [kind for kind in type(params).__mro__ if kind not in (base.EnvParams, object)]
    defined = any("max_steps_in_episode" in vars(kind).get("__annotations__", {}) for kind in own)
    if not defined and np.all(np.asarray(params.max_steps_in_episode) == 1):
        fail(
            "time law: max_steps_in_episode is 1, so every episode ends after its first step; give default_params a "
            "limit, such as the field `max_steps_in_episode: int = 100` in the parameters' class."
        )


def _check_space(what: str, space: Any) -> None:
    if isinstance(space, spaces.Dict):
        for name, part in space.spaces.items():
            _check_space(f"{what} at {name!r}", part)
    elif isinstance(space, spaces.Tuple):
        for index, part in enumerate(space.spaces):
            _check_space(f"{what} at {index}", part)
    elif not isinstance(space, spaces.Discrete | spaces.Box):
        library = type(space).__module__.partition(".")[0]
        got = repr(space) if library == "builtins" else f"{space!r} of {library}"
        fail(f"space law: {what} is {got}; it must be a space of envs.spaces (Discrete, Box, Tuple, Dict).")


def _check_shapes(env: base.Environment, params: Params) -> tuple[int, ...]:
    """Test everything that does not require running the environment; returns the agents' axes."""
    key = jax.eval_shape(lambda: jax.random.key(0))

    def reset_pair(key: jax.Array, params: Params) -> Any:
        reset = env.reset_env(key, params)
        if not isinstance(reset, tuple) or len(reset) != 2:
            got = f"{len(reset)} values" if isinstance(reset, tuple) else "a single value"
            fail(f"reset law: reset_env returns {got}; it must return obs, state.")
        if not isinstance(reset[1], base.EnvState):
            kind = type(reset[1]).__name__
            fail(f"state law: the state is a {kind}; it must be a subclass of envs.EnvState, whose time counts steps.")
        return reset

    def step(key: jax.Array, state: State, action: Action, params: Params) -> Any:
        stepped = env.step_env(key, state, action, params)
        if not isinstance(stepped, tuple) or len(stepped) != 5:
            got = f"{len(stepped)} values" if isinstance(stepped, tuple) else "a single value"
            fail(f"step law: step_env returns {got}; it must return obs, state, reward, terminated, info.")
        _require_array("the reward", stepped[2])
        _require_array("terminated", stepped[3])
        return stepped

    try:
        _check_space(f"action_space of {type(env).__name__}", env.action_space(params))
        _check_space(f"observation_space of {type(env).__name__}", env.observation_space(params))
        reset = jax.eval_shape(reset_pair, key, params)
        agents = base.agent_axes(env.observation_space(params), reset[0])
        _require_like_space("observation law: a reset's observation", env.observation_space(params), reset[0], agents)
        action = jax.eval_shape(lambda key: sample(env.action_space(params), key, agents), key)
        stepped = jax.eval_shape(step, key, reset[1], action, params)
        cut = jax.eval_shape(env.is_truncated, reset[1], params)
        mask = jax.eval_shape(env.action_mask, reset[1], params)
        facts = [jax.eval_shape(env.privileged, state, params) for state in (reset[1], stepped[1])]
    except jax.errors.JAXTypeError as error:
        reason = str(error).partition("\n")[0]
        raise ContractError(f"tracing law: a traced number is used as a Python value: {reason}") from error
    except dataclasses.FrozenInstanceError as error:
        raise ContractError(
            f"frozen law: {error}, as states, parameters and environments are frozen; make a changed copy, such as "
            "state.replace(time=state.time + 1)."
        ) from error
    obs, state, reward, terminated, info = stepped
    _require_same_types("observation", reset[0], obs)
    _require_same_types("state", reset[1], state)
    _require_type("state.time", state.time, (), jnp.int32)
    _require_type("terminated", terminated, (), jnp.bool_)
    _require_type("is_truncated(...)", cut, (), jnp.bool_)
    batch = reward.shape
    _require_type("the reward", reward, batch, jnp.float32)
    for kind, tree in (("observation", obs), ("action", action)):
        for path, leaf in jax.tree.leaves_with_path(tree):
            if leaf.shape[: len(batch)] != batch:
                fail(
                    f"batch law: the {kind}{jax.tree_util.keystr(path)} has shape {leaf.shape}; it must start with the "
                    f"reward's, {batch}."
                )
    _check_mask(env.action_space(params), mask, batch)
    _check_privileged(facts[0], facts[1], batch)
    if (privileged := env.privileged_space(params)) is not None:
        _check_space(f"privileged_space of {type(env).__name__}", privileged)
        _require_like_space("privileged law: privileged(...)", privileged, facts[0], batch)
    for name in ("active", "agent_terminated"):
        if name in info:
            _require_type(f'info["{name}"]', info[name], batch, jnp.bool_)
    _check_behaviour(env.behaviour_space(params), info.get("behaviour"))
    metrics, rules = info.get("metrics", {}), env.metric_rules
    if set(metrics) != set(rules):
        fail(f'metric law: info["metrics"] has {sorted(metrics)}, metric_rules has {sorted(rules)}.')
    for name, rule in rules.items():
        if rule not in ("sum", "mean", "last"):
            fail(f"metric law: the rule of {name!r} is {rule!r}; it must be 'sum', 'mean' or 'last'.")
        if metrics[name].shape != ():
            several = " for all agents, such as the mean over those that are active" if batch else ""
            fail(f"metric law: {name!r} has shape {metrics[name].shape}; it must be one number{several}.")
    if agents != batch:
        fail(
            f"batch law: an observation has the axes {agents} before its space's shape, the reward has {batch}; "
            "they must be equal."
        )
    return agents


def _require_like_space(what: str, space: spaces.Space, obs: Observation, agents: tuple[int, ...]) -> None:
    """Reject observations or facts whose shape or type is not that of their space, with the agents' leading axes."""
    if isinstance(space, spaces.Dict):
        if not isinstance(obs, dict) or set(obs) != set(space.spaces):
            fail(f"{what} is not a dictionary with the keys {sorted(space.spaces)} of its space.")
        for name, part in space.spaces.items():
            _require_like_space(f"{what} at {name!r}", part, obs[name], agents)
    elif isinstance(space, spaces.Tuple):
        if not isinstance(obs, tuple) or len(obs) != len(space.spaces):
            fail(f"{what} is not a tuple of the {len(space.spaces)} parts of its space.")
        for index, part in enumerate(space.spaces):
            _require_like_space(f"{what} at {index}", part, obs[index], agents)
    elif isinstance(space, spaces.Discrete | spaces.Box):
        box: Any = space
        shape = (*agents, *box.shape)
        if not isinstance(obs, jax.ShapeDtypeStruct) or obs.shape != shape or obs.dtype != box.dtype:
            several = " for each agent, whose axes come first" if agents else ""
            fail(
                f"{what} is {described(obs)}; it must be "
                f"{jnp.dtype(box.dtype).name}{list(box.shape)} as in its space{several}."
            )


def sample(space: spaces.Space, key: jax.Array, shape: tuple[int, ...]) -> Any:
    """Samples of a space, `[*shape, ...]`, with plain dictionaries."""
    samples = _plain(jax.vmap(space.sample)(jax.random.split(key, math.prod(shape))))
    return jax.tree.map(lambda leaf: leaf.reshape(*shape, *leaf.shape[1:]), samples)


def _plain(action: Action) -> Any:
    """An action whose ordered dictionaries, as gymnax samples them, are plain, as policies return them."""
    if isinstance(action, dict):
        return {name: _plain(part) for name, part in action.items()}
    return tuple(map(_plain, action)) if isinstance(action, tuple) else action


def _check_mask(space: spaces.Space, mask: Mask, batch: tuple[int, ...]) -> None:
    if mask is None:
        return
    if isinstance(space, spaces.Discrete):
        _require_type("action_mask(...)", mask, (*batch, space.n), jnp.bool_)
        return
    parts: list[tuple[Any, Any]] = []
    if isinstance(space, spaces.Dict) and type(mask) is dict and set(mask) == set(space.spaces):
        parts = [(part, mask[name]) for name, part in space.spaces.items()]
    elif isinstance(space, spaces.Tuple | MultiDiscrete) and isinstance(mask, tuple):
        each = map(spaces.Discrete, choice_sizes(space)) if isinstance(space, MultiDiscrete) else space.spaces
        each = list(each)
        parts = list(zip(each, mask, strict=True)) if len(each) == len(mask) else []
    if not parts or any(leaf is None for _, leaf in parts):
        fail(
            f"mask law: action_mask returns {described(mask)} for {space!r}; it must be None, or an array for a "
            "Discrete space, a tuple for the parts of a Tuple or MultiDiscrete, and a dict with the keys of a Dict; "
            "numbers have no mask."
        )
    for part, leaf in parts:
        _check_mask(part, leaf, batch)


def _check_privileged(reset: PyTree, stepped: PyTree, batch: tuple[int, ...]) -> None:
    _require_same_types("privileged(...)", reset, stepped)
    for path, leaf in jax.tree.leaves_with_path(reset):
        name = f"privileged(...){jax.tree_util.keystr(path)}"
        if leaf.shape[: len(batch)] != batch:
            fail(f"batch law: {name} has shape {leaf.shape}; it must start with the reward's, {batch}.")
        if not any(jnp.issubdtype(leaf.dtype, kind) for kind in (jnp.floating, jnp.integer, jnp.bool_)):
            fail(f"type law: {name} has the type {leaf.dtype}; it must have real numbers.")


def _check_behaviour(space: Any, behaviour: PyTree) -> None:
    if space is None:
        return
    for index, part in enumerate(space.spaces):
        if not (isinstance(part, spaces.Discrete) or (isinstance(part, spaces.Box) and len(part.shape) == 1)):
            fail(f"behaviour law: behaviour_space has {part!r} at {index}; it must be Discrete or a 1-dimensional Box.")
    shapes = [(tuple(part.shape), jnp.dtype(part.dtype)) for part in space.spaces]
    parts = behaviour if isinstance(behaviour, tuple) else ()
    if [(leaf.shape, leaf.dtype) for leaf in parts] != shapes:
        fail(f'behaviour law: info["behaviour"] is {described(behaviour)}; its space is {space.spaces!r}.')


def _require_array(what: str, value: object) -> None:
    """Reject a Python number, which has no shape for rollouts to read."""
    if not isinstance(value, jax.Array | np.ndarray | np.generic):
        fail(f"type law: {what} is the Python value {value!r}; it must be an array, such as jnp.float32(x).")


def _require_type(what: str, leaf: PyTree, shape: tuple[int, ...], dtype: DTypeLike) -> None:
    if leaf.shape != shape or leaf.dtype != dtype:
        expected = jnp.dtype(dtype).name
        fail(f"type law: {what} is {leaf.dtype.name}{list(leaf.shape)}; it must be {expected}{list(shape)}.")


def _require_same_types(what: str, reset: PyTree, stepped: PyTree) -> None:
    if jax.tree.structure(reset) != jax.tree.structure(stepped):
        fail(
            f"type law: a reset's {what} is {described(reset)}, a step's {described(stepped)}; "
            "they must have the same structure."
        )
    for (path, a), b in zip(jax.tree.leaves_with_path(reset), jax.tree.leaves(stepped), strict=True):
        if (a.shape, a.dtype, a.weak_type) != (b.shape, b.dtype, b.weak_type) or a.weak_type:
            fail(
                f"type law: {what}{jax.tree_util.keystr(path)} is {_describe(a)} after a reset and {_describe(b)} "
                "after a step; the two must be equal and strong (jnp.float32(x), not x)."
            )


def _describe(leaf: PyTree) -> str:
    return f"{'weak ' if leaf.weak_type else ''}{leaf.dtype}{list(leaf.shape)}"
