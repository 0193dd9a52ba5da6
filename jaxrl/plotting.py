"""Pictures of results: learning curves, regret curves, discount curves, performance profiles, heat maps."""

from jaxrl.results.plotting.curves import learning_curves, performance_profiles
from jaxrl.results.plotting.discounts import discount_curves, discount_overview
from jaxrl.results.plotting.heat_map import heat_map
from jaxrl.results.plotting.regret import regret_curves
from jaxrl.results.plotting.style import COLOURS, LINE_STYLES, MOST_LINES, finish, style

__all__ = [
    "COLOURS",
    "LINE_STYLES",
    "MOST_LINES",
    "discount_curves",
    "discount_overview",
    "finish",
    "heat_map",
    "learning_curves",
    "performance_profiles",
    "regret_curves",
    "style",
]
