"""From a call to its result: which runs are of this process, in how many parts, where."""

from __future__ import annotations

import dataclasses
import json
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl.results.result import Result
from jaxrl.runtime.call import Call, split
from jaxrl.runtime.call_parts import run_within
from jaxrl.runtime.checkpoints.store import ASKED, IDENTITY, PARTS, num_parts_begun, read_identity
from jaxrl.runtime.driver import Options
from jaxrl.runtime.layout import CPU_BLOCK, plan_layout
from jaxrl.runtime.sharded_training import run_sharded

__all__ = ["PARTS", "Placement", "run_call", "shard_of", "sharded"]


@dataclasses.dataclass(frozen=True)
class Placement:
    """Where the runs of a call go.

    Attributes:
      block, devices, cpu_block: as `plan_layout` takes them; a call that goes on keeps its block, where
        None or the width that it was begun with is asked for.
      shard: `"i/n"` or `(i, n)`, the part of the runs that this process does; None for all.
      memory: that the call may take, what it was begun with or a share of what is free if None; see
        `run_within`.
      shard_environments: whether all devices, of all processes, share the environments of one run.
    """

    block: int | None = None
    devices: Sequence[Any] | None = None
    shard: str | tuple[int, int] | None = None
    cpu_block: int = CPU_BLOCK
    shard_environments: bool = False
    memory: int | str | None = None

    def __post_init__(self) -> None:
        for name in ("block", "shard", "memory"):
            if self.shard_environments and (value := getattr(self, name)) is not None:
                raise ValueError(f"{name} has no effect with shard_environments, got {value!r}; leave it out")


def run_call(call: Call, options: Options, placement: Placement) -> Result:
    """Carries out a call, or the shard of it that is this process's.

    The block width is that of the whole call, whatever is done here, so that shards make what one
    process would have made.

    Raises:
      ValueError: the placement makes no sense, before anything is compiled.
    """
    try:
        if placement.shard_environments:
            return run_sharded(call, options, placement.devices)
        return _run_in_blocks(call, options, placement)
    except KeyboardInterrupt:
        if options.out is not None and num_parts_begun(Path(options.out)):
            warnings.warn(
                f"interrupted: what is done is kept in {options.out}, and the same call "
                f"with --resume (resume=True) goes on with it",
                RuntimeWarning,
                stacklevel=3,
            )
        raise


def _run_in_blocks(call: Call, options: Options, placement: Placement) -> Result:
    begun = _begun(options)
    asked = begun.get(ASKED, {})
    # Blocks may have become narrower since, for want of memory.
    goes_on = "block" in begun and placement.block in (None, asked.get("block"))
    block = begun["block"] if goes_on else placement.block
    layout = plan_layout(call.num_runs, block, placement.devices, placement.cpu_block)
    memory = asked.get("memory") if placement.memory is None else placement.memory
    options = dataclasses.replace(options, asked={"block": asked.get("block", layout.block), "memory": memory})
    if placement.shard is not None:
        call = sharded(call, *shard_of(placement.shard))
        layout = plan_layout(call.num_runs, layout.block, placement.devices)
    return run_within(call, layout, options, memory, strict=memory != asked.get("memory"))


def _begun(options: Options) -> Mapping[str, Any]:
    """What a run directory tells of the call that is gone on with, nothing where it begins anew."""
    if not options.resume or options.out is None or not (Path(options.out) / IDENTITY).is_file():
        return {}
    return read_identity(Path(options.out))


def shard_of(shard: str | tuple[int, int]) -> tuple[int, int]:
    """Which of how many: `"0/4"` or `(0, 4)`.

    Raises:
      ValueError: it is neither.
    """
    if isinstance(shard, str) and (match := re.fullmatch(r"(\d+)/(\d+)", shard)):
        index, count = map(int, match.groups())
    elif isinstance(shard, tuple) and len(shard) == 2 and all(type(number) is int for number in shard):
        index, count = shard
    else:
        raise ValueError(f"shard must be i/n, such as 0/4 for the first of four, got {shard!r}")
    if not 0 <= index < count:
        raise ValueError(f"shard must be i/n with i from 0 to n - 1, got {index}/{count}")
    return index, count


def sharded(call: Call, index: int, count: int) -> Call:
    """The runs of one shard, whose attributes tell `merge` what the whole is.

    Raises:
      ValueError: there are more shards than runs.
    """
    parts = split(*call.shape, count)
    if count > len(parts):
        raise ValueError(f"shard takes at most as many shards as there are runs, {len(parts)}, got {index}/{count}")
    sweep = call.sweep
    whole = {
        "seeds": call.seeds,
        "dims": [] if sweep is None else list(sweep.dims),
        "shape": [] if sweep is None else list(sweep.shape),
        "coords": {}
        if sweep is None
        else {path: [list(dims), np.asarray(values).tolist()] for path, (dims, values) in sweep.coords.items()},
    }
    mine = call.part(parts[index])
    return dataclasses.replace(mine, attrs={**mine.attrs, "shard": f"{index}/{count}", "whole": json.dumps(whole)})
