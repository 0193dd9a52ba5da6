"""All bandit policies by name."""

import importlib

from envs.errors import UserTypeError, UserValueError
from envs.spelling import near
from jaxrl.bandits.base import BanditAlgorithm
from jaxrl.lazy import imported_names

# fmt: off
NAMES = (
    "ucb1", "ucb-v", "moss", "kl-ucb", "bayes-ucb", "thompson", "thompson-gaussian", "thompson-laplace",
    "epsilon-greedy", "explore-then-commit", "softmax", "gradient", "sliding-window-ucb", "sliding-window-thompson",
    "discounted-ucb", "discounted-thompson", "exp3", "exp3-ix", "exp3-s", "tsallis-inf", "lin-ucb", "lin-ts",
    "logistic-ts", "double-thompson", "pilaf", "pilaf-weighted", "policy-pairs", "uniform-pairs", "whittle", "myopic",
    "exact-planning", "successive-elimination", "sequential-halving", "top-two-thompson", "top-two-transportation",
)
# fmt: on
_EXPORTED = imported_names("jaxrl.bandits")
# Module and builder by name.
POLICIES: dict[str, tuple[str, str]] = {name: _EXPORTED[name.replace("-", "_")] for name in NAMES}


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
    return getattr(importlib.import_module(module), builder)()
