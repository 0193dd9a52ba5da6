"""Discounts that an outer loop learns, beside the best ones of three families by searches of as many trainings."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import envs
import jaxrl
from bench.studies.frames import MISSING, interval
from bench.studies.study import Study, StudyRun, require_whole
from envs.decision.random_dilemmas import RandomDilemmas, RandomDilemmasParams
from envs.errors import UserValueError
from jaxrl.algorithms.contract import Algorithm
from jaxrl.checks import check_choices, check_counts
from jaxrl.learning.rollout import longest_episode
from jaxrl.results.statistics import iqm, mean

if TYPE_CHECKING:
    import matplotlib.figure
    import pandas
    import xarray

__all__ = ["STUDY", "Settings", "ShortDilemmas"]

HYPERBOLIC = jaxrl.Hyperbolic(0.1)  # the chance to survive a hazard that is distributed exponentially with mean 0.1
TEST_SEEDS = 1_000_000  # first of them
# Of logits of weights and of logarithms of hazards: of the order of what changes a curve visibly.
STD, LR = 1.0, 0.3


class ShortDilemmas(RandomDilemmas):
    """Random dilemmas with delays below 32 steps."""

    @property
    def default_params(self) -> RandomDilemmasParams:
        return RandomDilemmasParams(max_delay=32, max_steps_in_episode=32)


class Task(NamedTuple):
    """A task of the study.

    Attributes:
      env: Function that makes the environment.
      config: Configuration of PPO.
      hparams: Hyper-parameters of PPO that differ from its defaults.
      inner_steps: Number of environment steps of a training.
      objective: Objective of a training.
      discount: Discount by which the objective values rewards; None for none.
      eval_episodes: Number of episodes of an evaluation.
    """

    env: Callable[[], Any]
    config: jaxrl.PPOConfig
    hparams: dict[str, Any]
    inner_steps: int
    objective: str
    discount: Any
    eval_episodes: int

    @property
    def algo(self) -> Algorithm:
        """PPO on the task."""
        algo = jaxrl.ppo(self.env(), self.config)
        return algo._replace(hparams=dataclasses.replace(algo.hparams, **self.hparams))


_CHOICE = jaxrl.PPOConfig(num_envs=16, num_steps=64, hidden=(32,))
_CONTROL = jaxrl.PPOConfig(num_envs=8, num_steps=64)
# As in the preset: without normalisation PPO does not reach the goal.
_CLIMB = jaxrl.PPOConfig(
    num_envs=16, num_steps=64, num_epochs=4, num_minibatches=4, normalise_observation=True, normalise_reward=True
)
TASKS: dict[str, Task] = {
    "random-dilemmas": Task(ShortDilemmas, _CHOICE, {"lr": 3e-3}, 16_384, "final", HYPERBOLIC, 32),
    "cartpole": Task(lambda: envs.make("cartpole"), _CONTROL, {"lr": 1e-3}, 32_768, "area", None, 4),
    "acrobot": Task(lambda: envs.make("acrobot"), _CONTROL, {"lr": 1e-3}, 32_768, "area", None, 4),
    "mountain-car": Task(lambda: envs.make("mountain-car"), _CLIMB, {"lr": 8e-3, "lam": 0.9}, 32_768, "area", None, 4),
    "delayed-choice": Task(lambda: envs.make("delayed-choice"), _CHOICE, {"lr": 3e-3}, 4_096, "area", None, 4),
}
FAMILIES: dict[str, Callable[[np.random.Generator], Any]] = {
    "exponential": lambda generator: jaxrl.Exponential(1 - _log_uniform(generator, 1e-3, 0.5)),
    "hyperbolic": lambda generator: jaxrl.Hyperbolic(_log_uniform(generator, 1e-3, 1.0)),
    "Beta": lambda generator: jaxrl.BetaWeighted(
        1 - _log_uniform(generator, 1e-3, 0.5), _log_uniform(generator, 0.03, 3.0)
    ),
}


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the study: tasks, and the number of trainings."""

    tasks: tuple[str, ...] = tuple(TASKS)
    """Tasks, each with its own number of environment steps."""
    forms: tuple[str, ...] = ("mixture", "curve")
    """Forms of the learned discount."""
    seeds: int = 5
    """Number of outer seeds: repetitions of the outer loop and of the searches."""
    generations: int = 20
    """Number of generations of the outer loop."""
    population: int = 16
    """Number of thetas of a generation."""
    settings_seeds: int = 4
    """Number of trainings of each discount of a search, which has generations x population trainings in all."""
    test_seeds: int = 32
    """Number of test seeds of each discount."""
    evals: int = 4
    """Number of evaluations of a training for the area."""

    def __post_init__(self) -> None:
        check_choices("tasks", self.tasks, tuple(TASKS))
        check_choices("forms", self.forms, ("mixture", "curve"))
        check_counts(self, seeds=2, generations=1, population=2, settings_seeds=1, test_seeds=2, evals=2)
        if self.settings_seeds > (trainings := self.generations * self.population):
            raise UserValueError(
                f"settings_seeds must be at most generations x population, {trainings}, got {self.settings_seeds}"
            )


def run(settings: Settings, study: StudyRun) -> None:
    """Learn and search discounts on every task, then write a table and a figure for each."""
    for name in settings.tasks:
        values: dict[str, np.ndarray] = {}
        curves: dict[str, np.ndarray] = {}
        for form in settings.forms:
            data = study.compute(f"{name}_{form}", functools.partial(_learned, name, form, settings, study.progress))
            values["start"] = data["start"].values
            values[f"learned, {form}"], curves[f"learned, {form}"] = data["value"].values, data["curve"].values
        for family in FAMILIES:
            search = functools.partial(_searched, name, family, settings, study.progress)
            data = study.compute(f"{name}_{family}", search)
            values[f"searched, {family}"], curves[f"searched, {family}"] = data["value"].values, data["curve"].values
        task = TASKS[name]
        what = "final return" if task.objective == "final" else "mean return over a training"
        under = "" if task.discount is None else f" under {task.discount}"
        study.table(
            name,
            table(values, _optimum(task)),
            f"{name}: {what}{under} on {settings.test_seeds} test seeds; mean over {settings.seeds} outer seeds of the "
            "interquartile mean, with 95 % intervals over outer seeds. Each outer seed has "
            f"{settings.generations * settings.population} inner trainings of {task.inner_steps:,} environment steps.",
        )
        study.figure(name, figure(name, curves))


def table(values: dict[str, np.ndarray], optimum: float | None) -> pandas.DataFrame:
    """A row for each way to a discount, without the runs that failed, whose numbers are a column if there are any.

    Args:
      values: Objectives on test seeds by the way, `[outer_seeds, test_seeds]`; of the start `[test_seeds]`.
      optimum: Best possible value, None where it is not known.
    """
    import pandas

    rows, failed = [], []
    for way, runs in values.items():
        good = [seed[np.isfinite(seed)] for seed in np.atleast_2d(runs)]
        each = np.asarray([float(iqm(seed)) for seed in good if seed.size])
        row: dict[str, Any] = {"discount": way}
        row["value"] = interval(iqm, good[0], 3) if way == "start" else interval(mean, each, 3)
        if optimum is not None:
            row["gap to the optimum, %"] = f"{100 * (1 - each.mean() / optimum):.2f}" if each.size else MISSING
        rows.append(row)
        failed.append(runs.size - sum(seed.size for seed in good))
    return pandas.DataFrame(rows).assign(**{"failed": failed} if any(failed) else {})


def figure(name: str, curves: dict[str, np.ndarray]) -> matplotlib.figure.Figure:
    """The discounts of all ways by their delay, one line for each outer seed.

    Args:
      name: Name of the task.
      curves: Discounts by the way, `[outer_seeds, horizon + 1]`.
    """
    from matplotlib.figure import Figure

    from jaxrl import plotting

    figure = Figure(figsize=(7.2, 3.8), layout="constrained")
    ax = figure.subplots()
    for i, (way, each) in enumerate(curves.items()):
        colour, style = (kinds[i % len(kinds)] for kinds in (plotting.COLOURS, plotting.LINE_STYLES))
        for seed, curve in enumerate(each):
            ax.plot(curve, color=colour, linestyle=style, linewidth=1.2, label=way if seed == 0 else None)
    if TASKS[name].discount is not None:
        horizon = next(iter(curves.values())).shape[1] - 1
        ax.plot(np.asarray(TASKS[name].discount.curve(horizon)), color="black", linewidth=2.4, label="of the objective")
    ax.set_xlabel("delay, in steps")
    ax.set_ylabel("weight of a reward")
    ax.set_ylim(0, 1.02)
    ax.legend(frameon=False)
    return figure


def _learned(name: str, form: Any, settings: Settings, progress: bool) -> xarray.Dataset:
    task, algo = TASKS[name], TASKS[name].algo
    # A curve has numbers up to the time limit, of which a rollout reads those at delays below its length.
    theta = jaxrl.learned_discount(algo, form, horizon=max(longest_episode(algo.env), algo.config.num_steps))
    learned = jaxrl.meta(
        algo,
        theta,
        inner_steps=task.inner_steps,
        generations=settings.generations,
        population=settings.population,
        std=STD,
        lr=LR,
        objective=task.objective,
        discount=task.discount,
        evals=1 if task.objective == "final" else settings.evals,
        eval_episodes=task.eval_episodes,
        seeds=settings.seeds,
        test_seeds=0,
        progress=progress,
    )
    require_whole(learned.stopped_by_signal)
    discounts = [theta.apply(learned.learned(seed), algo.hparams).discount for seed in learned.result.seeds]
    tested = _tested(name, [theta.apply(theta.initial, algo.hparams).discount, *discounts], settings, progress)
    return _dataset(tested[1:], tested[0], discounts, algo)


def _searched(name: str, family: str, settings: Settings, progress: bool) -> xarray.Dataset:
    """The best of random discounts of a family, for each outer seed."""
    algo, chosen = TASKS[name].algo, []
    count = settings.generations * settings.population // settings.settings_seeds
    for seed in range(settings.seeds):
        generator = np.random.default_rng([seed, list(FAMILIES).index(family)])
        drawn = [FAMILIES[family](generator) for _ in range(count)]
        seeds = np.random.SeedSequence([seed, 1]).generate_state(settings.settings_seeds)
        scores = _scores(name, drawn, [int(each) for each in seeds], settings, progress).mean(axis=1)
        if np.isnan(scores).all():
            raise UserValueError(f"the search on {name} has no {family} discount whose trainings all succeeded")
        chosen.append(drawn[int(np.nanargmax(scores))])
    return _dataset(_tested(name, chosen, settings, progress), np.full(settings.test_seeds, np.nan), chosen, algo)


def _tested(name: str, discounts: list[Any], settings: Settings, progress: bool) -> np.ndarray:
    """Objectives of discounts on the test seeds, `[num_discounts, test_seeds]`."""
    return _scores(name, discounts, [TEST_SEEDS + i for i in range(settings.test_seeds)], settings, progress)


def _scores(name: str, discounts: list[Any], seeds: list[int], settings: Settings, progress: bool) -> np.ndarray:
    """Objectives of trainings, `[num_discounts, num_seeds]`; equal discounts are trained once."""
    task, algo = TASKS[name], _judged(name)
    different = {str(discount): discount for discount in discounts}
    result = jaxrl.train(
        algo,
        jaxrl.grid(algo.hparams, {"discount": list(different.values())}),
        seeds=seeds,
        env_steps=task.inner_steps,
        evals=1 if task.objective == "final" else settings.evals,
        eval_episodes=task.eval_episodes,
        progress=progress,
    )
    require_whole(result.metrics.attrs["stopped_by_signal"])
    values = result.values("return" if task.discount is None else "discounted_return").mean(axis=2)
    return values[[list(different).index(str(discount)) for discount in discounts]]


@functools.cache  # equal functions share compiled programs
def _judged(name: str) -> Algorithm:
    """The algorithm of a task, whose evaluations discount by the objective of the task."""
    task, algo = TASKS[name], TASKS[name].algo
    if task.discount is None:
        return algo
    fixed = algo.prepare(dataclasses.replace(algo.hparams, discount=task.discount)).discount
    return algo._replace(discount=lambda hparams: jax.tree.map(jnp.asarray, fixed))


def _dataset(value: np.ndarray, start: np.ndarray, discounts: list[Any], algo: Algorithm) -> xarray.Dataset:
    import xarray

    horizon = min(int(algo.env.default_params.max_steps_in_episode), 200)
    curves = np.stack([np.asarray(discount.curve(horizon)) for discount in discounts])
    return xarray.Dataset(
        {
            "value": (("outer_seed", "seed"), value),
            "start": (("seed",), start),
            "curve": (("outer_seed", "delay"), curves),
            "discount": (("outer_seed",), np.asarray([str(discount) for discount in discounts])),
        }
    )


def _optimum(task: Task) -> float | None:
    return None if task.discount is None else task.env().optimum(discount=task.discount)


def _log_uniform(generator: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(generator.uniform(np.log(low), np.log(high))))


STUDY = Study(
    "learned-discounts",
    "Discounts learned by an outer loop, beside the best of three families by as many trainings.",
    Settings,
    run,
)
