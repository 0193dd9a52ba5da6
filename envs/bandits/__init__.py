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
from envs.bandits.delayed import DelayedBandit, DelayedParams
from envs.bandits.gaussian import GaussianBandit, GaussianParams
from envs.bandits.heavy_tailed import ParetoBandit, ParetoParams, StudentBandit, StudentParams
from envs.bandits.nonstationary import RandomWalkBandit, RandomWalkParams, SinusoidalBandit, SinusoidalParams
from envs.bandits.piecewise import PiecewiseBandit, PiecewiseParams
from envs.bandits.positive import ExponentialBandit, PoissonBandit, PositiveParams
from envs.bandits.sleeping import SleepingBandit, SleepingParams

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
    "DelayedBandit",
    "DelayedParams",
    "DriftingAdversary",
    "DriftingParams",
    "ExponentialBandit",
    "GaussianBandit",
    "GaussianParams",
    "LinearBandit",
    "LinearParams",
    "LogisticBandit",
    "LogisticParams",
    "ParetoBandit",
    "ParetoParams",
    "PiecewiseBandit",
    "PiecewiseParams",
    "PoissonBandit",
    "PositiveParams",
    "RandomWalkBandit",
    "RandomWalkParams",
    "SequenceBandit",
    "SequenceParams",
    "SinusoidalBandit",
    "SinusoidalParams",
    "SleepingBandit",
    "SleepingParams",
    "StudentBandit",
    "StudentParams",
]
