"""A learned update rule of the optimiser for an outer loop."""

import dataclasses
from typing import Any

from envs.errors import UserValueError
from jaxrl.algorithms.contract import Algorithm
from jaxrl.learning.optimisers import LearnedOptimiser
from jaxrl.pytrees import HParams
from jaxrl.tuning.learned.theta import Theta


def learned_optimiser(algo: Algorithm) -> Theta:
    """Update rule of the optimiser, which begins as that of `algo.hparams`: Adam by default.

    Args:
      algo: On-policy algorithm with `optimiser="learned"`; the number of hidden units is that of its configuration.

    Raises:
      ValueError: The algorithm does not learn its optimiser.

    Source: Goldie et al. (2024), Can learned optimization make reinforcement learning less difficult?
    """
    initial = getattr(algo.hparams, "optimiser", None)
    if not isinstance(initial, LearnedOptimiser):
        raise UserValueError(
            f"learned_optimiser takes an on-policy algorithm whose configuration has optimiser='learned', got {algo!r}"
        )

    def apply(theta: Any, hparams: HParams) -> HParams:
        return dataclasses.replace(hparams, optimiser=theta)

    return Theta("optimiser", initial, apply)
