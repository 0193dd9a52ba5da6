"""Result of a meta-training: outer curves, learned thetas, and their results on held-out tasks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from envs.errors import UserTypeError
from envs.spelling import near_or_all
from jaxrl.algorithms.contract import Algorithm
from jaxrl.pytrees import HParams
from jaxrl.results.dataset import ResultError
from jaxrl.results.loading import load_result
from jaxrl.results.result import Result
from jaxrl.results.tables import Table
from jaxrl.tuning.learned.theta import Theta
from jaxrl.tuning.outer.meta_table import load_held_out, table_of

if TYPE_CHECKING:
    import matplotlib.axes

__all__ = ["MetaResult", "load_meta_table", "load_theta"]


@dataclasses.dataclass(repr=False)
class MetaResult:
    """A meta-training, complete or stopped.

    Attributes:
      result: Outer curves, whose axis `seed` holds the outer seeds and whose axis `env_step` counts the environment
        steps of all inner trainings of an outer run. Metrics of a generation: `return`, the mean objective of its
        members over tasks and inner seeds; `best_return`, that of its best member; `spread`, the standard deviation
        over members; `failed`, the number of inner trainings that were not finite, which are left out of the means;
        `theta`, its numbers in the order of the leaves, and `distance`, their Euclidean distance from the start; and
        for several tasks `task_return`, a mean for each. Its policies are the numbers of the learned thetas by their
        paths, from which `load_theta` makes them again.
      theta: Theta that was learned, with its start.
      algos: Algorithms on the tasks of the inner trainings.
      held_out: Results by the name of the held-out task (with a number where two have one name), with the axis `theta`:
        "start", and "seed 0", "seed 1", ... for the thetas of the outer seeds; empty for a stopped call or without test
        seeds.
      metric: Metric that the objective takes.
      stopped_by_signal: Signal that ended the call early, or 0.
    """

    result: Result
    theta: Theta
    algos: tuple[Algorithm, ...]
    held_out: dict[str, Result]
    metric: str = "return"
    stopped_by_signal: int = 0

    def __repr__(self) -> str:
        generations, runs = self.result.metrics.sizes["env_step"], len(self.result.seeds)
        tasks = ", ".join(algo.env.name for algo in self.algos)
        return (
            f"MetaResult({self.theta.name} of {self.algos[0].name} on {tasks}: {generations} generations of {runs} "
            f"outer seeds; details: table(), plot())"
        )

    def learned(self, seed: int | None = None) -> Any:
        """Theta as an outer run learned it, a pytree of arrays; that of the first outer seed if None.

        Raises:
          ValueError: There is no such outer seed.
        """
        return load_theta(self.result, self.theta, seed)

    def hparams(self, algo: Algorithm | None = None, seed: int | None = None) -> HParams:
        """Hyper-parameters with a learned theta, for `jaxrl.train(algo, hparams, ...)`.

        Args:
          algo: Algorithm to train; that of the first task if None.
          seed: Outer seed; the first if None.
        """
        chosen = self.algos[0] if algo is None else algo
        if not isinstance(chosen, Algorithm):
            raise UserTypeError(f"algo takes an algorithm, such as jaxrl.ppo(env), got {algo!r}")
        return self.theta.apply(self.learned(seed), chosen.hparams)

    def table(self, metric: str | None = None, *, confidence: float = 0.95) -> Table:
        """Held-out tasks under theta at its start, and as it was learned, on test seeds.

        Args:
          metric: Metric of an evaluation; that of the objective if None. The value of a training is that at its end, or
            the mean over its evaluations if the objective is the area.
          confidence: Confidence level of the intervals, in (0, 1): over test seeds for the start, over outer seeds for
            learned thetas.

        Raises:
          ResultError: There are no held-out results, or they have no such metric.
        """
        if not self.held_out:
            raise ResultError("this meta-training has no held-out results: it was stopped, or test_seeds was 0")
        return _table(
            {name: [result] for name, result in self.held_out.items()},
            self.metric if metric is None else metric,
            confidence,
        )

    def plot(self, metric: str | None = None, **options: Any) -> matplotlib.axes.Axes:
        """Outer curves with bands over outer seeds; options as in `Result.plot`."""
        return self.result.plot(metric, **options)


def load_theta(source: str | Path | Result, theta: Theta, seed: int | None = None) -> Any:
    """A learned theta from the result of a meta-training, a pytree of arrays as `theta.initial`.

    Args:
      source: Run directory of `jaxrl.meta(..., out=...)`, or the result in `MetaResult.result`.
      theta: Theta that was learned.
      seed: Outer seed; the first if None.

    Raises:
      ValueError: There is no such outer seed, or the result is of another theta.
    """
    if not isinstance(theta, Theta):
        raise UserTypeError(f"theta takes a Theta, such as jaxrl.learned_discount(algo), got {theta!r}")
    result = source if isinstance(source, Result) else load_result(source)
    leaves, structure = jax.tree.flatten_with_path(theta.initial)
    paths = [jax.tree_util.keystr(at) for at, _ in leaves]
    kept = result.policies if isinstance(result.policies, dict) else {}
    for path, (_, leaf) in zip(paths, leaves, strict=True):
        if set(kept) != set(paths) or kept[path].shape[2:] != np.shape(leaf):
            raise ResultError(f"the result is not of the theta {theta.name!r}: its numbers have other names or shapes")
    seeds = result.seeds
    chosen = seeds[0] if seed is None else seed
    if chosen not in seeds:
        raise ResultError(f"seed takes one of the outer seeds {', '.join(map(str, seeds))}, got {seed!r}")
    return structure.unflatten([kept[path][0, seeds.index(chosen)] for path in paths])


def load_meta_table(
    paths: str | Path | Sequence[str | Path], metric: str | None = None, *, confidence: float = 0.95
) -> Table:
    """Table of `MetaResult.table`, from the directories of meta-trainings; with several, over all of their outer seeds.

    Args:
      paths: Run directory of `jaxrl.meta(..., out=...)`, or those of its shards.
      metric: Metric of an evaluation; that of the objective if None.
      confidence: Confidence level of the intervals, in (0, 1).

    Raises:
      ResultError: A directory has no complete held-out results of its thetas, or is of another meta-training than the
        first one; two have the same outer seed; or there is no such metric.
    """
    listed = [Path(paths)] if isinstance(paths, str | Path) else [Path(path) for path in paths]
    if not listed:
        raise ResultError("paths takes directories of meta-trainings, such as ['runs/meta-0', 'runs/meta-1'], got none")
    results = load_held_out(listed)
    discounted = next(iter(results.values()))[0].metrics.attrs.get("objective_discount", "none") != "none"
    of_objective = "discounted_return" if discounted else "return"
    return _table(results, of_objective if metric is None else metric, confidence)


def _table(results: Mapping[str, Sequence[Result]], metric: str, confidence: float) -> Table:
    known = [str(name) for name in next(iter(results.values()))[0].metrics.data_vars]
    if metric not in known:
        raise ResultError(f"metric is {metric!r}{near_or_all(metric, known)}")
    return table_of(results, metric, confidence)
