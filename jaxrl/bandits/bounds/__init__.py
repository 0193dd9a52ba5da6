"""Bounds of regret: lower bounds for all policies, and upper bounds for individual ones."""

from jaxrl.bandits.bounds import of_policies
from jaxrl.bandits.bounds.lower import gaps_of, lai_robbins, minimax
from jaxrl.bandits.bounds.of_policies import *  # noqa: F403
from jaxrl.bandits.bounds.prior import lai

__all__ = ["gaps_of", "lai", "lai_robbins", "minimax"]
__all__ += of_policies.__all__
