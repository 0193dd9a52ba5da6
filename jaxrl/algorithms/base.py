"""What an algorithm is: a name, what is static about it, and four pure functions."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from envs.base import Environment
from jaxrl.discount_form import is_concrete
from jaxrl.env_shards import EnvShards

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


def check_count(name: str, value: Any) -> None:
    """Refuse what is not a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")


def check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Refuse what is not one of the choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(str, choices))}, got {value!r}")


class Range(NamedTuple):
    """The numbers from `low` to `high`, each end among them or not; an infinite end that is not leaves finite numbers.

    Attributes:
      low, high: the ends.
      closed: which ends belong to it: "[]", "[)" or "()".
    """

    low: float
    high: float
    closed: str = "[]"

    def __str__(self) -> str:
        return f"{self.closed[0]}{self.low}, {self.high}{self.closed[1]}"


def check_range(name: str, value: Any, allowed: Range) -> None:
    """Refuse what is not a number, or lies outside its range in float32; let arrays of a sweep and tracers be.

    Raises:
      TypeError: a list, a tuple, a string or a bool.
      ValueError: a number, or an array with one, outside the range.
    """
    if isinstance(value, list | tuple):
        raise TypeError(f"{name} takes one number, got {value!r}; several values make a sweep: use jaxrl.grid")
    if isinstance(value, str | bool):
        raise TypeError(f"{name} takes a number, got {value!r}")
    if not is_concrete(value) or not isinstance(value, int | float | np.ndarray | np.number | jax.Array):
        return
    with np.errstate(over="ignore"):
        numbers = np.asarray(value).astype(np.float32)
    above = numbers >= allowed.low if allowed.closed[0] == "[" else numbers > allowed.low
    below = numbers <= allowed.high if allowed.closed[1] == "]" else numbers < allowed.high
    if not np.all(above & below):
        raise ValueError(f"{name} must lie in {allowed}, got {value}")


def effective(name: str, value: Any, default: float, active: bool) -> Any:
    """The value of a hyper-parameter that has an effect, None for one without.

    Args:
      name, value: of the hyper-parameter; None stands for its default.
      default: what it is if left out.
      active: whether it has an effect on this environment and configuration.

    Raises:
      ValueError: it has none, and was changed.
    """
    if active:
        return default if value is None else value
    concrete = isinstance(value, int | float | np.ndarray | np.number)
    if concrete and np.any(np.asarray(value, np.float32) != np.float32(default)):
        raise ValueError(f"{name} has no effect on this environment and configuration, got {value}; leave it out")
    return None
