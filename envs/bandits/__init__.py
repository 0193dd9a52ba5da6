"""Bandits: one family a file."""

from envs.bandits.adaptive import AdaptiveAdversary, AdaptiveParams
from envs.bandits.adversarial import (
    ConstrainedAdversary,
    ConstrainedParams,
    DriftingAdversary,
    DriftingParams,
    SequenceBandit,
    SequenceParams,
)
from envs.bandits.base import Bandit, BanditParams, BanditState
from envs.bandits.bernoulli import BernoulliBandit, BernoulliParams
from envs.bandits.contextual import ContextualState, LinearBandit, LinearParams, LogisticBandit, LogisticParams
from envs.bandits.gaussian import GaussianBandit, GaussianParams
from envs.bandits.nonstationary import RandomWalkBandit, RandomWalkParams, SinusoidalBandit, SinusoidalParams
from envs.bandits.piecewise import PiecewiseBandit, PiecewiseParams

__all__ = [
    "AdaptiveAdversary",
    "AdaptiveParams",
    "Bandit",
    "BanditParams",
    "BanditState",
    "BernoulliBandit",
    "BernoulliParams",
    "ConstrainedAdversary",
    "ConstrainedParams",
    "ContextualState",
    "DriftingAdversary",
    "DriftingParams",
    "GaussianBandit",
    "GaussianParams",
    "LinearBandit",
    "LinearParams",
    "LogisticBandit",
    "LogisticParams",
    "PiecewiseBandit",
    "PiecewiseParams",
    "RandomWalkBandit",
    "RandomWalkParams",
    "SequenceBandit",
    "SequenceParams",
    "SinusoidalBandit",
    "SinusoidalParams",
]
