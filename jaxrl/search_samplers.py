"""How the next trials of a study are chosen."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, CmaEsSampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial

from jaxrl.search_space import Setting, Space
from jaxrl.sweep_distributions import Choice

__all__ = ["Design", "sampler_of"]


class Design(BaseSampler):
    """A design that is known beforehand: the trial at a place is the same whoever asks, and in whatever order.

    Args:
      setting_at: from the place.

    Attributes:
      place: of the trial that is asked for, to be set before its values are.
    """

    def __init__(self, setting_at: Callable[[int], Setting]):
        self._setting_at = setting_at
        self.place = 0

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        del study, trial
        return {}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        del study, trial, search_space
        return {}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        del study, trial, param_distribution
        return self._setting_at(self.place)[param_name]


class _OfEachTrial(BaseSampler):
    """A sampler of its own for each trial, seeded by the trial's number, which no two processes share.

    Args:
      make: from a seed.
      seed: of the search.
    """

    def __init__(self, make: Callable[[int], BaseSampler], seed: int):
        self._make, self._seed = make, seed
        self._number, self._sampler = -1, make(seed)

    def _of(self, trial: FrozenTrial) -> BaseSampler:
        if trial.number != self._number:
            seed = int(np.random.SeedSequence([self._seed, trial.number]).generate_state(1)[0])
            self._number, self._sampler = trial.number, self._make(seed)
        return self._sampler

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self._of(trial).infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return self._of(trial).sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self._of(trial).sample_independent(study, trial, param_name, param_distribution)


def sampler_of(name: str, space: Space, seed: int, population: int) -> tuple[BaseSampler, float]:
    """A sampler, and how many trials it has at most.

    Args:
      name: tpe, random, grid or cmaes.
      space: to sample from.
      seed: equal seeds choose equal trials where equal results are told.
      population: trials that are asked for together, the population of cmaes.

    Raises:
      ValueError: the space has what the sampler cannot do.
    """
    if name == "grid":
        every = space.combinations()
        order = np.random.default_rng(seed).permutation(len(every))
        return Design(lambda place: every[order[place % len(every)]]), len(every)
    if name == "random":
        return Design(lambda place: drawn(space, seed, place)), math.inf
    if name == "tpe":
        return _OfEachTrial(lambda seed: TPESampler(seed=seed, constant_liar=True), seed), math.inf
    choices = [path for path, distribution in space.distributions.items() if isinstance(distribution, Choice)]
    if choices:
        raise ValueError(
            f"cmaes searches ranges only, of numbers that are traced; {', '.join(choices)} takes single values: fix "
            f"it, or search by tpe, random or grid"
        )

    def cmaes(seed: int) -> BaseSampler:
        return CmaEsSampler(seed=seed, popsize=max(population, 2), warn_independent_sampling=False)

    return _OfEachTrial(cmaes, seed), math.inf


def drawn(space: Space, seed: int, place: int) -> Setting:
    """The random setting at a place of a design."""
    return space.draw(lambda path: np.random.default_rng([seed, place, zlib.crc32(path.encode())]))
