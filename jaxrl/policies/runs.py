"""Runs whose policies are evaluated or recorded together: one policy or all of a result, and environment parameters."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from envs.base import Environment
from envs.errors import UserTypeError, UserValueError
from envs.wrappers.asymmetric import seen_like
from envs.wrappers.randomising import drawn_parameters, without_draws
from jaxrl.algorithms.contract import Algorithm
from jaxrl.checks import random_key
from jaxrl.policies.crowds import adapted, at_end
from jaxrl.policies.playing import check_fit
from jaxrl.pytrees import EnvParams, Policy
from jaxrl.results.dataset import unknown_algorithm
from jaxrl.results.held_out import HELD_OUT
from jaxrl.results.policy import TrainedPolicy
from jaxrl.results.result import Result
from jaxrl.runtime.evaluate_again import keys_of_seeds
from jaxrl.sweeps.batching import batched_env_params
from jaxrl.sweeps.paths import leaves
from jaxrl.sweeps.sweep import grid

__all__ = ["Runs", "runs_of"]


class Runs(NamedTuple):
    """Runs R, each under E parameters of an environment.

    Attributes:
      algo: Algorithm of the runs.
      env: Environment.
      policies: Policies, leaves `[R, ...]`.
      failed: Whether a run has failed, bool `[R]`.
      keys: Random words of each run, uint32 `[R, 2]`.
      env_params: Parameters of the environment, leaves `[R, E, ...]`.
      dims: Names and sizes of the axes of the runs, whose product is R.
      held_out: Names and sizes of the axes of the parameters, whose product is E.
      coords: Coordinates `{name: (dims, values)}`.
    """

    algo: Algorithm
    env: Environment
    policies: Policy
    failed: np.ndarray
    keys: np.ndarray
    env_params: EnvParams
    dims: dict[str, int]
    held_out: dict[str, int]
    coords: dict[str, tuple[tuple[str, ...], Any]]

    @property
    def all_dims(self) -> tuple[str, ...]:
        """Names of the axes of the runs, then of the parameters."""
        return (*self.dims, *self.held_out)

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of `all_dims`."""
        return (*self.dims.values(), *self.held_out.values())

    @property
    def attrs(self) -> dict[str, str]:
        """Attributes of a dataset about these runs."""
        return {"algorithm": self.algo.name, "environment": self.env.name}


@dataclasses.dataclass(frozen=True)
class _NoHParams:
    """Base of a grid of environment parameters alone."""


def runs_of(policy: Policy, env: Environment | None, env_params: EnvParams, key: int | jax.Array) -> Runs:
    """The runs of a policy, or of a result, in an environment.

    Args:
      policy: Trained policy, or a result with many.
      env: Environment; None for that of the training.
      env_params: Parameters of the environment for all runs; None for those of each run's training, with a curriculum
        at its end, adapted to `env` as in `adapted`; or values by name, every combination of which is a point of
        further axes.
      key: Seed, from which each run derives its random numbers by its own seed; or a random key for all runs.

    Raises:
      TypeError: An argument is of another type.
      ValueError: The environment does not fit the policy, a value is out of range, or a name is unknown.
      ResultError: The algorithm of the result is unknown.
    """
    if isinstance(policy, TrainedPolicy):
        trained = _of_policy(policy)
    elif isinstance(policy, Result):
        trained = _of_result(policy)
    else:
        place = isinstance(policy, str | Path)
        example = f"jaxrl.load_result({str(policy)!r})" if place else "result.policy(seed=0)"
        raise UserTypeError(
            f"policy must be a trained policy or a result with one for each run, such as {example}, got "
            f"{repr(str(policy)) if place else type(policy).__name__}."
        )
    algo, seeds = trained.algo, trained.seeds
    env = algo.env if env is None else env
    env = seen_like(env, algo.env)
    check_fit(env, algo.env)
    values = _values(env_params)
    _check_not_drawn(env, values)
    if env_params is None or values:
        each = [
            at_end(env, adapted(env, algo.env, params, trained.coords), trained.env_steps)
            for params in trained.env_params
        ]
    else:
        each = [env_params] * len(trained.env_params)
    sweep = grid(_NoHParams(), values) if values else None
    batched = [batched_env_params(env, params, sweep) for params in each]
    stacked = jax.tree.map(lambda *leaves: np.repeat(np.stack(leaves), len(seeds), axis=0), *batched)
    # Not "env.gravity", which the training may have swept.
    axes = {} if sweep is None else {f"{HELD_OUT}{path.removeprefix('env.')}": sweep.coords[path][1] for path in values}
    coords = trained.coords | {name: ((name,), values) for name, values in axes.items()}
    keys = np.tile(_words(key, seeds), (len(each), 1))
    failed = trained.failed | _nan(trained.policies, len(keys))
    sizes = {name: len(values) for name, values in axes.items()}
    return Runs(algo, env, trained.policies, failed, keys, stacked, trained.dims, sizes, coords)


class _Trained(NamedTuple):
    """Runs of a training: policies `[R, ...]`, settings before seeds, and parameters of each setting."""

    algo: Algorithm
    policies: Policy
    failed: np.ndarray
    seeds: list[int]
    env_params: list[EnvParams]
    env_steps: int | None
    dims: dict[str, int]
    coords: dict[str, tuple[tuple[str, ...], Any]]


def _of_policy(policy: TrainedPolicy) -> _Trained:
    policies = jax.tree.map(lambda leaf: np.asarray(leaf)[None], policy.params)
    known = policy.setting if policy.seed is None else {**policy.setting, "seed": policy.seed}
    coords: dict[str, Any] = {name: ((), value) for name, value in known.items()}
    params, seeds = [policy.env_params], [policy.seed or 0]
    return _Trained(policy.algo, policies, np.zeros(1, bool), seeds, params, policy.training_env_steps, {}, coords)


def _of_result(result: Result) -> _Trained:
    if result.algo is None:
        raise unknown_algorithm(result.metrics)
    description, seeds = result.description(), result.seeds
    env_params = [
        jax.tree.map(lambda leaf, setting=setting: leaf[setting], result.env_params)
        for setting in range(len(description.settings))
    ]
    return _Trained(
        result.algo,
        jax.tree.map(lambda leaf: np.asarray(leaf).reshape(-1, *leaf.shape[2:]), result.policies),
        result.failed_runs().reshape(-1),
        seeds,
        env_params,
        int(result.metrics["env_step"].values[-1]),
        {**description.dims, "seed": len(seeds)},
        {**description.coords, "seed": (("seed",), np.asarray(seeds))},
    )


def _values(env_params: EnvParams) -> dict[str, Sequence[Any]]:
    """Values of parameters by path, such as "env.gravity"; empty for parameters or None."""
    if not isinstance(env_params, Mapping):
        return {}
    if not env_params:
        raise UserValueError("env_params takes at least one name, such as {'gravity': [5.0, 15.0]}, got none.")
    for name in env_params:
        if str(name).startswith("env."):
            raise UserValueError(f"env_params takes names without 'env.', such as {name[4:]!r}, got {name!r}.")
    return {f"env.{name}": values for name, values in env_params.items()}


def _check_not_drawn(env: Environment, values: Collection[str]) -> None:
    """Reject values of parameters that every episode draws, such as "env.length"."""
    drawn, known = drawn_parameters(env), _names(env)
    for path in values:
        name = path.removeprefix("env.")
        if name in drawn or (name not in known and any(each.endswith(f".{name}") for each in drawn)):
            plain, last = without_draws(env), name.split("inner.")[-1]
            there = next(each for each in _names(plain) if each == last or each.endswith(f".{last}"))
            raise UserValueError(
                f"env_params takes parameters that episodes do not draw, got {name!r}, which {env.name} draws; as env, "
                f"{plain.name}, without draws, takes {there!r}"
            )


def _names(env: Environment) -> list[str]:
    return [name for name, _ in leaves(env.default_params)]


def _words(key: int | jax.Array, seeds: Sequence[int]) -> np.ndarray:
    """Random words of runs, `[num_seeds, 2]`."""
    if isinstance(key, int | np.integer) and not isinstance(key, bool):
        if not 0 <= key < 2**32:
            raise UserValueError(f"key takes a whole number in [0, 2**32), or a random key, got {key}.")
        return keys_of_seeds(int(key), seeds)
    return np.tile(np.asarray(jax.random.key_data(random_key(key))), (len(seeds), 1))


def _nan(policies: Policy, count: int) -> np.ndarray:
    """Whether each policy has NaN parameters, bool `[R]`."""
    bad = np.zeros(count, bool)
    for leaf in jax.tree.leaves(policies):
        if np.issubdtype(leaf.dtype, np.inexact):
            bad |= np.isnan(leaf).reshape(count, -1).any(axis=1)
    return bad
