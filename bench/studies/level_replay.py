"""Prioritised level replay beside domain randomisation: rates at which policies solve levels that training never saw.

All agents draw parameters of their world and the start of each episode. One plays new levels alone; the others play
some again, by the positive value loss or by the highest return less the value. They differ in nothing else.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

import envs
import jaxrl
from bench.studies.frames import improvement, interval
from bench.studies.study import Study, StudyRun
from envs import wrappers
from jaxrl.algorithms.contract import Algorithm
from jaxrl.checks import check_choices, check_counts
from jaxrl.results.statistics import iqm

if TYPE_CHECKING:
    import pandas
    import xarray

DRAWS = "draws"
CROWD = "crowd/corridor"
LEVELS = (DRAWS, "positive-value-loss", "max-return")
REACHED = {"maze": 1.0, "cartpole": 475.0}  # return of a solved level; of a crowd, people who arrive count
HELD_OUT = 20_000  # seed of the levels that no training draws
DRAWN: dict[str, dict[str, Any]] = {
    "maze": {"wall_share": jaxrl.Uniform(0.0, 0.6)},
    "cartpole": {"length": jaxrl.LogUniform(0.125, 2.0), "masspole": jaxrl.LogUniform(0.025, 0.4)},
    CROWD: {"num_present": jaxrl.Choice([4, 8, 12, 16, 20]), "max_speed": jaxrl.Uniform(1.0, 2.0)},
}
EVALUATED: dict[str, dict[str, list[float]]] = {
    "maze": {"wall_share": [0.15, 0.3, 0.45]},
    "cartpole": {"length": [0.125, 0.25, 0.5, 1.0, 2.0], "masspole": [0.025, 0.1, 0.4]},
    CROWD: {"num_present": [4.0, 12.0, 20.0], "max_speed": [1.0, 1.5, 2.0]},
}
NUM_AGENTS = 20  # of the largest crowd

__all__ = ["STUDY", "Settings", "agent", "solve_rates", "table"]


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the study: tasks, kinds of levels, lengths of training and evaluation."""

    tasks: tuple[str, ...] = ("maze", "cartpole", CROWD)
    """Tasks: mazes, whose walls and wall shares are drawn; a pole whose length and mass are drawn; and two streams of
    people in a corridor, whose number and largest speed are drawn."""
    levels: tuple[str, ...] = LEVELS
    """Values of `levels`; the first is what the others are compared with."""
    num_levels: int = 4000
    """Number of levels of mazes and poles that are kept to be played again."""
    num_crowd_levels: int = 50
    """Number of levels of crowds that are kept to be played again."""
    seeds: int = 16
    """Number of seeds of every agent; equal seeds share their keys."""
    maze_env_steps: int = 500_000
    """Number of environment steps of a run in mazes."""
    cartpole_env_steps: int = 200_000
    """Number of environment steps of a run of the pole."""
    crowd_env_steps: int = 20_000
    """Number of environment steps of a run in the corridor, of all people at once."""
    eval_episodes: int = 200
    """Number of held-out levels for each wall share; a tenth of it for each pole, and a twenty-fifth for
    each crowd."""

    def __post_init__(self) -> None:
        check_choices("tasks", self.tasks, tuple(DRAWN))
        check_choices("levels", self.levels, LEVELS)
        least = {"num_levels": 1, "num_crowd_levels": 1, "seeds": 2, "eval_episodes": 25}
        check_counts(self, **least, maze_env_steps=1, cartpole_env_steps=1, crowd_env_steps=1)


def run(settings: Settings, study: StudyRun) -> None:
    """Train every agent on every task, evaluate it on the held-out levels, and write a table."""
    rows: dict[tuple[str, str], dict[str, np.ndarray]] = {}
    lengths = {
        "maze": settings.maze_env_steps,
        "cartpole": settings.cartpole_env_steps,
        CROWD: settings.crowd_env_steps,
    }
    for task in settings.tasks:
        for levels in settings.levels:
            algo, part = agent(task, levels, settings), f"{task.replace('/', '_')}_{levels}"
            env_steps = lengths[task]
            result = study.train(part, algo, seeds=settings.seeds, env_steps=env_steps, evals=1, eval_episodes=1)
            episodes = study.compute(
                f"{part}_held_out", lambda result=result, task=task: on_held_out_levels(result, task, settings)
            )
            rows[task, levels] = solve_rates(episodes, task)
    caption = (
        f"Rates at which held-out levels are solved, the mean over them, by greedy actions and by sampled ones: mazes "
        f"with a way to the goal, {settings.eval_episodes} of each wall share with or without one, and poles of which "
        f"an episode reaches a return of 475, {settings.eval_episodes // 10} episodes each; and people in a corridor "
        f"who arrive, {settings.eval_episodes // 25} episodes for each number and speed of them. Interquartile means "
        f"of {settings.seeds} seeds with 95 % intervals, and the probability of a higher rate than with {DRAWS}. "
        f"Environment steps: {settings.maze_env_steps:,} in mazes, {settings.cartpole_env_steps:,} of poles, "
        f"{settings.crowd_env_steps:,} of crowds."
    )
    study.table("solve_rates", table(rows), caption)


def agent(task: str, levels: str, settings: Settings) -> Algorithm:
    """PPO on a task whose parameters are drawn, with these levels."""
    count = settings.num_crowd_levels if task == CROWD else settings.num_levels
    again: dict[str, Any] = {} if levels == DRAWS else {"levels": levels, "num_levels": count}
    env = wrappers.randomise(world(task), DRAWN[task])
    if task != "maze":
        if task == CROWD:  # returns of different iterations are compared, so no agent normalises rewards
            again["normalise_reward"] = False
        preset = jaxrl.preset("ppo", task)
        return preset._replace(config=dataclasses.replace(preset.config, **again)).on(env)
    sizes = {"num_envs": 16, "num_steps": 64, "num_epochs": 3, "num_minibatches": 4, "reset_pool": 16}
    algo = jaxrl.ppo(env, jaxrl.PPOConfig(**sizes, hidden=(64, 64), **again))
    return algo._replace(hparams=algo.hparams.replace(lr=7e-4, discount=0.97))


def world(task: str) -> envs.Environment:
    """The environment of a task, without draws."""
    return envs.make(task, num_agents=NUM_AGENTS, reward="straight") if task == CROWD else envs.make(task)


def on_held_out_levels(result: jaxrl.Result, task: str, settings: Settings) -> xarray.Dataset:
    """Episodes of every run on the same levels, which no training drew."""
    count = settings.eval_episodes // {"maze": 1, "cartpole": 10, CROWD: 25}[task]
    return jaxrl.evaluate(result, world(task), count, jax.random.key(HELD_OUT), env_params=EVALUATED[task])


def solve_rates(episodes: xarray.Dataset, task: str) -> dict[str, np.ndarray]:
    """Share of the held-out levels that each run solves, `{"greedy": [seeds], "sampled": [seeds]}`; NaN if it failed.

    Of a crowd it is the share of people who arrive.

    Args:
      episodes: Episodes of `jaxrl.evaluate`, with the dims of parameters, `seed` and `episode`.
      task: Name of the task. Of mazes, those with a way to the goal count.
    """
    rates = {}
    for kind, suffix in (("greedy", ""), ("sampled", "_sampled")):
        returns = episodes[f"return{suffix}"].transpose("seed", ..., "episode").values
        counts = np.ones(returns.shape, bool)
        if task == "maze":
            counts = episodes[f"solvable{suffix}"].transpose("seed", ..., "episode").values > 0
        if task == CROWD:
            solved = episodes[f"success{suffix}"].transpose("seed", ..., "episode").values
        else:
            solved = counts & (returns >= REACHED[task])
        share = solved.sum(-1) / np.maximum(counts.sum(-1), 1)
        failed = ~np.isfinite(returns.reshape(len(returns), -1)).all(-1)
        rates[kind] = np.where(failed, np.nan, share.reshape(len(returns), -1).mean(-1))
    return rates


def table(rows: dict[tuple[str, str], dict[str, np.ndarray]]) -> pandas.DataFrame:
    """A row for each task and kind of levels, compared with the first kind of the task.

    Args:
      rows: Solve rates of the runs by task and levels, `{kind: [seeds]}`; NaN for a failed run.
    """
    import pandas

    lines = []
    baselines: dict[str, dict[str, np.ndarray]] = {}
    for (task, levels), rates in rows.items():
        baseline = baselines.setdefault(task, rates)
        line: dict[str, Any] = {"task": task, "levels": levels}
        for kind, values in rates.items():
            line[kind] = interval(iqm, values[np.isfinite(values)], 3)
        for kind, values in rates.items():
            line[f"P(better {kind})"] = "" if baseline is rates else improvement(values, baseline[kind])
        lines.append(line | {"failed": int(np.sum(~np.isfinite(rates["greedy"])))})
    return pandas.DataFrame(lines)


STUDY = Study(
    "level-replay",
    "Mazes and poles that vary: new levels alone, or some played again by what there is to learn from them.",
    Settings,
    run,
)
