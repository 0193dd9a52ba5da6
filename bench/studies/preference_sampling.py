"""Sampling of pairs for a judge: comparisons until a reward model reaches an error, by sampler and by error."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from bench.studies.study import Study, StudyRun
from envs.bandits.dueling import DuelingBandit, DuelingParams
from envs.errors import UserValueError
from jaxrl.bandits.base import BanditAlgorithm
from jaxrl.bandits.policies.preferences import pilaf, pilaf_weighted, policy_pairs, uniform_pairs
from jaxrl.bandits.runner import make_bandit_loop
from jaxrl.checks import check_counts

if TYPE_CHECKING:
    import matplotlib.figure
    import pandas
    import xarray

SAMPLERS = (uniform_pairs(), policy_pairs(), pilaf(), pilaf_weighted())
ERRORS = {
    "policy_shortfall": "the shortfall of the model's policy from the best regularised objective",
    "policy_error": "the error under the best policy",
    "uniform_error": "the error under equal weights of all arms",
}
SHARES = {
    "policy / uniform": ("policy-pairs", "uniform-pairs"),
    "pilaf / uniform": ("pilaf", "uniform-pairs"),
    "weighted / uniform": ("pilaf-weighted", "uniform-pairs"),
    "pilaf / policy": ("pilaf", "policy-pairs"),
}
FIRST, PER_DECADE = 10, 16
NUM_RESAMPLES = 2000
CONFIDENCE = 0.95
NEVER = "never"


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the study: judge, policies and numbers of comparisons and runs."""

    arms: int = 10
    """Number of arms, whose rewards are redrawn in every run."""
    scale: float = 1.0
    """Standard deviation of rewards, in the judge's unit; known to the fit."""
    betas: tuple[float, ...] = (0.1, 0.25, 0.5, 1.0)
    """Temperatures of the policy; at a lower temperature fewer arms matter."""
    comparisons: int = 3000
    """Number of comparisons of a run."""
    at: tuple[int, ...] = (100, 300, 1000)
    """Numbers of comparisons of uniform sampling whose mean error is the target error."""
    runs: int = 1000
    """Number of runs of every sampler and temperature; runs with equal indices share the rewards."""

    def __post_init__(self) -> None:
        check_counts(self, arms=2, comparisons=FIRST, runs=2)
        if not 0 < self.scale < np.inf:
            raise UserValueError(f"scale must be finite and above 0, got {self.scale}")
        for name in ("betas", "at"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise UserValueError(
                    f"{name} takes one or more different values, got {' '.join(map(str, values)) or 'none'}"
                )
        for beta in self.betas:
            if not 0 < beta < np.inf:
                raise UserValueError(f"betas takes finite numbers above 0, got {beta}")
        for count in self.at:
            if not FIRST <= count <= self.comparisons:
                raise UserValueError(f"at takes numbers from {FIRST} to comparisons={self.comparisons}, got {count}")


def run(settings: Settings, study: StudyRun) -> None:
    """Measure every sampler, then write a table for each error and a figure."""
    measured = {
        sampler.name: study.compute(sampler.name, lambda sampler=sampler: measure(sampler, settings))
        for sampler in SAMPLERS
    }
    for error in ERRORS:
        study.table(error, table(measured, error, settings), _caption(error, settings))
    study.figure("preference_sampling", _figure(measured, settings))


def points(comparisons: int) -> np.ndarray:
    """Numbers of comparisons at which errors are measured, int32, the last at the end."""
    decades = np.log10(comparisons / FIRST)
    return np.unique(np.rint(np.geomspace(FIRST, comparisons, round(PER_DECADE * decades) + 1)).astype(np.int32))


def measure(sampler: BanditAlgorithm, settings: Settings) -> xarray.Dataset:
    """Every error of `ERRORS` over comparisons, with the dims `(beta, run, comparison)`."""
    import xarray

    at = points(settings.comparisons)
    loop = make_bandit_loop(sampler, DuelingBandit(num_arms=settings.arms), settings.comparisons)
    params = DuelingParams(scale=settings.scale)
    chunks = jnp.stack([jnp.append(0, at[:-1]), at], axis=1)

    def one_run(key: jax.Array, beta: jax.Array) -> dict[str, jax.Array]:
        hparams = dataclasses.replace(sampler.hparams, beta=beta, scale=settings.scale)

        def advance(run: Any, chunk: jax.Array) -> tuple[Any, dict[str, jax.Array]]:
            start, end = chunk
            run = loop.advance(run, key, hparams, params, start, end - start)
            return run, errors(run.policy.rewards, run.env.values[run.order], beta)  # in the policy's order of arms

        return jax.lax.scan(advance, loop.init(key, hparams, params), chunks)[1]

    keys = jax.vmap(jax.random.key)(np.arange(settings.runs))
    betas = np.asarray(settings.betas, np.float32)
    curves = jax.jit(jax.vmap(jax.vmap(one_run, (0, None)), (None, 0)))(keys, betas)
    dims = ("beta", "run", "comparison")
    return xarray.Dataset(
        {name: (dims, np.asarray(values)) for name, values in curves.items()},
        coords={"beta": list(settings.betas), "run": np.arange(settings.runs), "comparison": at},
    )


def errors(model: jax.Array, rewards: jax.Array, beta: jax.Array) -> dict[str, jax.Array]:
    """Errors of a reward model by three measures, which are invariant to a constant.

    Args:
      model: Learned rewards, float32 `[K]`.
      rewards: True rewards, float32 `[K]`.
      beta: Temperature of the objective E[reward] - beta KL(pi | uniform), whose optimum is proportional to
        exp(reward / beta).

    Returns:
      `uniform_error` and `policy_error`, standard deviations of the difference with equal weights of all arms
      and under the optimum; `policy_shortfall`, the loss in the objective of the model's policy,
      which is beta KL(model's policy | optimum).
    """
    best, implied = (jax.nn.log_softmax(each / beta) for each in (rewards, model))
    difference = model - rewards
    return {
        "uniform_error": jnp.std(difference),
        "policy_error": jnp.sqrt(jnp.sum(jnp.exp(best) * (difference - jnp.sum(jnp.exp(best) * difference)) ** 2)),
        "policy_shortfall": beta * jnp.sum(jnp.exp(implied) * (implied - best)),
    }


def reached(curves: np.ndarray, at: np.ndarray, target: float) -> np.ndarray:
    """Numbers of comparisons after which curves stay below a target.

    Args:
      curves: Errors `[..., points]`, above 0.
      at: Numbers of comparisons `[points]`.
      target: Target error.

    Returns:
      Numbers of comparisons `[...]`, interpolated log-linearly between points; the first point for a curve that never
      exceeds the target, infinite for a curve that exceeds it at the end.
    """
    above = curves > target
    before = curves.shape[-1] - 1 - np.argmax(above[..., ::-1], axis=-1)  # the last point above
    after = np.minimum(before + 1, curves.shape[-1] - 1)
    high, low = (np.log(np.take_along_axis(curves, i[..., None], axis=-1)[..., 0]) for i in (before, after))
    with np.errstate(divide="ignore", invalid="ignore"):
        share = (high - np.log(target)) / (high - low)  # ignored where `before` is the end
        count = np.exp(np.log(at[before]) + share * (np.log(at[after]) - np.log(at[before])))
    return np.where(above[..., -1], np.inf, np.where(above.any(axis=-1), count, at[0]))


def table(measured: dict[str, xarray.Dataset], error: str, settings: Settings) -> pandas.DataFrame:
    """A row per temperature and target: comparisons of uniform sampling, and ratios between samplers.

    Intervals are percentiles of bootstraps that resample whole runs, the same for every sampler.
    """
    import pandas

    generator = np.random.default_rng(0)
    share = np.full(settings.runs, 1 / settings.runs)
    drawn = generator.multinomial(settings.runs, share, size=NUM_RESAMPLES) / settings.runs
    weights = np.concatenate([share[None], drawn])  # the runs themselves, then their bootstraps
    base = uniform_pairs().name
    at = measured[base]["comparison"].values
    rows = []
    for b, beta in enumerate(settings.betas):
        curves = {name: weights @ of[error].values[b].astype(np.float64) for name, of in measured.items()}
        for count in settings.at:
            target = float(np.exp(np.interp(np.log(count), np.log(at), np.log(curves[base][0]))))
            needs = {name: reached(each, at, target) for name, each in curves.items()}
            row = {"beta": beta, "error": target, base: _text(needs[base], 0)}
            for label, (name, other) in SHARES.items():
                # If the other sampler does not reach the target, the end is used: the ratio is at most that.
                row[label] = _text(needs[name] / np.minimum(needs[other], settings.comparisons), 2)
            rows.append(row)
    return pandas.DataFrame(rows)


def _text(values: np.ndarray, decimals: int) -> str:
    """The first of the values, and the interval of the others."""
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(values[1:], [tail, 100 - tail], method="nearest")
    value, low, high = (f"{each:.{decimals}f}" if np.isfinite(each) else NEVER for each in (values[0], low, high))
    return f"{value} [{low}, {high}]"


def _caption(error: str, settings: Settings) -> str:
    counts = ", ".join(map(str, settings.at))
    return (
        f"A judge of Bradley and Terry compares {settings.arms} arms with normal rewards of standard deviation "
        f"{settings.scale:g}; {settings.runs} runs. Comparisons until {ERRORS[error]}, averaged over runs, stays below "
        f"its value after {counts} comparisons of uniform pairs: as a number for uniform pairs, then as ratios between "
        f"samplers, where below 1 means fewer comparisons; {NEVER}: not within {settings.comparisons}. Intervals at "
        f"{CONFIDENCE:.0%} from bootstraps over runs, which share their rewards. The policy is proportional to "
        "exp(reward / beta)."
    )


def _figure(measured: dict[str, xarray.Dataset], settings: Settings) -> matplotlib.figure.Figure:
    """A row for each error, a column for each temperature: means over runs, with bands of two standard errors."""
    from matplotlib.figure import Figure

    from jaxrl import plotting

    columns = len(settings.betas)
    figure = Figure(figsize=(2.7 * columns + 1.2, 7.4), layout="constrained")
    axes = figure.subplots(len(ERRORS), columns, squeeze=False, sharex=True)
    for row, error in enumerate(ERRORS):
        for column, beta in enumerate(settings.betas):
            ax = axes[row, column]
            for i, (name, of) in enumerate(measured.items()):
                values = of[error].values[column].astype(np.float64)
                middle, width = values.mean(axis=0), 2 * values.std(axis=0, ddof=1) / np.sqrt(len(values))
                look, at = plotting.style(i), of["comparison"].values
                ax.plot(at, middle, label=name, **look)
                low = np.maximum(middle - width, 0.2 * middle)  # a logarithmic axis needs positive values
                ax.fill_between(at, low, middle + width, color=look["color"], alpha=0.2, linewidth=0)
            ax.set_xscale("log")
            ax.set_yscale("log")
            plotting.finish(ax)
            ax.get_legend().remove()
            if row == 0:
                ax.set_title(f"beta {beta:g}")
            if row == len(ERRORS) - 1:
                ax.set_xlabel("comparisons")
        axes[row, 0].set_ylabel(error.replace("_", " "))
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, loc="outside right upper")
    return figure


STUDY = Study(
    "preference-sampling",
    "Number of comparisons until a reward model reaches an error: pairs of PILAF, of the policy, and uniform pairs.",
    Settings,
    run,
)
