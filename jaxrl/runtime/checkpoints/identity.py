"""Identity of the call in a run directory: the contents of `run.json`, and the comparison of two calls."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Collection, Mapping
from operator import lt
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxrl.results.checksums import read_sealed
from jaxrl.results.dataset import ResultError
from jaxrl.results.description import config_of
from jaxrl.results.plain import as_read, to_json
from jaxrl.results.storage import METRICS, SEARCH
from jaxrl.runtime.call import Call
from jaxrl.runtime.devices.processors import processor
from jaxrl.runtime.devices.xla_flags import DETERMINISTIC, flags_in_force
from jaxrl.runtime.layout import Layout

IDENTITY = "run.json"
# Names that may differ between a run and its resumption: results are then no longer equal bit for bit.
SOFT = ("versions", "device_kind", "processor", "deterministic", "xla_flags")
GENERATION = "generation"  # shared by the checkpoints and `run.json` of one run alone
ASKED = "asked"  # options of the first call, which do not change results

__all__ = [
    "ASKED",
    "GENERATION",
    "IDENTITY",
    "SOFT",
    "compare",
    "difference",
    "identity_of",
    "precision_in_force",
    "read_identity",
]


def identity_of(call: Call, layout: Layout, precision: str, asked: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Identity that a checkpoint must agree with to be resumed, as read back from JSON.

    Args:
      call: Call.
      layout: Layout of its runs.
      precision: Precision of matrix products.
      asked: Options of the first call, which need not agree.
    """
    config = config_of(call.description())
    identity = {name: value for name, value in config.items() if name not in ("attributes", "devices")}
    identity |= {name: value for name, value in call.attrs.items() if name not in identity}
    on_cpu = layout.devices[0].platform == "cpu"
    identity |= {
        "env_steps": call.env_steps,
        "points": call.points.tolist(),
        "block": layout.block,
        "precision": precision_in_force(precision),
        "device_kind": layout.devices[0].device_kind,
        "processor": processor() if on_cpu else None,  # every CPU is of the kind "cpu"
        "deterministic": _deterministic(),
        "xla_flags": [flag for flag in flags_in_force() if DETERMINISTIC not in flag],
        ASKED: dict(asked or {}),
    }
    return as_read(identity)


def precision_in_force(precision: str) -> str:
    """Name of the precision of matrix products; for "default" that of JAX's configuration."""
    return jax.config.values["jax_default_matmul_precision"] or "default" if precision == "default" else precision


def _deterministic() -> bool:
    """Whether XLA is set to sum in the same order every time."""
    flags = [flag.partition("=") for flag in flags_in_force()]
    values = [value.lower() for name, _, value in flags if name == f"--{DETERMINISTIC}"]
    return bool(values) and values[-1] not in ("false", "0")


def read_identity(directory: Path, *, trust: bool = False) -> dict[str, Any]:
    """Identity of the call whose checkpoints a run directory holds.

    Args:
      directory: Directory of the run.
      trust: Whether to accept a file that does not match its recorded checksum.

    Raises:
      ResultError: The file is missing or damaged.
    """
    if not directory.is_dir():
        raise ResultError(f"{directory} is not a run directory: there is no such directory.")
    file = directory / IDENTITY
    if not file.is_file():
        why = f"{IDENTITY} is missing"
        if (directory / SEARCH).is_file():
            why = "it holds a search, which the same jaxrl sweep, or jaxrl.search, resumes"
        elif (directory / METRICS).is_file():
            why = f"{IDENTITY} is missing, as of a result that was merged (resume its shards) or saved by itself"
        raise ResultError(f"{directory} holds no run that can be resumed: {why}.")
    try:
        identity = read_sealed(file, trust=trust)
    except ResultError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise ResultError(f"{file} is damaged: {error}") from None
    if not isinstance(identity, dict):
        raise ResultError(f"{file} is damaged: it holds no names.")
    for name, (right, takes) in _FIELDS.items():
        if name in identity and not right(identity[name]):
            raise ResultError(f"{file} is damaged: {name} is {_shortened(identity[name])}, and takes {takes}.")
    if missing := [name for name in _REQUIRED if name not in identity]:
        raise ResultError(f"{file} is damaged: it lacks {', '.join(missing)}.")
    return identity


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**63


def _is_points(value: Any) -> bool:
    """Whether `value` is a list of increasing numbers of iterations; the first may be 0, the last is above 0."""
    if not isinstance(value, list):
        return False
    later = value[1:] if value and value[0] == 0 and not isinstance(value[0], bool) else value
    return bool(later and all(map(_is_count, later)) and all(map(lt, later, later[1:])))


def _is_sweep(value: Any) -> bool:
    """Whether `value` holds dims, and coordinates over them with matching sizes."""
    if not isinstance(value, dict) or not isinstance(value.get("dims"), list):
        return False
    dims, coords = value["dims"], value.get("coords")
    if not isinstance(coords, dict) or not all(isinstance(dim, str) for dim in dims):
        return False
    sizes: dict[str, int] = {}
    for coord in coords.values():
        on = coord.get("dims") if isinstance(coord, dict) else None
        if not isinstance(on, list) or not all(dim in dims for dim in on) or "values" not in coord:
            return False
        try:
            shape = np.asarray(coord["values"]).shape
        except ValueError:  # lists of different lengths
            return False
        if len(shape) != len(on) or any(sizes.setdefault(d, n) != n for d, n in zip(on, shape, strict=True)):
            return False
    return len(set(dims)) == len(dims) and set(sizes) == set(dims) and 0 not in sizes.values()


def _is_whole(value: Any) -> bool:
    """Whether `value` is the description of the whole call that `sharded` records."""
    try:
        whole = json.loads(value)
        coords = {path: {"dims": on, "values": values} for path, (on, values) in whole["coords"].items()}
        return _is_sweep({"dims": whole["dims"], "coords": coords}) and _is_seeds(whole["seeds"])
    except (TypeError, ValueError, LookupError, AttributeError):
        return False


def _is_seeds(value: Any) -> bool:
    return bool(
        isinstance(value, list) and value and all(isinstance(seed, int) and 0 <= seed < 2**32 for seed in value)
    )


_COUNT = (_is_count, "a whole number above 0")
_NAMES = (lambda value: isinstance(value, dict), "names with their values")
_FIELDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("block", "env_steps", "eval_episodes", "run_length"), _COUNT),
    **dict.fromkeys(("versions", ASKED), _NAMES),
    "points": (_is_points, "increasing whole numbers"),
    "seeds": (_is_seeds, "whole numbers from 0"),
    "sweep": (_is_sweep, "dims and coords"),
    "whole": (_is_whole, "the seeds, dims and coords of all shards"),
    "shard": (lambda value: isinstance(value, str) and bool(re.fullmatch(r"\d+/\d+", value)), "i/n"),
    "precision": (lambda value: isinstance(value, str), "a name"),
    "algorithm": (lambda value: value is None or isinstance(value, str), "a name"),
}
_REQUIRED = ("algorithm", "block", "env_steps", "points", "precision", "seeds", "sweep")


def compare(directory: Path, saved: Mapping[str, Any], identity: Mapping[str, Any], free: Collection[str]) -> None:
    """Refuses to resume a different call; a run may become longer, and a warning names what may change rounding.

    Args:
      directory: Directory of the call.
      saved: Contents of its `run.json`.
      identity: Identity of the call that resumes it.
      free: Names that may differ in addition to the points.

    Raises:
      ResultError: The calls differ.
    """
    free = (*SOFT, *free, ASKED, GENERATION, "points", "env_steps")
    if identity["env_steps"] > saved["env_steps"]:
        free = (*free, "run_length")  # schedules may be stretched

    def fixed(identity: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in identity.items() if name not in free}

    differing = difference(fixed(saved), fixed(identity))
    if differing is None and saved["points"] != identity["points"] and identity["points"][-1] <= saved["points"][-1]:
        differing = difference({"points": saved["points"]}, {"points": identity["points"]})
    if differing is not None:
        raise ResultError(
            f"{directory} holds a checkpoint of another configuration: {differing}; choose another directory, "
            f"or start over with --force (force=True)."
        )
    for name in (name for name in SOFT if name in saved):
        if (differing := difference(saved[name], identity[name], name)) is not None:
            warnings.warn(
                f"{directory} resumes on another system than before, and may round differently: {differing}",
                RuntimeWarning,
                stacklevel=7,
            )


def difference(saved: Any, current: Any, at: str = "") -> str | None:
    """First difference between two identities, such as `config.num_steps is 128 there and 64 here`."""
    if isinstance(saved, Mapping) and isinstance(current, Mapping):
        for name in [*current, *(name for name in saved if name not in current)]:
            path = f"{at}.{name}" if at else str(name)
            if name not in saved or name not in current:
                return f"{path} is {'set there only' if name in saved else 'set here only'}"
            if (differing := difference(saved[name], current[name], path)) is not None:
                return differing
        return None
    if saved == current:
        return None
    there, here = _shortened(saved), _shortened(current)
    if there == here and isinstance(saved, list) and isinstance(current, list) and len(saved) != len(current):
        there, here = f"{there} ({len(saved):,} of them)", f"{len(current):,}"
    return f"{at} is {there} there and {here} here"


def _shortened(value: Any) -> str:
    text = json.dumps(to_json(value), default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."
