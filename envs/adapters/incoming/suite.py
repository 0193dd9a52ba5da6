"""The base of adapters of other libraries, called suites, whose step is a function of a state."""

import contextlib
import dataclasses
import functools
import importlib
import io
import sys
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from packaging.requirements import Requirement

from envs import base
from envs.arguments import described
from envs.base import spaces
from envs.casting import cast, held_types
from envs.errors import MissingPackageError, UserTypeError, UserValueError, installing
from envs.pytrees import Action, Observation, Params, PyTree
from envs.settings import own_settings
from envs.spelling import near

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Kind = TypeVar("Kind", bound="SuiteEnvironment")
LIMIT = "max_steps_in_episode"
NO_LIMIT = int(np.iinfo(np.int32).max)  # a time limit that no number of steps reaches
_IMPORTING = threading.RLock()  # while the streams are replaced


@struct.dataclass
class SuiteParams(base.EnvParams):
    """The time limit, for tasks whose other parameters are static.

    Attributes:
      max_steps_in_episode: Time limit.
    """

    max_steps_in_episode: int = 1000


@struct.dataclass
class SuiteState(base.EnvState):
    """The state of an episode.

    Attributes:
      time: Number of steps taken, int32 `[]`.
      inner: State in the other interface.
    """

    time: jax.Array
    inner: Any


class Transition(NamedTuple):
    """What a suite's step returns, in the words of the contract.

    Attributes:
      obs: Observation after the step, before any reset.
      inner: State of the suite.
      reward: Reward, a number.
      terminated: Whether the episode ended for another reason than a time limit.
      metrics: Numbers that the suite reports, by name.
      truncated: Whether the other interface ended the episode by a time limit of its own, which only adapters of
        objects regard.
    """

    obs: Any
    inner: Any
    reward: Any
    terminated: Any
    metrics: Mapping[str, Any] = {}
    truncated: Any = False


class Adapter(base.Environment):
    """An environment in terms of functions of another interface; a subclass is a frozen dataclass and defines them.

    Their automatic reset and their time limit are left out: `terminated` is any other end of an episode, and
    `max_steps_in_episode` alone truncates. States, observations and rewards get the same strong dtypes from a reset
    and from a step.
    """

    def begin(self, key: jax.Array, params: Params) -> tuple[Any, Any]:
        """First observation, and first state of their own."""
        raise NotImplementedError

    def advance(self, key: jax.Array, inner: Any, action: Action, params: Params) -> Transition:
        """Their step, without a reset and a time limit."""
        raise NotImplementedError

    def reset_env(self, key: jax.Array, params: Params) -> tuple[Any, SuiteState]:
        """Their reset."""
        obs, inner = cast(self.begin(key, params), types_of(self))
        return obs, SuiteState(jnp.zeros((), jnp.int32), inner)

    def step_env(
        self, key: jax.Array, state: SuiteState, action: Action, params: Params
    ) -> tuple[Any, SuiteState, jax.Array, jax.Array, dict[Any, Any]]:
        """Their step, without a reset and a time limit."""
        step = self.advance(key, state.inner, action, params)
        obs, inner = cast((step.obs, step.inner), types_of(self))
        info = {"metrics": {name: jnp.float32(value) for name, value in step.metrics.items()}} if step.metrics else {}
        reward = jnp.asarray(step.reward, jnp.float32).reshape(())
        terminated = jnp.asarray(step.terminated, bool).reshape(())
        return obs, SuiteState(state.time + 1, inner), reward, terminated, info

    def observation_space(self, params: Params) -> spaces.Space:
        """The space of the observations' types: whole numbers have the bounds of their type, real ones have none."""
        del params
        return space_of(types_of(self)[0])


def check_returned(env: Adapter, reset: str, step: str, flag: str = "terminated") -> None:
    """Reject functions whose values have other shapes than the contract, or than those of the reset.

    Args:
      env: Environment.
      reset, step: Names of the functions, for the error messages.
      flag: Name of the flag at the end of an episode, for the error messages.

    Raises:
      TypeError: An observation or a state of the step has another structure or shape than that of the reset, or a
        reward or a flag is not one number.
    """
    params, key = env.default_params, jax.eval_shape(lambda: jax.random.key(0))
    first = jax.eval_shape(env.begin, key, params)

    def advance(held: PyTree, key: jax.Array) -> Transition:
        return env.advance(key, held[1], env.action_space(params).sample(key), params)

    taken = jax.eval_shape(advance, first, key)
    for name, before, after in (("an obs", first[0], taken.obs), ("a state", first[1], taken.inner)):
        if _shapes(before) != _shapes(after):
            raise UserTypeError(
                f"{step} must return {name} of the shapes that {reset} returns, {described(before)}, got "
                f"{described(after)}"
            )
    for name, value in (("reward", taken.reward), (flag, taken.terminated)):
        if np.size(value) != 1:
            raise UserTypeError(f"{step} must return one number as {name}, got {described(value)}")
    types_of(env)


def unpacked(returned: Any, function: str, wanted: tuple[str, ...]) -> tuple[Any, ...]:
    """What a function returned, if it is a tuple of this many values.

    Args:
      returned: Returned value.
      function: Name of the function, for the error message.
      wanted: Names of the values.

    Raises:
      TypeError: It is not such a tuple.
    """
    if isinstance(returned, tuple) and len(returned) == len(wanted):
        return returned
    got = f"{len(returned)} values" if isinstance(returned, tuple) else described(returned)
    raise UserTypeError(f"{function} must return ({', '.join(wanted)}), got {got}")


def _shapes(tree: PyTree) -> Any:
    leaves, structure = jax.tree.flatten(tree)
    return structure, [np.shape(leaf) for leaf in leaves]


@dataclass(frozen=True)
class SuiteEnvironment(Adapter):
    """A task of a suite; a subclass defines the suite.

    Dynamics, rewards and observations are the suite's own, for equal keys. Its automatic reset and its time limit are
    left out, see `Adapter`.

    Attributes:
      env_id: Name of the task in the suite.
      fields: Arguments with which the task is made, as sorted (name, value) pairs.
    """

    env_id: str
    fields: tuple[tuple[str, Hashable], ...] = ()

    library: ClassVar[str]  # the prefix of the names that `envs.make` takes

    @property
    def inner(self) -> Any:
        """The task as its suite creates it, the same object every time."""
        raise NotImplementedError

    @property
    def time_limit(self) -> int:
        """The suite's own time limit, or a default for tasks that have none."""
        return SuiteParams.max_steps_in_episode

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return f"{self.library}/{self.env_id}"

    @property
    def default_params(self) -> Any:
        """The suite's own time limit."""
        return SuiteParams(max_steps_in_episode=self.time_limit)


def make(kind: Callable[..., Kind], env_id: str, fields: Mapping[str, object], known: tuple[str, ...]) -> Kind:
    """Create a task of a suite after checking that it accepts these fields.

    Args:
      kind: Subclass for the suite.
      env_id: Name of the task.
      fields: Static fields.
      known: Names of the fields that the task takes.

    Raises:
      ValueError: The task does not accept such a field, or a field's value.
      TypeError: A field's value cannot be hashed.
    """
    env = kind(env_id, tuple(sorted((name, _hashable(value)) for name, value in fields.items())))
    for name, value in env.fields:
        if name not in known:
            takes = f"; its static fields are {', '.join(known)}." if known else "; it has no static fields."
            hint = near(name, known) or takes
            parameters = {field.name for field in dataclasses.fields(kind(env_id).default_params)}
            if name in parameters:
                hint = f"; it is a parameter, which `default_params` has and `--env.{name.replace('_', '-')}` sets."
            raise UserValueError(f"The environment {env.name!r} has no static field {name!r}{hint}")
        try:
            hash(value)
        except TypeError as error:
            raise UserTypeError(
                f"{env.name}: the static field {name!r} is {value!r}, which cannot be hashed."
            ) from error
    _ = env.inner
    return env


@functools.cache
def imported(module: str, extra: str, requirement: str) -> Any:
    """A module of a suite, imported outside of any trace, in this package's settings of JAX and without output.

    Args:
      module: Name of the module.
      extra: Name of the extra of `pyproject.toml` that installs it.
      requirement: Name and versions of its distribution, as the extra requires them.

    Raises:
      ImportError: The package is not installed, or has another version.
    """
    needed, prefix = Requirement(requirement), extra.replace("-", "_")
    try:
        with _IMPORTING, own_settings(), jax.ensure_compile_time_eval(), _quiet():
            loaded = importlib.import_module(module)
        version = metadata.version(needed.name)
    except ImportError as error:
        raise MissingPackageError(f"{prefix}/... needs an extra: {installing(extra)} ({error}).") from error
    if not needed.specifier.contains(version, prereleases=True):
        raise MissingPackageError(
            f"{prefix}/... takes {needed.name} {needed.specifier}, and {version} is installed: {installing(extra)}."
        )
    return loaded


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Discard what a package prints when it is imported; JaxMARL also replaces the streams."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(sys.stderr):
        yield


def space_of(types: Any) -> spaces.Space:
    """The space of all values of these types.

    Args:
      types: Pytree of dictionaries and tuples of `jax.ShapeDtypeStruct`.
    """
    if isinstance(types, Mapping):
        return spaces.Dict({name: space_of(part) for name, part in types.items()})
    if isinstance(types, tuple):
        return spaces.Tuple(tuple(map(space_of, types)))
    if types.dtype == bool:
        return spaces.Box(0, 1, types.shape, types.dtype)
    if jnp.issubdtype(types.dtype, np.integer):
        ends = jnp.iinfo(types.dtype)
        return spaces.Box(ends.min, ends.max, types.shape, types.dtype)
    return spaces.Box(-jnp.inf, jnp.inf, types.shape, types.dtype)


def as_dictionaries(obs: Observation) -> Any:
    """An observation of mappings, named tuples and dataclasses as nested dictionaries.

    Args:
      obs: Observation.
    """
    if dataclasses.is_dataclass(obs):
        obs = {field.name: getattr(obs, field.name) for field in dataclasses.fields(obs)}
    elif hasattr(obs, "_asdict"):
        obs = obs._asdict()
    return {name: as_dictionaries(part) for name, part in obs.items()} if isinstance(obs, Mapping) else obs


def show(ax: "Axes", image: Any) -> None:
    """Draw a suite's own image of a state on Matplotlib axes, as `draw` of an environment does."""
    image = np.asarray(image)
    ax.imshow(image, interpolation="nearest")
    ax.set_xlim(-0.5, image.shape[1] - 0.5)
    ax.set_ylim(image.shape[0] - 0.5, -0.5)


def _hashable(value: object) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def params_with(numbers: Mapping[str, Any], time_limit: Any) -> Any:
    """Parameters of an environment with these numbers, of a class that pickles, and one for each set of names.

    Args:
      numbers: Traced parameters by name.
      time_limit: Number of steps of an episode, `max_steps_in_episode`.
    """
    return _params_class(tuple(numbers))(**numbers, **{LIMIT: time_limit})


@functools.cache
def _params_class(names: tuple[str, ...]) -> Any:
    """A subclass of `EnvParams` with these numbers in addition to the time limit."""
    annotations = dict.fromkeys((*names, LIMIT), Any)
    body = {"__annotations__": annotations, "__reduce__": _reduced, **dict.fromkeys(names, 0.0), LIMIT: 1000}
    return struct.dataclass(type("NumberedParams", (base.EnvParams,), body))


def _reduced(params: Params) -> tuple[Any, ...]:
    """The reduction for `pickle`, which cannot find a class created here by its name."""
    fields = {each.name: getattr(params, each.name) for each in dataclasses.fields(params)}
    time_limit = fields.pop(LIMIT)
    return params_with, (fields, time_limit)


@functools.cache
@own_settings()
def types_of(env: Adapter) -> tuple[Any, Any]:
    """The types of the observation and of the inner state that hold a reset's values and any step's."""
    with jax.ensure_compile_time_eval():
        params = env.default_params
        key = jax.eval_shape(lambda: jax.random.key(0))

        def step(held: PyTree, key: jax.Array) -> Any:
            taken = env.advance(key, held[1], env.action_space(params).sample(key), params)
            return taken.obs, taken.inner

        first = jax.eval_shape(env.begin, key, params)
        return held_types(first, lambda held: jax.eval_shape(step, held, key))
