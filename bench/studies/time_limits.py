"""Effect of the treatment of time limits: DQN on Pendulum with discretised actions, whose episodes never terminate.

The limit is not part of the task, and the observation does not have the time. All policies are evaluated under the same
limit, the longest one.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

import envs
import jaxrl
from bench.studies.frames import MISSING, improvement, interval
from bench.studies.study import Study, StudyRun
from envs import wrappers
from envs.errors import UserValueError
from jaxrl.algorithms.contract import Algorithm
from jaxrl.algorithms.dqn import DQNConfig, dqn
from jaxrl.checks import check_counts
from jaxrl.results.statistics import iqm, mean

if TYPE_CHECKING:
    import pandas

BOOTSTRAP, TERMINAL = "bootstrap", "terminal"
CONFIG = DQNConfig(
    num_envs=4,
    num_steps=4,
    num_updates=8,
    batch_size=128,
    buffer_size=20_480,
    prefill=512,
    value_loss="squared",
    target_update="soft",
)
HPARAMS: dict[str, Any] = {
    "lr": 1e-3,
    "discount": jaxrl.Exponential(0.98),
    "target_rate": 0.01,
    "epsilon_anneal_env_steps": 5_000.0,
}

__all__ = ["STUDY", "Settings", "agent", "table"]


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the study: time limits, actions and lengths of training."""

    limits: tuple[int, ...] = (50, 200)
    """Time limits of training, in steps; the longest is that of the evaluation."""
    actions: int = 5
    """Number of torques, evenly spaced."""
    seeds: int = 16
    """Number of seeds of every setting; equal seeds share their keys."""
    env_steps: int = 19_968
    """Number of environment steps of a run."""
    eval_episodes: int = 256
    """Number of whole episodes of the evaluation at the end, played greedily."""

    def __post_init__(self) -> None:
        if not self.limits or len(set(self.limits)) < len(self.limits) or min(self.limits) < 1:
            raise UserValueError(
                f"limits takes one or more different whole numbers of at least 1, got {self.limits or 'none'}"
            )
        check_counts(self, actions=2, seeds=2, env_steps=1, eval_episodes=1)


def run(settings: Settings, study: StudyRun) -> None:
    """Train with either treatment under every limit, evaluate under the longest, and write a table."""
    returns: dict[str, np.ndarray] = {}
    for treatment in (BOOTSTRAP, TERMINAL):
        algo = agent(treatment, settings)
        result = study.train(
            treatment,
            algo,
            jaxrl.grid(algo.hparams, {"env.max_steps_in_episode": list(settings.limits)}),
            seeds=settings.seeds,
            env_steps=settings.env_steps,
            evals=1,
            eval_episodes=1,
        )
        longest = np.full(len(settings.limits), max(settings.limits), np.int32)
        same = dataclasses.replace(result, env_params=result.env_params.replace(max_steps_in_episode=longest))
        part = f"{treatment}_evaluated"
        metrics = study.compute(part, lambda same=same: jaxrl.evaluate_result(same, settings.eval_episodes).metrics)
        evaluated = metrics["return"].transpose("env.max_steps_in_episode", "seed", "env_step")
        returns[treatment] = evaluated.values[..., -1].astype(np.float64)
    caption = (
        f"DQN on Pendulum with {settings.actions} torques, {settings.env_steps:,} environment steps, {settings.seeds} "
        f"seeds: greedy return over {max(settings.limits)} steps, {settings.eval_episodes} episodes of each seed, "
        "after training under several time limits. Interquartile mean with the 95 % bootstrap interval, mean, "
        "and the probability that bootstrapping at the limit returns more."
    )
    study.table("returns", table(returns, settings), caption)


def agent(treatment: str, settings: Settings) -> Algorithm:
    """DQN with a treatment of time limits, with its hyper-parameters."""
    env = wrappers.discretise_actions(envs.make("pendulum"), settings.actions)
    algo = dqn(env, dataclasses.replace(CONFIG, time_limits=treatment))
    return algo._replace(hparams=dataclasses.replace(algo.hparams, **HPARAMS))


def table(returns: dict[str, np.ndarray], settings: Settings) -> pandas.DataFrame:
    """A row for each limit.

    Args:
      returns: Returns at the end by treatment, `[limits, seeds]`; nan for a failed run, which ranks below all others.
      settings: Settings, whose limits label the first axis.
    """
    import pandas

    rows = []
    for index, limit in enumerate(settings.limits):
        row: dict[str, Any] = {"limit": limit}
        failed = 0
        for treatment, values in returns.items():
            good = values[index][np.isfinite(values[index])]
            failed += values[index].size - good.size
            row[f"{treatment}: IQM"] = interval(iqm, good, 1)
            row[f"{treatment}: mean"] = f"{float(mean(good)):.1f}" if good.size else MISSING
        row["P(bootstrap > terminal)"] = improvement(returns[BOOTSTRAP][index], returns[TERMINAL][index])
        rows.append(row | {"failed": failed})
    return pandas.DataFrame(rows)


STUDY = Study(
    "time-limits",
    "DQN that bootstraps at time limits or treats them as terminations, on Pendulum with discretised actions.",
    Settings,
    run,
)
