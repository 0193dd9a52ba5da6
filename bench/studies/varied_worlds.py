"""Hidden masses and lengths: training with drawn parameters or usual ones, critics that see them, and memories.

A policy never sees mass and length. All policies are evaluated without draws, on every combination of some factors of
the usual mass and length: on the usual ones, on those inside the range of the draws, and on those outside it.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import envs
import jaxrl
from bench.studies.frames import improvement, interval
from bench.studies.study import Study, StudyRun
from envs import wrappers
from envs.errors import UserValueError
from jaxrl.algorithms.contract import Algorithm
from jaxrl.checks import check_choices, check_counts
from jaxrl.results.statistics import iqm

if TYPE_CHECKING:
    import pandas
    import xarray

    from envs.base import Environment

PARAMETERS = {"cartpole": ("length", "masspole"), "pendulum": ("length", "mass")}
ALGORITHMS = ("ppo", "sac")
USUAL, DRAWN, SEEN = "usual", "drawn", "drawn, seen by the critic"
WHERE = ("usual", "inside", "outside")
# Values are in the tens and units of a GRU at most 1, hence a layer after it; and batches of 16 windows of 16 steps.
WITH_MEMORY: dict[tuple[str, str], dict[str, Any]] = {
    ("sac", "cartpole"): {"memory_hidden": (64,), "batch_size": 256, "num_updates": 16}
}

__all__ = ["STUDY", "Learner", "Settings", "agent", "critics", "learners", "returns_by_place", "table"]


class Learner(NamedTuple):
    """One of the compared ways to train.

    Attributes:
      algorithm: "ppo" or "sac".
      memory: "none" or "gru".
      trained: Parameters in training: "usual", "drawn" or "drawn, seen by the critic".
    """

    algorithm: str
    memory: str
    trained: str

    @property
    def part(self) -> str:
        """Name of its directory."""
        short = {USUAL: "usual", DRAWN: "drawn", SEEN: "seen"}[self.trained]
        return f"{self.algorithm}_{self.memory}_{short}"

    @property
    def text(self) -> str:
        """Its name in figures."""
        memory = "" if self.memory == "none" else f" with {self.memory}"
        return f"{self.algorithm}{memory}: {self.trained}"


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the study: tasks, algorithms, range of the draws, parameters of the evaluation."""

    tasks: tuple[str, ...] = ("cartpole", "pendulum")
    """Environments whose presets are trained."""
    algorithms: tuple[str, ...] = ALGORITHMS
    """Names of the algorithms, whose presets are trained."""
    memories: tuple[str, ...] = ("none", "gru")
    """Memories of the policies."""
    factor: float = 2.0
    """Mass and length are drawn log-uniformly between the usual value divided and multiplied by this factor."""
    factors: tuple[float, ...] = (0.25, 0.5, 0.7, 1.0, 1.4, 2.0, 4.0)
    """Factors of the usual mass and length of which every combination is evaluated; 1 among them."""
    seeds: int = 32
    """Number of seeds of every learner; equal seeds share their keys."""
    env_steps: int = 0
    """Number of environment steps of a run; 0 for the preset's."""
    eval_episodes: int = 16
    """Number of whole greedy episodes of each run for each combination."""

    def __post_init__(self) -> None:
        check_choices("tasks", self.tasks, tuple(PARAMETERS))
        check_choices("algorithms", self.algorithms, ALGORITHMS)
        check_choices("memories", self.memories, ("none", "gru"))
        check_counts(self, seeds=2, env_steps=0, eval_episodes=1)
        if not self.factor > 1:
            raise UserValueError(f"factor must be above 1, got {self.factor}")
        inside = [self._is_inside(factor) for factor in self.factors]
        if 1.0 not in self.factors or min(self.factors) <= 0 or sum(inside) < 2 or all(inside):
            raise UserValueError(
                f"factors takes 1, another number inside the range of the draws and one outside it, got {self.factors}"
            )

    def _is_inside(self, factor: float) -> bool:
        return 1 / self.factor <= factor <= self.factor

    def places(self) -> np.ndarray:
        """Place of every combination, "inside" or "outside", `[factors, factors]`; the usual one is inside."""
        inside = np.asarray([self._is_inside(factor) for factor in self.factors])
        return np.where(inside[:, None] & inside[None, :], "inside", "outside")


def learners(settings: Settings) -> list[Learner]:
    """The learners of a task; the first of each algorithm and memory is trained on the usual parameters."""
    return [
        Learner(algorithm, memory, trained)
        for algorithm in settings.algorithms
        for memory in settings.memories
        for trained in (USUAL, DRAWN, SEEN)
    ]


def run(settings: Settings, study: StudyRun) -> None:
    """Train every learner on every task, evaluate it on all combinations, and write tables and figures."""
    rows: dict[tuple[str, Learner], dict[str, np.ndarray]] = {}
    steps: dict[str, int] = {}
    for task in settings.tasks:
        episodes: dict[str, xarray.Dataset] = {}
        for learner in learners(settings):
            algo = agent(task, learner, settings)
            env_steps = settings.env_steps or jaxrl.preset(learner.algorithm, task).env_steps
            part = f"{task}_{learner.part}"
            result = study.train(part, algo, seeds=settings.seeds, env_steps=env_steps, evals=1, eval_episodes=1)
            evaluated = study.compute(
                f"{part}_evaluated", lambda result=result, task=task: on_all_combinations(result, task, settings)
            )
            steps[f"{learner.algorithm} {task}"] = int(result.metrics["env_step"].values[-1])
            rows[task, learner] = returns_by_place(evaluated["return"], settings)
            episodes[learner.text] = evaluated
        study.figure(f"{task}_returns", jaxrl.plotting.heat_map(episodes))
    ends = ", ".join(f"{name} {count:,}" for name, count in steps.items())
    caption = (
        f"Greedy return under the usual mass and length, inside the range of the draws (factors up to "
        f"{settings.factor:g} either way) and outside it (up to {max(settings.factors):g}), the mean over combinations "
        f"of factors, {settings.eval_episodes} episodes each. Interquartile means of {settings.seeds} seeds with 95 % "
        "intervals, and the probability of a higher return than by training on the usual parameters. Environment "
        f"steps: {ends}."
    )
    study.table("returns", table(rows), caption)
    caption = "Probability that a critic that sees the draw leads to a higher return than one that does not."
    study.table("critics", critics(rows), caption)


def agent(task: str, learner: Learner, settings: Settings) -> Algorithm:
    """The preset of an algorithm on a task, with a memory, for which some fields change, and drawn parameters."""
    preset = jaxrl.preset(learner.algorithm, task)
    fields: dict[str, Any] = {}
    if learner.memory != "none":
        fields = {"memory": learner.memory, **WITH_MEMORY.get((learner.algorithm, task), {})}
    if learner.trained == SEEN:
        fields["critic_sees"] = "privileged"
    preset = preset._replace(config=dataclasses.replace(preset.config, **fields))
    return preset.on(_environment(task, learner, settings))


def _environment(task: str, learner: Learner, settings: Settings) -> Environment:
    env = envs.make(task)
    if learner.trained == USUAL:
        return env
    usual = {name: float(getattr(env.default_params, name)) for name in PARAMETERS[task]}
    ranges = {name: jaxrl.LogUniform(value / settings.factor, value * settings.factor) for name, value in usual.items()}
    return wrappers.randomise(env, ranges)


def on_all_combinations(result: jaxrl.Result, task: str, settings: Settings) -> xarray.Dataset:
    """Episodes of every run under every combination of the factors, without draws."""
    env = envs.make(task)
    values = {
        name: [factor * float(getattr(env.default_params, name)) for factor in settings.factors]
        for name in PARAMETERS[task]
    }
    return jaxrl.evaluate(result, env, settings.eval_episodes, env_params=values)[["return"]]


def returns_by_place(episodes: xarray.DataArray, settings: Settings) -> dict[str, np.ndarray]:
    """Mean return of each run under the usual parameters, inside and outside the range, `{place: [seeds]}`.

    Args:
      episodes: Returns with the axes of the two parameters, `seed` and `episode`; nan for a failed run.
      settings: Settings, whose factors are the values along either axis of parameters.
    """
    values = episodes.mean("episode", skipna=False).transpose("seed", ...).values.astype(np.float64)
    places, usual = settings.places(), settings.factors.index(1.0)
    means = {place: values[:, places == place].mean(axis=1) for place in ("inside", "outside")}
    return {"usual": values[:, usual, usual], **means}


def table(rows: dict[tuple[str, Learner], dict[str, np.ndarray]]) -> pandas.DataFrame:
    """A row for each task and learner, compared with training on the usual parameters.

    Args:
      rows: Returns of the runs by task and learner, `{place: [seeds]}`; nan for a failed run.
    """
    import pandas

    lines = []
    for (task, learner), returns in rows.items():
        usual = rows[task, learner._replace(trained=USUAL)]
        line: dict[str, Any] = {"task": task, "algorithm": learner.algorithm, "memory": learner.memory}
        line["parameters"] = learner.trained
        env = envs.make(task)
        limits = env.return_range(env.default_params)
        for place in WHERE:
            line[place] = interval(iqm, returns[place][np.isfinite(returns[place])], 1, limits)
        for place in WHERE:
            line[f"P(better {place})"] = "" if learner.trained == USUAL else improvement(returns[place], usual[place])
        failed = int(np.sum(~np.isfinite(returns["usual"])))
        lines.append(line | {"failed": failed})
    return pandas.DataFrame(lines)


def critics(rows: dict[tuple[str, Learner], dict[str, np.ndarray]]) -> pandas.DataFrame:
    """A row for each task, algorithm and memory: critics that see the draw compared with critics that do not.

    Args:
      rows: Returns of the runs by task and learner, `{place: [seeds]}`; nan for a failed run.
    """
    import pandas

    lines = []
    for (task, learner), seen in rows.items():
        if learner.trained == SEEN:
            drawn = rows[task, learner._replace(trained=DRAWN)]
            line = {"task": task, "algorithm": learner.algorithm, "memory": learner.memory}
            lines.append(line | {place: improvement(seen[place], drawn[place]) for place in WHERE})
    return pandas.DataFrame(lines)


STUDY = Study(
    "varied-worlds",
    "Hidden masses and lengths of CartPole and Pendulum: drawn in training or not, critics that see them, memories.",
    Settings,
    run,
)
