"""All bandit policies by name."""

import importlib

from envs.errors import UserTypeError, UserValueError
from envs.spelling import near
from jaxrl.bandits.base import BanditAlgorithm

# Name: module of jaxrl.bandits.policies and builder.
POLICIES: dict[str, tuple[str, str]] = {
    "ucb1": ("ucb", "ucb1"),
    "ucb-v": ("ucb", "ucb_v"),
    "moss": ("ucb", "moss"),
    "kl-ucb": ("divergence", "kl_ucb"),
    "bayes-ucb": ("quantiles", "bayes_ucb"),
    "thompson": ("thompson_sampling", "thompson"),
    "thompson-gaussian": ("thompson_sampling", "thompson_gaussian"),
    "thompson-laplace": ("thompson_sampling", "thompson_laplace"),
    "epsilon-greedy": ("greedy", "epsilon_greedy"),
    "explore-then-commit": ("greedy", "explore_then_commit"),
    "softmax": ("boltzmann", "softmax"),
    "gradient": ("boltzmann", "gradient"),
    "sliding-window-ucb": ("windowed", "sliding_window_ucb"),
    "sliding-window-thompson": ("windowed", "sliding_window_thompson"),
    "discounted-ucb": ("windowed", "discounted_ucb"),
    "discounted-thompson": ("windowed", "discounted_thompson"),
    "exp3": ("exponential", "exp3"),
    "exp3-ix": ("exponential", "exp3_ix"),
    "exp3-s": ("exponential", "exp3_s"),
    "tsallis-inf": ("tsallis", "tsallis_inf"),
    "lin-ucb": ("linear", "lin_ucb"),
    "lin-ts": ("linear", "lin_ts"),
    "logistic-ts": ("linear", "logistic_ts"),
    "double-thompson": ("dueling", "double_thompson"),
    "pilaf": ("preferences", "pilaf"),
    "pilaf-weighted": ("preferences", "pilaf_weighted"),
    "policy-pairs": ("preferences", "policy_pairs"),
    "uniform-pairs": ("preferences", "uniform_pairs"),
    "whittle": ("whittle_index", "whittle"),
    "myopic": ("planners", "myopic"),
    "exact-planning": ("planners", "exact_planning"),
    "successive-elimination": ("identification", "successive_elimination"),
    "sequential-halving": ("identification", "sequential_halving"),
    "top-two-thompson": ("identification", "top_two_thompson"),
    "top-two-transportation": ("identification", "top_two_transportation"),
}


def policy(name: str) -> BanditAlgorithm:
    """The policy of this name, with its default hyper-parameters.

    Raises:
      ValueError: There is no such policy.
      TypeError: `name` is not a string.
    """
    if not isinstance(name, str):
        raise UserTypeError(f"name must be the name of one policy, such as 'ucb1', got {name!r}")
    if name not in POLICIES:
        raise UserValueError(
            f"There is no bandit policy {name!r}{near(name, POLICIES) or '; known are ' + ', '.join(POLICIES) + '.'}"
        )
    module, builder = POLICIES[name]
    return vars(importlib.import_module(f"jaxrl.bandits.policies.{module}"))[builder]()
