"""Bandits: one family a file."""

from envs.bandits.base import Bandit, BanditParams, BanditState
from envs.bandits.bernoulli import BernoulliBandit, BernoulliParams

__all__ = ["Bandit", "BanditParams", "BanditState", "BernoulliBandit", "BernoulliParams"]
