"""Bandit policies, one family a file, and the runner that measures their regret."""

from jaxrl.bandits.base import BanditAlgorithm, Task, View
from jaxrl.bandits.comparing import bounds_of, regret_table
from jaxrl.bandits.dueling import DoubleThompsonHParams, double_thompson
from jaxrl.bandits.exponential import Exp3HParams, Exp3IXHParams, Exp3SHParams, exp3, exp3_ix, exp3_s
from jaxrl.bandits.identification import (
    SuccessiveEliminationHParams,
    TopTwoHParams,
    sequential_halving,
    successive_elimination,
    top_two_thompson,
    top_two_transportation,
)
from jaxrl.bandits.linear import LinTSHParams, LinUCBHParams, LogisticTSHParams, lin_ts, lin_ucb, logistic_ts
from jaxrl.bandits.preferences import PreferencesHParams, pilaf, pilaf_weighted, policy_pairs, uniform_pairs
from jaxrl.bandits.registry import POLICIES, policy
from jaxrl.bandits.running import run_bandit
from jaxrl.bandits.tsallis import TsallisINFHParams, tsallis_inf
from jaxrl.bandits.ucb import UCB1HParams, ucb1

__all__ = [
    "POLICIES",
    "BanditAlgorithm",
    "DoubleThompsonHParams",
    "Exp3HParams",
    "Exp3IXHParams",
    "Exp3SHParams",
    "LinTSHParams",
    "LinUCBHParams",
    "LogisticTSHParams",
    "PreferencesHParams",
    "SuccessiveEliminationHParams",
    "Task",
    "TopTwoHParams",
    "TsallisINFHParams",
    "UCB1HParams",
    "View",
    "bounds_of",
    "double_thompson",
    "exp3",
    "exp3_ix",
    "exp3_s",
    "lin_ts",
    "lin_ucb",
    "logistic_ts",
    "pilaf",
    "pilaf_weighted",
    "policy",
    "policy_pairs",
    "regret_table",
    "run_bandit",
    "sequential_halving",
    "successive_elimination",
    "top_two_thompson",
    "top_two_transportation",
    "tsallis_inf",
    "ucb1",
    "uniform_pairs",
]
