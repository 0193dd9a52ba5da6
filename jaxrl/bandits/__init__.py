"""Bandit policies, one family per file, and the runner that measures their regret."""

from typing import TYPE_CHECKING

from jaxrl.lazy import attach

if TYPE_CHECKING:  # the list of public names; the repeated names export them to type checkers
    from jaxrl.bandits import bounds as bounds
    from jaxrl.bandits.base import BanditAlgorithm as BanditAlgorithm
    from jaxrl.bandits.base import Task as Task
    from jaxrl.bandits.base import View as View
    from jaxrl.bandits.comparing import bounds_of as bounds_of
    from jaxrl.bandits.comparing import regret_table as regret_table
    from jaxrl.bandits.dynamic_programming import plan as plan
    from jaxrl.bandits.dynamic_programming import policy_table as policy_table
    from jaxrl.bandits.dynamic_programming import policy_values as policy_values
    from jaxrl.bandits.dynamic_programming import start_value as start_value
    from jaxrl.bandits.policies.boltzmann import GradientHParams as GradientHParams
    from jaxrl.bandits.policies.boltzmann import SoftmaxHParams as SoftmaxHParams
    from jaxrl.bandits.policies.boltzmann import gradient as gradient
    from jaxrl.bandits.policies.boltzmann import softmax as softmax
    from jaxrl.bandits.policies.divergence import KLUCBHParams as KLUCBHParams
    from jaxrl.bandits.policies.divergence import kl_ucb as kl_ucb
    from jaxrl.bandits.policies.divergence import kl_upper as kl_upper
    from jaxrl.bandits.policies.dueling import DoubleThompsonHParams as DoubleThompsonHParams
    from jaxrl.bandits.policies.dueling import double_thompson as double_thompson
    from jaxrl.bandits.policies.exponential import Exp3HParams as Exp3HParams
    from jaxrl.bandits.policies.exponential import Exp3IXHParams as Exp3IXHParams
    from jaxrl.bandits.policies.exponential import Exp3SHParams as Exp3SHParams
    from jaxrl.bandits.policies.exponential import exp3 as exp3
    from jaxrl.bandits.policies.exponential import exp3_ix as exp3_ix
    from jaxrl.bandits.policies.exponential import exp3_s as exp3_s
    from jaxrl.bandits.policies.greedy import EpsilonGreedyHParams as EpsilonGreedyHParams
    from jaxrl.bandits.policies.greedy import ExploreThenCommitHParams as ExploreThenCommitHParams
    from jaxrl.bandits.policies.greedy import epsilon_greedy as epsilon_greedy
    from jaxrl.bandits.policies.greedy import explore_then_commit as explore_then_commit
    from jaxrl.bandits.policies.identification import SuccessiveEliminationHParams as SuccessiveEliminationHParams
    from jaxrl.bandits.policies.identification import TopTwoHParams as TopTwoHParams
    from jaxrl.bandits.policies.identification import sequential_halving as sequential_halving
    from jaxrl.bandits.policies.identification import successive_elimination as successive_elimination
    from jaxrl.bandits.policies.identification import top_two_thompson as top_two_thompson
    from jaxrl.bandits.policies.identification import top_two_transportation as top_two_transportation
    from jaxrl.bandits.policies.linear import LinTSHParams as LinTSHParams
    from jaxrl.bandits.policies.linear import LinUCBHParams as LinUCBHParams
    from jaxrl.bandits.policies.linear import LogisticTSHParams as LogisticTSHParams
    from jaxrl.bandits.policies.linear import lin_ts as lin_ts
    from jaxrl.bandits.policies.linear import lin_ucb as lin_ucb
    from jaxrl.bandits.policies.linear import logistic_ts as logistic_ts
    from jaxrl.bandits.policies.planners import MyopicHParams as MyopicHParams
    from jaxrl.bandits.policies.planners import PlanningHParams as PlanningHParams
    from jaxrl.bandits.policies.planners import exact_planning as exact_planning
    from jaxrl.bandits.policies.planners import myopic as myopic
    from jaxrl.bandits.policies.preferences import PreferencesHParams as PreferencesHParams
    from jaxrl.bandits.policies.preferences import pilaf as pilaf
    from jaxrl.bandits.policies.preferences import pilaf_weighted as pilaf_weighted
    from jaxrl.bandits.policies.preferences import policy_pairs as policy_pairs
    from jaxrl.bandits.policies.preferences import uniform_pairs as uniform_pairs
    from jaxrl.bandits.policies.quantiles import BayesUCBHParams as BayesUCBHParams
    from jaxrl.bandits.policies.quantiles import bayes_ucb as bayes_ucb
    from jaxrl.bandits.policies.quantiles import beta_upper_quantile as beta_upper_quantile
    from jaxrl.bandits.policies.thompson_sampling import GaussianThompsonHParams as GaussianThompsonHParams
    from jaxrl.bandits.policies.thompson_sampling import LaplaceThompsonHParams as LaplaceThompsonHParams
    from jaxrl.bandits.policies.thompson_sampling import ThompsonHParams as ThompsonHParams
    from jaxrl.bandits.policies.thompson_sampling import thompson as thompson
    from jaxrl.bandits.policies.thompson_sampling import thompson_gaussian as thompson_gaussian
    from jaxrl.bandits.policies.thompson_sampling import thompson_laplace as thompson_laplace
    from jaxrl.bandits.policies.tsallis import TsallisINFHParams as TsallisINFHParams
    from jaxrl.bandits.policies.tsallis import tsallis_inf as tsallis_inf
    from jaxrl.bandits.policies.ucb import MOSSHParams as MOSSHParams
    from jaxrl.bandits.policies.ucb import UCB1HParams as UCB1HParams
    from jaxrl.bandits.policies.ucb import UCBVHParams as UCBVHParams
    from jaxrl.bandits.policies.ucb import moss as moss
    from jaxrl.bandits.policies.ucb import ucb1 as ucb1
    from jaxrl.bandits.policies.ucb import ucb_v as ucb_v
    from jaxrl.bandits.policies.whittle_index import WhittleHParams as WhittleHParams
    from jaxrl.bandits.policies.whittle_index import require_indexable as require_indexable
    from jaxrl.bandits.policies.whittle_index import whittle as whittle
    from jaxrl.bandits.policies.whittle_index import whittle_indices as whittle_indices
    from jaxrl.bandits.policies.windowed import DiscountedThompsonHParams as DiscountedThompsonHParams
    from jaxrl.bandits.policies.windowed import DiscountedUCBHParams as DiscountedUCBHParams
    from jaxrl.bandits.policies.windowed import SlidingWindowThompsonHParams as SlidingWindowThompsonHParams
    from jaxrl.bandits.policies.windowed import SlidingWindowUCBHParams as SlidingWindowUCBHParams
    from jaxrl.bandits.policies.windowed import discounted_thompson as discounted_thompson
    from jaxrl.bandits.policies.windowed import discounted_ucb as discounted_ucb
    from jaxrl.bandits.policies.windowed import sliding_window_thompson as sliding_window_thompson
    from jaxrl.bandits.policies.windowed import sliding_window_ucb as sliding_window_ucb
    from jaxrl.bandits.registry import POLICIES as POLICIES
    from jaxrl.bandits.registry import policy as policy
    from jaxrl.bandits.runner import run_bandit as run_bandit


__getattr__, __dir__, __all__ = attach(__name__)
