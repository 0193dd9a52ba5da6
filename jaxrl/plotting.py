"""Pictures of results: learning curves, regret curves, discount curves, performance profiles."""

from jaxrl.results.plotting import (
    COLOURS,
    LINE_STYLES,
    MOST_LINES,
    discount_curves,
    discount_overview,
    finish,
    learning_curves,
    performance_profiles,
    regret_curves,
    style,
)

__all__ = [
    "COLOURS",
    "LINE_STYLES",
    "MOST_LINES",
    "discount_curves",
    "discount_overview",
    "finish",
    "learning_curves",
    "performance_profiles",
    "regret_curves",
    "style",
]
