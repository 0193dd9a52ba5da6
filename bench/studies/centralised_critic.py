"""Training of several agents with critics of their own observations (IPPO) and with a centralised one (MAPPO)."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np

import jaxrl
from bench.studies.figures import mean_curve, plain_axes
from bench.studies.frames import estimate, improvement
from bench.studies.study import Study, StudyRun
from envs.base import Environment
from envs.errors import UserValueError
from envs.games.climbing import ClimbingGame
from jaxrl.algorithms.ppo import PPOConfig
from jaxrl.checks import check_choices, check_counts
from jaxrl.presets.preset import Preset

if TYPE_CHECKING:
    import matplotlib.figure
    import pandas

SEES: dict[str, Any] = {"IPPO": "own", "MAPPO": "global"}
MEASURES = ("final", "mean")

TASKS: dict[str, Preset] = {
    "climbing": Preset(
        "ppo",
        "game/climbing",
        PPOConfig(num_envs=16, num_steps=20, num_minibatches=4, hidden=(32,)),
        {"lr": 1e-3, "lr_end": 0.0, "discount": 0.99, "lam": 0.95},
        64_000,
    ),
    "spread": Preset(
        "ppo",
        "jaxmarl/MPE_simple_spread_v3",
        PPOConfig(num_envs=16, num_steps=128, num_minibatches=4, hidden=(64, 64)),
        {"lr": 2e-3, "lr_end": 0.0, "discount": 0.99, "lam": 0.95},
        1_024_000,
    ),
    "door": jaxrl.preset("ppo", "crowd/choke"),
}

__all__ = ["STUDY", "TASKS", "Settings", "table"]


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the study: tasks and lengths of training."""

    tasks: tuple[str, ...] = tuple(TASKS)
    """Tasks: the climbing game, JaxMARL's spread (extra jaxmarl), and a crowd at a door."""
    penalty: float = -30.0
    """Payoff in the climbing game where one of two agents takes the best action and the other the second."""
    seeds: int = 16
    """Number of seeds of every task and critic."""
    env_steps: int = 0
    """Number of environment steps of a run; 0 for the task's."""
    evals: int = 10
    """Number of evaluations, evenly spaced, the last at the end."""
    eval_episodes: int = 32
    """Number of whole episodes of an evaluation with greedy actions, and again with sampled ones."""
    block: int = 0
    """Number of runs computed in one block: 1 suits crowds on a CPU, 0 for the library's choice."""

    def __post_init__(self) -> None:
        check_choices("tasks", self.tasks, tuple(TASKS))
        if not math.isfinite(self.penalty):
            raise UserValueError(f"penalty must be finite, got {self.penalty}")
        check_counts(self, seeds=2, env_steps=0, evals=1, eval_episodes=1, block=0)


def run(settings: Settings, study: StudyRun) -> None:
    """Train every task with either critic, then write a table and a figure."""
    algos = {  # all at once, so that a missing package is reported before hours of training
        task: {name: _with_critic(TASKS[task], sees) for name, sees in SEES.items()} for task in settings.tasks
    }
    returns: dict[str, dict[str, np.ndarray]] = {}
    explained: dict[str, dict[str, np.ndarray]] = {}
    steps: dict[str, np.ndarray] = {}
    optima: dict[str, float | None] = {}
    for task, of_critic in algos.items():
        returns[task], explained[task] = {}, {}
        env_params = _params(of_critic["IPPO"].env, settings)
        optima[task] = of_critic["IPPO"].env.optimum(env_params)
        for name, algo in of_critic.items():
            result = study.train(
                f"{task}_{SEES[name]}",
                algo,
                seeds=settings.seeds,
                env_steps=settings.env_steps or TASKS[task].env_steps,
                evals=settings.evals,
                eval_episodes=settings.eval_episodes,
                env_params=env_params,
                **({"block": settings.block} if settings.block else {}),
            )
            returns[task][name] = result.values("return")[0].astype(np.float64)
            explained[task][name] = result.values("explained_variance")[0].astype(np.float64)
            steps[task] = result.metrics["env_step"].values
    ends = ", ".join(f"{task} {int(step[-1]):,}" for task, step in steps.items())
    known = ", ".join(f"{task} {value:g}" for task, value in optima.items() if value is not None)
    caption = (
        f"PPO with critics of own observations (IPPO) and with a centralised critic (MAPPO), {settings.seeds} seeds: "
        f"interquartile mean of the greedy return of an agent at the end and averaged over training, and the "
        f"probability that a run with the centralised critic improves on one without, each with its 95 % bootstrap "
        f"interval; explained variance is that of the critic. Environment steps: {ends}."
        + (f" Optimum: {known}." if known else "")
    )
    study.table("returns", table(returns, explained), caption)
    study.figure("centralised_critic", _figure(returns, steps, optima))


def table(returns: dict[str, dict[str, np.ndarray]], explained: dict[str, dict[str, np.ndarray]]) -> pandas.DataFrame:
    """A row per task and measure.

    Args:
      returns: Returns `{task: {algorithm: [seeds, evaluations]}}`; nan at the end of a failed run.
      explained: Explained variances in the same form.

    Returns:
      Interquartile means over the runs that did not fail, and the probability of improvement by MAPPO, where a failed
      run ranks below all others.
    """
    import pandas

    rows = []
    for task, of_critic in returns.items():
        for measure in MEASURES:
            row, runs = {"task": task, "measure": measure}, {}
            for name, values in of_critic.items():
                runs[name] = _reduced(values, measure)
                row[name] = estimate(runs[name][np.isfinite(runs[name])])
            row["P(improvement)"] = improvement(runs["MAPPO"], runs["IPPO"])
            for name, values in explained[task].items():
                of_runs = _reduced(values, measure)
                row[f"explained variance, {name}"] = estimate(of_runs[np.isfinite(of_runs)])
            rows.append(row | {"failed": int(sum(np.sum(~np.isfinite(run)) for run in runs.values()))})
    return pandas.DataFrame(rows)


def _reduced(values: np.ndarray, measure: str) -> np.ndarray:
    return values[:, -1] if measure == "final" else values.mean(axis=1)


def _params(env: Environment, settings: Settings) -> Any:
    """Parameters of an environment, with the penalty of the climbing game."""
    params = env.default_params
    return dataclasses.replace(params, penalty=settings.penalty) if isinstance(env, ClimbingGame) else params


def _with_critic(preset: Preset, sees: Any) -> jaxrl.Algorithm:
    return preset._replace(config=dataclasses.replace(preset.config, critic_sees=sees)).algo


def _figure(
    returns: dict[str, dict[str, np.ndarray]], steps: dict[str, np.ndarray], optima: dict[str, float | None]
) -> matplotlib.figure.Figure:
    """Interquartile means over training with pointwise intervals, a plot per task."""
    from matplotlib.figure import Figure

    from jaxrl import plotting

    figure = Figure(figsize=(3.4 * len(returns) + 0.6, 3.0), layout="constrained")
    axes = figure.subplots(1, len(returns), squeeze=False)[0]
    for ax, (task, of_critic) in zip(axes, returns.items(), strict=True):
        for colour, (name, values) in zip(plotting.COLOURS, of_critic.items(), strict=False):
            mean_curve(ax, steps[task], values, colour, name)
        best = optima[task]
        if best is not None:
            ax.axhline(best, color="0.5", linewidth=0.8, linestyle="--", label="optimum")
        ax.set_title(task, fontsize=9)
        plain_axes(ax)
        ax.set_xlabel("environment steps")
    axes[0].set_ylabel("return of an agent")
    axes[0].legend(frameon=False)
    return figure


STUDY = Study(
    "centralised-critic",
    "Several agents with critics of their own observations (IPPO) and with a centralised critic (MAPPO).",
    Settings,
    run,
)
