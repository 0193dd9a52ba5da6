"""A drift of PPO's objective that an outer loop learns on some tasks, compared with PPO's clip on others."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

import envs
import jaxrl
from bench.studies.figures import plain_axes
from bench.studies.frames import MISSING, interval
from bench.studies.study import Study, StudyRun, require_whole
from jaxrl.checks import check_choices, check_counts
from jaxrl.learning.drift import drift_correction
from jaxrl.learning.losses import clipped_surrogate
from jaxrl.results.statistics import iqm, mean

if TYPE_CHECKING:
    import matplotlib.figure
    import pandas
    import xarray

__all__ = ["STUDY", "Settings"]

TEST_SEEDS = 1_000_000  # first of them
# Number of environment steps of a training on each task of the comparison.
TEST_STEPS = {
    "cartpole": 32_768,
    "acrobot": 65_536,
    "mountain-car": 262_144,
    "gymnax/Catch-bsuite": 32_768,
    "gymnax/Freeway-MinAtar": 131_072,
}


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the study: tasks, and the number of trainings."""

    tasks: tuple[str, ...] = ("cartpole", "acrobot")
    """Tasks of the inner trainings."""
    held_out: tuple[str, ...] = tuple(TEST_STEPS)
    """Tasks of the comparison."""
    inner_steps: int = 32_768
    """Number of environment steps of an inner training."""
    seeds: int = 5
    """Number of outer seeds."""
    generations: int = 20
    """Number of generations."""
    population: int = 16
    """Number of thetas of a generation."""
    test_seeds: int = 16
    """Number of test seeds of each drift."""
    eval_episodes: int = 4
    """Number of episodes of an evaluation."""
    evals: int = 4
    """Number of evaluations of a training, whose mean return is the objective."""

    def __post_init__(self) -> None:
        check_choices("tasks", self.tasks, tuple(TEST_STEPS))
        check_choices("held_out", self.held_out, tuple(TEST_STEPS))
        check_counts(self, inner_steps=1, seeds=2, generations=1, population=2, test_seeds=2, eval_episodes=1, evals=2)


def run(settings: Settings, study: StudyRun) -> None:
    """Learn a drift for each outer seed, compare it with the clip on each task; write a table and a figure."""
    data = study.compute("drift", lambda: _learned(settings, study.progress))
    returns = {}
    for task in settings.held_out:
        part = task.replace("/", "_")
        compare = functools.partial(_compared, task, data, settings, study.progress)
        returns[task] = study.compute(part, compare)["value"].values
    study.table(
        "returns",
        table(returns),
        f"Mean return over a training of PPO, by its clip and by drifts that {settings.generations} generations of "
        f"{settings.population} members learned on {' and '.join(settings.tasks)}: interquartile mean over "
        f"{settings.test_seeds} test seeds, with 95 % intervals; for learned drifts the mean over "
        f"{settings.seeds} outer seeds, with the interval over these.",
    )
    study.figure("drift", figure(data))


def table(returns: dict[str, np.ndarray]) -> pandas.DataFrame:
    """A row for each task, from returns `[1 + outer_seeds, test_seeds]`, those of the clip first.

    Runs that failed are left out; their numbers are a column if there are any.
    """
    import pandas

    rows, failed = [], []
    for task, values in returns.items():
        good = [runs[np.isfinite(runs)] for runs in values]
        clip, *each = (float(iqm(runs)) if runs.size else np.nan for runs in good)
        above = f"{sum(value > clip for value in each)} of {len(each)}" if np.isfinite(clip) else MISSING
        rows.append(
            {
                "task": task,
                "env steps": TEST_STEPS[task],
                "clip": interval(iqm, good[0], 2),
                "learned": interval(mean, np.asarray([value for value in each if np.isfinite(value)]), 2),
                "outer seeds above the clip": above,
            }
        )
        failed.append(values.size - sum(runs.size for runs in good))
    return pandas.DataFrame(rows).assign(**{"failed": failed} if any(failed) else {})


def figure(data: xarray.Dataset) -> matplotlib.figure.Figure:
    """Objective of one sample by its ratio, for the clip and for each learned drift."""
    from matplotlib.figure import Figure

    from jaxrl import plotting

    figure = Figure(figsize=(8.0, 3.6), layout="constrained")
    axes = figure.subplots(1, data.sizes["advantage"], squeeze=False)[0]
    for i, ax in enumerate(axes):
        at = data.isel(advantage=i)
        for seed in range(at.sizes["outer_seed"]):
            label = f"learned, {at.sizes['outer_seed']} outer seeds" if seed == 0 and i == 0 else None
            ax.plot(at["ratio"], at["objective"][seed], color=plotting.COLOURS[0], linewidth=1.2, label=label)
        ax.plot(at["ratio"], at["clip"], color="black", linewidth=2.0, label="clip" if i == 0 else None)
        ax.set_title(f"advantage {float(at['advantage']):g}")
        ax.set_xlabel("probability ratio")
        plain_axes(ax)
    axes[0].set_ylabel("objective of a sample")
    axes[0].legend(frameon=False)
    return figure


def _algo(task: str) -> Any:
    algo = jaxrl.ppo(envs.make(task), jaxrl.PPOConfig(num_envs=8, num_steps=64, drift="learned"))
    return algo._replace(hparams=dataclasses.replace(algo.hparams, lr=1e-3))


def _learned(settings: Settings, progress: bool) -> xarray.Dataset:
    """Numbers of the drift of each outer seed, outer curves, and objectives of samples by their ratios."""
    import xarray

    algo = _algo(settings.tasks[0])
    theta = jaxrl.learned_drift(algo)
    learned = jaxrl.meta(
        algo,
        theta,
        [_algo(task) for task in settings.tasks],
        inner_steps=settings.inner_steps,
        generations=settings.generations,
        population=settings.population,
        objective="area",
        evals=settings.evals,
        eval_episodes=settings.eval_episodes,
        seeds=settings.seeds,
        test_seeds=0,
        progress=progress,
    )
    require_whole(learned.stopped_by_signal)
    ratio, advantage = np.linspace(0.4, 1.8, 141), np.asarray([1.0, -1.0])
    drifts = [learned.learned(seed) for seed in learned.result.seeds]

    def objectives(drift: Any) -> np.ndarray:
        return np.stack([_objective(drift, np.log(ratio), sign, algo.hparams.clip_eps) for sign in advantage])

    return xarray.Dataset(
        {
            "theta": (("outer_seed", "number"), learned.result.values("theta")[0, :, -1]),
            "curve": (("outer_seed", "generation"), learned.result.values("return")[0]),
            "objective": (("outer_seed", "advantage", "ratio"), np.stack([objectives(drift) for drift in drifts])),
            "clip": (("advantage", "ratio"), objectives(theta.initial)),
        },
        {"advantage": advantage, "ratio": ratio},
    )


def _objective(drift: Any, log_ratio: np.ndarray, advantage: float, clip_eps: Any) -> np.ndarray:
    """Objective of single samples by their log-ratios, `[n]`."""

    def of_one(log_ratio: jax.Array) -> jax.Array:
        sample = log_ratio[None], jnp.full(1, advantage), jnp.ones(1)
        return -clipped_surrogate(*sample, clip_eps) - drift_correction(drift, *sample, jnp.float32(clip_eps))

    return np.asarray(jax.vmap(of_one)(jnp.asarray(log_ratio, jnp.float32)))


def _compared(task: str, data: xarray.Dataset, settings: Settings, progress: bool) -> xarray.Dataset:
    """Mean returns over trainings, `[1 + outer_seeds, test_seeds]`, those of the clip first."""
    import xarray
    from jax.flatten_util import ravel_pytree

    algo = _algo(task)
    theta = jaxrl.learned_drift(algo)
    unravel = ravel_pytree(theta.initial)[1]
    drifts = [theta.initial, *(unravel(numbers) for numbers in data["theta"].values)]
    result = jaxrl.train(
        algo,
        jaxrl.grid(algo.hparams, {"drift": drifts}),
        seeds=range(TEST_SEEDS, TEST_SEEDS + settings.test_seeds),
        env_steps=TEST_STEPS[task],
        evals=settings.evals,
        eval_episodes=settings.eval_episodes,
        progress=progress,
    )
    require_whole(result.metrics.attrs["stopped_by_signal"])
    return xarray.Dataset({"value": (("drift", "seed"), result.values("return").mean(axis=2))})


STUDY = Study(
    "learned-drift",
    "A drift of PPO's objective, learned on two tasks and compared with PPO's clip on others.",
    Settings,
    run,
)
