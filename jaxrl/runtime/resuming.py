"""Resuming a run directory from its `run.json`."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from envs.errors import UserValueError
from envs.settings import own_settings
from jaxrl.algorithms import registry as algorithms
from jaxrl.algorithms.allowed_modules import Allow, modules_of
from jaxrl.algorithms.contract import Algorithm
from jaxrl.checks import check_count
from jaxrl.results.dataset import UNKNOWN, ResultError
from jaxrl.results.description import env_params, hparams
from jaxrl.results.result import Result
from jaxrl.runtime.call import shard_of, sharded
from jaxrl.runtime.checkpoints.identity import SETTINGS_FROM
from jaxrl.runtime.checkpoints.identity_file import IDENTITY, read_identity
from jaxrl.runtime.checkpoints.store import num_parts_begun
from jaxrl.runtime.env_sharding.sharded_training import SHARDED
from jaxrl.runtime.execution import carry_out
from jaxrl.runtime.options import ResumeOptions, RunOptions, checked
from jaxrl.runtime.training import training_call
from jaxrl.sweeps.sweep import Sweep, swept


def resume(
    path: str | Path,
    *,
    env_steps: int | None = None,
    algo: Algorithm | None = None,
    allow: Allow = (),
    **options: Unpack[ResumeOptions],
) -> Result:
    """Resume a run of `train(..., out=path)`; the result equals that of an uninterrupted run bit for bit.

    This holds at the original block width, which is kept, on a device of the same kind with the same
    versions; otherwise a warning names the difference. A run without a checkpoint starts from the beginning, with a
    warning. A finished run that is not extended is loaded, and nothing of it is changed.

    Args:
      path: Run directory.
      env_steps: Number of environment steps of each run in total, to extend a run; the spacing of evaluations is kept.
      algo: Algorithm; needed for a custom network or environment, otherwise rebuilt from
        `run.json`.
      allow: Names of custom modules that may be imported if `run.json` names them; by default only modules of
        jaxrl and of known libraries are imported.
      **options: Options of `jaxrl.runtime.options.ResumeOptions`, as `RunOptions` describes them; if None, `memory` is
        that of the original call.

    Raises:
      ResultError: There is nothing to resume, or it is damaged or of another algorithm; or a finished result
        lacks the checkpoint needed to extend it.
      ValueError: `env_steps` is less than before, or more where the run would learn nothing further.
    """
    checked(resume, ResumeOptions, options)
    identity = read_identity(Path(path), trust=options.get("trust", False))
    with own_settings():
        return resume_begun(Path(path), identity, env_steps=env_steps, algo=algo, allow=allow, **options)


def resume_begun(
    directory: Path,
    identity: dict[str, Any],
    *,
    env_steps: int | None = None,
    algo: Algorithm | None = None,
    allow: Allow = (),
    **options: Unpack[ResumeOptions],
) -> Result:
    """Do the same as `resume`, with the contents of `run.json`, which were read before.

    Args:
      directory: Run directory.
      identity: Contents of its `run.json`.
      env_steps, algo, allow: Arguments of `resume`.
      **options: Options of `resume`.
    """
    allow = modules_of(allow)
    if "run_length" not in identity:
        name = identity.get("algorithm") or identity.get(UNKNOWN)
        raise ResultError(f"{directory} holds no run of train ({name}): repeat its call with resume=True")
    if "start" in identity and num_parts_begun(directory) != 1:
        raise ResultError(
            f"{directory} was begun with the policies of {identity['start']}, which it does not hold, and has runs "
            "without a checkpoint: repeat its call with warm_start= and resume=True (--warm-start, --resume)"
        )
    if algo is None:
        algo = _algorithm(directory, identity, allow)
        algo = algo._replace(settings_from=identity.get(SETTINGS_FROM, algo.settings_from))
    try:
        sweep, setting, seeds = _whole(directory, identity, algo)
        points, eval_episodes = np.asarray(identity["points"], np.int64), identity["eval_episodes"]
        if int(points[-1]) * algo.env_steps_per_iteration != identity["env_steps"]:
            raise ResultError(
                f"{directory / IDENTITY} is damaged: {points[-1]:,} iterations of {algo.env_steps_per_iteration:,} "
                f"env steps are not the {identity['env_steps']:,} that it records."
            )
    except (KeyError, IndexError, TypeError, AttributeError, OverflowError) as error:
        raise ResultError(f"{directory / IDENTITY} is damaged: {type(error).__name__}: {error}.") from None
    if env_steps is not None:
        check_count("env_steps", env_steps)
        points = _longer(points, -(-env_steps // algo.env_steps_per_iteration), algo.env_steps_per_iteration)
    call = training_call(
        algo,
        setting if sweep is None else sweep,
        seeds=seeds,
        points=points,
        eval_episodes=eval_episodes,
        begun=identity,
        schedules=options.get("schedules", "keep"),
        keep=identity.get("keep", "last"),
    )
    if "shard" in identity:
        call = sharded(call, *shard_of(identity["shard"]))
    params = env_params(directory / IDENTITY, identity, algo, call.shape[0])
    if "start" in identity:
        call = dataclasses.replace(call, attrs={**call.attrs, "start": identity["start"]})
    if params is not None:
        call = dataclasses.replace(call, env_params=params)
    whole: RunOptions = {
        **options,
        "precision": identity["precision"],
        "out": directory,
        "resume": True,
        "shard_environments": SHARDED in identity,
    }
    return carry_out(call, checked(resume, RunOptions, whole), begun=identity)


def _algorithm(directory: Path, identity: dict[str, Any], allow: Allow) -> Algorithm:
    if identity["algorithm"] is None:
        raise ResultError(
            f"{directory / IDENTITY} does not describe the algorithm ({identity.get(UNKNOWN)}): pass algo= in "
            "Python, or repeat the call with resume=True"
        )
    try:
        return algorithms.build(identity, allow)
    except (AttributeError, ImportError, KeyError, TypeError, ValueError) as error:
        raise ResultError(f"{directory / IDENTITY} describes an algorithm that cannot be built: {error}") from None


def _whole(directory: Path, identity: dict[str, Any], algo: Algorithm) -> tuple[Sweep | None, Any, list[int]]:
    """Sweep (None for a single setting), first setting and seeds; for a shard, those of the whole call.

    A shard uses the program of the whole call, whose discounts may be of more families than its own.
    """
    dims, coords = identity["sweep"]["dims"], identity["sweep"]["coords"]
    named = {path: (tuple(coord["dims"]), np.asarray(coord["values"])) for path, coord in coords.items()}
    restored = hparams(identity, algo, math.prod(_shape(dims, named)))
    if restored is None:
        raise ResultError(f"{directory / IDENTITY} has no hyper-parameters that {algo.name} takes")
    batched, each = restored
    seeds = identity["seeds"]
    if "shard" in identity:
        whole = json.loads(identity["whole"])
        seeds, dims = whole["seeds"], whole["dims"]
        named = {path: (tuple(on), np.asarray(values)) for path, (on, values) in whole["coords"].items()}
        # Without the environment's parameters, which are recorded for each setting.
        return dataclasses.replace(swept(each[0], dims, named), env={}) if dims else None, each[0], seeds
    if not dims:
        return None, each[0], seeds
    return Sweep(batched, {}, tuple(dims), _shape(dims, named), named, [{} for _ in each]), each[0], seeds


def _shape(dims: Sequence[str], coords: Mapping[str, tuple[tuple[str, ...], np.ndarray]]) -> tuple[int, ...]:
    sizes = {dim: size for on, values in coords.values() for dim, size in zip(on, values.shape, strict=True)}
    return tuple(sizes[dim] for dim in dims)


def _longer(points: np.ndarray, iterations: int, env_steps_per_iteration: int) -> np.ndarray:
    """The points, extended with equal spacing up to more iterations."""
    last = int(points[-1])
    if iterations < last:
        raise UserValueError(
            f"env_steps must be at least that of the original call, {last * env_steps_per_iteration:,}, got "
            f"{iterations * env_steps_per_iteration:,}"
        )
    if iterations == last:
        return points
    more = max(round((iterations - last) * np.count_nonzero(points) / last), 1)
    return np.concatenate([points, last - (-(iterations - last) * np.arange(1, more + 1) // more)])
