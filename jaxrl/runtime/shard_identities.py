"""Identities of the shards of a call of `train` before any of them begins, and of the runs in their directories."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Unpack

from envs.settings import own_settings
from jaxrl.algorithms.contract import Algorithm
from jaxrl.pytrees import HParams
from jaxrl.runtime.call import Call, seeds_that_fit, sharded
from jaxrl.runtime.checkpoints.identity import identity_of, resumption_difference
from jaxrl.runtime.checkpoints.identity_file import IDENTITY
from jaxrl.runtime.checkpoints.store import begun_in, lacks_identity, num_parts_begun
from jaxrl.runtime.execution import placed
from jaxrl.runtime.options import RunOptions, checked
from jaxrl.runtime.training import points_of, train, training_call
from jaxrl.runtime.warm_start import warm_started

__all__ = ["ShardIdentity", "shard_identities"]


class ShardIdentity(NamedTuple):
    """Identity of a shard that has not begun.

    Attributes:
      identity: Identity of the shard, as its `run.json` will record it, except for names that depend on the machine.
      obstacle: Contents of its directory that the shard cannot resume, as in "... holds {obstacle}"; None if it can, or
        begins.
    """

    identity: dict[str, Any]
    obstacle: str | None


def shard_identities(
    algo: Algorithm,
    hparams: HParams,
    directories: Sequence[str],
    *,
    seeds: int | Sequence[int],
    env_steps: int,
    evals: int,
    eval_episodes: int,
    eval_at_start: bool,
    warm_start: str | None,
    **options: Unpack[RunOptions],
) -> list[ShardIdentity]:
    """Identity of each shard of a call of `train`, after the checks that `train` makes before it compiles.

    Args:
      algo, hparams, seeds, env_steps, evals, eval_episodes, eval_at_start, warm_start: Arguments of `train`.
      directories: Directories of the shards.
      **options: Options of `train`, without `shard`. Devices are not looked up: this machine may lack them.

    Raises:
      ValueError, TypeError: An argument is not valid.
      ResultError: A `run.json` in a directory is damaged, or there is no result to start from.
    """
    chosen = checked(train, RunOptions, {**options, "devices": None})
    calls: dict[tuple[Any, ...], Call] = {}

    def call_after(begun: Mapping[str, Any] | None) -> Call:
        """The whole call; it depends on the length of the run that it resumes."""
        length = () if begun is None else (begun["env_steps"], begun.get("run_length"))
        if length not in calls:
            call = training_call(
                algo,
                hparams,
                seeds=seeds_that_fit(seeds, hparams),
                points=points_of(algo, env_steps, evals, eval_episodes, eval_at_start),
                eval_episodes=eval_episodes,
                begun=begun,
                schedules=chosen.schedules,
                keep=chosen.keep,
            )
            calls[length] = call if warm_start is None else warm_started(call, warm_start)
        return calls[length]

    identities = []
    with own_settings():
        for index, directory in enumerate(map(Path, directories)):
            lacking = lacks_identity(directory)
            begun = None if lacking else begun_in(directory, trust=chosen.trust)
            whole, layout, asked = placed(call_after(begun), chosen, begun)
            identity = identity_of(sharded(whole, index, len(directories)), layout, chosen.precision, asked)
            identity["whole"] = sys.intern(identity["whole"])  # one text in the memory and in a pickle of all shards
            obstacle = f"a result, but no {IDENTITY}" if lacking else None
            if begun is not None:
                free = () if num_parts_begun(directory) else ("block",)
                if (differing := resumption_difference(begun, identity, free)) is not None:
                    obstacle = f"a run of another configuration: {differing}"
            identities.append(ShardIdentity(identity, obstacle))
    return identities
