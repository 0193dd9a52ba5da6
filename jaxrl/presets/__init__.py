"""Tuned settings by name, one file per group of environments."""

from jaxrl.presets.preset import Preset
from jaxrl.presets.registry import PRESETS, find, names, preset

__all__ = ["PRESETS", "Preset", "find", "names", "preset"]
