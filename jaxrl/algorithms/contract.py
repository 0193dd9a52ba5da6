"""Contract of algorithms: a name, a static configuration, and pure functions."""

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args

import jax

from envs.base import Environment
from envs.wrappers.wrapper import limit
from jaxrl.discounts.parsing import prepare
from jaxrl.learning.actor import Actor, Policy
from jaxrl.learning.shards import EnvShards

State = Any
Metrics = dict[str, jax.Array]
MetricRule = Literal["mean", "last", "sum"]
METRIC_RULES: tuple[str, ...] = get_args(MetricRule)


def _unprepared(hparams: Any, num_settings: int | None = None, run_length: int | None = None) -> Any:
    del num_settings, run_length
    return hparams


def longest_episode(env: Environment) -> int:
    """Time limit of an environment's default parameters, in steps."""
    with jax.ensure_compile_time_eval():
        return int(limit(env, env.default_params))


def prepared_for(horizon: int, env: Environment | None = None) -> Callable[..., Any]:
    """Function `Algorithm.prepare` of an algorithm with a discount and no schedules.

    Args:
      horizon: Number of steps for which the discount is prepared, see `discounts.parsing.prepare`.
      env: Environment of the algorithm; for evaluation, a discount without a closed form is prepared up to its time
        limit. None for no environment.
    """
    episode_length = None if env is None else longest_episode(env)

    def prepared(hparams: Any, num_settings: int | None = None, run_length: int | None = None) -> Any:
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
      network: Custom network, None for one that the configuration names.
      builder: Path `"module:function"` of a function by which another process builds an equal algorithm, called as
        `function(env, config)` (`function(env)` if `config` is None); None if there is none.
      warm: Function `(State, Policy) -> State` that puts a policy of the same shapes, normalisation included, into the
        initial state of a run; None if warm starts are not supported.
      sharded: Function `(EnvShards) -> Sharded`, the algorithm on one part of a run's environments; None if
        environments cannot be distributed over devices.
    """

    name: str
    env: Environment
    config: Any
    hparams: Any
    init: Callable[[jax.Array, Any, Any], State]
    step: Callable[[jax.Array, jax.Array, State, Any, Any], tuple[State, Metrics]]
    policy: Callable[[State, Any], Policy]
    actor: Actor
    env_steps_per_iteration: int
    prepare: Callable[..., Any] = _unprepared
    discount: Callable[[Any], Any] | None = None
    stopped: Callable[[Any, int], str | None] | None = None
    metric_rules: Mapping[str, MetricRule] = MappingProxyType({})
    network: Any = None
    builder: str | None = None
    warm: Callable[[State, Policy], State] | None = None
    sharded: Callable[[EnvShards], "Sharded"] | None = None

    def __repr__(self) -> str:
        return f"Algorithm({self.name} on {self.env.name}; {self.config!r})"

    @property
    def functions(self) -> tuple[Any, ...]:
        """Functions of the algorithm; algorithms with equal environments and functions share compiled programs."""
        rules = tuple(self.metric_rules.items())
        return self.init, self.step, self.policy, self.actor, self.discount, rules, self.env_steps_per_iteration


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
