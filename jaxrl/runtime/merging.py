"""Merging the shards of one call, each trained by its own process, into one result."""

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

from envs.arguments import check_flag
from jaxrl.pytrees import HParams, PyTree
from jaxrl.results.dataset import RETURN_RANGE, RUN_DIMS, ResultError, metrics_dataset
from jaxrl.results.description import attribute
from jaxrl.results.description import hparams as saved_hparams
from jaxrl.results.json_values import to_json
from jaxrl.results.loading import load_result
from jaxrl.results.optima import BOUNDS, DISCOUNTED, NAME_OF_KIND, OPTIMA, as_recorded, known_values
from jaxrl.results.result import Result
from jaxrl.results.storage import CONFIG, METRICS, POLICIES, claim_directory
from jaxrl.runtime.call import Part, assembled, split
from jaxrl.runtime.checkpoints.identity import GENERATION, SOFT, difference
from jaxrl.runtime.checkpoints.identity_file import ASKED, IDENTITY, read_identity
from jaxrl.sweeps.choosing import listed
from jaxrl.sweeps.sweep import Sweep

# Names that may differ between shards of one call, and names whose difference only affects rounding.
OWN = ("sweep", "seeds", "shard", "whole", "hparams", "env_params", ASKED, GENERATION)
ROUNDING = (*SOFT, "block")

__all__ = ["merge"]


# Reasons why a shard is incomplete, as reported by a warning.
EMPTY, EARLIER, CUT = "there is no result yet in {}", "there is only an earlier run's result in {}", "{} ended early"


class _Shard(NamedTuple):
    """Shard of a call in a directory.

    Attributes:
      directory: Directory of the shard.
      index, count: Index of the shard, and number of shards.
      whole: Seeds and settings of all shards.
      identity: Contents of `run.json` of the last run that was started in the directory.
      result: Result of that run, None where it has none.
      lacks: Reason why the shard is incomplete; None for a complete one.
    """

    directory: Path
    index: int  # pyright: ignore[reportIncompatibleMethodOverride]
    count: int  # pyright: ignore[reportIncompatibleMethodOverride]
    whole: dict[str, Any]
    identity: dict[str, Any]
    result: Result | None
    lacks: str | None

    @property
    def shape(self) -> tuple[int, int]:
        """`(num_settings, num_seeds)` of the whole."""
        return math.prod(self.whole["shape"]), len(self.whole["seeds"])

    @property
    def settings(self) -> np.ndarray:
        """Positions of its settings in the whole."""
        return split(*self.shape, self.count)[self.index].settings


def merge(
    paths: Sequence[str | Path], out: str | Path | None = None, *, force: bool = False, trust: bool = False
) -> Result:
    """Merge the results that `train(..., shard="i/n", out=...)` saved for every i.

    The seeds of a shard that is missing or has no result yet are left out, as are the points that a shard did not reach
    because it ended early; a warning names these shards and seeds. A result that does not match the `run.json` next to
    it is from an earlier run and is not merged.

    Args:
      paths: Directories of the shards, in any order.
      out: Directory to save the result in; None does not save it.
      force: Whether `out` may exist and be overwritten.
      trust: Whether to read files that do not match their checksums.

    Returns:
      Result equal to that of a single process; bit for bit where the shards ran at one block width
      on one kind of device.

    Raises:
      ResultError: A directory holds no shard, two hold the same one or belong to different calls, or
        no seed is present under every setting.
      FileExistsError: `out` holds a result.
    """
    check_flag("force", force)
    check_flag("trust", trust)
    if isinstance(paths, str | Path) or not paths:
        raise ResultError(f"paths takes the directories of shards, such as ['runs/x-0', 'runs/x-1'], got {paths!r}")
    if out is not None:
        claim_directory(out, force)
    shards = sorted((_read(Path(path), trust) for path in paths), key=lambda shard: shard.index)
    first = shards[0]
    for shard in shards[1:]:
        _check_same_call(first, shard)
    for earlier, later in itertools.pairwise(shards):
        if earlier.index == later.index:
            raise ResultError(
                f"{earlier.directory} and {later.directory} both hold shard {later.index}/{later.count}: name each once"
            )
    lacking = _lacking(shards)
    present = [shard for shard in shards if shard.result is not None]
    try:
        result = _assembled(present, any(shard.lacks == CUT for shard in present))
    except ResultError as error:
        raise ResultError(f"{error}; {lacking}" if lacking else str(error)) from None
    if lacking:
        lost = sorted(set(first.whole["seeds"]) - set(result.seeds))
        left_out = f", so that {len(lost)} of {len(first.whole['seeds'])} seeds are left out: {_spans(lost)}"
        end, asked = int(result.metrics["env_step"][-1]), first.identity["env_steps"]
        until = f"; the result ends at {end:,} of {asked:,} env steps" if end < asked else ""
        warnings.warn(f"{lacking}{left_out if lost else ''}{until}", RuntimeWarning, stacklevel=2)
    if out is not None:
        result.save(out, force=True)
    return result


def _read(directory: Path, trust: bool) -> _Shard:
    if directory.is_dir() and not (directory / IDENTITY).is_file():
        raise ResultError(f"{directory} holds no shard: {IDENTITY} is missing")
    identity = to_json(read_identity(directory, trust=trust))  # NaN as text, which compares equal
    if "shard" not in identity:
        raise ResultError(f"{directory} holds no shard: it was made without shard=i/n")
    index, count = map(int, str(identity["shard"]).split("/"))
    result, lacks = None, EMPTY
    if all((directory / name).is_file() for name in (METRICS, POLICIES, CONFIG)):
        result = load_result(directory, trust=trust)
        lacks = _lacks(result, identity)
    return _Shard(
        directory, index, count, json.loads(identity["whole"]), identity, None if lacks == EARLIER else result, lacks
    )


def _lacks(result: Result, identity: dict[str, Any]) -> str | None:
    """Reason why a result is not the complete one of the last run that was started in its directory; None if it is."""
    assert result.loaded is not None
    saved = to_json(result.loaded["attributes"] | result.loaded)
    steps_of_point = identity["env_steps"] // identity["points"][-1]
    points = {point * steps_of_point for point in identity["points"]}
    reached = points & {int(step) for step in result.metrics["env_step"].values}
    alike = all(
        saved[name] in (value, attribute(value))
        for name, value in identity.items()
        if name in saved and name not in (*ROUNDING, "seeds")
    )
    if not alike or not reached or not set(result.seeds) <= set(identity["seeds"]):
        return EARLIER
    whole = reached == points and result.seeds == identity["seeds"] and not result.metrics.attrs["interrupted"]
    return None if whole else CUT


def _lacking(shards: Sequence[_Shard]) -> str:
    """Clause that names what is missing; empty for nothing."""
    count = shards[0].count
    missing = [f"{i}/{count}" for i in sorted(set(range(count)) - {shard.index for shard in shards})]
    clauses = [f"shards {listed(missing)} are missing"] if missing else []
    begun = []
    for lacks in (EMPTY, EARLIER, CUT):
        if directories := [shard.directory for shard in shards if shard.lacks == lacks]:
            begun.append(lacks.format(listed(directories)))
    return " and ".join([*clauses, *begun]) + (" (jaxrl resume resumes them)" if begun else "")


def _spans(seeds: Sequence[int]) -> str:
    """Ascending numbers as text; consecutive ones as the first and the last."""
    ends = [i for i in range(len(seeds)) if i + 1 == len(seeds) or seeds[i + 1] != seeds[i] + 1]
    starts = [0, *(i + 1 for i in ends)]
    return listed(
        [
            str(seeds[end]) if start == end else f"{seeds[start]} to {seeds[end]}"
            for start, end in zip(starts, ends, strict=False)
        ]
    )


def _check_same_call(one: _Shard, other: _Shard) -> None:
    whole = one.count == other.count and np.array_equal(one.settings, other.settings)
    identities = [{"shards": shard.count, **shard.whole, **_common(shard, whole)} for shard in (one, other)]
    here, there = ({name: value for name, value in identity.items() if name not in ROUNDING} for identity in identities)
    if (differing := difference(here, there)) is not None:
        differing = differing.replace(" there", f" in {one.directory}").replace(" here", f" in {other.directory}")
        raise ResultError(f"shards must be of one call, but {differing}")
    for name in ROUNDING:
        if (differing := difference(identities[0].get(name), identities[1].get(name), name)) is not None:
            warnings.warn(
                f"the shards are not equal bit for bit to one run of all: {differing} (there: {one.directory}, "
                f"here: {other.directory})",
                RuntimeWarning,
                stacklevel=3,
            )


def _common(shard: _Shard, settings_too: bool) -> dict[str, Any]:
    """Part of a shard's identity that all shards share; without the swept values if their settings differ."""
    common = {name: value for name, value in shard.identity.items() if name not in OWN}
    swept = set(shard.whole["coords"])
    hparams, params = shard.identity.get("hparams"), shard.identity.get("env_params")
    if not settings_too:
        names = {path.partition(".")[0] for path in swept}
        hparams = hparams and {name: value for name, value in hparams.items() if name not in names}
        if isinstance(params, dict):
            params = {name: values[0] for name, values in params.items() if f"env.{name}" not in swept}
    return common | {"hparams": hparams, "env_params": params}


def _assembled(shards: Sequence[_Shard], interrupted: bool) -> Result:
    results = [shard.result for shard in shards if shard.result is not None]
    if not results:
        raise ResultError("no shard has a result")
    whole, first = shards[0].whole, results[0]
    place = {seed: i for i, seed in enumerate(whole["seeds"])}
    parts = [
        Part(shard.settings, np.asarray([place[seed] for seed in result.seeds]))
        for shard, result in zip(shards, results, strict=True)
    ]
    joined = assembled(shards[0].shape, list(zip(parts, results, strict=True)))

    def of_settings(*leaves: PyTree) -> np.ndarray:
        every = np.zeros((shards[0].shape[0], *np.shape(leaves[0])[1:]), np.asarray(leaves[0]).dtype)
        for shard, leaf in zip(shards, leaves, strict=True):
            every[shard.settings] = leaf
        return every

    env_params = jax.tree.map(of_settings, *(result.env_params for result in results))
    saved = _saved(shards, results)
    known = None if first.algo is None else saved_hparams(saved, first.algo, shards[0].shape[0])
    hparams = None if known is None else known[0]
    loaded = {**(first.loaded or {}), **saved} if first.algo is None else None
    if loaded is not None:
        loaded = {key: value for key, value in loaded.items() if key not in NAME_OF_KIND}
        for metric in DISCOUNTED:
            best, most = (_in_any(shards, results, metric, kind) for kind in (OPTIMA, BOUNDS))
            for kind, values in ((OPTIMA, best), (BOUNDS, np.where(np.isfinite(best), np.nan, most))):
                if np.isfinite(values).any():
                    loaded.setdefault(kind, {})[metric] = as_recorded(values)
    attrs = {name: value for name, value in first.metrics.attrs.items() if name not in ("shard", "whole")}
    each = [result.metrics.attrs for result in results]
    attrs |= {
        "interrupted": int(interrupted),
        "run_seconds": max(float(one["run_seconds"]) for one in each),
        "env_steps_per_second": sum(float(one["env_steps_per_second"]) for one in each),
        "merged_shards": len(shards),
    }
    attrs |= {
        end: of(one[end] for one in each) for end, of in zip(RETURN_RANGE, (min, max), strict=True) if end in attrs
    }
    dataset = metrics_dataset(
        joined.metrics,
        seeds=[whole["seeds"][i] for i in joined.seeds],
        env_steps=joined.env_steps,
        sweep=_sweep(whole, hparams),
        attrs=attrs,
        last_dims=_last_dims(first),
    )
    last, best = joined.policies
    return Result(dataset, last, first.algo, hparams, env_params, loaded, best=best)


def _in_any(shards: Sequence[_Shard], results: Sequence[Result], metric: str, kind: str) -> np.ndarray:
    """Optima or bounds of all settings, see `known_values`, `[num_settings]`; nan where no shard has one."""
    every = np.full(shards[0].shape[0], np.nan)
    for shard, result in zip(shards, results, strict=True):
        values = known_values(result, metric, kind)
        if values is not None:
            every[shard.settings] = np.where(np.isfinite(values), values, every[shard.settings])
    return every


def _saved(shards: Sequence[_Shard], results: Sequence[Result]) -> dict[str, Any]:
    """Hyper-parameters and environment parameters of all settings, in the format of `config.json`.

    Shards may hold discounts of different families.
    """
    whole: dict[str, Any] = {}
    for part in ("hparams", "env_params"):
        columns: dict[str, list[Any]] = {}
        for shard, result in zip(shards, results, strict=True):
            assert result.loaded is not None
            saved = result.loaded.get(part)
            for name, value in saved.items() if isinstance(saved, dict) else ():
                column = columns.setdefault(name, [None] * shards[0].shape[0])
                values = value if isinstance(value, list) else [value] * len(shard.settings)
                for setting, one in zip(shard.settings, values, strict=True):
                    column[setting] = one
            if not isinstance(saved, dict):
                whole[part] = saved
        for name, column in columns.items():
            same = part == "hparams" and all(one == column[0] for one in column)
            whole.setdefault(part, {})[name] = column[0] if same else column
    return {part: saved for part, saved in whole.items() if saved is not None or part == "env_params"}


def _sweep(whole: dict[str, Any], hparams: HParams) -> Sweep | None:
    if not whole["dims"]:
        return None
    coords = {path: (tuple(dims), np.asarray(values)) for path, (dims, values) in whole["coords"].items()}
    settings: list[dict[str, Any]] = [{} for _ in range(math.prod(whole["shape"]))]
    return Sweep(hparams, {}, tuple(whole["dims"]), tuple(whole["shape"]), coords, settings)


def _last_dims(result: Result) -> dict[str, tuple[str, ...]]:
    leading = (*result.dims, *RUN_DIMS)
    behind = {str(name): metric.dims[len(leading) :] for name, metric in result.metrics.items()}
    return {name: tuple(map(str, dims)) for name, dims in behind.items() if dims}
