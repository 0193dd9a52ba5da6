"""Bandit policies, one family a file, and the runner that measures their regret."""

from jaxrl.bandits.base import BanditAlgorithm, Task, View
from jaxrl.bandits.registry import POLICIES, policy
from jaxrl.bandits.running import run_bandit
from jaxrl.bandits.ucb import UCB1HParams, ucb1

__all__ = [
    "POLICIES",
    "BanditAlgorithm",
    "Task",
    "UCB1HParams",
    "View",
    "policy",
    "run_bandit",
    "ucb1",
]
