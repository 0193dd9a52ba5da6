"""Plain values for files that can be read without jaxrl, and the versions that a file records."""

import json
import math
import platform
from importlib import metadata
from typing import Any

from envs.errors import UserValueError
from jaxrl.version import __version__

__all__ = ["as_read", "from_json", "parsed", "to_json", "versions"]

_DEEPEST = 100  # levels of lists and names in JSON; those of jaxrl have some ten
_TOO_DEEP = f"it is nested more than {_DEEPEST} deep"

PACKAGES = ("jax", "jaxlib", "flax", "optax", "chex", "distrax", "gymnax", "numpy", "xarray")


def versions() -> dict[str, str]:
    """The versions of jaxrl, Python and the libraries on which the numbers depend."""
    ours = {"jaxrl": __version__, "python": platform.python_version()}
    return ours | {name: metadata.version(name) for name in PACKAGES}


def to_json(value: object) -> Any:
    """Plain values, with a string for every number that JSON cannot represent."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(float(value))
    if isinstance(value, dict):
        return {name: to_json(item) for name, item in value.items()}
    return [to_json(item) for item in value] if isinstance(value, list | tuple) else value


def parsed(text: str) -> Any:
    """The values of JSON text from any source, as `from_json` returns them.

    Raises:
      ValueError: The text is not JSON, or is nested too deeply.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise UserValueError(_TOO_DEEP) from None
    return from_json(value)


def from_json(value: object, depth: int = 0) -> Any:
    """The inverse of `to_json`, with lists in place of tuples.

    Raises:
      ValueError: The value is nested too deeply.
    """
    if depth > _DEEPEST:
        raise UserValueError(_TOO_DEEP)
    if isinstance(value, dict):
        return {name: from_json(item, depth + 1) for name, item in value.items()}
    if isinstance(value, list):
        return [from_json(item, depth + 1) for item in value]
    return float(value) if value in ("inf", "-inf", "nan") else value


def as_read(value: object) -> Any:
    """A value as read back from JSON: plain values, lists for tuples, text for other types."""
    return from_json(json.loads(json.dumps(to_json(value), default=str)))
