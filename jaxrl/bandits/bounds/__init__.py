"""Bounds of regret: lower bounds for all policies, and upper bounds for individual ones."""

from jaxrl.bandits.bounds.lower import gaps_of, lai_robbins, minimax
from jaxrl.bandits.bounds.of_policies import (
    BOUNDS,
    exp3_bound,
    exp3_ix_bound,
    exp3_s_bound,
    explore_then_commit_bound,
    lin_ucb_bound,
    lin_ucb_radius,
    moss_bound,
    sequential_halving_bound,
    thompson_bound,
    tsallis_inf_bound,
    ucb1_bound,
    ucb_v_bound,
)
from jaxrl.bandits.bounds.prior import lai

__all__ = [
    "BOUNDS",
    "exp3_bound",
    "exp3_ix_bound",
    "exp3_s_bound",
    "explore_then_commit_bound",
    "gaps_of",
    "lai",
    "lai_robbins",
    "lin_ucb_bound",
    "lin_ucb_radius",
    "minimax",
    "moss_bound",
    "sequential_halving_bound",
    "thompson_bound",
    "tsallis_inf_bound",
    "ucb1_bound",
    "ucb_v_bound",
]
