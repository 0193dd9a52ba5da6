"""Truncated and finite-time weights of n-step estimators: errors of estimates on a ring, and training with PPO."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

import envs
import jaxrl
from bench.studies.estimator_bias import VALUES, Ring
from bench.studies.frames import improvement, interval
from bench.studies.study import Study, StudyRun
from envs.errors import UserValueError
from jaxrl.checks import check_choices, check_counts
from jaxrl.discounts.parsing import prepare
from jaxrl.learning.advantages import LAM_WEIGHTS, ugae
from jaxrl.results.statistics import iqm, mean

if TYPE_CHECKING:
    import pandas
    import xarray

    from jaxrl.algorithms.contract import Algorithm

STEPS = {"cartpole": 98_304, "pathworld": 16_384, "lander": 600_064}
TASKS = tuple(STEPS)

__all__ = ["STUDY", "Settings", "agent", "errors", "errors_table", "returns_table"]


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the study: discounts, the ring, and training."""

    discounts: tuple[str, ...] = ("exp:gamma=0.99", "hyperbolic:k=0.02")
    """Discounts of estimates and of training."""
    lam: tuple[float, ...] = (0.8, 0.95, 1.0)
    """Lambdas of the estimates on the ring; the largest one below 1 is that of training."""
    states: int = 10
    """Number of states of the ring."""
    num_steps: int = 128
    """Number of steps of a rollout on the ring, whose walks end with probability 0.02 in each."""
    walks: int = 256
    """Number of walks of a seed on the ring."""
    error: float = 0.2
    """Standard deviation of the relative errors of approximate values, one per state and seed."""
    tasks: tuple[str, ...] = ("cartpole", "pathworld")
    """Tasks of training: "cartpole" and "lander", with the settings of their presets, and "pathworld"."""
    seeds: int = 32
    """Number of seeds of every setting; equal seeds share their keys."""
    env_steps: int = 0
    """Number of environment steps of a run; 0 for 98,304 in CartPole, 16,384 in pathworld and 600,064 of the lander."""
    evals: int = 4
    """Number of evaluations, evenly spaced, the last at the end."""
    eval_episodes: int = 32
    """Number of whole episodes of an evaluation, played greedily."""

    def __post_init__(self) -> None:
        check_choices("discounts", self.discounts)
        check_choices("lam", self.lam)
        check_choices("tasks", self.tasks, TASKS)
        for discount in self.discounts:
            jaxrl.as_discount(discount)
        if not all(0 <= lam <= 1 for lam in self.lam) or min(self.lam) == 1:
            raise UserValueError(
                f"lam takes numbers in [0, 1], one of them below 1, got {' '.join(map(str, self.lam))}"
            )
        if not 0 <= self.error < 1:
            raise UserValueError(f"error must lie in [0, 1), got {self.error}")
        check_counts(self, states=3, num_steps=2, walks=2, seeds=2, env_steps=0, evals=1, eval_episodes=1)

    @property
    def lam_of_training(self) -> float:
        """Lambda of training."""
        return max(lam for lam in self.lam if lam < 1)


def run(settings: Settings, study: StudyRun) -> None:
    """Compute the errors on the ring, train every task with either setting, and write two tables."""
    ring = study.compute("ring", lambda: errors(settings))
    study.table(
        "errors",
        errors_table(ring),
        f"Errors of lambda-returns on a ring of {settings.states} states, over rollouts of {settings.num_steps} steps "
        f"whose walks end with probability {Ring.end} in each: mean error (bias) and root mean square, each the mean "
        f"over {settings.seeds} seeds of {settings.walks} walks with its 95 % interval, for exact values and for "
        f"values with relative errors of {settings.error:g}.",
    )
    returns: dict[str, dict[str, np.ndarray]] = {}
    steps: dict[str, int] = {}
    for task in settings.tasks:
        returns[task] = {}
        for weights in LAM_WEIGHTS:
            algo = agent(task, weights)
            result = study.train(
                f"{task}_{weights}",
                algo,
                jaxrl.grid(algo.hparams.replace(lam=settings.lam_of_training), {"discount": settings.discounts}),
                seeds=settings.seeds,
                env_steps=settings.env_steps or STEPS[task],
                evals=settings.evals,
                eval_episodes=settings.eval_episodes,
            )
            metric = result.metrics["return"].transpose("discount", "seed", "env_step")
            returns[task][weights] = metric.values.astype(np.float64)
            steps[task] = int(result.metrics["env_step"].values[-1])
    ends = ", ".join(f"{task} {count:,}" for task, count in steps.items())
    study.table(
        "returns",
        returns_table(returns, settings),
        f"PPO with truncated and with finite-time weights at lam = {settings.lam_of_training:g}, {settings.seeds} "
        "seeds: interquartile mean of the greedy, undiscounted return at the end and averaged over training, and the "
        "probability that a run with finite-time weights exceeds one with truncated weights, each with its 95 % "
        f"interval. Environment steps: {ends}.",
    )


def agent(task: str, weights: Any) -> Algorithm:
    """PPO with these weights on a task."""
    if task == "pathworld":
        config = jaxrl.PPOConfig(num_envs=8, num_steps=64, lam_weights=weights)
        algo = jaxrl.ppo(envs.make("pathworld"), config)
        return algo._replace(hparams=algo.hparams.replace(lr=1e-3))
    preset = jaxrl.preset("ppo", task)
    return preset._replace(config=dataclasses.replace(preset.config, lam_weights=weights)).algo


def errors(settings: Settings) -> xarray.Dataset:
    """Errors of targets compared with exact values, over all steps of the rollouts of a seed.

    Returns:
      `bias` and `rmse`, `[discount, values, lam, weights, seed]`, of the critic with one value.
    """
    import xarray

    ring = Ring(settings.states)
    keys = jax.random.split(jax.random.key(0), settings.seeds)
    start = jnp.arange(settings.walks) % settings.states
    paths, ended = jax.jit(jax.vmap(lambda key: ring.walk(key, start, settings.num_steps)))(keys)
    rewards = jnp.asarray(ring.rewards, jnp.float32)
    relative = settings.error * np.random.default_rng(0).normal(size=(settings.seeds, settings.states))
    shape = (len(settings.discounts), len(VALUES), len(settings.lam), len(LAM_WEIGHTS), settings.seeds)
    bias, rmse = np.zeros(shape), np.zeros(shape)
    horizon = int(np.ceil(np.log(1e-12) / np.log(1 - ring.end)))  # after which fewer than 1e-12 of the walks continue

    @jax.jit(static_argnames="weights")
    def of_seeds(discount: Any, lam: Any, exact: jax.Array, values: jax.Array, weights: Any) -> Any:
        def of_seed(path: jax.Array, ended: jax.Array, values: jax.Array) -> tuple[jax.Array, jax.Array]:
            now, after = values[path[:-1]], values[path[1:]]
            target = ugae(discount, lam, rewards[path[:-1]], now, after, ended, ended, weights)[1]
            error = target - exact[path[:-1]]
            return jnp.mean(error), jnp.sqrt(jnp.mean(jnp.square(error)))

        return jax.vmap(of_seed)(paths, ended, values)

    for d, text in enumerate(settings.discounts):
        discount = jaxrl.as_discount(text)
        exact = ring.values(np.asarray(discount.curve(horizon), np.float64))
        for v, kind in enumerate(VALUES):
            values = exact * (1 + (relative if kind == "approximate" else np.zeros_like(relative)))
            arrays = jnp.asarray(exact, jnp.float32), jnp.asarray(values, jnp.float32)
            for i, lam in enumerate(settings.lam):
                for w, weights in enumerate(LAM_WEIGHTS):
                    both = of_seeds(prepare(discount, settings.num_steps), lam, *arrays, weights=weights)
                    bias[d, v, i, w], rmse[d, v, i, w] = (np.asarray(each, np.float64) for each in both)
    dims = ("discount", "values", "lam", "weights", "seed")
    coords = {
        "discount": list(settings.discounts),
        "values": list(VALUES),
        "lam": list(settings.lam),
        "weights": list(LAM_WEIGHTS),
    }
    return xarray.Dataset({"bias": (dims, bias), "rmse": (dims, rmse)}, coords)


def errors_table(dataset: xarray.Dataset) -> pandas.DataFrame:
    """A row for each discount, kind of values and lambda: bias and root mean square error with either weights."""
    import pandas

    rows = []
    for discount in dataset["discount"].values.tolist():
        for values in dataset["values"].values.tolist():
            for lam in dataset["lam"].values.tolist():
                one = dataset.sel(discount=discount, values=values, lam=lam)
                row: dict[str, Any] = {"discount": discount, "values": values, "lam": lam}
                for measure in ("bias", "rmse"):
                    for weights in LAM_WEIGHTS:
                        row[f"{measure}, {weights}"] = interval(mean, one[measure].sel(weights=weights).values, 3)
                rows.append(row)
    return pandas.DataFrame(rows)


def returns_table(returns: dict[str, dict[str, np.ndarray]], settings: Settings) -> pandas.DataFrame:
    """A row for each task, discount and measure.

    Args:
      returns: Returns `{task: {weights: [discounts, seeds, evaluations]}}`; nan at the end of a failed run.
      settings: Settings, whose discounts label the first axis.
    """
    import pandas

    rows = []
    for task, of_weights in returns.items():
        decimals = 3 if task == "pathworld" else 1
        for d, discount in enumerate(settings.discounts):
            for measure in ("final", "mean"):
                row: dict[str, Any] = {"task": task, "discount": discount, "measure": measure}
                runs = {}
                for weights in LAM_WEIGHTS:
                    values = of_weights[weights][d]
                    runs[weights] = values[:, -1] if measure == "final" else values.mean(axis=1)
                    row[weights] = interval(iqm, runs[weights][np.isfinite(runs[weights])], decimals)
                row["P(finite-time > truncated)"] = improvement(runs["finite-time"], runs["truncated"])
                rows.append(row | {"failed": int(sum(np.sum(~np.isfinite(run)) for run in runs.values()))})
    return pandas.DataFrame(rows)


STUDY = Study(
    "finite-time-weights",
    "Truncated and finite-time weights of n-step estimators, on a ring and in training.",
    Settings,
    run,
)
