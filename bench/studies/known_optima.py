"""Gaps of trained agents to the three kinds of optimum, under discounts with which the kinds differ."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

import envs
import jaxrl
from bench.studies.figures import plain_axes
from bench.studies.frames import MISSING, interval
from bench.studies.known_optima_agents import AGENTS, TASKS
from bench.studies.study import Study, StudyRun
from envs.base import OPTIMUM_KINDS
from envs.errors import UserValueError
from jaxrl.checks import check_choices, check_counts
from jaxrl.results.statistics import bootstrap_interval, iqm

if TYPE_CHECKING:
    import matplotlib.figure
    import pandas

__all__ = ["STUDY", "Settings", "gaps_figure", "gaps_table", "optima_of"]


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the study: tasks, algorithms, discounts and lengths of training."""

    tasks: tuple[str, ...] = TASKS
    """Tasks whose three optima are known."""
    algorithms: tuple[str, ...] = tuple(AGENTS)
    """Algorithms, each on the tasks that it has settings for; "ppo-mixture" is PPO with a mixture of critics."""
    discounts: tuple[str, ...] = ("exp:gamma=0.99", "beta:mu=0.9,eta=0.5", "hyperbolic:k=0.3")
    """Discounts of training and of the optima."""
    seeds: int = 16
    """Number of seeds of every setting."""
    env_steps: int = 0
    """Number of environment steps of a run; 0 for that of each pair of an algorithm and a task."""
    eval_episodes: int = 1024
    """Number of whole episodes at the end, played greedily."""

    def __post_init__(self) -> None:
        check_choices("tasks", self.tasks, TASKS)
        check_choices("algorithms", self.algorithms, tuple(AGENTS))
        check_choices("discounts", self.discounts)
        for discount in self.discounts:
            jaxrl.as_discount(discount)
        check_counts(self, seeds=2, env_steps=0, eval_episodes=1)
        if not any(task in AGENTS[name] for task in self.tasks for name in self.algorithms):
            raise UserValueError(
                f"algorithms has {', '.join(self.algorithms)}, none of which trains on {', '.join(self.tasks)}"
            )


def run(settings: Settings, study: StudyRun) -> None:
    """Train every algorithm on every task, then write a table of gaps and a figure for each task."""
    for task in settings.tasks:
        best = optima_of(task, settings.discounts)
        returns: dict[str, np.ndarray] = {}
        steps: dict[str, int] = {}
        for name in settings.algorithms:
            if task not in AGENTS[name]:
                continue
            preset = AGENTS[name][task]
            algo = preset.algo
            result = study.train(
                f"{task.replace('/', '_')}_{name}",
                algo,
                jaxrl.grid(algo.hparams, {"discount": settings.discounts}),
                seeds=settings.seeds,
                env_steps=settings.env_steps or preset.env_steps,
                evals=1,
                eval_episodes=settings.eval_episodes,
            )
            metric = result.metrics["discounted_return"].transpose("discount", "seed", "env_step")
            returns[name] = metric.values[..., -1].astype(np.float64)
            steps[name] = int(result.metrics["env_step"].values[-1])
        ends = ", ".join(f"{name} {count:,}" for name, count in steps.items())
        file = task.replace("/", "_")
        study.table(
            file,
            gaps_table(returns, best, settings.discounts),
            f"{task}, {settings.seeds} seeds: interquartile mean of the greedy return under the discount of training, "
            "and its gap to each kind of optimum in per cent of the optimum's size, with 95 % intervals; below zero "
            f"where the return exceeds that optimum. Environment steps: {ends}.",
        )
        study.figure(file, gaps_figure(task, returns, best, settings.discounts))


def optima_of(task: str, discounts: tuple[str, ...]) -> dict[str, np.ndarray]:
    """The optima of a task by their kind, float64 `[discount]`, nan where one is not known."""
    env = envs.make(task)
    curves = [jaxrl.as_discount(discount) for discount in discounts]
    every = {kind: [env.optimum(discount=curve, kind=kind) for curve in curves] for kind in OPTIMUM_KINDS}
    return {kind: np.array([np.nan if value is None else value for value in values]) for kind, values in every.items()}


def gaps_table(
    returns: dict[str, np.ndarray], best: dict[str, np.ndarray], discounts: tuple[str, ...]
) -> pandas.DataFrame:
    """A row for each discount and algorithm: return, and its gap to each kind of optimum in per cent.

    Args:
      returns: Returns of each algorithm, `[discount, seed]`, nan for a failed run.
      best: Optima of each kind, `[discount]`, nan for an unknown one.
      discounts: Names of the discounts.
    """
    import pandas

    rows = []
    for d, discount in enumerate(discounts):
        for name, values in returns.items():
            runs = values[d][np.isfinite(values[d])]
            row: dict[str, Any] = {"discount": discount, "algorithm": name, "return": interval(iqm, runs, 4)}
            row |= {f"gap, {kind}": _gap(runs, float(optimum[d])) for kind, optimum in best.items()}
            rows.append(row | {"failed": int(values.shape[1] - runs.size)})
        optimal: dict[str, Any] = {"discount": discount, "algorithm": "(optimum)", "return": MISSING}
        for kind, value in best.items():
            optimal[f"gap, {kind}"] = f"({value[d]:.4f})" if np.isfinite(value[d]) else MISSING
        rows.append(optimal | {"failed": 0})
    return pandas.DataFrame(rows)


def gaps_figure(
    task: str, returns: dict[str, np.ndarray], best: dict[str, np.ndarray], discounts: tuple[str, ...]
) -> matplotlib.figure.Figure:
    """A panel for each discount: return of every algorithm with its interval, and a line at each kind of optimum."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.4 * len(discounts), 3.2), layout="constrained")
    styles = dict(zip(best, ("-", "--", ":"), strict=True))
    for d, (ax, discount) in enumerate(zip(np.atleast_1d(figure.subplots(1, len(discounts))), discounts, strict=True)):
        plain_axes(ax)
        for kind, optimum in best.items():
            ax.axvline(optimum[d], color="#444444", linestyle=styles[kind], linewidth=1, label=kind)
        for row, values in enumerate(returns.values()):
            runs = values[d][np.isfinite(values[d])]
            if runs.size > 1:
                estimate = bootstrap_interval(iqm, runs)
                ax.plot([estimate.low, estimate.high], [row, row], color="#0072B2", linewidth=2)
                ax.plot([estimate.value], [row], "o", color="#0072B2", markersize=5)
        ax.set_yticks(range(len(returns)), returns.keys() if d == 0 else [""] * len(returns))
        ax.invert_yaxis()
        ax.set_title(discount, fontsize=9)
        ax.set_xlabel("discounted return")
    figure.suptitle(task, fontsize=10)
    figure.axes[-1].legend(fontsize=7, title="optimum", title_fontsize=7)
    return figure


def _gap(runs: np.ndarray, optimum: float) -> str:
    """The gap of the interquartile mean in per cent of the optimum's size, with its interval."""
    known = np.isfinite(optimum) and optimum != 0
    return interval(iqm, 100 * (optimum - runs) / abs(optimum), 2) if known else MISSING


STUDY = Study(
    "known-optima",
    "gaps of trained agents to the precommitted, stationary and sophisticated optimum",
    Settings,
    run,
)
