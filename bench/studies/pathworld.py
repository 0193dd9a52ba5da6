"""Pathworld: errors of the values of discounts, which do not know the hazard, under an uncertain hazard."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxrl
from bench.studies.figures import plain_axes
from bench.studies.study import Study, StudyRun
from envs.decision.pathworld import HAZARDS, Pathworld
from envs.errors import UserValueError
from jaxrl.checks import check_counts

if TYPE_CHECKING:
    import matplotlib.figure
    import pandas
    import xarray


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the study: hazard, paths and discounts."""

    mean_hazard: float = 0.05
    """Mean of the uniform, exponential or constant hazard, and k of the hyperbolic discount."""
    num_paths: int = 15
    """Number of paths 0, 1, ...; path i pays i after i^2 steps."""
    gammas: tuple[float, ...] = (0.975, 0.95, 0.99)
    """Rates gamma of the exponential discounts."""
    episodes: int = 4000
    """Number of episodes on each path in the environment, to verify the exact values."""

    def __post_init__(self) -> None:
        if not 0 < self.mean_hazard < 1:
            raise UserValueError(f"mean_hazard must lie in (0, 1), got {self.mean_hazard}")
        check_counts(self, num_paths=3, episodes=2)
        if len(set(self.gammas)) < len(self.gammas):
            raise UserValueError(f"gammas takes different values, got {' '.join(map(str, self.gammas))}")
        for gamma in self.gammas:
            jaxrl.Exponential(gamma)  # raises an error for a value out of range


def run(settings: Settings, study: StudyRun) -> None:
    """Compute exact, simulated and discounted values, then write two tables and a figure."""
    values = study.compute("values", lambda: path_values(settings))
    study.table("errors", errors(values), _ERRORS)
    study.table("choices", choices(values), _CHOICES)
    study.figure("pathworld", _figure(values))


def path_values(settings: Settings) -> xarray.Dataset:
    """The exact, simulated and estimated value of every path.

    Returns:
      `exact`, `simulated` and its `standard_error` with the dims `(hazard, path)`, `estimate` with
      `(hazard, discount, path)`, and the discounts as strings, `parameters`, with `(hazard, discount)`.
    """
    import xarray

    tasks = {hazard: Pathworld(hazard, settings.num_paths) for hazard in HAZARDS}
    horizon = (settings.num_paths - 1) ** 2
    means, deviations, estimates, parameters = [], [], [], []
    names: list[str] = []
    for task in tasks.values():
        discounts = _discounts(settings, task)
        names = list(discounts)
        parameters.append([str(discount) for discount in discounts.values()])
        estimates.append([task.estimates(np.asarray(discount.curve(horizon))) for discount in discounts.values()])
        simulated = np.asarray(_simulate(task, settings.mean_hazard, settings.episodes), np.float64)
        means.append(simulated.mean(axis=1))
        deviations.append(simulated.std(axis=1, ddof=1) / np.sqrt(settings.episodes))
    exact = [task.values(settings.mean_hazard) for task in tasks.values()]
    return xarray.Dataset(
        {
            "exact": (("hazard", "path"), np.array(exact)),
            "simulated": (("hazard", "path"), np.array(means)),
            "standard_error": (("hazard", "path"), np.array(deviations)),
            "estimate": (("hazard", "discount", "path"), np.array(estimates)),
            "parameters": (("hazard", "discount"), np.array(parameters)),
        },
        {"hazard": list(tasks), "discount": names, "path": np.arange(settings.num_paths)},
    )


def errors(values: xarray.Dataset) -> pandas.DataFrame:
    """Mean squared error over the paths: a row for each hazard, a column for each discount."""
    import pandas

    rows = []
    for hazard in values["hazard"].values:
        at = values.sel(hazard=hazard)
        row: dict[str, Any] = {"hazard": str(hazard)}
        for discount in values["discount"].values:
            row[str(discount)] = float(np.square(at["estimate"].sel(discount=discount) - at["exact"]).mean())
        rows.append(row | {"(simulated)": float(np.square(at["simulated"] - at["exact"]).mean())})
    return pandas.DataFrame(rows)


def choices(values: xarray.Dataset) -> pandas.DataFrame:
    """The path that each discount ranks first, and the difference of its true value to that of the best path."""
    import pandas

    rows = []
    for discount in ("(exact)", *values["discount"].values):
        row: dict[str, Any] = {"discount": str(discount)}
        for hazard in values["hazard"].values:
            exact = values["exact"].sel(hazard=hazard).values
            at = exact if discount == "(exact)" else values["estimate"].sel(hazard=hazard, discount=discount).values
            chosen = int(np.argmax(at))
            row[f"{hazard}: path"] = chosen
            row[f"{hazard}: loss"] = float(exact.max() - exact[chosen])
        rows.append(row)
    return pandas.DataFrame(rows)


def heuristic(mean: float) -> jaxrl.BetaWeighted:
    """A Beta-weighted discount from its first step alone, as in the studies that preceded UGAE.

    Args:
      mean: Mean mu, in (0, 1).

    Returns:
      The discount with alpha = 2 (p - s^2) / s^2 and beta = p alpha, where p = (1 - mu) / mu and s = 1 - mu.

    Source: the pathworld notebook of A. Kwiatkowski's fork of Stable-Baselines3 (2021).
    """
    odds, variance = (1 - mean) / mean, (1 - mean) ** 2
    alpha = 2 * (odds - variance) / variance
    beta = odds * alpha
    return jaxrl.BetaWeighted(mu=alpha / (alpha + beta), eta=1 / beta)


def _discounts(settings: Settings, task: Pathworld) -> dict[str, Any]:
    lengths = np.arange(settings.num_paths) ** 2
    weights = np.zeros(lengths[-1] + 1)
    weights[lengths] = np.square(np.arange(settings.num_paths))  # weights of the squared errors of the paths' values
    survival = task.survival(np.arange(lengths[-1] + 1), settings.mean_hazard)
    return {
        "Beta, fitted": jaxrl.fit(survival, weights=weights),
        "Beta, heuristic": heuristic(1 - settings.mean_hazard),
        "hyperbolic": jaxrl.Hyperbolic(settings.mean_hazard),
        **{f"exponential {gamma:g}": jaxrl.Exponential(gamma) for gamma in settings.gammas},
    }


def _simulate(task: Pathworld, mean_hazard: float, episodes: int) -> jax.Array:
    """Undiscounted returns of whole episodes, `[num_paths, episodes]`."""
    params = task.default_params.replace(mean_hazard=mean_hazard)  # pyright: ignore[reportAttributeAccessIssue]
    reset_key, step_key = jax.random.split(jax.random.key(0))

    @jax.jit
    def play(path: jax.Array) -> jax.Array:
        keys = jax.random.split(jax.random.fold_in(reset_key, path), episodes)
        _, state = jax.vmap(task.reset_env, (0, None))(keys, params)

        def step(t: jax.Array, carry: Any) -> Any:
            state, alive, total = carry
            keys = jax.random.split(jax.random.fold_in(jax.random.fold_in(step_key, path), t), episodes)
            _, state, reward, terminated, _ = jax.vmap(task.step_env, (0, 0, None, None))(keys, state, path, params)
            return state, alive & ~terminated, total + jnp.where(alive, reward, 0.0)

        start = (state, jnp.ones(episodes, bool), jnp.zeros(episodes))
        return jax.lax.fori_loop(0, path * path + 1, step, start)[2]

    return jnp.stack([play(path) for path in jnp.arange(task.num_paths)])


def _figure(values: xarray.Dataset) -> matplotlib.figure.Figure:
    """A plot for each hazard: exact and simulated values of the paths, and their values under each discount."""
    from matplotlib.figure import Figure

    from jaxrl import plotting

    hazards = values["hazard"].values
    figure = Figure(figsize=(4.0 * len(hazards) + 1.6, 3.8), layout="constrained")
    axes = figure.subplots(1, len(hazards), squeeze=False, sharey=True)[0]
    paths = values["path"].values
    for ax, hazard in zip(axes, hazards, strict=True):
        at = values.sel(hazard=hazard)
        ax.plot(paths, at["exact"], color="black", linewidth=2.2, label="exact")
        ax.errorbar(
            paths,
            at["simulated"],
            1.96 * at["standard_error"],
            color="black",
            linestyle="none",
            marker="o",
            markersize=3.5,
            capsize=2,
            label="simulated",
        )
        for index, discount in enumerate(values["discount"].values):
            ax.plot(
                paths,
                at["estimate"].sel(discount=discount),
                color=plotting.COLOURS[index % len(plotting.COLOURS)],
                linestyle=plotting.LINE_STYLES[index % len(plotting.LINE_STYLES)],
                linewidth=1.5,
                label=str(discount),
            )
        ax.set_title(f"{hazard} hazard")
        ax.set_xlabel("path (pays i after i² steps)")
        plain_axes(ax)
        ax.set_axisbelow(True)
    axes[0].set_ylabel("value")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, loc="outside right upper")
    return figure


_ERRORS = (
    "Mean squared error, over the paths, of the value Gamma(i^2) i that an agent without knowledge of the hazard gives "
    "to a path, against the true mean payment of the path. 'Fitted' Beta weights minimise it for each hazard, "
    "'heuristic' ones follow from the mean discount alone; the last column is the sampling error of simulated episodes."
)
_CHOICES = (
    "The path with the highest value under each discount, and how much less it pays on average than the best one. This "
    "differs from the error: a discount may misjudge every value and still rank the paths well."
)

STUDY = Study(
    "pathworld",
    "Errors of discounts that represent an uncertain hazard, compared with exact values.",
    Settings,
    run,
)
