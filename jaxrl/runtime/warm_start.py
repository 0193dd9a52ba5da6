"""Warm starts: runs that start from trained policies, and the origin of these."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from envs.errors import UserTypeError, UserValueError
from jaxrl.algorithms.contract import Algorithm, policy_shapes
from jaxrl.pytrees import Policy
from jaxrl.results.loading import load_policies, origin_of
from jaxrl.results.policy import TrainedPolicy
from jaxrl.results.result import Result
from jaxrl.runtime.call import Call
from jaxrl.sweeps.choosing import choose_setting, listed
from jaxrl.sweeps.sweep import Sweep


class Start(NamedTuple):
    """Policies that runs start from.

    Attributes:
      policies: Pytree like the algorithm's policy, leaves `[num_settings, num_seeds, ...]`.
      origin: Origin of the policies, with a digest of their numbers.
    """

    policies: Policy
    origin: str


def warm_started(call: Call, warm_start: TrainedPolicy | Result | str | Path) -> Call:
    """The call with policies that its runs start from, and their origin among its attributes.

    Args:
      call: Call.
      warm_start: Policy, result, or directory of a result, see `starting_policies`.

    Raises:
      TypeError, ValueError, ResultError: See `starting_policies`.
    """
    policies, origin = starting_policies(call.algo, warm_start, call.sweep, call.seeds)
    return dataclasses.replace(call, start=policies, attrs={**call.attrs, "start": origin})


def starting_policies(
    algo: Algorithm, warm_start: TrainedPolicy | Result | str | Path, sweep: Sweep | None, seeds: Sequence[int]
) -> Start:
    """Policy that each run starts from.

    A single policy, or a result of one run, is used for all runs. In a result with several seeds each run takes the
    policy of its own seed, and in one with several settings that of the setting with its own coordinates.

    Args:
      algo: Algorithm to train.
      warm_start: Policy, result, or directory of a result; only arrays and labels are read.
      sweep: Settings of the call, None for a single one.
      seeds: Seeds of the call.

    Raises:
      TypeError: `warm_start` is none of these.
      ValueError: The algorithm does not support warm starts, the policy has other shapes or is not finite, or there is
        no policy for a run.
      ResultError: The directory holds no result, or one of other shapes.
    """
    if algo.warm_start is None:
        raise UserValueError(f"warm_start takes an algorithm that has `warm_start`, which {algo.name} does not have")
    if isinstance(warm_start, TrainedPolicy):
        steps = "" if warm_start.env_steps is None else f", after {warm_start.env_steps:,} environment steps"
        whose = f"a policy of {warm_start.algo.name}, seed {warm_start.seed}{steps}"
        of_run = np.zeros((1, 1), int)
        policies = jax.tree.map(lambda leaf: np.asarray(leaf)[None, None], warm_start.params)
        policies = _checked(algo, policies, f"a policy of {warm_start.algo.name} on {warm_start.algo.env.name}")
    elif isinstance(warm_start, str | Path | Result):
        of_result = isinstance(warm_start, Result)
        whose = f"a result of {origin_of(warm_start)}" if of_result else str(warm_start)
        result, policies = load_policies(warm_start, algo)
        policies = _checked(algo, policies, whose)
        of_run = _matching(result, sweep, seeds, whose)
    else:
        raise UserTypeError(
            "warm_start takes a policy, a result or the directory of one, got "
            f"{type(warm_start).__name__}: {warm_start!r}"
        )
    shape = (1 if sweep is None else len(sweep), len(seeds))
    of_run = np.broadcast_to(of_run, shape)
    flat = [np.asarray(leaf).reshape(-1, *np.shape(leaf)[2:]) for leaf in jax.tree.leaves(policies)]
    chosen = [leaf[of_run] for leaf in flat]
    digest = hashlib.sha256()
    for leaf in chosen:
        if not np.isfinite(leaf).all():
            raise UserValueError(f"warm_start takes finite policies, got numbers that are not finite in {whose}")
        digest.update(leaf.tobytes())
    structure = jax.tree.structure(policy_shapes(algo))
    if isinstance(warm_start, Result) and warm_start.metrics.attrs.get("policies") == "best":
        whose += ", the policies of its best evaluations"
    return Start(structure.unflatten(chosen), f"{whose} (sha256 {digest.hexdigest()[:16]})")


def _checked(algo: Algorithm, policies: Policy, whose: str) -> Any:
    """The policies unchanged, after a check of their shapes."""
    takes = {jax.tree_util.keystr(at): leaf for at, leaf in jax.tree.leaves_with_path(policy_shapes(algo))}
    got = {jax.tree_util.keystr(at): leaf for at, leaf in jax.tree.leaves_with_path(policies)}
    for name in [*takes, *(name for name in got if name not in takes)]:
        if name not in got or name not in takes:
            has = "lacks" if name not in got else "has"
            raise UserValueError(
                f"warm_start takes a policy of {algo.name} on {algo.env.name}, got {whose}, which {has} {name}"
            )
        there, here = got[name], takes[name]
        if there.shape[2:] != here.shape or there.dtype != here.dtype:
            raise UserValueError(
                f"warm_start takes a policy like those of {algo.name} on {algo.env.name}, got {whose}, whose {name} is "
                f"{there.dtype}{list(there.shape[2:])} in place of {here.dtype}{list(here.shape)}"
            )
    return policies


def _matching(result: Result, sweep: Sweep | None, seeds: Sequence[int], whose: str) -> np.ndarray:
    """Position of the saved run that each run starts from, int `[num_settings or 1, num_seeds or 1]`."""
    columns = np.zeros(1, int)
    if len(result.seeds) > 1:
        missing = [seed for seed in seeds if seed not in result.seeds]
        if missing:
            raise UserValueError(
                f"warm_start takes a result of one seed, or of every seed of the call: {whose} has "
                f"{listed(result.seeds)}, not {listed(missing)}"
            )
        columns = np.asarray([result.seeds.index(seed) for seed in seeds])
    rows = np.zeros(1, int)
    if len(result.settings) > 1:
        every = [{}] if sweep is None else sweep.settings
        shared = [{path: each[path] for path in each if path in result.settings[0]} for each in every]
        rows = np.asarray([choose_setting(result.settings, each, f"warm_start, {whose},") for each in shared])
    return rows[:, None] * len(result.seeds) + columns[None, :]
