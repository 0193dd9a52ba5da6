"""UGAE against Monte Carlo: lambda below 1 compared with lambda = 1, under Beta-weighted discounts."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

import jaxrl
from bench.studies.figures import plain_axes
from bench.studies.frames import MISSING
from bench.studies.study import Study, StudyRun
from envs.errors import UserValueError
from jaxrl.checks import check_choices, check_counts
from jaxrl.results.statistics import Interval, bootstrap_interval, iqm, probability_of_improvement

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure
    import pandas

    from jaxrl.results.result import Result

ENV_STEPS = {"cartpole": 250_000, "pendulum": 200_000, "mountain-car-continuous": 60_000}
MEASURES = {"final": "return at the end", "mean": "return averaged over training"}
BETTER, WORSE, UNCLEAR, EQUAL = "better", "worse", "unclear", "equal"


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the study: tasks, discounts, lambdas and lengths of training."""

    tasks: tuple[str, ...] = tuple(ENV_STEPS)
    """Environments with a preset of PPO, from which all other settings are taken."""
    mu: float = 0.98
    """Weight mu of the next step under each of the Beta-weighted discounts."""
    eta: tuple[float, ...] = (0.0, 0.5, 0.8, 1.0)
    """Dispersions eta: 0 is exponential, 1 hyperbolic."""
    lam: tuple[float, ...] = (0.8, 0.9, 0.95, 1.0)
    """Lambdas; each below 1 is compared with 1, Monte Carlo."""
    seeds: int = 64
    """Number of seeds of every setting; equal seeds share their keys."""
    env_steps: int = 0
    """Number of environment steps of a run; 0 for the default of each task."""
    evals: int = 10
    """Number of evaluations, evenly spaced, the last at the end."""
    eval_episodes: int = 16
    """Number of whole episodes of an evaluation, played greedily."""
    num_steps: int = 0
    """Number of steps of a rollout, which bootstraps at its end for every lambda; 0 for the preset's."""

    def __post_init__(self) -> None:
        known = [environment for algorithm, environment in jaxrl.presets.names() if algorithm == "ppo"]
        check_choices("tasks", self.tasks, known)
        check_choices("eta", self.eta)
        check_choices("lam", self.lam)
        if 1.0 not in self.lam or len(self.lam) < 2:
            raise UserValueError(f"lam takes 1 and others to compare with it, got {' '.join(map(str, self.lam))}")
        if not all(0.0 <= lam <= 1.0 for lam in self.lam):
            raise UserValueError(f"lam takes numbers in [0, 1], got {' '.join(map(str, self.lam))}")
        for eta in self.eta:
            jaxrl.BetaWeighted(self.mu, eta)  # raises an error for a value out of range
        check_counts(self, seeds=2, env_steps=0, evals=1, eval_episodes=1, num_steps=0)


def run(settings: Settings, study: StudyRun) -> None:
    """Train every task in one call, then write two tables and a figure."""
    results = {}
    for task in settings.tasks:
        preset = jaxrl.preset("ppo", task)
        if settings.num_steps:
            preset = preset._replace(config=dataclasses.replace(preset.config, num_steps=settings.num_steps))
        algo = preset.algo
        base = dataclasses.replace(algo.hparams, discount=jaxrl.BetaWeighted(settings.mu, 0.0))
        results[task] = study.train(
            task,
            algo,
            jaxrl.grid(base, {"discount.eta": settings.eta, "lam": settings.lam}),
            seeds=settings.seeds,
            env_steps=settings.env_steps or ENV_STEPS.get(task, preset.env_steps),
            evals=settings.evals,
            eval_episodes=settings.eval_episodes,
        )
    scores = {task: _scores(result) for task, result in results.items()}
    frames = {measure: comparison({task: scores[task][measure] for task in scores}, settings) for measure in MEASURES}
    for measure, words in MEASURES.items():
        study.table(measure, frames[measure], _caption(words, settings, results))
    for measure, words in MEASURES.items():
        caption = f"Against Monte Carlo by the {words}: the probability of improvement over lam = 1, its 95 % interval."
        study.table(f"{measure}_summary", summary(frames[measure]), caption)
    study.figure("ugae_vs_monte_carlo", _figure({task: scores[task]["mean"] for task in scores}, settings))


def comparison(scores: dict[str, np.ndarray], settings: Settings) -> pandas.DataFrame:
    """A row per task, eta and lambda.

    Args:
      scores: Scores `{task: [num_eta, num_lam, num_seeds]}`, nan for a failed run.
      settings: Settings, whose eta and lam label the axes.

    Returns:
      IQM over the seeds that did not fail with its 95 % interval; the probability that the run of a seed
      improves on the run of the same seed with lambda 1, where a failed run loses, with its
      interval; and the verdict. Rows of the task "all" average the probability over tasks.
    """
    import pandas

    monte_carlo = settings.lam.index(1.0)
    rows = []
    for task, values in scores.items():
        for e, eta in enumerate(settings.eta):
            for i, lam in enumerate(settings.lam):
                good = values[e, i][np.isfinite(values[e, i])]
                row: dict[str, Any] = {
                    "task": task,
                    "eta": eta,
                    "lam": lam,
                    "IQM": float("nan"),
                    "95 % interval": MISSING,
                }
                if good.size > 1:
                    estimate = bootstrap_interval(iqm, good)
                    row |= {"IQM": float(estimate.value), "95 % interval": _interval(estimate, good)}
                row["failed"] = values[e, i].size - good.size
                rows.append(row | _improvement(values[e, i], values[e, monte_carlo], i == monte_carlo))
    if len(scores) > 1:
        together = np.stack(list(scores.values()))
        for e, eta in enumerate(settings.eta):
            for i, lam in enumerate(settings.lam):
                row = {
                    "task": "all",
                    "eta": eta,
                    "lam": lam,
                    "IQM": float("nan"),
                    "95 % interval": MISSING,
                    "failed": 0,
                }
                rows.append(row | _improvement(together[:, e, i], together[:, e, monte_carlo], i == monte_carlo))
    frame = pandas.DataFrame(rows)
    return frame if frame["failed"].to_numpy().any() else frame.drop(columns="failed")


def summary(frame: pandas.DataFrame) -> pandas.DataFrame:
    """A row per task and eta of `comparison`, a column per lambda below 1 with its probability and the verdict."""
    import pandas

    rows: dict[tuple[str, float], dict[str, Any]] = {}
    for row in frame.to_dict("records"):
        if row["lam"] != 1.0:
            wide = rows.setdefault((row["task"], row["eta"]), {"task": row["task"], "eta": row["eta"]})
            cell = (row["P(improvement)"], row["95 % interval of P"], row["against Monte Carlo"])
            wide[f"lam {row['lam']:g}"] = " ".join(cell)
    return pandas.DataFrame(list(rows.values()))


def _scores(result: Result) -> dict[str, np.ndarray]:
    """The measures of each run, `[num_eta, num_lam, num_seeds]`, nan for a failed run."""
    returns = result.metrics["return"].transpose("discount.eta", "lam", "seed", "env_step").values.astype(np.float64)
    failed = result.failed_runs().reshape(returns.shape[:-1])
    measures = {"final": returns[..., -1], "mean": returns.mean(axis=-1)}
    return {name: np.where(failed, np.nan, values) for name, values in measures.items()}


def _improvement(values: np.ndarray, baseline: np.ndarray, is_baseline: bool) -> dict[str, str]:
    """The last three columns of a row, for scores `[seeds]` or `[tasks, seeds]`."""
    columns = ("P(improvement)", "95 % interval of P", "against Monte Carlo")
    if is_baseline:
        return dict(zip(columns, (MISSING, MISSING, "is Monte Carlo"), strict=True))
    chance = _chance(values, baseline)
    verdict = BETTER if chance.low > 0.5 else WORSE if chance.high < 0.5 else UNCLEAR
    if np.array_equal(values, baseline, equal_nan=True):  # for example because all reach the highest return
        verdict = EQUAL
    return dict(zip(columns, (f"{chance.value:.2f}", f"[{chance.low:.2f}, {chance.high:.2f}]", verdict), strict=True))


def _chance(values: np.ndarray, baseline: np.ndarray) -> Interval:
    """The probability that a run improves on the one with the same seed; a failed run ranks below all others."""
    lowest = [np.where(np.isnan(scores), -np.inf, scores) for scores in (values, baseline)]
    return probability_of_improvement(*lowest, paired=True)


def _interval(estimate: Interval, values: np.ndarray) -> str:
    decimals = int(np.clip(3 - np.floor(np.log10(max(float(np.abs(values).max()), 1e-9))), 1, 6))
    return f"[{estimate.low:.{decimals}f}, {estimate.high:.{decimals}f}]"


def _caption(words: str, settings: Settings, results: dict[str, Result]) -> str:
    steps = ", ".join(f"{task} {int(result.metrics['env_step'][-1]):,}" for task, result in results.items())
    return (
        f"PPO's {words}, greedy and undiscounted, under Beta-weighted discounts with mu = {settings.mu:g}: "
        f"interquartile mean of {settings.seeds} seeds, and the probability that a run improves on the run of the "
        f"same seed with lam = 1 (Monte Carlo), ties counting one half. Intervals are at 95 % each, bootstraps for the "
        f"returns and those of Clopper and Pearson for P, not corrected for their number; P is better or worse than "
        f"Monte Carlo if its interval excludes 0.5. Environment steps: {steps}."
    )


def _figure(scores: dict[str, np.ndarray], settings: Settings) -> matplotlib.figure.Figure:
    """Two plots per task: the return averaged over training, and the probability of improvement."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.4 * len(scores) + 1.2, 5.6), layout="constrained")
    axes = figure.subplots(2, len(scores), squeeze=False, sharex=True)
    order = np.argsort(settings.lam)
    monte_carlo = settings.lam.index(1.0)
    for column, (task, values) in enumerate(scores.items()):
        above, below = axes[:, column]
        for e, eta in enumerate(settings.eta):
            runs = [values[e, i][np.isfinite(values[e, i])] for i in order]
            estimates = [bootstrap_interval(iqm, good) if good.size > 1 else None for good in runs]
            _draw(above, e, eta, len(settings.eta), estimates)
            chances = [_chance(values[e, i], values[e, monte_carlo]) if i != monte_carlo else None for i in order]
            _draw(below, e, eta, len(settings.eta), chances)
        above.set_title(task)
        below.axhline(0.5, color="0.6", linewidth=0.8, linestyle="--")
        below.set_ylim(-0.02, 1.02)
        below.set_xlabel("lambda")
        below.set_xticks(range(len(order)), [f"{settings.lam[i]:g}" for i in order])
    axes[0, 0].set_ylabel("return averaged over training")
    axes[1, 0].set_ylabel("P(improvement over lambda = 1)")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, title=f"mu {settings.mu:g}", frameon=False, loc="outside right upper")
    return figure


def _draw(ax: matplotlib.axes.Axes, index: int, eta: float, num_lines: int, estimates: list[Interval | None]) -> None:
    """A line over the lambdas with an interval at each, offset sideways so that lines do not cover each other."""
    from jaxrl import plotting

    at = [i for i, estimate in enumerate(estimates) if estimate is not None]
    intervals = [estimate for estimate in estimates if estimate is not None]
    value, low, high = (np.array([getattr(estimate, name) for estimate in intervals]) for name in Interval._fields)
    ax.errorbar(
        np.array(at) + 0.08 * (index - (num_lines - 1) / 2),
        value,
        [value - low, high - value],
        color=plotting.COLOURS[index % len(plotting.COLOURS)],
        marker="o",
        markersize=4,
        linewidth=1.4,
        capsize=2,
        label=f"eta {eta:g}",
    )
    plain_axes(ax)
    ax.set_axisbelow(True)


STUDY = Study(
    "ugae-vs-monte-carlo",
    "Lambda below 1 compared with Monte Carlo (lambda = 1) under Beta-weighted discounts.",
    Settings,
    run,
)
