"""Selection of one of many settings by the values of its coordinates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from envs.errors import UserValueError


def choose_setting(settings: Sequence[Mapping[str, Any]], coords: Mapping[str, Any], whose: str) -> int:
    """The position of the one setting that has these coordinates.

    Args:
      settings: Values `{path: value}` of each, with the same paths; a discount as its string.
      coords: Values `{path: value}` as typed: a number may be a string, a discount a number, a string or an
        object; a path with equal values in all settings may be left out.
      whose: Owner of the settings in error messages: "this result".

    Raises:
      ValueError: A path or a value does not exist, or no setting, or several, have these coordinates.
    """
    paths = list(settings[0])
    matching = list(range(len(settings)))
    for path, requested in coords.items():
        if path not in paths:
            has = "the coordinates " + ", ".join(paths) if paths else "no coordinates but the seed"
            raise UserValueError(f"{path} is not a coordinate; {whose} has {has}.")
        labels = values_of(settings, path)
        hits = labels_meant(labels, requested)
        if not hits:
            raise UserValueError(f"{path} is {str(requested)!r}; {whose} has {listed(labels)}.")
        matching = [s for s in matching if settings[s][path] in hits]
    if not matching:
        raise UserValueError(f"No setting has {_named(coords)} together; see {whose}'s settings.")
    if len(matching) > 1:
        left = {path: values_of([settings[s] for s in matching], path) for path in paths}
        options = [f"{path} of {listed(values)}" for path, values in left.items() if len(values) > 1]
        which = "; ".join(options) or "among equal ones"
        several = (
            f"{len(matching)} settings have {_named(coords)}" if coords else f"{whose} has {len(matching)} settings"
        )
        raise UserValueError(f"{several}; choose {which}.")
    return matching[0]


def values_of(settings: Sequence[Mapping[str, Any]], path: str) -> list[Any]:
    """The different values of a coordinate, in the order of the settings."""
    return list(dict.fromkeys(setting[path] for setting in settings))


def listed(values: Sequence[Any], most: int = 12) -> str:
    """Values as a list in a sentence, shortened if there are many."""
    shown = ", ".join(str(value) for value in values[:most])
    return shown if len(values) <= most else f"{shown}, ... ({len(values)} in all, up to {values[-1]})"


def labels_meant(labels: Sequence[Any], requested: Any) -> list[Any]:
    """The labels of a coordinate that match a typed value: equal numbers, strings or discounts.

    If no number is equal, the numbers match that are equal in float32, the precision in which they are used.
    """
    if not isinstance(labels[0], str):
        try:
            number = float(requested)
        except (TypeError, ValueError):
            return []
        equal = [label for label in labels if float(label) == number]
        return equal or [label for label in labels if math.isclose(float(label), number, rel_tol=1e-6)]
    if str(requested) in labels:
        return [str(requested)]
    from jaxrl.discounts.parsing import as_discount
    from jaxrl.learning.composites import as_composite

    try:
        canonical = str(as_composite(str(requested)) or as_discount(requested))
    except (TypeError, ValueError):
        return []
    return [label for label in labels if label == canonical]


def _named(coords: Mapping[str, Any]) -> str:
    return ", ".join(f"{path}={value}" for path, value in coords.items())
