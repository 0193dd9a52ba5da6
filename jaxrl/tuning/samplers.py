"""How the next trials of a study are chosen."""

from __future__ import annotations

import math
import warnings
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, CmaEsSampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial

from envs.errors import UserValueError
from jaxrl.sweeps.distributions import Choice
from jaxrl.tuning.space import Setting, Space

# Trials that are asked for together where a search does not learn; one that does has this many populations instead.
POPULATION, POPULATIONS = 64, 8
# That tpe draws at random before it learns.
STARTUP_TRIALS = 10

__all__ = ["Design", "population_of", "sampler_of"]


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


def sampler_of(name: str, space: Space, seed: int, population: int) -> BaseSampler:
    """How trials are chosen.

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
        return Design(lambda place: every[order[place % len(every)]])
    if name == "random":
        return Design(lambda place: drawn(space, seed, place))
    if name == "tpe":

        def tpe(seed: int) -> BaseSampler:
            return TPESampler(seed=seed, constant_liar=True, n_startup_trials=STARTUP_TRIALS)

        return _OfEachTrial(tpe, seed)
    choices = [path for path, distribution in space.distributions.items() if isinstance(distribution, Choice)]
    if choices:
        raise UserValueError(
            f"cmaes searches ranges only, of numbers that are traced; {', '.join(choices)} takes single values: fix "
            f"it, or search by tpe, random or grid"
        )
    if len(space.distributions) < 2:
        raise UserValueError(
            f"cmaes searches two ranges or more, got {', '.join(space.distributions)} alone: search by tpe or random"
        )

    def cmaes(seed: int) -> BaseSampler:
        generation = _generation(population, len(space.distributions))
        return CmaEsSampler(seed=seed, popsize=generation, warn_independent_sampling=False)

    return _OfEachTrial(cmaes, seed)


def population_of(name: str, asked: int | None, num_trials: int, num_paths: int, least: int) -> int:
    """How many trials are asked for and trained together.

    Args:
      name: of the search.
      asked: by the user; None chooses.
      num_trials: of the study in all.
      num_paths: of the space.
      least: trials below which devices stand idle.

    Returns:
      What was asked, or 64; but an eighth of the trials where a search learns from results, or `least` of
      them where that is at most a quarter, since it learns between populations only.

    Raises:
      ValueError: with the population that was asked for no trial could learn from another.
    """
    if name not in ("tpe", "cmaes"):
        return POPULATION if asked is None else asked
    population = asked or max(-(-num_trials // POPULATIONS), min(least, num_trials // 4))
    if name == "tpe":
        blind = population * -(-STARTUP_TRIALS // population)
    else:  # a population at random, and then a generation, by which the next one goes
        blind = population * (1 + -(-_generation(population, num_paths) // population))
    if blind >= num_trials:
        told = (
            f"{name} learns nothing from {num_trials} trials in populations of {population}, the first {blind} of "
            f"which it chooses without results: take more trials"
        )
        if asked is not None:
            raise UserValueError(f"{told}, a smaller population, or a random search")
        told = f"{told}, or a random search"
        warnings.warn(told, RuntimeWarning, stacklevel=3)
    return population


def _generation(population: int, num_paths: int) -> int:
    """Trials by which cmaes moves on: a population, and not fewer than its authors take."""
    return max(population, 4 + int(3 * math.log(num_paths)))


def drawn(space: Space, seed: int, place: int) -> Setting:
    """The random setting at a place of a design."""
    return space.draw(lambda path: np.random.default_rng([seed, place, zlib.crc32(path.encode())]))
