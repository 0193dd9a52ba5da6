"""Point and interval estimates over seeds, for arrays from any source."""

from jaxrl.results.statistics import (
    Interval,
    bootstrap_interval,
    iqm,
    mean,
    median,
    normalise,
    optimality_gap,
    performance_profile,
    probability_of_improvement,
)

__all__ = [
    "Interval",
    "bootstrap_interval",
    "iqm",
    "mean",
    "median",
    "normalise",
    "optimality_gap",
    "performance_profile",
    "probability_of_improvement",
]
