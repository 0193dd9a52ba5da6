"""The inputs of runs: seeds, hyper-parameters and environment parameters, checked and batched over settings."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from envs.arguments import check_time_limit, class_names
from envs.base import Environment, entries, spaces
from envs.errors import UserTypeError, UserValueError
from envs.spelling import near
from jaxrl.checks import carried_over, check_count, extends
from jaxrl.pytrees import EnvParams, HParams, PyTree
from jaxrl.sweeps.paths import leaves, place, replaced
from jaxrl.sweeps.sweep import Sweep


def seed_list(seeds: int | Sequence[int], name: str = "seeds") -> list[int]:
    """A list of seeds, from their number (0, 1, ...) or from the seeds themselves.

    Raises:
      ValueError: The argument is invalid; the message names it.
    """
    if isinstance(seeds, np.integer):
        seeds = int(seeds)
    if not isinstance(seeds, Sequence | np.ndarray):
        check_count(name, seeds)
        return list(range(seeds))
    whole = [seed for seed in seeds if isinstance(seed, int | np.integer) and not isinstance(seed, bool)]
    chosen = [int(seed) for seed in whole]
    wrong = len(chosen) < len(seeds) or len(set(chosen)) < len(chosen)
    if not chosen or wrong or min(chosen) < 0 or max(chosen) >= 2**32:
        raise UserValueError(f"{name} must be a number or different whole numbers in [0, 2**32), got {seeds!r}")
    return chosen


def batched_hparams(default: Any, hparams: HParams) -> Any:
    """Hyper-parameters with leaves float32 `[num_settings]`, on the host."""
    single = default if hparams is None else hparams
    if isinstance(hparams, Sweep):
        single = hparams.hparams
    if not isinstance(single, type(default)) and extends(type(default), type(single)):
        if isinstance(hparams, Sweep):
            default = jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf, np.float32)[None], len(hparams), 0), default)
        single = carried_over(default, single)
    if not isinstance(single, type(default)):
        kind, got = class_names(type(default), single)
        raise UserTypeError(f"hparams must be a {kind} or a Sweep of them, got {got}")
    if isinstance(hparams, Sweep):
        return single
    for field in single.__dataclass_fields__:
        if np.ndim(getattr(single, field)) > 0:
            raise UserValueError(f"{field} takes one number in hparams; several values make a sweep: use jaxrl.grid")
    for path, leaf in leaves(single):
        if callable(leaf):
            raise UserTypeError(f"{path} takes one number in hparams, got {leaf!r}")
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float32)[None], single)


def batched_env_params(env: Environment, env_params: EnvParams, sweep: Sweep | None) -> Any:
    """Environment parameters with leaves `[num_settings]`, on the host."""
    env_params = env.default_params if env_params is None else env_params
    if not isinstance(env_params, type(env.default_params)):
        kind, got = class_names(type(env.default_params), env_params)
        path = next((str(name).removeprefix("env.") for name in env_params), "name") if got == "dict" else ""
        hint = f"; env_params=env.default_params.replace({path}=...), or a sweep of 'env.{path}'" * bool(path)
        raise UserTypeError(f"env_params must be {kind} of {env.name}, got {got}{hint}")
    num_settings = 1 if sweep is None else len(sweep)

    def repeat(leaf: PyTree) -> np.ndarray:
        array = np.asarray(leaf)
        array = array.astype(jax.dtypes.canonicalize_dtype(array.dtype))
        return np.repeat(array[None], num_settings, axis=0)

    batched = jax.tree.map(repeat, env_params)
    for path, values in ({} if sweep is None else sweep.env).items():
        batched = _with_env_values(batched, path, np.asarray(values), env)
    check_time_limit(batched)
    env.check_params(batched)
    differ = sweep is not None and sweep.env
    _check_action_space(env, batched, num_settings if differ else 1)
    return batched


def _with_env_values(params: EnvParams, path: str, values: np.ndarray, env: Environment) -> Any:
    """Environment parameters `[num_settings]` with the values at a path replaced, such as `weights.goal`."""
    at = place(params, path)
    if at.value is None:
        raise UserValueError(f"env.{path} is not set in {env.name}; give it a value in env_params before it is swept")
    if not at.there and at.inside and not at.known:
        raise UserValueError(f"env.{path} is not a parameter of {env.name}; env.{at.inside.rstrip('.')} has no parts.")
    if not at.there:
        raise UserValueError(f"env.{path} is not a parameter of {env.name}{_hint(env, path, at.known)}")
    default = at.value
    if dataclasses.is_dataclass(default):
        parts = " or ".join(f"env.{each}" for each in at.known)
        raise UserValueError(f"env.{path} has parts of its own; sweep {parts or 'another one, as it has no leaves'}.")
    if values.shape != default.shape:
        raise UserValueError(f"env.{path} takes values of shape {default.shape[1:]}, got {values.shape[1:]}")
    cast = values.astype(default.dtype)
    if np.issubdtype(default.dtype, np.integer) and np.any(cast != values):
        raise UserValueError(f"env.{path} takes whole numbers, got {values[cast != values][0]}")
    return replaced(params, {path: cast})


def _hint(env: Environment, path: str, known: Sequence[str]) -> str:
    """A clause with the likely meaning of a path: the same name further inside, a similar one, or a static field."""
    names = [name for name, _ in leaves(env.default_params)]
    inside = [name for name in names if name.endswith(f".{path}")]
    if inside:
        return f"; did you mean {' or '.join(repr(f'env.{name}') for name in inside)}?"
    if path in getattr(env, "__dataclass_fields__", {}):
        return f"; {path} is a static field, which is an argument of envs.make and needs another compilation."
    return near(path, known, "env.") or f"; it has {', '.join(f'env.{name}' for name in names)}."


def _bounds(space: spaces.Space) -> list[np.ndarray]:
    """Bounds and numbers of choices of a space and its entries."""
    own = [np.asarray(getattr(space, name)) for name in ("n", "low", "high") if name in vars(space)]
    return own + [bound for part in entries(space).values() for bound in _bounds(part)]


def _check_action_space(env: Environment, batched: PyTree, num_settings: int) -> None:
    """Reject parameters, the first `num_settings`, that change the action space for which a policy has been built."""

    def bounds(params: EnvParams) -> list[np.ndarray]:
        return _bounds(env.action_space(params))

    usual = bounds(env.default_params)
    for i in range(num_settings):
        got = bounds(jax.tree.map(lambda leaf, i=i: leaf[i], batched))
        same = len(got) == len(usual) and all(map(np.array_equal, map(np.float32, got), map(np.float32, usual)))
        if not same:
            raise UserValueError(
                f"env_params change the action space of {env.name}, which policies are built for: it has the "
                f"bounds {[bound.tolist() for bound in usual]} by default, got {[bound.tolist() for bound in got]}"
            )


def run_arguments(seeds: Sequence[int], hparams: HParams, env_params: EnvParams) -> tuple[Any, Any, Any]:
    """Seeds, hyper-parameters and parameters of every run, leaves `[num_settings * num_seeds, ...]`, settings first."""
    num_settings = jax.tree.leaves((hparams, env_params))[0].shape[0]
    hparams, env_params = jax.tree.map(lambda leaf: np.repeat(leaf, len(seeds), axis=0), (hparams, env_params))
    return np.tile(np.asarray(seeds, np.uint32), num_settings), hparams, env_params
