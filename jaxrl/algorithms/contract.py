"""What an algorithm is: a name, what is static about it, and pure functions."""

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
    """The time limit of an environment's default parameters, in steps."""
    with jax.ensure_compile_time_eval():
        return int(limit(env, env.default_params))


def prepared_for(horizon: int, env: Environment | None = None) -> Callable[..., Any]:
    """The function `Algorithm.prepare` of an algorithm which has a discount and no schedules.

    Args:
      horizon: Number of steps for which the discount is resolved, as in `discounts.parsing.prepare`.
      env: Environment of the algorithm, to whose time limit a discount that only has a curve is resolved for
        evaluation; None for none.
    """
    episode_length = None if env is None else longest_episode(env)

    def prepared(hparams: Any, num_settings: int | None = None, run_length: int | None = None) -> Any:
        del run_length
        return dataclasses.replace(hparams, discount=prepare(hparams.discount, horizon, num_settings, episode_length))

    return prepared


class Algorithm(NamedTuple):
    """A training algorithm on one environment, ready to be driven by `train` or `make_train`.

    A builder such as `ppo(env, config)` closes over what is static; every number that one
    would sweep is an argument, in `hparams` or in `env_params`.

    Attributes:
      name: Lower-case name, that of the command line for jaxrl's own.
      env: Environment, static.
      config: Frozen dataclass of what is static, or None.
      hparams: Default hyper-parameters, a `flax.struct` dataclass whose leaves are scalars (and discounts); a leaf
        that has no effect on this environment and configuration is None.
      init: `(key, hparams, env_params) -> State`.
      step: `(key, iteration, State, hparams, env_params) -> (State, metrics)`, one collect-and-learn
        iteration; `iteration`, int32 `[]`, counts from 0, is shared by the runs of a block and never batched; `metrics`
        is a flat dictionary of float32 scalars.
      policy: `(State, hparams) -> Policy`, what acting needs: parameters, normalisation, clips.
      actor: How the policy acts; see `jaxrl.learning.actor.Actor`.
      env_steps_per_iteration: Number of environment steps that one `step` takes.
      prepare: `(hparams, num_settings=None, run_length=None) -> hparams`, which resolves once what need not be
        resolved at every iteration, such as discounts, and schedules that end with the run; idempotent. Leaves are
        concrete or traced, of one setting, or with an axis `[num_settings]` in front; `run_length` is the number of
        environment steps of the run, None where it is not known.
      discount: `(hparams) -> Prepared`, the discount under which evaluation reports `discounted_return`, from
        prepared hyper-parameters; None reports no such metric.
      stopped: `(hparams, env_steps) -> reason`, why some setting of prepared hyper-parameters `[num_settings]`
        learns nothing after so many environment steps, None where all learn; such a run is not made longer.
      metric_rules: `{name: rule}`, how a metric of `step` is reduced over the iterations since the last evaluation:
        "mean" (the rule of every metric that is not named), "last" or "sum".
      network: The user's own network, None for one that the configuration names.
      builder: `"module:function"`, by which another process builds an equal algorithm as `function(env, config)`
        (`function(env)` where `config` is None); None where it cannot.
      warm: `(State, Policy) -> State`, a state at the beginning of a run with what another policy of the same shapes
        has learned, its normalisation included; None cannot begin with another policy.
      sharded: `(EnvShards) -> Sharded`, the algorithm on one part of a run's environments; None
        cannot share them between devices.
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
        """What runs: algorithms whose environments and functions are equal share compiled programs."""
        rules = tuple(self.metric_rules.items())
        return self.init, self.step, self.policy, self.actor, self.discount, rules, self.env_steps_per_iteration


def policy_shapes(algo: Algorithm) -> Policy:
    """The shapes of the policy of one run, for which nothing is computed."""
    hparams, params = algo.prepare(algo.hparams), algo.env.default_params
    return jax.eval_shape(lambda key: algo.policy(algo.init(key, hparams, params), hparams), jax.random.key(0))


class Sharded(NamedTuple):
    """What one device does of a run whose environments are shared between devices.

    Attributes:
      algo: The algorithm within a `shard_map` over the shards, on its part of the environments;
        parameters, and all else that is not of one environment, come out the same in every part.
        `env_steps_per_iteration` counts the environments of all parts.
      of_each_env: Pytree of bools, a prefix of the State: where leaves are `[num_envs, ...]`.
    """

    algo: Algorithm
    of_each_env: Any
