"""What an algorithm is: a name, what is static about it, and four pure functions."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from envs.base import Environment
from jaxrl.learning.shards import EnvShards

State = Any
Policy = Any
Metrics = dict[str, jax.Array]


class Algorithm(NamedTuple):
    """A training algorithm on one environment, ready to be driven by `train` or `make_train`.

    A builder such as `ppo(env, config)` closes over what is static; every number that one
    would sweep is an argument, in `hparams` or in `env_params`.

    Attributes:
      name: lower case, the name of the command line.
      env: the environment, static.
      config: a frozen dataclass, static.
      hparams: the default hyper-parameters, a `flax.struct` dataclass whose leaves are scalars
        (and discounts); a leaf `anneal_env_steps` that is infinite is replaced by the length of
        the run when training starts.
      init: `(key, hparams, env_params) -> State`.
      step: `(key, State, hparams, env_params) -> (State, metrics)`, one collect-and-learn
        iteration; `metrics` is a flat dictionary of scalars.
      policy: `(State) -> Policy`, what acting needs: parameters and normalisation.
      act: `(key, Policy, obs, greedy, mask=None) -> action`, for one observation; `greedy` is a
        bool, traced; `mask` is what `env.action_mask` returns.
      env_steps_per_iteration: environment steps that one `step` takes.
      network: the user's own network, None for the algorithm's default.
      prepare: `(hparams) -> hparams`, resolves once what need not be resolved at every
        iteration (discounts); idempotent, takes concrete or traced leaves, batched or not.
      greedy: `(Policy, obs, mask=None) -> (action, numbers)`, what `act` chooses when greedy, with
        no random key, and the `{name: array}` that it is chosen by, such as logits; for one
        observation, of any number of agents. `export_policy` writes it; None cannot be exported.
      sharded: `(EnvShards) -> Sharded`, the algorithm on one part of a run's environments; None
        cannot share them between devices.
    """

    name: str
    env: Environment
    config: Any
    hparams: Any
    init: Callable[[jax.Array, Any, Any], State]
    step: Callable[[jax.Array, State, Any, Any], tuple[State, Metrics]]
    policy: Callable[[State], Policy]
    act: Callable[..., Any]
    env_steps_per_iteration: int
    prepare: Callable[[Any], Any]
    network: Any = None
    greedy: Callable[..., tuple[Any, dict[str, jax.Array]]] | None = None
    sharded: Callable[[EnvShards], "Sharded"] | None = None


class Sharded(NamedTuple):
    """What one device does of a run whose environments are shared between devices.

    Attributes:
      algo: the algorithm within a `shard_map` over the shards, on its part of the environments;
        parameters, and all else that is not of one environment, come out the same in every part.
        `env_steps_per_iteration` counts the environments of all parts.
      of_each_env: a pytree of bools, a prefix of the State: where leaves are `[num_envs, ...]`.
    """

    algo: Algorithm
    of_each_env: Any
