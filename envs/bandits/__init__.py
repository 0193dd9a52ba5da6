"""Bandits: one family a file."""

from envs.bandits.base import Bandit, BanditParams, BanditState
from envs.bandits.bernoulli import BernoulliBandit, BernoulliParams
from envs.bandits.contextual import ContextualState, LinearBandit, LinearParams, LogisticBandit, LogisticParams
from envs.bandits.gaussian import GaussianBandit, GaussianParams

__all__ = [
    "Bandit",
    "BanditParams",
    "BanditState",
    "BernoulliBandit",
    "BernoulliParams",
    "ContextualState",
    "GaussianBandit",
    "GaussianParams",
    "LinearBandit",
    "LinearParams",
    "LogisticBandit",
    "LogisticParams",
]
