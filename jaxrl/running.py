"""From a call to its result: which runs are of this process, in how many parts, where."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxrl.driver import Options, drive
from jaxrl.layout import CPU_BLOCK, plan_layout
from jaxrl.parts import Call, split
from jaxrl.results import Result

PARTS = "parts"

__all__ = ["PARTS", "Placement", "run_call", "shard_of"]


@dataclasses.dataclass(frozen=True)
class Placement:
    """Where the runs of a call go.

    Attributes:
      block, devices, cpu_block: as `plan_layout` takes them.
      shard: `"i/n"` or `(i, n)`, the part of the runs that this process does; None for all.
    """

    block: int | None = None
    devices: Sequence[Any] | None = None
    shard: str | tuple[int, int] | None = None
    cpu_block: int = CPU_BLOCK


def run_call(call: Call, options: Options, placement: Placement) -> Result:
    """Carries out a call, or the shard of it that is this process's.

    The block width is that of the whole call, whatever is done here, so that shards make what one
    process would have made.

    Raises:
      ValueError: the placement makes no sense, before anything is compiled.
    """
    layout = plan_layout(call.num_runs, placement.block, placement.devices, placement.cpu_block)
    if placement.shard is not None:
        call = _sharded(call, *shard_of(placement.shard))
        layout = plan_layout(call.num_runs, layout.block, placement.devices)
    return drive(call, layout, options)


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


def _sharded(call: Call, index: int, count: int) -> Call:
    """The runs of one shard, whose attributes tell `merge` what the whole is."""
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
