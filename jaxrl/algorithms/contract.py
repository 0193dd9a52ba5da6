"""Contract of algorithms: a name, a static configuration and pure functions; their assembly, and their checks."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeVar, cast, get_args, get_type_hints

import jax

from envs.arguments import check_count, class_names, described
from envs.base import Environment
from envs.checking import ContractError
from envs.errors import UserTypeError, UserValueError
from envs.settings import in_own_settings
from jaxrl.checks import Settings, carried_over, check_function, extends
from jaxrl.discounts.parsing import prepare
from jaxrl.importing import imported
from jaxrl.learning.actor import Actor
from jaxrl.learning.rollout import longest_episode
from jaxrl.learning.shards import EnvShards
from jaxrl.pytrees import EnvParams, HParams, Policy, PyTree, State

Build = TypeVar("Build", bound=Callable[..., Any])
C = TypeVar("C")
N = TypeVar("N")
Metrics = dict[str, jax.Array]
MetricRule = Literal["mean", "last", "sum"]
METRIC_RULES: tuple[str, ...] = get_args(MetricRule)

_ARGUMENTS = {
    "init": ("key", "hparams", "env_params"),
    "step": ("key", "iteration", "state", "hparams", "env_params"),
    "policy": ("state", "hparams"),
    "prepare": ("hparams", "num_settings", "run_length"),
    "discount": ("hparams",),
    "stopped": ("hparams", "env_steps"),
    "warm_start": ("state", "policy"),
    "sharded": ("shards",),
    "value": ("policy", "memory", "obs"),
}
_OPTIONAL = ("discount", "stopped", "warm_start", "sharded", "value")
_ARGUMENTS_OF_ACTOR = {
    "initial_memory": ("policy",),
    "scores": ("policy", "memory", "obs", "mask"),
    "noise": ("key", "shape"),
    "choose": ("noise", "scores", "memory", "greedy", "mask"),
}

__all__ = [
    "METRIC_RULES",
    "Algorithm",
    "Metrics",
    "Policy",
    "Sharded",
    "State",
    "again",
    "assembled",
    "check_members",
    "check_stepped",
    "checked_config",
    "checked_network",
    "codes",
    "policy_shapes",
    "prepared_for",
    "with_hints",
]


def _unprepared(hparams: HParams, num_settings: int | None = None, run_length: int | None = None) -> HParams:
    del num_settings, run_length
    return hparams


def prepared_for(horizon: int, env: Environment | None = None) -> Callable[..., HParams]:
    """Function `Algorithm.prepare` of an algorithm with a discount and no schedules.

    Args:
      horizon: Number of steps for which the discount is prepared, see `discounts.parsing.prepare`.
      env: Environment of the algorithm; for evaluation, a discount without a closed form is prepared up to its time
        limit. None for no environment.
    """
    episode_length = None if env is None else longest_episode(env)

    def prepared(hparams: HParams, num_settings: int | None = None, run_length: int | None = None) -> HParams:
        del run_length
        return dataclasses.replace(hparams, discount=prepare(hparams.discount, horizon, num_settings, episode_length))

    return prepared


class Algorithm(NamedTuple):
    """A training algorithm on one environment, for `train` or `make_train`.

    A builder such as `ppo(env, config)` closes over static values; every number that may be swept is an
    argument, in `hparams` or in `env_params`.

    Attributes:
      name: Lower-case name, as on the command line for algorithms of jaxrl.
      env: Environment, static.
      config: Frozen dataclass of the static configuration, or None.
      hparams: Default hyper-parameters, a `flax.struct` dataclass whose leaves are scalars (and discounts); a leaf
        that has no effect on this environment and configuration is None.
      init: Function `(key, hparams, env_params) -> State`.
      step: Function `(key, iteration, State, hparams, env_params) -> (State, metrics)`, one collect-and-learn
        iteration; `iteration`, int32 `[]`, counts from 0, is shared by the runs of a block and never batched; `metrics`
        is a flat dictionary of float32 scalars.
      policy: Function `(State, hparams) -> Policy`: parameters, normalisation, clips.
      actor: Actor of the policy, see `jaxrl.learning.actor.Actor`.
      env_steps_per_iteration: Number of environment steps of one `step`.
      prepare: Function `(hparams, num_settings=None, run_length=None) -> hparams`, which computes values that are
        constant over a run, such as discounts, and schedules that end with the run; idempotent. Leaves are
        concrete or traced, of one setting, or with a leading axis `[num_settings]`; `run_length` is the number of
        environment steps of the run, None if unknown.
      discount: Function `(hparams) -> Prepared`, the discount under which evaluation reports `discounted_return`, from
        prepared hyper-parameters; None reports no such metric.
      stopped: Function `(hparams, env_steps) -> reason`, the reason why some setting of prepared hyper-parameters
        `[num_settings]` learns nothing after that many environment steps, None if all learn; such a run is not
        extended.
      metric_rules: Rules `{name: rule}` for reducing a metric of `step` over the iterations since the last evaluation:
        "mean" (the default), "last" or "sum".
      network: Custom network, or networks, with which `builder` was called; None for those of the configuration.
      builder: Path `"module:function"` of a function by which another process builds an equal algorithm, called as
        `function(env, config)` (`function(env)` if `config` is None, and `function(env, config, network)` with a custom
        network); None if there is none.
      warm_start: Function `(State, Policy) -> State` that puts a policy of the same shapes, normalisation included,
        into the initial state of a run; None if warm starts are not supported.
      sharded: Function `(EnvShards) -> Sharded`, the algorithm on one part of a run's environments; None if
        environments cannot be distributed over devices.
      value: Function `(policy, memory, obs) -> [*B]`, the values of observations by the policy's own critic, in units
        of the rewards that it learned from; None where the policy contains no critic that takes observations alone.
      settings_from: Origin of the configuration and the hyper-parameters, such as "preset of dqn on cartpole", which a
        result records; "defaults" for those of the algorithm, changed or not.
    """

    name: str
    env: Environment
    config: Any
    hparams: HParams
    init: Callable[[jax.Array, HParams, EnvParams], State]
    step: Callable[[jax.Array, jax.Array, State, HParams, EnvParams], tuple[State, Metrics]]
    policy: Callable[[State, HParams], Policy]
    actor: Actor
    env_steps_per_iteration: int
    prepare: Callable[..., Any] = _unprepared
    discount: Callable[[HParams], Any] | None = None
    stopped: Callable[[HParams, int], str | None] | None = None
    metric_rules: Mapping[str, MetricRule] = MappingProxyType({})
    network: Any = None
    builder: str | None = None
    warm_start: Callable[[State, Policy], State] | None = None
    sharded: Callable[[EnvShards], "Sharded"] | None = None
    value: Callable[[Policy, Any, Any], jax.Array] | None = None
    settings_from: str = "defaults"

    def __repr__(self) -> str:
        return f"Algorithm({self.name} on {self.env.name}; {self.config!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Builder and its arguments, for pickle, by which another process builds an equal algorithm."""
        return _reduced(self)

    @property
    def functions(self) -> tuple[Any, ...]:
        """Functions of the algorithm; algorithms with equal environments and functions share compiled programs."""
        rules = tuple(self.metric_rules.items())
        return self.init, self.step, self.policy, self.actor, self.discount, rules, self.env_steps_per_iteration


def again(builder: Callable[..., Any], env: Any, config: Any = None, network: Any = None) -> Any:
    """Algorithm by its builder, `builder(env)`, `builder(env, config)` or `builder(env, config, network)`."""
    if network is not None:
        return builder(env, config, network)
    return builder(env) if config is None else builder(env, config)


def _reduced(algo: Algorithm) -> tuple[Any, ...]:
    """Value of `Algorithm.__reduce__`: its builder and the arguments, so that no function of it needs to be pickled.

    The parts of an algorithm without a builder, or of an edited copy, are pickled one by one: plain pickle takes them
    where its functions are of a module, and cloudpickle takes any.
    """
    arguments = algo.env, algo.config, algo.network
    try:
        builder = None if algo.builder is None else imported(algo.builder)
    except UserValueError:  # one that is defined inside a function
        builder = None
    settings = {"hparams": algo.hparams, "settings_from": algo.settings_from}
    if builder is not None and codes(algo) == codes(again(builder, *arguments)._replace(**settings)):
        return _unpickled, (builder, *arguments, settings)
    return type(algo), tuple(algo._replace(metric_rules=dict(algo.metric_rules)))


def _unpickled(builder: Callable[..., Any], env: Any, config: Any, network: Any, settings: dict[str, Any]) -> Any:
    return again(builder, env, config, network)._replace(**settings)


def codes(functions: Any) -> Any:
    """Code objects of functions, for comparison: builders make new functions of the same code."""
    if isinstance(functions, tuple):
        return tuple(map(codes, functions))
    return getattr(functions, "__code__", functions)


@in_own_settings
def policy_shapes(algo: Algorithm) -> Policy:
    """Shapes of the policy of one run, without computing it."""
    hparams, params = algo.prepare(algo.hparams), algo.env.default_params
    return jax.eval_shape(lambda key: algo.policy(algo.init(key, hparams, params), hparams), jax.random.key(0))


class Sharded(NamedTuple):
    """Part of one device in a run whose environments are distributed over devices.

    Attributes:
      algo: Algorithm within a `shard_map` over the shards, on its part of the environments; parameters, and
        all other values that are not per environment, are equal in every part.
        `env_steps_per_iteration` counts the environments of all parts.
      of_each_env: Pytree of bools, a prefix of the State, True for leaves `[num_envs, ...]`.
    """

    algo: Algorithm
    of_each_env: Any


def assembled(
    builder: str,
    env: Environment,
    config: Any,
    hparams: Callable[..., HParams],
    effects: Mapping[str, bool],
    **members: Any,
) -> Algorithm:
    """Algorithm with a discount, whose name is that of its builder, or the whole path of a builder outside jaxrl.

    Args:
      builder: Path `"module:name"` of its builder.
      env: Environment.
      config: Configuration.
      hparams: Class of the hyper-parameters, or a function that makes them from fields.
      effects: Whether a hyper-parameter has an effect, by name, for those that do not always have one.
      **members: Other members of `Algorithm`.
    """
    return Algorithm(
        name=builder.partition(":")[2] if builder.startswith("jaxrl.") else builder,
        env=env,
        config=config,
        hparams=hparams(**{name: None for name, has_effect in effects.items() if not has_effect}),
        discount=_discount,
        builder=builder,
        **members,
    )


def _discount(hparams: HParams) -> Any:
    return hparams.discount


def with_hints(build: Build) -> Build:
    """Decorate a builder `(env, config, network)`, so that errors for unknown arguments state where these belong."""
    takes = inspect.signature(build).parameters

    @in_own_settings
    @functools.wraps(build)
    def hinting(*values: Any, **named: Any) -> Any:
        hints = get_type_hints(build)
        config = next(kind for kind in get_args(hints["config"]) if kind is not type(None))
        kinds = [kind for kind in get_args(hints.get("network")) if kind.__module__.startswith("jaxrl.")]
        parts = {name: kind.__name__ for kind in kinds for name in kind.__dataclass_fields__}
        example = f"{build.__name__}(env, {config.__name__}({{}}))"
        for name in named.keys() - takes.keys():
            if name in parts:
                place = f"it is a field of network: {build.__name__}(env, network=jaxrl.{parts[name]}({name}=...))"
            elif name == "hparams":
                place = "they are an argument of the training: train(algo, hparams, ...)"
            else:
                if name not in config.__dataclass_fields__:
                    config(**{name: None})  # raises the error with near matches
                place = f"it is a field of the configuration: {example.format(f'{name}=...')}"
            raise UserTypeError(f"{build.__name__} takes {', '.join(takes)}, got {name}; {place}")
        network = named.get("network", values[2] if len(values) > 2 else None)
        if isinstance(network, str):
            raise UserTypeError(
                f"network takes your own flax module, got {network!r}; a network by name is a field of the "
                f"configuration: {example.format(f'network={network!r}')}"
            )
        if isinstance(network, Settings):
            raise UserTypeError(
                f"network takes your own flax module, got {type(network).__name__}; hyper-parameters are an argument "
                "of the training: train(algo, hparams, ...)"
            )
        algo, path = build(*values, **named), f"{build.__module__}:{build.__name__}"
        if algo.builder != path:
            raise ContractError(
                f"the builder of what {path} builds must be {path!r}, got {algo.builder!r}; for results that can be "
                f'loaded, write f"{{__name__}}:{build.__name__}"'
            )
        return algo

    return cast(Build, hinting)


def checked_config(config: C | None, kind: type[C]) -> C:
    """Configuration of an algorithm, the defaults if None; that of a class which `kind` extends is converted.

    Raises:
      TypeError: `config` is of another class.
    """
    if config is None or isinstance(config, kind):
        return kind() if config is None else config
    if extends(kind, type(config)):
        return carried_over(kind(), config)
    name, got = class_names(kind, config)
    raise UserTypeError(f"config must be a {name}, such as {kind.__name__}(num_envs=8), got {got}")


def checked_network(network: N) -> N:
    """Custom network of a builder, which keeps what it builds by its arguments.

    Raises:
      TypeError: It is not hashable.
    """
    try:
        hash(network)
    except TypeError:
        if isinstance(network, dict):
            raise UserTypeError(f"network takes your own flax module, got {network!r}") from None
        raise UserTypeError("network must be hashable; use tuples instead of lists in its fields") from None
    return network


def check_members(algo: Any) -> None:
    """Reject an algorithm with a member of the wrong type, or a function with wrong arguments; nothing is traced.

    Raises:
      TypeError: `algo` is not an `Algorithm`.
      ContractError: A member violates the contract.
    """
    if not isinstance(algo, Algorithm):
        example = f"train({algo!r}, 'cartpole')" if isinstance(algo, str) else "train('ppo', 'cartpole')"
        raise UserTypeError(
            "algo takes an algorithm, such as jaxrl.ppo(envs.make('cartpole')), or its name with that of an "
            f"environment, such as {example}, got {algo!r}"
        )
    kinds = {"env": (Environment, "an environment"), "actor": (Actor, "a jaxrl.learning.actor.Actor")}
    for name, (kind, text) in kinds.items():
        if not isinstance(getattr(algo, name), kind):
            raise ContractError(f"{name} of {algo.name} must be {text}, got {type(getattr(algo, name)).__name__}")
    if not dataclasses.is_dataclass(algo.hparams) or isinstance(algo.hparams, type):
        got = algo.hparams if isinstance(algo.hparams, type) else type(algo.hparams)
        raise ContractError(f"hparams of {algo.name} must be a flax.struct dataclass instance, got {got.__name__}")
    if not isinstance(algo.metric_rules, Mapping):
        raise ContractError(f"metric_rules of {algo.name} must be a dictionary, got {type(algo.metric_rules).__name__}")
    check_count("env_steps_per_iteration", algo.env_steps_per_iteration)
    for name, arguments in _ARGUMENTS.items():
        if name not in _OPTIONAL or getattr(algo, name) is not None:
            check_function(f"{name} of {algo.name}", getattr(algo, name), arguments, ContractError)
    for name, arguments in _ARGUMENTS_OF_ACTOR.items():
        check_function(f"actor.{name} of {algo.name}", getattr(algo.actor, name), arguments, ContractError)
    if algo.actor.log_prob is not None:
        name = f"actor.log_prob of {algo.name}"
        check_function(name, algo.actor.log_prob, ("scores", "mask", "raw"), ContractError)


def check_stepped(state: State, stepped: PyTree) -> None:
    """Reject a step that does not return a state of the same structure and types, and metrics.

    Args:
      state: Arrays of the state, or their shapes.
      stepped: Shapes of the values that the step returned.

    Raises:
      ContractError: The returned values violate the contract.
    """
    if not isinstance(stepped, tuple) or len(stepped) != 2:
        raise ContractError(f"step must return a pair, the state and the metrics, got {described(stepped)}")
    after, metrics = stepped
    if jax.tree.structure(state) != jax.tree.structure(after):
        raise ContractError(
            f"step must return a state with the structure of its argument: {described(state)} became {described(after)}"
        )
    pairs = zip(jax.tree.leaves_with_path(state), jax.tree.leaves(after), strict=True)
    for (path, old), new in pairs:
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            raise ContractError(
                f"step must return a state like its argument: {jax.tree_util.keystr(path)} was "
                f"{described(old)} and became {described(new)}"
            )
    if not isinstance(metrics, dict):
        raise ContractError(f"step must return its metrics as a dictionary, got {type(metrics).__name__}")
