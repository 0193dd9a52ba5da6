"""Bandit policies, one family per file, and the runner that measures their regret."""

from typing import TYPE_CHECKING

from jaxrl.lazy import attach

if TYPE_CHECKING:
    from jaxrl.bandits import bounds
    from jaxrl.bandits.base import BanditAlgorithm, Task, View
    from jaxrl.bandits.comparing import bounds_of, regret_table
    from jaxrl.bandits.dynamic_programming import plan, policy_table, policy_values, start_value
    from jaxrl.bandits.policies.boltzmann import GradientHParams, SoftmaxHParams, gradient, softmax
    from jaxrl.bandits.policies.divergence import KLUCBHParams, kl_ucb, kl_upper
    from jaxrl.bandits.policies.dueling import DoubleThompsonHParams, double_thompson
    from jaxrl.bandits.policies.exponential import Exp3HParams, Exp3IXHParams, Exp3SHParams, exp3, exp3_ix, exp3_s
    from jaxrl.bandits.policies.greedy import (
        EpsilonGreedyHParams,
        ExploreThenCommitHParams,
        epsilon_greedy,
        explore_then_commit,
    )
    from jaxrl.bandits.policies.identification import (
        SuccessiveEliminationHParams,
        TopTwoHParams,
        sequential_halving,
        successive_elimination,
        top_two_thompson,
        top_two_transportation,
    )
    from jaxrl.bandits.policies.linear import (
        LinTSHParams,
        LinUCBHParams,
        LogisticTSHParams,
        lin_ts,
        lin_ucb,
        logistic_ts,
    )
    from jaxrl.bandits.policies.planners import MyopicHParams, PlanningHParams, exact_planning, myopic
    from jaxrl.bandits.policies.preferences import (
        PreferencesHParams,
        pilaf,
        pilaf_weighted,
        policy_pairs,
        uniform_pairs,
    )
    from jaxrl.bandits.policies.quantiles import BayesUCBHParams, bayes_ucb, beta_upper_quantile
    from jaxrl.bandits.policies.thompson_sampling import (
        GaussianThompsonHParams,
        LaplaceThompsonHParams,
        ThompsonHParams,
        thompson,
        thompson_gaussian,
        thompson_laplace,
    )
    from jaxrl.bandits.policies.tsallis import TsallisINFHParams, tsallis_inf
    from jaxrl.bandits.policies.ucb import MOSSHParams, UCB1HParams, UCBVHParams, moss, ucb1, ucb_v
    from jaxrl.bandits.policies.whittle_index import WhittleHParams, require_indexable, whittle, whittle_indices
    from jaxrl.bandits.policies.windowed import (
        DiscountedThompsonHParams,
        DiscountedUCBHParams,
        SlidingWindowThompsonHParams,
        SlidingWindowUCBHParams,
        discounted_thompson,
        discounted_ucb,
        sliding_window_thompson,
        sliding_window_ucb,
    )
    from jaxrl.bandits.registry import POLICIES, policy
    from jaxrl.bandits.runner import run_bandit

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

_NAMES_OF_MODULE = {
    "base": (
        "BanditAlgorithm",
        "Task",
        "View",
    ),
    "comparing": (
        "bounds_of",
        "regret_table",
    ),
    "dynamic_programming": (
        "plan",
        "policy_table",
        "policy_values",
        "start_value",
    ),
    "policies.boltzmann": (
        "GradientHParams",
        "SoftmaxHParams",
        "gradient",
        "softmax",
    ),
    "policies.divergence": (
        "KLUCBHParams",
        "kl_ucb",
        "kl_upper",
    ),
    "policies.dueling": (
        "DoubleThompsonHParams",
        "double_thompson",
    ),
    "policies.exponential": (
        "Exp3HParams",
        "Exp3IXHParams",
        "Exp3SHParams",
        "exp3",
        "exp3_ix",
        "exp3_s",
    ),
    "policies.greedy": (
        "EpsilonGreedyHParams",
        "ExploreThenCommitHParams",
        "epsilon_greedy",
        "explore_then_commit",
    ),
    "policies.identification": (
        "SuccessiveEliminationHParams",
        "TopTwoHParams",
        "sequential_halving",
        "successive_elimination",
        "top_two_thompson",
        "top_two_transportation",
    ),
    "policies.linear": (
        "LinTSHParams",
        "LinUCBHParams",
        "LogisticTSHParams",
        "lin_ts",
        "lin_ucb",
        "logistic_ts",
    ),
    "policies.planners": (
        "MyopicHParams",
        "PlanningHParams",
        "exact_planning",
        "myopic",
    ),
    "policies.preferences": (
        "PreferencesHParams",
        "pilaf",
        "pilaf_weighted",
        "policy_pairs",
        "uniform_pairs",
    ),
    "policies.quantiles": (
        "BayesUCBHParams",
        "bayes_ucb",
        "beta_upper_quantile",
    ),
    "policies.thompson_sampling": (
        "GaussianThompsonHParams",
        "LaplaceThompsonHParams",
        "ThompsonHParams",
        "thompson",
        "thompson_gaussian",
        "thompson_laplace",
    ),
    "policies.tsallis": (
        "TsallisINFHParams",
        "tsallis_inf",
    ),
    "policies.ucb": (
        "MOSSHParams",
        "UCB1HParams",
        "UCBVHParams",
        "moss",
        "ucb1",
        "ucb_v",
    ),
    "policies.whittle_index": (
        "WhittleHParams",
        "require_indexable",
        "whittle",
        "whittle_indices",
    ),
    "policies.windowed": (
        "DiscountedThompsonHParams",
        "DiscountedUCBHParams",
        "SlidingWindowThompsonHParams",
        "SlidingWindowUCBHParams",
        "discounted_thompson",
        "discounted_ucb",
        "sliding_window_thompson",
        "sliding_window_ucb",
    ),
    "registry": (
        "POLICIES",
        "policy",
    ),
    "runner": ("run_bandit",),
}

__getattr__, __dir__ = attach(__name__, globals(), _NAMES_OF_MODULE, {"bounds": "bounds"})
