"""Which memory for which task: PPO with every kind of memory, and without one, on tasks that require one.

All kinds have equal networks apart from the memory, an equal number of units, which are one number or two by kind, and
an equal number of environment steps. For each, a step size is chosen by a few seeds, and the returns are those of
others. A transformer attends to the steps of its window alone, which is shorter than some episodes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

import envs
import jaxrl
from bench.studies.frames import MISSING, interval
from bench.studies.study import Study, StudyRun
from envs.errors import UserValueError
from jaxrl.algorithms.contract import Algorithm
from jaxrl.algorithms.ppo import PPOConfig
from jaxrl.checks import check_choices, check_counts
from jaxrl.results.statistics import iqm

TASKS = (
    "memory/bandit",
    "memory/t-maze",
    "memory/repeat-first",
    "memory/chain",
    "memory/cartpole",
    "memory/delayed-match",
    "memory/count-recall",
)
KINDS = ("none", "mingru", "lru", "s5", "gru", "lstm", "gtrxl")
FIRST_TUNING_SEED = 1_000_000
SOLVED = 0.9  # of the way from the best policy without a memory to the optimum
# Episodes of the evaluation of a run where returns vary much: on the bandit, the optimum is 0.15 standard deviations of
# an episode above the best return without a memory, so that 8,192 leave a standard error of 0.07 of that distance.
EPISODES = {"memory/bandit": 8192}
CARTPOLE_TARGET = 475.0
CONFIG = PPOConfig(
    num_envs=16,
    num_steps=64,
    num_epochs=4,
    num_minibatches=4,
    hidden=(32,),
    normalise_observation=True,
    reset_pool=8,
)

__all__ = ["CONFIG", "KINDS", "STUDY", "TASKS", "Settings", "agent", "chosen", "row"]


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the study: tasks, memories, seeds and lengths of training."""

    tasks: tuple[str, ...] = TASKS[:5]
    """Tasks."""
    memories: tuple[str, ...] = KINDS
    """Kinds of memory; "none" for networks without one."""
    memory_size: int = 32
    """Number of units of a memory."""
    window: int = 24
    """Number of steps that a transformer attends to, itself included."""
    step_sizes: tuple[float, ...] = (3e-4, 1e-3, 3e-3)
    """Step sizes, of which one is chosen for each task and memory."""
    tuning_seeds: int = 4
    """Number of seeds of each step size, by which one is chosen."""
    seeds: int = 16
    """Number of other seeds, whose returns are reported."""
    env_steps: int = 200_704
    """Number of environment steps of a run."""
    eval_episodes: int = 128
    """Number of whole episodes of the evaluation at the end, played greedily; more on the bandit."""

    def __post_init__(self) -> None:
        check_choices("tasks", self.tasks, TASKS)
        check_choices("memories", self.memories, KINDS)
        check_counts(self, memory_size=1, window=2, tuning_seeds=1, seeds=2, env_steps=1, eval_episodes=1)
        if not self.step_sizes or min(self.step_sizes) <= 0:
            raise UserValueError(f"step_sizes takes one or more numbers above 0, got {self.step_sizes or 'none'}")


def run(settings: Settings, study: StudyRun) -> None:
    """Train with every memory on every task, and write a table."""
    import pandas

    agents = {(task, kind): agent(task, kind, settings) for task in settings.tasks for kind in settings.memories}
    rows = []
    for (task, kind), algo in agents.items():
        part = f"{task.removeprefix('memory/')}_{kind}"
        options: dict[str, Any] = {
            "env_steps": settings.env_steps,
            "evals": 1,
            "eval_episodes": EPISODES.get(task, settings.eval_episodes),
        }
        tuning = study.train(
            f"{part}_tuning",
            algo,
            jaxrl.grid(algo.hparams, {"lr": list(settings.step_sizes)}),
            seeds=range(FIRST_TUNING_SEED, FIRST_TUNING_SEED + settings.tuning_seeds),
            **options,
        )
        lr = chosen(settings.step_sizes, tuning.values("return")[..., -1], part)
        result = study.train(part, algo, algo.hparams.replace(lr=lr), seeds=settings.seeds, **options)
        rows.append({"task": task, "memory": kind, "lr": lr} | row(task, result.values("return")[0, :, -1]))
    table = pandas.DataFrame(rows)
    caption = (
        f"PPO with {settings.memory_size} units of memory, or a window of {settings.window} steps, "
        f"{settings.env_steps:,} environment steps, {settings.seeds} seeds: greedy return over "
        f"{settings.eval_episodes} episodes of each seed, {EPISODES['memory/bandit']:,} on the bandit; its "
        "interquartile mean over the seeds that did not fail with the 95 % bootstrap interval; gain, 0 for the best "
        "policy without a memory and 1 for the optimum; and seeds with "
        f"a gain of at least {SOLVED}, or on CartPole a return of at least {CARTPOLE_TARGET:g}."
    )
    study.table("memories", table, caption)


def chosen(step_sizes: Sequence[float], returns: np.ndarray, part: str) -> float:
    """The step size with the highest mean return, of those without a failed run.

    Args:
      step_sizes: Step sizes.
      returns: Returns at the end, `[step sizes, seeds]`; nan for a failed run.
      part: Name of the training, for errors.

    Raises:
      ValueError: Every step size has a failed run.
    """
    means = np.where(np.isfinite(returns).all(axis=1), returns.mean(axis=1), -np.inf)
    if not np.isfinite(means).any():
        raise UserValueError(f"step_sizes takes one with which no run of {part} fails, got {tuple(step_sizes)}")
    return step_sizes[int(means.argmax())]


def agent(task: str, kind: str, settings: Settings) -> Algorithm:
    """PPO with a memory on a task.

    Args:
      task: Name of the task.
      kind: Kind of memory, or "none".
      settings: Settings of the study.
    """
    fields: dict[str, Any] = {}
    if kind != "none":
        fields = {"memory": kind, "memory_size": settings.memory_size}
    if kind == "gtrxl":
        fields["memory_window"] = settings.window
    algo = jaxrl.ppo(envs.make(task), dataclasses.replace(CONFIG, **fields))
    return algo._replace(hparams=algo.hparams.replace(lr_end=0.0))


def row(task: str, values: np.ndarray) -> dict[str, Any]:
    """The estimates of a table's row.

    Args:
      task: Name of the task.
      values: Returns at the end, `[seeds]`; nan for a failed run, which does not count as solved.
    """
    env = envs.make(task)
    good = values[np.isfinite(values)]
    cells: dict[str, Any] = {
        "seeds": values.size,
        "failed": values.size - good.size,
        "IQM": interval(iqm, good, 3 if task != "memory/cartpole" else 1),
    }
    best, without = env.optimum(), env.optimum(kind="stationary")
    if best is None or without is None:  # of CartPole without velocities
        return cells | {"gain": MISSING, "solved": int(np.sum(good >= CARTPOLE_TARGET))}
    gains = (values - without) / (best - without)
    gain = f"{float(iqm(gains[np.isfinite(gains)])):.2f}" if good.size > 1 else MISSING
    return cells | {"gain": gain, "solved": int(np.sum(gains >= SOLVED))}


STUDY = Study(
    "memories",
    "PPO with every kind of memory, and without one, on tasks that require one.",
    Settings,
    run,
)
