"""Faults of algorithms."""

from planting import Fault

FAULTS: tuple[Fault, ...] = ()
