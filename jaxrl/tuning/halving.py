"""Successive halving: train many settings briefly and the best of them for longer."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence

import numpy as np

from envs.errors import UserValueError
from jaxrl.checks import check_count


@dataclasses.dataclass(frozen=True)
class Halving:
    """Successive halving of a population of trials.

    After each rung the best `1 / eta` of the population continue, repacked into blocks, and the others
    stop. Every run follows the schedules of a whole run, even if it is stopped early.

    Attributes:
      eta: Factor by which the population shrinks after each rung, above 1.
      first_env_steps: Number of environment steps of the first rung; each following rung is `eta` times as
        long, the last as long as a run. None takes `env_steps / eta ** 2`, which gives three rungs.

    Source: Jamieson and Talwalkar (2016), "Non-stochastic best arm identification and
    hyperparameter optimization", section 3.
    """

    eta: float = 3.0
    first_env_steps: int | None = None

    def __post_init__(self) -> None:
        number = isinstance(self.eta, int | float) and not isinstance(self.eta, bool)
        if not (number and math.isfinite(self.eta) and self.eta > 1):
            raise UserValueError(f"eta must be a number above 1, such as 3, got {self.eta!r}")
        if self.first_env_steps is not None:
            check_count("first_env_steps", self.first_env_steps)

    def rungs(self, env_steps: int) -> list[int]:
        """Environment steps at which trials are compared, increasing; the last is the length of a run.

        Raises:
          ValueError: The first rung is as long as a run.
        """
        first = env_steps / self.eta**2 if self.first_env_steps is None else self.first_env_steps
        if first >= env_steps:
            raise UserValueError(f"first_env_steps must be below the {env_steps} env_steps of a run, got {first:g}")
        rungs, length = [], float(first)
        while length < env_steps * (1 - 1e-9):
            rungs.append(max(1, math.ceil(length)))
            length *= self.eta
        return [*rungs, env_steps]

    def share(self, env_steps: int) -> float:
        """Environment steps of a large population, as a share of those of whole runs."""
        rungs = [0, *self.rungs(env_steps)]
        parts = [(end - begin) / self.eta**i for i, (begin, end) in enumerate(itertools.pairwise(rungs))]
        return sum(parts) / env_steps


def survivors(scores: Sequence[float] | np.ndarray, eta: float) -> np.ndarray:
    """Positions of the settings that continue: the best `1 / eta`, rounded up, without failures.

    Args:
      scores: Scores `[n]`, higher is better, nan for a failure.

    Returns:
      Positions in increasing order, int `[<= ceil(n / eta)]`.
    """
    values = np.asarray(scores, float)
    order = np.argsort(-values, kind="stable")  # nan comes last
    kept = order[: math.ceil(len(values) / eta)]
    return np.sort(kept[np.isfinite(values[kept])])
