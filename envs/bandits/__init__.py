"""Bandits: one file per family."""

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
from envs.bandits.coupled import CapacityBandit, InterventionBandit, MatchingBandit, PathBandit
from envs.bandits.declining import DecliningParams
from envs.bandits.delayed import DelayedBandit, DelayedParams
from envs.bandits.dueling import DuelingBandit, DuelingParams
from envs.bandits.gaussian import GaussianBandit, GaussianParams
from envs.bandits.heavy_tailed import ParetoBandit, ParetoParams, StudentBandit, StudentParams
from envs.bandits.markov import Arms, MarkovBandit, MarkovParams, make_arms
from envs.bandits.nonstationary import RandomWalkBandit, RandomWalkParams, SinusoidalBandit, SinusoidalParams
from envs.bandits.piecewise import PiecewiseBandit, PiecewiseParams
from envs.bandits.positive import ExponentialBandit, PoissonBandit, PositiveParams
from envs.bandits.restless import GilbertElliott, GilbertElliottParams, RestlessBandit, channel_arms
from envs.bandits.sleeping import SleepingBandit, SleepingParams

__all__ = [
    "AdaptiveAdversary",
    "AdaptiveParams",
    "Arms",
    "Bandit",
    "BanditParams",
    "BanditState",
    "BernoulliBandit",
    "BernoulliParams",
    "CapacityBandit",
    "ConstrainedAdversary",
    "ConstrainedParams",
    "ContextualState",
    "DecliningParams",
    "DelayedBandit",
    "DelayedParams",
    "DriftingAdversary",
    "DriftingParams",
    "DuelingBandit",
    "DuelingParams",
    "ExponentialBandit",
    "GaussianBandit",
    "GaussianParams",
    "GilbertElliott",
    "GilbertElliottParams",
    "InterventionBandit",
    "LinearBandit",
    "LinearParams",
    "LogisticBandit",
    "LogisticParams",
    "MarkovBandit",
    "MarkovParams",
    "MatchingBandit",
    "ParetoBandit",
    "ParetoParams",
    "PathBandit",
    "PiecewiseBandit",
    "PiecewiseParams",
    "PoissonBandit",
    "PositiveParams",
    "RandomWalkBandit",
    "RandomWalkParams",
    "RestlessBandit",
    "SequenceBandit",
    "SequenceParams",
    "SinusoidalBandit",
    "SinusoidalParams",
    "SleepingBandit",
    "SleepingParams",
    "StudentBandit",
    "StudentParams",
    "channel_arms",
    "make_arms",
]
