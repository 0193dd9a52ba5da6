"""Bandit policies, one family per file, and the runner that measures their regret."""

from typing import TYPE_CHECKING

from jaxrl.lazy import attach

if TYPE_CHECKING:  # the list of public names; the repeated names export them to type checkers
    # isort: off
    # fmt: off
    from jaxrl.bandits import bounds as bounds
    from jaxrl.bandits.base import BanditAlgorithm as BanditAlgorithm, Task as Task, View as View
    from jaxrl.bandits.comparing import bounds_of as bounds_of, regret_table as regret_table
    from jaxrl.bandits.dynamic_programming import (
        plan as plan, policy_table as policy_table, policy_values as policy_values, start_value as start_value
    )
    from jaxrl.bandits.policies.boltzmann import (
        GradientHParams as GradientHParams, SoftmaxHParams as SoftmaxHParams, gradient as gradient, softmax as softmax
    )
    from jaxrl.bandits.policies.divergence import KLUCBHParams as KLUCBHParams, kl_ucb as kl_ucb, kl_upper as kl_upper
    from jaxrl.bandits.policies.dueling import (
        DoubleThompsonHParams as DoubleThompsonHParams, double_thompson as double_thompson
    )
    from jaxrl.bandits.policies.exponential import (
        Exp3HParams as Exp3HParams, Exp3IXHParams as Exp3IXHParams, Exp3SHParams as Exp3SHParams, exp3 as exp3,
        exp3_ix as exp3_ix, exp3_s as exp3_s
    )
    from jaxrl.bandits.policies.greedy import (
        EpsilonGreedyHParams as EpsilonGreedyHParams, ExploreThenCommitHParams as ExploreThenCommitHParams,
        epsilon_greedy as epsilon_greedy, explore_then_commit as explore_then_commit
    )
    from jaxrl.bandits.policies.identification import (
        SuccessiveEliminationHParams as SuccessiveEliminationHParams, TopTwoHParams as TopTwoHParams,
        sequential_halving as sequential_halving, successive_elimination as successive_elimination,
        top_two_thompson as top_two_thompson, top_two_transportation as top_two_transportation
    )
    from jaxrl.bandits.policies.linear import (
        LinTSHParams as LinTSHParams, LinUCBHParams as LinUCBHParams, LogisticTSHParams as LogisticTSHParams,
        lin_ts as lin_ts, lin_ucb as lin_ucb, logistic_ts as logistic_ts
    )
    from jaxrl.bandits.policies.planners import (
        MyopicHParams as MyopicHParams, PlanningHParams as PlanningHParams, exact_planning as exact_planning,
        myopic as myopic
    )
    from jaxrl.bandits.policies.preferences import (
        PreferencesHParams as PreferencesHParams, pilaf as pilaf, pilaf_weighted as pilaf_weighted,
        policy_pairs as policy_pairs, uniform_pairs as uniform_pairs
    )
    from jaxrl.bandits.policies.quantiles import (
        BayesUCBHParams as BayesUCBHParams, bayes_ucb as bayes_ucb, beta_upper_quantile as beta_upper_quantile
    )
    from jaxrl.bandits.policies.thompson_sampling import (
        GaussianThompsonHParams as GaussianThompsonHParams, LaplaceThompsonHParams as LaplaceThompsonHParams,
        ThompsonHParams as ThompsonHParams, thompson as thompson, thompson_gaussian as thompson_gaussian,
        thompson_laplace as thompson_laplace
    )
    from jaxrl.bandits.policies.tsallis import TsallisINFHParams as TsallisINFHParams, tsallis_inf as tsallis_inf
    from jaxrl.bandits.policies.ucb import (
        MOSSHParams as MOSSHParams, UCB1HParams as UCB1HParams, UCBVHParams as UCBVHParams, moss as moss, ucb1 as ucb1,
        ucb_v as ucb_v
    )
    from jaxrl.bandits.policies.whittle_index import (
        WhittleHParams as WhittleHParams, require_indexable as require_indexable, whittle as whittle,
        whittle_indices as whittle_indices
    )
    from jaxrl.bandits.policies.windowed import (
        DiscountedThompsonHParams as DiscountedThompsonHParams, DiscountedUCBHParams as DiscountedUCBHParams,
        SlidingWindowThompsonHParams as SlidingWindowThompsonHParams,
        SlidingWindowUCBHParams as SlidingWindowUCBHParams, discounted_thompson as discounted_thompson,
        discounted_ucb as discounted_ucb, sliding_window_thompson as sliding_window_thompson,
        sliding_window_ucb as sliding_window_ucb
    )
    from jaxrl.bandits.registry import POLICIES as POLICIES, policy as policy
    from jaxrl.bandits.runner import run_bandit as run_bandit
    # fmt: on


_get, __dir__, __all__ = attach(__name__)
if not TYPE_CHECKING:  # so that type checkers report unknown names
    __getattr__ = _get
