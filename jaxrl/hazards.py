"""Beliefs about hazards, as discounts."""

from jaxrl.discounts.hazards import (
    ConstantHazard,
    ExponentialHazard,
    GammaHazard,
    SampledHazard,
    UniformHazard,
)

__all__ = [
    "ConstantHazard",
    "ExponentialHazard",
    "GammaHazard",
    "SampledHazard",
    "UniformHazard",
]
