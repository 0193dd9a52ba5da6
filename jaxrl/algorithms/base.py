"""What an algorithm is: a name, what is static about it, and four pure functions."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from envs.base import Environment
from jaxrl.discount_form import is_concrete

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


def check_count(name: str, value: Any) -> None:
    """Refuse what is not a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")


def check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Refuse what is not one of the choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(str, choices))}, got {value!r}")


def check_range(name: str, value: Any, low: float, high: float) -> None:
    """Refuse a concrete number, or array of numbers, outside [low, high]; let traced ones pass."""
    if not is_concrete(value) or not isinstance(value, int | float | np.ndarray | np.number | jax.Array):
        return
    numbers = np.asarray(value, np.float64)
    if not np.all((numbers >= low) & (numbers <= high)):
        raise ValueError(f"{name} must lie in [{low}, {high}], got {value}")
