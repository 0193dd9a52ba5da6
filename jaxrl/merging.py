"""Shards of one call, each trained by a process of its own, as the result of the whole."""

from __future__ import annotations

import itertools
import json
import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl.checkpointing import difference, read_identity
from jaxrl.parts import Part, assembled, split
from jaxrl.results import Result, ResultError, metrics_dataset
from jaxrl.run_config import hparams as saved_hparams
from jaxrl.run_directory import claim_directory, load_result
from jaxrl.sweeps import Sweep

# What differs between shards without a doubt that they belong together, and what only makes bits differ.
OWN = ("sweep", "seeds", "shard", "hparams", "env_params")
SOFT = ("versions", "device_kind", "block")

__all__ = ["merge"]


class _Shard(NamedTuple):
    directory: Path
    index: int
    count: int
    whole: dict[str, Any]
    result: Result

    @property
    def shape(self) -> tuple[int, int]:
        """`(num_settings, num_seeds)` of the whole."""
        return math.prod(self.whole["shape"]), len(self.whole["seeds"])

    @property
    def part(self) -> Part:
        return split(*self.shape, self.count)[self.index]


def merge(paths: Sequence[str | Path], out: str | Path | None = None, *, force: bool = False) -> Result:
    """Assembles what `train(..., shard="i/n", out=...)` wrote for every i.

    A shard that is missing or was interrupted costs the seeds that it should have held: they are
    named in a warning, and the result has the others.

    Args:
      paths: the shards' directories, in any order.
      out: a directory to save the result in.
      force: whether `out` may exist and be overwritten.

    Returns:
      What one process would have returned; bit for bit so where the shards ran at one block width
      on one kind of device.

    Raises:
      ResultError: a directory holds no shard, two hold the same one or belong to different calls, or
        no seed is there under every setting.
      FileExistsError: `out` holds a result.
    """
    if isinstance(paths, str | Path) or not paths:
        raise ResultError(f"paths takes the directories of shards, such as ['runs/x-0', 'runs/x-1'], got {paths!r}")
    if out is not None:
        claim_directory(out, force)
    shards = sorted((_read(Path(path)) for path in paths), key=lambda shard: shard.index)
    first = shards[0]
    for shard in shards[1:]:
        _check_same_call(first, shard)
    for earlier, later in itertools.pairwise(shards):
        if earlier.index == later.index:
            raise ResultError(
                f"{earlier.directory} and {later.directory} both hold shard {later.index}/{later.count}: name each once"
            )
    result = _assembled(shards)
    missing = sorted(set(range(first.count)) - {shard.index for shard in shards})
    cut = [str(shard.directory) for shard in shards if shard.result.metrics.attrs.get("interrupted")]
    lost = [seed for seed in first.whole["seeds"] if seed not in set(result.seeds)]
    told = [f"shards {', '.join(f'{i}/{first.count}' for i in missing)} are missing"] if missing else []
    told += [f"{', '.join(cut)} ended early (jaxrl resume goes on with them)"] if cut else []
    if told:
        left_out = f", so that {len(lost)} of {len(first.whole['seeds'])} seeds are left out" if lost else ""
        warnings.warn(f"{' and '.join(told)}{left_out}", RuntimeWarning, stacklevel=2)
    if out is not None:
        result.save(out, force=True)
    return result


def _read(directory: Path) -> _Shard:
    result = load_result(directory)
    attrs = result.metrics.attrs
    if "shard" not in attrs:
        raise ResultError(f"{directory} holds no shard: it was made without shard=i/n")
    index, count = map(int, str(attrs["shard"]).split("/"))
    whole = json.loads(attrs["whole"])
    return _Shard(directory, index, count, whole, result)


def _check_same_call(one: _Shard, other: _Shard) -> None:
    identities = []
    for shard in (one, other):
        identity = read_identity(shard.directory)
        whole = json.loads(identity.pop("whole"))
        identities.append({"shards": shard.count, **whole, **{k: v for k, v in identity.items() if k not in OWN}})
    here, there = ({name: value for name, value in identity.items() if name not in SOFT} for identity in identities)
    if (found := difference(here, there)) is not None:
        found = found.replace(" there", f" in {one.directory}").replace(" here", f" in {other.directory}")
        raise ResultError(f"shards must be of one call, but {found}")
    for name in SOFT:
        if (found := difference(identities[0][name], identities[1][name], name)) is not None:
            warnings.warn(
                f"the shards are not equal bit for bit to one run of all: {found}, {one.directory} being there and "
                f"{other.directory} here",
                RuntimeWarning,
                stacklevel=3,
            )


def _assembled(shards: Sequence[_Shard]) -> Result:
    whole, first = shards[0].whole, shards[0].result
    found = assembled(shards[0].shape, [(shard.part, shard.result) for shard in shards])

    def of_settings(*leaves: Any) -> np.ndarray:
        every = np.zeros((shards[0].shape[0], *np.shape(leaves[0])[1:]), np.asarray(leaves[0]).dtype)
        for shard, leaf in zip(shards, leaves, strict=True):
            every[shard.part.settings] = leaf
        return every

    results = [shard.result for shard in shards]
    env_params = jax.tree.map(of_settings, *(result.env_params for result in results))
    hparams = _hparams(shards)
    attrs = {name: value for name, value in first.metrics.attrs.items() if name not in ("shard", "whole")}
    told = [result.metrics.attrs for result in results]
    attrs |= {
        "interrupted": int(any(one["interrupted"] for one in told)),
        "run_seconds": max(float(one["run_seconds"]) for one in told),
        "env_steps_per_second": sum(float(one["env_steps_per_second"]) for one in told),
        "merged_shards": len(shards),
    }
    dataset = metrics_dataset(
        found.metrics,
        seeds=[whole["seeds"][i] for i in found.seeds],
        env_steps=found.env_steps,
        sweep=_sweep(whole, hparams),
        attrs=attrs,
        last_dims=_last_dims(first),
    )
    return Result(
        dataset, found.policies, first.algo, hparams, env_params, first.loaded if first.algo is None else None
    )


def _hparams(shards: Sequence[_Shard]) -> Any:
    """The hyper-parameters of all settings; shards may hold discounts of different families."""
    algo, num_settings = shards[0].result.algo, shards[0].shape[0]
    if algo is None:
        return None
    told: dict[str, list[Any]] = {}
    for shard in shards:
        assert shard.result.loaded is not None
        for name, value in shard.result.loaded["hparams"].items():
            column = told.setdefault(name, [None] * num_settings)
            values = value if isinstance(value, list) else [value] * len(shard.part.settings)
            for setting, one in zip(shard.part.settings, values, strict=True):
                column[setting] = one
    same = {name: column[0] if all(one == column[0] for one in column) else column for name, column in told.items()}
    found = saved_hparams({"hparams": same}, algo, num_settings)
    return None if found is None else found[0]


def _sweep(whole: dict[str, Any], hparams: Any) -> Sweep | None:
    if not whole["dims"]:
        return None
    coords = {path: (tuple(dims), np.asarray(values)) for path, (dims, values) in whole["coords"].items()}
    settings: list[dict[str, Any]] = [{} for _ in range(math.prod(whole["shape"]))]
    return Sweep(hparams, {}, tuple(whole["dims"]), tuple(whole["shape"]), coords, settings)


def _last_dims(result: Result) -> dict[str, tuple[str, ...]]:
    found = {}
    for name, metric in result.metrics.items():
        behind = tuple(str(dim) for dim in metric.dims if dim not in (*result.dims, "seed", "env_step"))
        if behind:
            found[str(name)] = behind
    return found
