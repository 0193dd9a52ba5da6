"""Result of a training call: labelled metrics and the final policies."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from envs.spelling import near
from jaxrl.algorithms.contract import Algorithm
from jaxrl.checks import check_choice
from jaxrl.pytrees import EnvParams, HParams, Policy
from jaxrl.results.best import KEPT, Best
from jaxrl.results.dataset import RUN_DIMS, ResultError, main_metric, unknown_algorithm
from jaxrl.results.description import Description
from jaxrl.results.policy import TrainedPolicy
from jaxrl.sweeps.choosing import choose_setting, labels_meant, listed, values_of

if TYPE_CHECKING:
    import matplotlib.axes
    import xarray

    from jaxrl.results.tables import Table


@dataclass
class Result:
    """A finished training call.

    Attributes:
      metrics: Dataset with the dims `(*sweep dims, "seed", "env_step")`; its attributes describe
        the whole call (algorithm, environment, block, device, precision, wall times).
      policies: Pytree of NumPy arrays `[num_settings, num_seeds, ...]`, settings row-major over
        the sweep's dims; for one run with its labels, see `policy`.
      algo: Algorithm, or None in a loaded result whose algorithm cannot be rebuilt.
      hparams: Batched pytree `[num_settings]`, or None in a loaded result whose `config.json` has
        no hyper-parameters that the algorithm takes.
      env_params: Parameters of the environment, a batched pytree `[num_settings]`; None for its
        defaults and for an unknown environment.
      loaded: Contents of `config.json` for a loaded result, otherwise None; saving the result again
        keeps the entries that cannot be recomputed, such as the versions that it was made with.
      unsaved: Whether the call could not save its result, for example because the disk is full.
      directory: Directory that the result was loaded from or last saved in; None for one in memory alone.
      best: Policies of the best evaluations, of a call with `keep="best"`; otherwise None.
      iterations: Number of iterations before each policy, int32 `[num_settings, num_seeds]`; None for those of the end.
    """

    metrics: xarray.Dataset
    policies: Policy
    algo: Algorithm | None = None
    hparams: HParams = None
    env_params: EnvParams = None
    loaded: dict[str, Any] | None = field(default=None, repr=False)
    unsaved: bool = field(default=False, repr=False)
    directory: Path | None = field(default=None, repr=False)
    best: Best | None = field(default=None, repr=False)
    iterations: np.ndarray | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        runs = f"{len(self.settings)} settings x {len(self.seeds)} seeds"
        metrics = ", ".join(map(str, self.metrics.data_vars))
        points = self.metrics.sizes["env_step"]
        return f"Result({runs}, {points} points up to {int(self.metrics['env_step'][-1]):,} env steps; {metrics})"

    @property
    def dims(self) -> tuple[str, ...]:
        """The sweep's dimensions, in order; empty for a single setting."""
        variables = list(self.metrics.data_vars.values())
        shared = set.intersection(*(set(variable.dims) for variable in variables))
        return tuple(str(dim) for dim in variables[0].dims if dim in shared and dim not in RUN_DIMS)

    @property
    def seeds(self) -> list[int]:
        """Labels of the seeds."""
        return [int(seed) for seed in self.metrics["seed"].values]

    @property
    def settings(self) -> list[dict[str, Any]]:
        """The coordinates of every setting, `{path: value}`, row-major over `dims`."""
        return self.description().settings

    def description(self) -> Description:
        """Description of the call, without its metrics and policies."""
        coords = {
            str(path): (tuple(map(str, coord.dims)), coord.values)
            for path, coord in self.metrics.coords.items()
            if path not in RUN_DIMS
        }
        attrs = {str(name): value for name, value in self.metrics.attrs.items()}
        dims = {dim: self.metrics.sizes[dim] for dim in self.dims}
        return Description(self.algo, self.hparams, self.env_params, self.seeds, dims, coords, attrs, self.loaded)

    @property
    def failed(self) -> list[tuple[dict[str, Any], int]]:
        """`(setting, seed)` of every run with a metric that is not finite at the last point."""
        settings, seeds = self.settings, self.seeds
        return [(settings[s], seeds[n]) for s, n in np.argwhere(self.failed_runs())]

    def failed_runs(self) -> np.ndarray:
        """Whether a metric of each run is not finite at the last point, bool `[num_settings, num_seeds]`."""
        bad = np.zeros((len(self.settings), len(self.seeds)), dtype=bool)
        for name in self.metrics.data_vars:
            last = self.values(str(name))[:, :, -1]
            bad |= ~np.isfinite(last).all(axis=tuple(range(2, last.ndim)))
        return bad

    def values(self, metric: str) -> np.ndarray:
        """A metric as a plain array `[num_settings, num_seeds, num_points, ...]`, with the trailing axes of the metric.

        Raises:
          ResultError: There is no such metric.
        """
        if metric not in self.metrics.data_vars:
            known = sorted(str(name) for name in self.metrics.data_vars)
            hint = near(metric, known) or f"; this result has {', '.join(known)}."
            raise ResultError(f"metric is {metric!r}{hint}")
        array = self.metrics[metric].transpose(*self.dims, *RUN_DIMS, ...).values
        return array.reshape(-1, *array.shape[len(self.dims) :])

    def table(self, metric: str | None = None, *, confidence: float = 0.95) -> Table:
        """A row per setting: interquartile mean over seeds, its bootstrap interval, and the mean.

        Args:
          metric: Name of the metric, taken at the last point; None for the return, or the regret of a bandit.
          confidence: Confidence level of the interval, in (0, 1).

        Returns:
          A table with a text form and `to_pandas()`. Failed runs are excluded from the estimates
          and counted in a separate column; with fewer than two runs there is no interval. The returns of a call with
          `keep="best"` have the same estimates of `last_again` and `best_again`, the last and the best policies in
          further episodes. Returns have the columns `optimum`, the best return where it is known (see
          `envs.Environment.optimum`, of the kind "precommitted", under the discount of a discounted return), `gap`,
          the optimum less the interquartile mean, and `gap_percent`, the gap in per cent of the size of the optimum;
          without a known optimum, `bound` is an upper bound on the expected return of any policy, where one is known
          (see `envs.Environment.bound`). Up to 32 different optima, and as many bounds, are computed.

        Raises:
          ResultError: There is no such metric, or it has several numbers for a run.
        """
        from jaxrl.results.tables import estimate_table

        return estimate_table(self, main_metric(self.metrics) if metric is None else metric, confidence)

    def plot(
        self,
        metric: str | None = None,
        *,
        x: str | None = None,
        hue: str | None = None,
        ax: matplotlib.axes.Axes | None = None,
        path: str | Path | None = None,
        label: str | None = None,
        confidence: float = 0.95,
    ) -> matplotlib.axes.Axes:
        """Learning curves with bands, or the end against `x="lr"`; see `jaxrl.plotting.learning_curves`.

        Calls with the same `ax` draw further lines in further colours, with the name of the algorithm, or `label`, in
        the legend; `jaxrl.compare` draws several results in one call.
        """
        from jaxrl.results.plotting.curves import learning_curves

        options: dict[str, Any] = {"x": x, "hue": hue, "ax": ax, "path": path, "label": label}
        return learning_curves(self, metric, **options, confidence=confidence)

    def sel(self, **coords: Any) -> xarray.Dataset:
        """The metrics at some coordinates of the sweep, as `policy` takes them.

        Args:
          **coords: Values by path, such as `lr=1e-3, discount=0.98`, or seeds, `seed=3`.

        Returns:
          Dataset without the dims that are chosen; `result.metrics.sel` takes the labels themselves,
          such as `discount="exp:gamma=0.98"`.

        Raises:
          ResultError: There is no such coordinate or value.
        """
        metrics, chosen = self.metrics, set()
        labels = {path: values_of(self.settings, path) for path in self.settings[0]} | {"seed": self.seeds}
        for path, value in coords.items():
            if path not in labels:
                raise ResultError(f"{path} is not a coordinate; this result has {', '.join(labels)}.")
            hits = labels_meant(labels[path], value)
            if not hits:
                raise ResultError(f"{path} is {str(value)!r}; this result has {listed(labels[path])}.")
            dim = str(metrics[path].dims[0])
            metrics = metrics.isel({dim: np.isin(metrics[path].values, hits)})
            if not metrics.sizes[dim]:
                raise ResultError(f"no setting has all of {coords}; see the settings of this result.")
            chosen.add(dim)
        return metrics.isel({dim: 0 for dim in chosen if metrics.sizes[dim] == 1})

    def with_policies(self, kept: str) -> Result:
        """This result with the policies of the end, "last", or of the best evaluations, "best", as its only ones.

        Functions that take a result, such as `jaxrl.evaluate`, `jaxrl.collect` and `jaxrl.render`, then use these. The
        metrics are those of the call.

        Raises:
          ValueError: `kept` is neither.
          ResultError: The result has no such policies.
        """
        check_choice("kept", kept, KEPT)
        if self._holds_best_alone(kept):
            return self
        attrs = {name: value for name, value in self.metrics.attrs.items() if name != "keep"}
        metrics = self.metrics.copy()
        metrics.attrs = attrs | ({"policies": "best"} if kept == "best" else {})
        if kept == "last":
            return dataclasses.replace(self, metrics=metrics, best=None)
        best = self._best()
        none = np.isneginf(best.return_then)  # of a run without a finite evaluation, which has failed

        def evaluated(leaf: np.ndarray) -> np.ndarray:
            if not np.issubdtype(leaf.dtype, np.floating) or not none.any():
                return leaf
            return np.where(none.reshape(*none.shape, *[1] * (leaf.ndim - 2)), np.asarray(np.nan, leaf.dtype), leaf)

        policies = jax.tree.map(evaluated, best.policy)
        return dataclasses.replace(self, metrics=metrics, policies=policies, best=None, iterations=best.iteration)

    def _holds_best_alone(self, kept: str) -> bool:
        """Whether the policies of the best evaluations are the only ones; refuses the last ones of such a result."""
        alone = self.best is None and self.metrics.attrs.get("policies") == "best"
        if alone and kept == "last":
            raise ResultError(
                "kept takes 'best' (--kept best) where a result has the policies of its best evaluations alone, got "
                "'last'"
            )
        return alone

    def _best(self) -> Best:
        if self.best is None and self.algo is None:
            raise unknown_algorithm(self.metrics)
        if self.best is None:
            raise ResultError(
                "this result has no best policies, since its call kept the last ones alone; keep='best' of "
                "jaxrl.train (--keep best) keeps both"
            )
        return self.best

    def policy(self, *, seed: int | None = None, kept: Any = None, **coords: Any) -> TrainedPolicy:
        """The final policy of one run, or the one of its best evaluation.

        Args:
          seed: Seed of the run; optional if the result has a single seed.
          kept: Policy of the run: "last", that of the end; or "best", that of the evaluation with the highest return,
            the earliest of equal ones, in a result of `train(..., keep="best")`; None for the last one, or the best one
            of a result `with_policies("best")`. That return is too high by chance, as a maximum over evaluations;
            `result.best.return_again` is not.
          **coords: Coordinates of the run in the sweep, such as `lr=1e-3, discount="exp:gamma=0.98"`
            (`**{"env.gravity": 9.8}` for a path with dots); optional for coordinates with a single value.

        Returns:
          A callable `policy(obs, key=None, greedy=True)`.

        Raises:
          ResultError: No run or several runs match the coordinates, the algorithm is unknown, the result has no such
            policy, or no evaluation of the run was finite, so that none was the best.
          ValueError: `kept` is unknown.
        """
        if kept is not None:
            check_choice("kept", kept, KEPT)
        if self.algo is None:
            raise unknown_algorithm(self.metrics)
        try:
            setting = choose_setting(self.settings, coords, "this result")
        except ValueError as error:
            raise ResultError(str(error)) from None
        seeds = self.seeds
        if seed is None and len(seeds) > 1:
            raise ResultError(f"seed is missing; this result has {listed(seeds)}.")
        if seed is not None and seed not in seeds:
            raise ResultError(f"seed is {seed!r}; this result has {listed(seeds)}.")
        run = 0 if seed is None else seeds.index(seed)
        policies, iterations = self.policies, self.iterations
        if kept is not None and not self._holds_best_alone(kept) and kept == "best":
            best = self._best()
            if np.isneginf(best.return_then[setting, run]):
                raise ResultError(
                    f"kept takes 'last' where no evaluation of a run was finite, as of seed {seeds[run]}, got 'best'"
                )
            policies, iterations = best.policy, best.iteration
        params = jax.tree.map(lambda leaf: leaf[setting, run], policies)
        env_params = jax.tree.map(lambda leaf: leaf[setting], self.env_params)
        training_env_steps = int(self.metrics["env_step"].values[-1])
        env_steps = training_env_steps if self.metrics.attrs.get("policies") != "best" else None
        if iterations is not None:
            env_steps = int(iterations[setting, run]) * self.algo.env_steps_per_iteration
        labels = self.settings[setting], seeds[run]
        return TrainedPolicy(self.algo, params, *labels, env_params, env_steps, training_env_steps)

    def save(self, path: str | Path, force: bool = False) -> Path:
        """Write a run directory: `metrics.nc`, `metrics.csv`, `policies.npz`, `config.json`.

        With the extra `parquet` it also writes `metrics.parquet`, the table of `metrics.csv`.

        Args:
          path: Directory, created if it is missing.
          force: Whether to replace an existing result.

        Returns:
          The directory.

        Raises:
          FileExistsError: The directory already holds a result and `force` is false.
          ResultError: The directory cannot be written.
        """
        from jaxrl.results.storage import save

        self.directory = save(self, path, force)
        return self.directory
