"""Algorithms by name, and their descriptions in run directories."""

import dataclasses
import functools
import sys
import typing
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import envs
from envs import registry
from envs.base import Environment
from envs.errors import UserTypeError, UserValueError
from envs.spelling import near
from envs.wrappers.asymmetric import seen_from
from envs.wrappers.randomising import randomise
from jaxrl.algorithms.allowed_modules import FUNCTION, FUNCTION_OF_ENVIRONMENT, Allow, check_allowed, custom_modules
from jaxrl.algorithms.contract import Algorithm, again, codes
from jaxrl.importing import imported, name_of, path_of
from jaxrl.sweeps.distributions import Choice, LogUniform, Uniform

Builder = Callable[..., Algorithm]
# Distributions that descriptions of environments may have.
DISTRIBUTIONS = {kind.__name__: kind for kind in (Uniform, LogUniform, Choice)}


class Row(NamedTuple):
    """Entry of an algorithm of jaxrl: the function `NAME(env, config) -> Algorithm` of `jaxrl.algorithms.NAME`.

    Attributes:
      name: Name of the algorithm.
      effective_steps: Number of steps within which every hyper-parameter changes the result, for `jaxrl.check`.
      small: Fields of a small configuration, for the laws.
    """

    name: str
    effective_steps: int
    small: Mapping[str, Any]

    @property
    def builder(self) -> str:
        """Path `"module:function"` of the function that builds the algorithm."""
        return f"jaxrl.algorithms.{self.name}:{self.name}"


_ROLLOUT = {"num_envs": 2, "num_steps": 16, "hidden": (8,)}
_EPOCHS = {**_ROLLOUT, "num_epochs": 2, "num_minibatches": 2}
_REPLAY = {"num_envs": 2, "num_steps": 4, "buffer_size": 64, "prefill": 16, "batch_size": 8, "hidden": (8,)}
_ACTOR_CRITIC = {**_REPLAY, "num_updates": 2}

# fmt: off
ROWS: dict[str, Row] = {row.name: row for row in (
    Row("ppo", 2, _EPOCHS),
    Row("dqn", 3, _REPLAY),
    Row("pqn", 2, _EPOCHS),
    Row("reinforce", 2, {**_ROLLOUT, "num_steps": 64}),
    Row("a2c", 2, _ROLLOUT),
    Row("spo", 2, _EPOCHS),
    Row("mdpo", 2, _EPOCHS),
    Row("ppo_kl", 2, _EPOCHS),
    Row("sac", 3, _ACTOR_CRITIC),
    Row("td3", 3, _ACTOR_CRITIC),
    Row("evolve", 2, {"population_size": 4, "hidden": (4,)}),
)}
# fmt: on
EFFECTIVE_STEPS = 3  # default for custom algorithms


def builder_of(name: str) -> Builder:
    """Function that builds an algorithm: `(env, config) -> Algorithm`, or `(env)` for one without a configuration.

    Args:
      name: Name of an algorithm of jaxrl, or `module:function` for a custom one.

    Raises:
      ValueError: There is no such algorithm, module or function.
    """
    if name in ROWS:
        return imported(ROWS[name].builder)
    if ":" in name:
        return imported(name)
    hint = near(name, ROWS) or f"; known are {', '.join(ROWS)}, and module:function for a custom one."
    raise UserValueError(f"There is no algorithm {name!r}{hint}")


def make(name: str, env: Environment, config: Any = None) -> Algorithm:
    """Build an algorithm by name.

    Args:
      name: Name of an algorithm of jaxrl, or `module:function` for a custom one.
      env: Environment.
      config: Configuration; None for the default one, or for an algorithm without one.

    Raises:
      ValueError: There is no such algorithm.
      TypeError: The named function does not return an algorithm.
    """
    algo = again(builder_of(name), env, config)
    if not isinstance(algo, Algorithm):
        raise UserTypeError(
            f"{name} must return an Algorithm, got {type(algo).__name__}; it is called with an environment"
        )
    return algo


def row_of(algo: Algorithm) -> Row | None:
    """Row of an algorithm that was built by jaxrl, None for any other."""
    row = ROWS.get(algo.name)
    return row if row is not None and row.builder == algo.builder else None


def rebuilt(algo: Algorithm, config: Any, env: Environment | None = None) -> Algorithm:
    """Rebuild an algorithm with another configuration, and its default hyper-parameters.

    Args:
      algo: Algorithm.
      config: Configuration.
      env: Environment; None for that of the algorithm.

    Raises:
      ValueError: The algorithm cannot be built by name, or not with this configuration.
    """
    if algo.builder is None:
        raise UserValueError(f"the algorithm {algo.name!r} cannot be rebuilt: Algorithm.builder is None")
    _refuse_edited(algo)
    return again(imported(algo.builder), seen_from(algo.env) if env is None else env, config, algo.network)


def randomised(algo: Algorithm, parameters: Any) -> Algorithm:
    """The algorithm on its environment with drawn parameters, with equal configuration and hyper-parameters.

    Args:
      algo: Algorithm.
      parameters: Distributions by name, or a function of a key, see `envs.wrappers.randomise`.

    Raises:
      TypeError, ValueError: The environment has no such parameters, or the algorithm cannot be rebuilt.
    """
    env = randomise(seen_from(algo.env), parameters)
    try:
        moved = rebuilt(algo, algo.config, env)
    except UserValueError as error:
        raise UserValueError(
            f"randomise takes an algorithm that can be built anew, and {error}; build it on "
            "envs.wrappers.randomise(env, ...)"
        ) from None
    return moved._replace(hparams=algo.hparams, settings_from=algo.settings_from)


def default_space(algo: Algorithm) -> dict[str, Any]:
    """Default search space of an algorithm, by the function `search_space(algo)` in the module of its builder.

    Raises:
      ValueError: The algorithm has no default space.
    """
    module = sys.modules.get((algo.builder or "").partition(":")[0])
    search_space = getattr(module, "search_space", None)
    if search_space is None:
        raise UserValueError(
            f"space takes paths, such as {{'lr': LogUniform(1e-4, 1e-2)}}: {algo.name} has no default one"
        )
    return search_space(algo)


def describe(algo: Algorithm) -> dict[str, Any]:
    """Description of plain values from which `build` makes an equal algorithm in another process.

    Raises:
      ValueError: A part of it cannot be found by name: a network, an environment or an optimiser from
        a notebook, an edited copy of an algorithm.
    """
    if algo.builder is None or algo.builder.startswith("__main__:"):
        raise UserValueError(f"the algorithm {algo.name!r} cannot be imported by name")
    _refuse_edited(algo)
    if algo.network is not None:
        raise UserValueError(f"its network is the user's own {type(algo.network).__name__}")
    named = algo.name if row_of(algo) is not None else algo.builder
    config = None
    if algo.config is not None:
        config = {field.name: getattr(algo.config, field.name) for field in dataclasses.fields(algo.config)}
        for field, value in config.items():
            if callable(value):
                config[field] = path_of(value)
                if config[field] is None:
                    raise UserValueError(f"its {field} is the user's own {name_of(value)}, which has no path to import")
            elif not _is_plain(value):
                raise UserValueError(f"its configuration's {field} is an object, {type(value).__name__}")
    # The configuration has what the actor sees of the environment.
    return {"algorithm": named, "environment": _describe_environment(seen_from(algo.env)), "config": config}


def modules_to_allow(algo: Algorithm) -> list[str]:
    """Names of the custom modules that `allow` must name for an algorithm to be rebuilt; empty if it cannot be."""
    try:
        spec = describe(algo)
    except UserValueError:
        return []
    return sorted({module for _, _, module in custom_modules(spec, _own_names())})


def _own_names() -> set[str]:
    return {*ROWS, *(row.builder for row in ROWS.values())}


def _refuse_edited(algo: Algorithm) -> None:
    """Reject an algorithm with functions that differ from those of its builder, such as a copy with another actor.

    Raises:
      ValueError: The functions differ.
    """
    assert algo.builder is not None
    arguments = imported(algo.builder), algo.env, algo.config, algo.network
    try:
        built = _codes_of(*arguments)
    except TypeError:  # an argument has no hash
        built = _codes_of.__wrapped__(*arguments)
    if built != codes(algo.functions):
        raise UserValueError(f"the algorithm {algo.name!r} is an edited copy of the result of {algo.builder}")


@functools.lru_cache(maxsize=16)  # every shard, checkpoint and result of a call describes the same algorithm
def _codes_of(builder: Callable[..., Any], env: Any, config: Any, network: Any) -> Any:
    """Code objects of the functions of an algorithm by its builder, for comparison."""
    return codes(again(builder, env, config, network).functions)


def build(spec: Mapping[str, Any], allow: Allow = ()) -> Algorithm:
    """Build the algorithm of a description.

    Args:
      spec: Description by `describe`.
      allow: Names of custom modules that may be imported; those of jaxrl need no permission.

    Raises:
      NotAllowedError: The description names a module that is not allowed; nothing is imported.
      ValueError, TypeError, ImportError: The algorithm cannot be built here.
    """
    check_allowed(spec, _own_names(), allow)
    name, env = spec["algorithm"], _build_environment(spec["environment"])
    if spec["config"] is None:
        return make(name, env)
    config = {name: _hashable(value) for name, value in spec["config"].items()}
    with warnings.catch_warnings():  # already warned when the algorithm was first built
        warnings.filterwarnings("ignore", "(on .* )?the (actor|critic) sees", RuntimeWarning)
        return make(name, env, config_class(builder_of(name))(**config))


def config_class(builder: Builder) -> Any:
    """Class of the argument `config` of a builder, by its annotation.

    Raises:
      TypeError: The annotation does not contain a dataclass.
    """
    while isinstance(builder, functools.partial):
        builder = builder.func
    annotation = typing.get_type_hints(builder).get("config")
    choices = [kind for kind in (annotation, *typing.get_args(annotation)) if dataclasses.is_dataclass(kind)]
    if not choices:
        raise UserTypeError(
            f"the argument config of {builder.__module__}:{builder.__name__} has no dataclass as its type"
        )
    return choices[0]


def _build_environment(spec: Mapping[str, Any]) -> Environment:
    return envs.make(spec["name"], **{name: _of_environment(value) for name, value in spec["static"].items()})


def _describe_environment(env: Any) -> dict[str, Any]:
    """Name and static fields of an environment, with wrapped environments described in the same way."""
    other = registry.adapted(env)
    if other is not None:
        return {"name": other[0], "static": other[1]}
    kind = type(env)
    if kind.__module__ == "__main__" or vars(sys.modules[kind.__module__]).get(kind.__name__) is not kind:
        raise UserValueError(f"the environment {kind.__name__} cannot be imported by name")
    fields = {field.name: getattr(env, field.name) for field in dataclasses.fields(env) if field.init}
    static = {name: _described_field(value) for name, value in fields.items()}
    for field, value in static.items():
        if not _is_plain(value):
            raise UserValueError(f"its environment's {field} is an object, {type(value).__name__}")
    row = registry.row_of(kind, static)
    name, rest = (f"{kind.__module__}:{kind.__name__}", static) if row is None else row
    return {"name": name, "static": rest}


def _described_field(value: object) -> Any:
    """A field of an environment: an environment or a function by its description, others as plain values."""
    if isinstance(value, Environment):
        return _describe_environment(value)
    if callable(value) and (path := path_of(value)) is not None:
        return {FUNCTION: path}
    return _plain(value)


def _plain(value: Any) -> Any:
    """Value with dictionaries in place of distributions."""
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    if type(value) in DISTRIBUTIONS.values():
        return {"distribution": type(value).__name__} | dataclasses.asdict(value)
    return value


def _is_plain(value: object) -> bool:
    """Whether a value is unchanged by conversion to JSON and back, except for tuples."""
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str | dict)


def _hashable(value: object) -> Any:
    """Value read from JSON, with tuples in place of lists, and distributions in place of their descriptions."""
    if isinstance(value, Mapping) and value.get("distribution") in DISTRIBUTIONS:
        return DISTRIBUTIONS[value["distribution"]](**{name: value[name] for name in value if name != "distribution"})
    return tuple(_hashable(item) for item in value) if isinstance(value, list) else value


def _of_environment(value: object) -> Any:
    """Value of an environment's field read from JSON, as `_hashable`, and the function that it names, if it does."""
    if isinstance(value, Mapping) and FUNCTION in value:
        return imported(value[FUNCTION], FUNCTION_OF_ENVIRONMENT)
    if isinstance(value, Mapping) and "name" in value:
        return _build_environment(value)
    return _hashable(value)
