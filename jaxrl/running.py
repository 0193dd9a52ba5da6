"""From a call to its result: which runs are of this process, in how many parts, where."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxrl.driver import Options
from jaxrl.layout import CPU_BLOCK, plan_layout
from jaxrl.parts import Call, split
from jaxrl.results import Result
from jaxrl.running_parts import PARTS, begun_block, run_within
from jaxrl.sharded_training import run_sharded

__all__ = ["PARTS", "Placement", "run_call", "shard_of", "sharded"]


@dataclasses.dataclass(frozen=True)
class Placement:
    """Where the runs of a call go.

    Attributes:
      block, devices, cpu_block: as `plan_layout` takes them; a call that goes on keeps its block.
      shard: `"i/n"` or `(i, n)`, the part of the runs that this process does; None for all.
      memory: that the call may take, a share of what is free if None; see `run_within`.
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
    if placement.shard_environments:
        return run_sharded(call, options, placement.devices)
    block = begun_block(options) if placement.block is None else placement.block
    layout = plan_layout(call.num_runs, block, placement.devices, placement.cpu_block)
    if placement.shard is not None:
        call = sharded(call, *shard_of(placement.shard))
        layout = plan_layout(call.num_runs, layout.block, placement.devices)
    return run_within(call, layout, options, placement.memory)


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
