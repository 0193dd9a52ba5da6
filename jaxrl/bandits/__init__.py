"""Bandit policies, one family a file, and the runner that measures their regret."""

from jaxrl.bandits import bounds
from jaxrl.bandits.base import BanditAlgorithm, Task, View
from jaxrl.bandits.boltzmann import GradientHParams, SoftmaxHParams, gradient, softmax
from jaxrl.bandits.comparing import bounds_of, regret_table
from jaxrl.bandits.divergence import KLUCBHParams, kl_ucb, kl_upper
from jaxrl.bandits.dueling import DoubleThompsonHParams, double_thompson
from jaxrl.bandits.exponential import Exp3HParams, Exp3IXHParams, Exp3SHParams, exp3, exp3_ix, exp3_s
from jaxrl.bandits.greedy import EpsilonGreedyHParams, ExploreThenCommitHParams, epsilon_greedy, explore_then_commit
from jaxrl.bandits.identification import (
    SuccessiveEliminationHParams,
    TopTwoHParams,
    sequential_halving,
    successive_elimination,
    top_two_thompson,
    top_two_transportation,
)
from jaxrl.bandits.linear import LinTSHParams, LinUCBHParams, LogisticTSHParams, lin_ts, lin_ucb, logistic_ts
from jaxrl.bandits.planners import MyopicHParams, PlanningHParams, exact_planning, myopic
from jaxrl.bandits.planning import plan, policy_table, policy_values, start_value
from jaxrl.bandits.preferences import PreferencesHParams, pilaf, pilaf_weighted, policy_pairs, uniform_pairs
from jaxrl.bandits.quantiles import BayesUCBHParams, bayes_ucb, beta_upper_quantile
from jaxrl.bandits.registry import POLICIES, policy
from jaxrl.bandits.running import run_bandit
from jaxrl.bandits.thompson_sampling import (
    GaussianThompsonHParams,
    LaplaceThompsonHParams,
    ThompsonHParams,
    thompson,
    thompson_gaussian,
    thompson_laplace,
)
from jaxrl.bandits.tsallis import TsallisINFHParams, tsallis_inf
from jaxrl.bandits.ucb import MOSSHParams, UCB1HParams, UCBVHParams, moss, ucb1, ucb_v
from jaxrl.bandits.whittle_index import WhittleHParams, require_indexable, whittle, whittle_indices
from jaxrl.bandits.windowed import (
    DiscountedThompsonHParams,
    DiscountedUCBHParams,
    SlidingWindowThompsonHParams,
    SlidingWindowUCBHParams,
    discounted_thompson,
    discounted_ucb,
    sliding_window_thompson,
    sliding_window_ucb,
)

__all__ = [
    "POLICIES",
    "BanditAlgorithm",
    "BayesUCBHParams",
    "DiscountedThompsonHParams",
    "DiscountedUCBHParams",
    "DoubleThompsonHParams",
    "EpsilonGreedyHParams",
    "Exp3HParams",
    "Exp3IXHParams",
    "Exp3SHParams",
    "ExploreThenCommitHParams",
    "GaussianThompsonHParams",
    "GradientHParams",
    "KLUCBHParams",
    "LaplaceThompsonHParams",
    "LinTSHParams",
    "LinUCBHParams",
    "LogisticTSHParams",
    "MOSSHParams",
    "MyopicHParams",
    "PlanningHParams",
    "PreferencesHParams",
    "SlidingWindowThompsonHParams",
    "SlidingWindowUCBHParams",
    "SoftmaxHParams",
    "SuccessiveEliminationHParams",
    "Task",
    "ThompsonHParams",
    "TopTwoHParams",
    "TsallisINFHParams",
    "UCB1HParams",
    "UCBVHParams",
    "View",
    "WhittleHParams",
    "bayes_ucb",
    "beta_upper_quantile",
    "bounds",
    "bounds_of",
    "discounted_thompson",
    "discounted_ucb",
    "double_thompson",
    "epsilon_greedy",
    "exact_planning",
    "exp3",
    "exp3_ix",
    "exp3_s",
    "explore_then_commit",
    "gradient",
    "kl_ucb",
    "kl_upper",
    "lin_ts",
    "lin_ucb",
    "logistic_ts",
    "moss",
    "myopic",
    "pilaf",
    "pilaf_weighted",
    "plan",
    "policy",
    "policy_pairs",
    "policy_table",
    "policy_values",
    "regret_table",
    "require_indexable",
    "run_bandit",
    "sequential_halving",
    "sliding_window_thompson",
    "sliding_window_ucb",
    "softmax",
    "start_value",
    "successive_elimination",
    "thompson",
    "thompson_gaussian",
    "thompson_laplace",
    "top_two_thompson",
    "top_two_transportation",
    "tsallis_inf",
    "ucb1",
    "ucb_v",
    "uniform_pairs",
    "whittle",
    "whittle_indices",
]
