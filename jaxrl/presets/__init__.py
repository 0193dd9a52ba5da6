"""Tuned settings by name, one file per group of environments."""

from jaxrl.presets.control import PRESETS, find, names, preset
from jaxrl.presets.preset import Preset

__all__ = ["PRESETS", "Preset", "find", "names", "preset"]
