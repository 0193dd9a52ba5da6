"""The file `run.json` of a run directory; nothing here may start JAX's backend, whose flags the file determines."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from operator import lt
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl.results.checksums import read_sealed
from jaxrl.results.dataset import ResultError
from jaxrl.results.file_names import IDENTITY, METRICS, SEARCH
from jaxrl.results.json_values import parsed, to_json

ASKED = "asked"  # options of the first call, which do not change results


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
            why = "it holds a search, which jaxrl resume in the shell, or the same jaxrl.search, resumes"
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
            raise ResultError(f"{file} is damaged: {name} is {shortened(identity[name])}, and takes {takes}.")
    if missing := [name for name in _REQUIRED if name not in identity]:
        raise ResultError(f"{file} is damaged: it lacks {', '.join(missing)}.")
    return identity


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**63


def _is_points(value: object) -> bool:
    """Whether `value` is a list of increasing numbers of iterations; the first may be 0, the last is above 0."""
    if not isinstance(value, list):
        return False
    later = value[1:] if value and value[0] == 0 and not isinstance(value[0], bool) else value
    return bool(later and all(map(_is_count, later)) and all(map(lt, later, later[1:])))


def _is_sweep(value: object) -> bool:
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
        whole = parsed(value)
        coords = {path: {"dims": on, "values": values} for path, (on, values) in whole["coords"].items()}
        return _is_sweep({"dims": whole["dims"], "coords": coords}) and _is_seeds(whole["seeds"])
    except (TypeError, ValueError, LookupError, AttributeError):
        return False


def _is_seeds(value: object) -> bool:
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


def shortened(value: object) -> str:
    """JSON of a value, in at most 60 characters."""
    text = json.dumps(to_json(value), default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."
