"""DQN with different representations of values and their losses, everything else equal."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

import jaxrl
from bench.studies.frames import MISSING, interval
from bench.studies.study import Study, StudyRun
from jaxrl.checks import check_choices, check_counts
from jaxrl.learning.value_losses import FEWEST_BINS, KINDS, WITH_SUPPORT
from jaxrl.results.statistics import iqm, mean

if TYPE_CHECKING:
    import pandas

__all__ = ["STUDY", "Settings", "table"]


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the study: tasks, losses and lengths of training."""

    tasks: tuple[str, ...] = ("acrobot", "cartpole")
    """Environments with a preset of DQN, from which all other settings are taken."""
    losses: tuple[str, ...] = ("huber", "quantile", "hl-gauss", "categorical")
    """Value losses; the others are compared with the first."""
    quantiles: int = 25
    """Number of quantiles of "quantile"."""
    bins: int = 101
    """Number of atoms or bins of "categorical" and "hl-gauss", between the discounted sums of rewards of -1 and 1."""
    seeds: int = 16
    """Number of seeds of every setting; equal seeds share their keys."""
    env_steps: int = 0
    """Number of environment steps of a run; 0 for the preset's."""
    eval_episodes: int = 128
    """Number of whole episodes of the evaluation at the end, played greedily."""

    def __post_init__(self) -> None:
        known = [environment for algorithm, environment in jaxrl.presets.names() if algorithm == "dqn"]
        check_choices("tasks", self.tasks, known)
        check_choices("losses", self.losses, tuple(KINDS))
        bins = FEWEST_BINS if "hl-gauss" in self.losses else 2
        check_counts(self, quantiles=2, bins=bins, seeds=2, env_steps=0, eval_episodes=1)


def run(settings: Settings, study: StudyRun) -> None:
    """Train every task with every loss, then write a table."""
    returns: dict[tuple[str, str], np.ndarray] = {}
    seconds: dict[tuple[str, str], float] = {}
    steps: dict[str, int] = {}
    for loss in settings.losses:
        for task in settings.tasks:
            preset = jaxrl.preset("dqn", task)
            result = study.train(
                f"{task}_{loss}",
                preset._replace(config=dataclasses.replace(preset.config, **fields(loss, settings))).algo,
                seeds=settings.seeds,
                env_steps=settings.env_steps or preset.env_steps,
                evals=1,
                eval_episodes=settings.eval_episodes,
            )
            returns[task, loss] = result.values("return").reshape(settings.seeds, -1)[:, -1].astype(np.float64)
            seconds[task, loss] = float(result.metrics.attrs["run_seconds"])
            steps[task] = int(result.metrics["env_step"].values[-1])
    ends = ", ".join(f"{task} {count:,}" for task, count in steps.items())
    caption = (
        f"Presets of DQN with other value losses, {settings.seeds} seeds: greedy return at the end over "
        f"{settings.eval_episodes} episodes of each seed, its interquartile mean with the 95 % bootstrap interval, the "
        f"mean, the worst seed, how much better the interquartile mean is than with {settings.losses[0]}, in per cent, "
        f"and the seconds of training and evaluation. Environment steps: {ends}."
    )
    study.table("returns", table(returns, seconds), caption)


def fields(loss: str, settings: Settings) -> dict[str, Any]:
    """Fields of the configuration for a loss."""
    if loss == "quantile":
        return {"value_loss": loss, "num_atoms": settings.quantiles}
    return {"value_loss": loss} | ({"num_atoms": settings.bins} if loss in WITH_SUPPORT else {})


def table(returns: dict[tuple[str, str], np.ndarray], seconds: dict[tuple[str, str], float]) -> pandas.DataFrame:
    """A row for each task and loss; the first loss of a task is the one that the others are compared with.

    Args:
      returns: Returns at the end `{(task, loss): [seeds]}`; nan for a failed run.
      seconds: Seconds of each call.
    """
    import pandas

    rows, compared, tasks = [], {}, [task for task, _ in returns]
    for (task, loss), values in sorted(returns.items(), key=lambda item: tasks.index(item[0][0])):
        good = values[np.isfinite(values)]
        row: dict[str, Any] = {"task": task, "loss": loss, "IQM": interval(iqm, good, 1)}
        row["mean"] = f"{float(mean(good)):.1f}" if good.size else MISSING
        row["worst"] = f"{good.min():.1f}" if good.size else MISSING
        row["better by, %"] = MISSING
        if good.size:
            middle = float(iqm(good))
            first = compared.setdefault(task, middle)
            row["better by, %"] = f"{100 * (middle - first) / abs(first):+.1f}" if first else MISSING
        rows.append(row | {"failed": int(np.sum(~np.isfinite(values))), "s": f"{seconds[task, loss]:.0f}"})
    return pandas.DataFrame(rows)


STUDY = Study(
    "value-losses",
    "DQN with QR-DQN's quantiles, C51's atoms or HL-Gauss's bins, everything else equal.",
    Settings,
    run,
)
