"""Growth of regret in late pulls, compared with the lower bound: the slope of Lai and Robbins."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from bench.studies.study import Study, StudyRun
from envs.errors import UserValueError
from jaxrl.checks import check_counts

if TYPE_CHECKING:
    import xarray


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the study: policies, instances and numbers of runs."""

    policies: tuple[str, ...] = ("kl-ucb", "thompson")
    """Policies, by the names of jaxrl.bandits."""
    instances: tuple[str, ...] = ("0.9,0.3", "0.9,0.6,0.6", "0.3,0.1", "0.6,0.4", "0.1,0.02", "0.9,0.8", "0.98,0.9")
    """Instances of Bernoulli arms, each as means separated by commas."""
    steps: int = 100_000
    """Number of pulls of a run; the slope is that of the last decade, from a tenth of them on."""
    runs: int = 1000
    """Number of independent runs of each policy on each instance."""

    def __post_init__(self) -> None:
        from jaxrl.bandits.registry import policy

        for name in self.policies:
            policy(name)
        for instance in self.instances:
            means_of(instance)
        check_counts(self, steps=100, runs=2)


def means_of(instance: str) -> tuple[float, ...]:
    """The means in the text of an instance.

    Raises:
      ValueError: The text is not a list of numbers in [0, 1], or has fewer than two different ones.
    """
    try:
        means = tuple(float(part) for part in instance.split(","))
    except ValueError:
        means = ()
    if len(set(means)) < 2 or not all(0 <= mean <= 1 for mean in means):
        raise UserValueError(
            f"instances takes different means in [0, 1] separated by commas, such as 0.9,0.8, got {instance!r}"
        )
    return means


def run(settings: Settings, study: StudyRun) -> None:
    """Run every policy on every instance, then write a table of slopes."""
    import pandas

    from jaxrl.bandits.bounds.lower import lai_robbins

    rows = []
    for instance in settings.instances:
        least = float(lai_robbins(np.asarray(means_of(instance), np.float32)))
        row: dict[str, str] = {"means": instance, "Lai-Robbins": f"{least:.2f}"}
        for name in settings.policies:
            estimates = study.compute(
                f"{name}_{instance}", lambda name=name, instance=instance: slopes(settings, name, instance)
            )
            slope, error = float(estimates["slope"]), float(estimates["error"])
            row |= {name: f"{slope:.2f}", f"{name} over it": f"{slope / least:.2f} ± {1.96 * error / least:.2f}"}
        rows.append(row)
    study.table(
        "slopes",
        pandas.DataFrame(rows),
        f"Growth of the mean regret with the natural logarithm of the pulls, from {settings.steps // 10:,} to "
        f"{settings.steps:,} pulls, compared with the asymptotic lower bound for consistent policies (Lai and Robbins, "
        f"1985); {settings.runs:,} runs; ± is half the width of a 95 % interval.",
    )


def slopes(settings: Settings, name: str, instance: str) -> xarray.Dataset:
    """The mean over runs of the slope in the last decade, `slope`, and its standard error, `error`."""
    import xarray

    import envs
    from envs.bandits import Bandit
    from jaxrl.bandits.registry import policy
    from jaxrl.bandits.runner import run_bandit

    env = envs.make("bandit/bernoulli", means=means_of(instance))
    points = [settings.steps // 10, settings.steps]
    assert isinstance(env, Bandit)
    result = run_bandit(policy(name), env, steps=settings.steps, runs=settings.runs, points=points, progress=False)
    regret = result.values("regret")[0].astype(np.float64)
    growth = (regret[:, 1] - regret[:, 0]) / math.log(points[1] / points[0])
    return xarray.Dataset({"slope": growth.mean(), "error": growth.std(ddof=1) / math.sqrt(len(growth))})


STUDY = Study(
    "bandit-slopes",
    "Growth of regret in late pulls, compared with the lower bound.",
    Settings,
    run,
)
