"""A learned drift of PPO's objective for an outer loop."""

import dataclasses
from typing import Any

from envs.errors import UserValueError
from jaxrl.algorithms.contract import Algorithm
from jaxrl.learning.drift import Drift
from jaxrl.pytrees import HParams
from jaxrl.tuning.learned.theta import Theta


def learned_drift(algo: Algorithm) -> Theta:
    """Drift of the objective of PPO, which begins as that of `algo.hparams`: PPO's clip by default.

    Args:
      algo: PPO with `PPOConfig(drift="learned")`; the number of hidden units is that of its configuration.

    Raises:
      ValueError: The algorithm does not learn a drift.

    Source: Lu et al. (2022), Discovered policy optimisation.
    """
    initial = getattr(algo.hparams, "drift", None)
    if not isinstance(initial, Drift):
        raise UserValueError(f"learned_drift takes PPO with PPOConfig(drift='learned'), got {algo!r}")

    def apply(theta: Any, hparams: HParams) -> HParams:
        return dataclasses.replace(hparams, drift=theta)

    return Theta("drift", initial, apply)
