"""Samplers, which choose the next trials of a study."""

from __future__ import annotations

import math
import warnings
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

# Trials per population of a search whose sampler does not learn from results.
POPULATION = 64
# Number of populations of a search whose sampler learns from results.
POPULATIONS = 8
# Trials that tpe draws at random before it learns.
STARTUP_TRIALS = 10

__all__ = ["Design", "population_of", "sampler_of"]


class Design(BaseSampler):
    """A fixed design: the setting at a place does not depend on the process or on the order of requests.

    Args:
      setting_at: Function from a place to its setting.

    Attributes:
      place: Place of the next trial, set before its values are sampled.
    """

    def __init__(self, setting_at: Callable[[int], Setting]) -> None:
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
    """A separate sampler for each trial, seeded by the trial's number, which is unique among all processes.

    Args:
      make: Function from a seed to a sampler.
      seed: Random seed of the search.
    """

    def __init__(self, make: Callable[[int], BaseSampler], seed: int) -> None:
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
    """The sampler of a search.

    Args:
      name: Name of the sampler: tpe, random, grid or cmaes.
      space: Space to sample from.
      seed: Random seed; equal seeds choose equal trials if the results of trials are equal.
      population: Number of trials in a population, also the population size of cmaes.

    Raises:
      ValueError: The sampler does not support the space.
    """
    if name == "grid":
        every = space.combinations()
        order = np.random.default_rng(seed).permutation(len(every))
        return Design(lambda place: every[order[place % len(every)]])
    if name == "random":
        return Design(lambda place: space.drawn(seed, place))
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
    """Number of trials in a population, which are trained together.

    Args:
      name: Name of the sampler.
      asked: Number requested by the user; None chooses one.
      num_trials: Number of trials of the complete study.
      num_paths: Number of paths of the space.
      least: Number of trials below which devices are idle.

    Returns:
      `asked`, or 64 by default. A sampler that learns from results, which it does between populations only,
      takes by default an eighth of the trials, or `least` if that is more, up to a quarter of the trials.

    Raises:
      ValueError: With the requested population no trial could learn from another.
    """
    if name not in ("tpe", "cmaes"):
        return POPULATION if asked is None else asked
    population = asked or max(-(-num_trials // POPULATIONS), min(least, num_trials // 4))
    if name == "tpe":
        blind = population * -(-STARTUP_TRIALS // population)
    else:  # a random population, and then a generation, from which the next one is sampled
        blind = population * (1 + -(-_generation(population, num_paths) // population))
    if blind >= num_trials:
        message = (
            f"{name} learns nothing from {num_trials} trials in populations of {population}, the first {blind} of "
            f"which it chooses without results: use more trials"
        )
        if asked is not None:
            raise UserValueError(f"{message}, a smaller population, or a random search")
        message = f"{message}, or a random search"
        warnings.warn(message, RuntimeWarning, stacklevel=3)
    return population


def _generation(population: int, num_paths: int) -> int:
    """Trials in a generation of cmaes: a population, and at least the number that its authors recommend."""
    return max(population, 4 + int(3 * math.log(num_paths)))
