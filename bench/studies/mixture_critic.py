"""Training with one critic and with a mixture of critics, everything else equal."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

import jaxrl
from bench.studies.figures import mean_curve, plain_axes
from bench.studies.frames import improvement, interval
from bench.studies.study import Study, StudyRun
from envs.errors import UserValueError
from jaxrl.checks import check_choices, check_counts
from jaxrl.results.statistics import iqm

if TYPE_CHECKING:
    import matplotlib.figure
    import pandas

CRITICS = ("single", "mixture")


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the study: tasks, discounts, critics and lengths of training."""

    tasks: tuple[str, ...] = ("cartpole", "pendulum")
    """Environments with a preset of PPO, from which all other settings are taken."""
    discounts: tuple[str, ...] = ("beta:mu=0.98,eta=0.5", "hyperbolic:k=0.02")
    """Discounts, which must be mixtures of exponentials."""
    heads: int = 8
    """Number of exponentials of the mixture critic."""
    lam: float = 0.9
    """Lambda of the estimates."""
    seeds: int = 32
    """Number of seeds of every setting."""
    env_steps: int = 0
    """Number of environment steps of a run; 0 for the preset's."""
    evals: int = 10
    """Number of evaluations, evenly spaced, the last at the end."""
    eval_episodes: int = 16
    """Number of whole episodes of an evaluation, played greedily."""

    def __post_init__(self) -> None:
        known = [environment for algorithm, environment in jaxrl.presets.names() if algorithm == "ppo"]
        check_choices("tasks", self.tasks, known)
        check_choices("discounts", self.discounts)
        if not 0 <= self.lam <= 1:
            raise UserValueError(f"lam must lie in [0, 1], got {self.lam}")
        for discount in self.discounts:
            jaxrl.as_discount(discount)
        check_counts(self, heads=1, seeds=2, env_steps=0, evals=1, eval_episodes=1)


def run(settings: Settings, study: StudyRun) -> None:
    """Train every task with either critic, then write a table and a figure."""
    returns: dict[str, dict[str, np.ndarray]] = {}
    steps: dict[str, np.ndarray] = {}
    for task in settings.tasks:
        preset = jaxrl.preset("ppo", task)
        returns[task] = {}
        for critic in CRITICS:
            chosen = {"critic": critic} | ({"critic_heads": settings.heads} if critic == "mixture" else {})
            algo = preset._replace(config=dataclasses.replace(preset.config, **chosen)).algo
            result = study.train(
                f"{task}_{critic}",
                algo,
                jaxrl.grid(dataclasses.replace(algo.hparams, lam=settings.lam), {"discount": settings.discounts}),
                seeds=settings.seeds,
                env_steps=settings.env_steps or preset.env_steps,
                evals=settings.evals,
                eval_episodes=settings.eval_episodes,
            )
            metric = result.metrics["return"].transpose("discount", "seed", "env_step")
            returns[task][critic] = metric.values.astype(np.float64)
            steps[task] = result.metrics["env_step"].values
    ends = ", ".join(f"{task} {int(step[-1]):,}" for task, step in steps.items())
    caption = (
        f"PPO with one critic and with a mixture of {settings.heads} at lam = {settings.lam:g}, {settings.seeds} "
        f"seeds: interquartile mean of the greedy, undiscounted return at the end and averaged over training, and the "
        f"probability that a run with the mixture improves on one with a single critic, each with its 95 % bootstrap "
        f"interval. Environment steps: {ends}."
    )
    study.table("returns", table(returns, settings), caption)
    study.figure("mixture_critic", _figure(returns, steps, settings))


def table(returns: dict[str, dict[str, np.ndarray]], settings: Settings) -> pandas.DataFrame:
    """A row per task, discount and measure.

    Args:
      returns: Returns `{task: {critic: [discounts, seeds, evaluations]}}`; nan at the end of a failed run.
      settings: Settings, whose discounts label the first axis.

    Returns:
      Interquartile means of both critics over the runs that did not fail, and the probability of
      improvement by the mixture, where a failed run ranks below all others.
    """
    import pandas

    rows = []
    for task, of_critic in returns.items():
        for d, discount in enumerate(settings.discounts):
            for measure in ("final", "mean"):
                row = {"task": task, "discount": discount, "measure": measure}
                runs = {}
                for critic in CRITICS:
                    values = of_critic[critic][d]
                    runs[critic] = values[:, -1] if measure == "final" else values.mean(axis=1)
                    row[critic] = interval(iqm, runs[critic][np.isfinite(runs[critic])], 1)
                row["P(improvement)"] = improvement(runs["mixture"], runs["single"])
                rows.append(row | {"failed": int(sum(np.sum(~np.isfinite(run)) for run in runs.values()))})
    return pandas.DataFrame(rows)


def _figure(
    returns: dict[str, dict[str, np.ndarray]], steps: dict[str, np.ndarray], settings: Settings
) -> matplotlib.figure.Figure:
    """Interquartile means over training with pointwise intervals, a plot per task and discount."""
    from matplotlib.figure import Figure

    from jaxrl import plotting

    figure = Figure(figsize=(3.2 * len(settings.discounts) + 0.6, 2.6 * len(returns) + 0.4), layout="constrained")
    axes = figure.subplots(len(returns), len(settings.discounts), squeeze=False, sharey="row")
    for row, (task, of_critic) in enumerate(returns.items()):
        for column, discount in enumerate(settings.discounts):
            ax = axes[row, column]
            for colour, (critic, values) in zip(plotting.COLOURS, of_critic.items(), strict=False):
                mean_curve(ax, steps[task], values[column], colour, f"{critic} critic")
            ax.set_title(f"{task}, {discount}", fontsize=9)
            plain_axes(ax)
            ax.set_xlabel("environment steps")
        axes[row, 0].set_ylabel("return")
    axes[0, 0].legend(frameon=False)
    return figure


STUDY = Study(
    "mixture-critic",
    "Training with one critic and with a mixture of critics, everything else equal.",
    Settings,
    run,
)
