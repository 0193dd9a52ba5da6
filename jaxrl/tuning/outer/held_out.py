"""Learned thetas on tasks and seeds that the outer loop has not seen."""

from __future__ import annotations

import dataclasses
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxrl.algorithms.contract import Algorithm
from jaxrl.pytrees import PyTree
from jaxrl.results.dataset import ResultError, range_of
from jaxrl.results.loading import load_result
from jaxrl.results.result import Result
from jaxrl.results.statistics import bootstrap_interval, iqm, mean
from jaxrl.results.tables import Table, estimates
from jaxrl.runtime.call import Call
from jaxrl.runtime.checkpoints.identity import identity_of, same_runs
from jaxrl.runtime.checkpoints.identity_file import ASKED, IDENTITY, read_identity
from jaxrl.runtime.drive.progress import StopRequest
from jaxrl.runtime.execution import carry_out
from jaxrl.runtime.layout import plan_layout
from jaxrl.runtime.loop import evaluation_points
from jaxrl.runtime.options import Options, RunOptions, checked
from jaxrl.runtime.training import train, training_call
from jaxrl.tuning.learned.theta import Theta
from jaxrl.tuning.outer.fitness import objective_of
from jaxrl.tuning.outer.inner_task import sweep_of

FIRST_TEST_SEED = 1_000_000  # inner seeds are drawn from all of uint32, which repeats one with negligible probability
HELD_OUT = "held-out"  # directory of the results on held-out tasks
START = "start"
EVALS = 10
_AT = {"final": "", "area": ", mean over the evaluations of a training,"}

__all__ = ["EVALS", "FIRST_TEST_SEED", "HELD_OUT", "START", "Comparison", "load_held_out", "table_of"]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Trainings on held-out tasks, under theta at its start and as each outer run learned it.

    Attributes:
      algos: Algorithms on the held-out tasks.
      theta: Theta.
      env_steps: Number of environment steps of a training.
      eval_episodes: Number of episodes of an evaluation.
      test_seeds: Number of test seeds of each theta; 0 for no comparison.
      objective: Name of the objective, see `fitness.objective_of`, which results record.
      discount: Discount of the objective, which results record.
    """

    algos: Sequence[Algorithm]
    theta: Theta
    env_steps: int
    eval_episodes: int
    test_seeds: int
    objective: str
    discount: str

    def check(self, seeds: Sequence[int]) -> None:
        """Raise the errors of the calls, before anything is compiled.

        Args:
          seeds: Outer seeds.
        """
        if self.test_seeds:
            for algo in self.algos:
                self._call(algo, [self.theta.initial] * len(seeds), seeds)

    def results(
        self,
        learned: Sequence[PyTree],
        seeds: Sequence[int],
        directory: Path | None,
        options: Options,
        stop: StopRequest,
    ) -> dict[str, Result]:
        """Results by the names of the tasks.

        Args:
          learned: Learned theta of each outer seed.
          seeds: Outer seeds.
          directory: Directory to save the results in, one directory for each task; None saves nothing.
          options: Options of the execution.
          stop: Stop request that a signal sets.

        Returns:
          Results with the axis `theta`: "start", and "seed 0", "seed 1", ... for the outer seeds; none after a signal.
          A directory with the trainings of the same thetas is resumed, one with others is replaced, and one of a task
          that is not among these is deleted.
        """
        outs = [
            None if directory is None else directory / f"{i}-{algo.env.name.replace('/', '-')}"
            for i, algo in enumerate(self.algos)
        ]
        if directory is not None and directory.is_dir():
            for other in {*directory.iterdir()}.difference(outs):
                if not other.is_symlink() and (other / IDENTITY).is_file():
                    shutil.rmtree(other)
        results: dict[str, Result] = {}
        for name, algo, out in zip(_numbered([algo.env.name for algo in self.algos]), self.algos, outs, strict=True):
            try:
                results[name] = _trained(self._call(algo, learned, seeds), out, options, stop)
            except KeyboardInterrupt as interrupt:  # before there was anything to save
                stop.signal = stop.signal or (interrupt.args[0] if interrupt.args else signal.SIGINT)
            if stop:
                return {}
        return results

    def _call(self, algo: Algorithm, learned: Sequence[PyTree], seeds: Sequence[int]) -> Call:
        """Call of the trainings of a task."""
        theta = self.theta
        stacked = jax.tree.map(
            lambda *leaves: np.stack([np.asarray(leaf, np.float32) for leaf in leaves]), theta.initial, *learned
        )
        hparams = jax.jit(jax.vmap(lambda value: theta.apply(value, algo.hparams)))(stacked)
        call = training_call(
            algo,
            sweep_of(hparams, [START, *(f"seed {seed}" for seed in seeds)]),
            seeds=list(range(FIRST_TEST_SEED, FIRST_TEST_SEED + self.test_seeds)),
            points=evaluation_points(self.env_steps, EVALS, algo.env_steps_per_iteration),
            eval_episodes=self.eval_episodes,
        )
        attrs = {**call.attrs, "objective_discount": self.discount, "objective": self.objective}
        return dataclasses.replace(call, attrs=attrs)


def load_held_out(paths: Sequence[Path]) -> dict[str, list[Result]]:
    """Results that the shards of a meta-training saved, by the names of the held-out tasks.

    Args:
      paths: Run directories of the shards, or of a whole meta-training.

    Raises:
      ResultError: A directory has no held-out results, or other tasks than the first one, or two have one outer seed.
    """
    loaded: list[dict[str, Result]] = []
    for path in paths:
        folders = sorted((path / HELD_OUT).glob("[0-9]*-*"), key=lambda folder: int(folder.name.partition("-")[0]))
        if not folders:
            raise ResultError(
                f"{path} has no held-out results: it was stopped, or is not of jaxrl.meta with test seeds"
            )
        loaded.append({folder.name: load_result(folder) for folder in folders})
    for path, results in zip(paths, loaded, strict=True):
        if results.keys() != loaded[0].keys():
            raise ResultError(f"{path} has other held-out tasks than {paths[0]}")
    names = _numbered([result.metrics.attrs["environment"] for result in loaded[0].values()])
    shards = {name: [results[folder] for results in loaded] for name, folder in zip(names, loaded[0], strict=True)}
    for of_task in shards.values():
        labels = [setting["theta"] for result in of_task for setting in result.settings[1:]]
        if twice := [label for label in labels if labels.count(label) > 1]:
            raise ResultError(f"paths takes each outer seed once, but two directories have {twice[0]}")
    return shards


def _trained(call: Call, out: Path | None, options: Options, stop: StopRequest) -> Result:
    """The result of a call in its own directory, resumed if the directory holds the same call."""
    own: RunOptions = {
        "block": options.block,
        "devices": options.devices,
        "memory": options.memory,
        "precision": options.precision,
        "progress": options.progress,
    }
    begun = None
    if out is not None:
        own |= {"out": out, "checkpoint_minutes": options.checkpoint_minutes, "trust": options.trust}
        if (out / IDENTITY).is_file():
            begun = read_identity(out, trust=options.trust)
            layout = plan_layout(call.num_runs, options.block, options.devices, call.cpu_block)
            current = identity_of(call, layout, options.precision)
            begun = begun if same_runs(begun, current, (ASKED, "block")) else None
        own |= {"resume": begun is not None, "force": begun is None}
    return carry_out(call, checked(train, RunOptions, own), begun=begun, stop=stop)


def _numbered(names: Sequence[str]) -> list[str]:
    """Names of tasks, with a number where two have one name."""
    return [f"{name} {names[:i].count(name) + 1}" if names.count(name) > 1 else name for i, name in enumerate(names)]


def table_of(results: Mapping[str, Sequence[Result]], metric: str, confidence: float) -> Table:
    """Table of held-out tasks: theta at its start, and as it was learned.

    The value of a training is that of the objective: its last evaluation for "final", the mean over its evaluations for
    "area". A row "learned" has the mean over outer seeds of the interquartile mean over test seeds, and the interval of
    that mean over outer seeds: the outer loop is repeated, not only its last trainings.

    Args:
      results: Results by the names of tasks, of `Comparison.results`: one, or those of the shards of the outer seeds.
      metric: Metric of an evaluation.
      confidence: Confidence level of the intervals.
    """
    rows: list[tuple[Any, ...]] = []
    objective = "final"
    for name, shards in results.items():
        objective = shards[0].metrics.attrs.get("objective", objective)
        limits = range_of(shards[0].metrics.attrs, metric)
        each = [_values(shard, metric, objective) for shard in shards]
        start, learned = each[0][0], np.concatenate([values[1:] for values in each])
        finite = start[np.isfinite(start)]
        rows.append((name, START, *estimates(finite, confidence, limits), len(start) - len(finite)))
        good = [run[np.isfinite(run)] for run in learned]
        iqms = np.asarray([float(iqm(run)) for run in good if len(run)])
        interval = bootstrap_interval(mean, iqms, confidence=confidence).within(*limits) if len(iqms) > 1 else None
        ends = (np.nan, np.nan) if interval is None else (float(interval.low), float(interval.high))
        centre = float(iqms.mean()) if len(iqms) else np.nan
        count = sum(map(len, good))
        overall = float(np.concatenate(good).mean()) if count else np.nan
        rows.append((name, "learned", centre, *ends, overall, count, learned.size - count))
    title = (
        f"{metric}{_AT[objective]} on test seeds: interquartile mean, {confidence:.0%} bootstrap interval, over test "
        "seeds for the start and over outer seeds for learned thetas"
    )
    return Table(title, ("task", "theta", "iqm", "low", "high", "mean", "runs", "failed"), tuple(rows), 2)


def _values(result: Result, metric: str, objective: str) -> np.ndarray:
    """Value of each training, `[thetas, test_seeds]`, nan for one that failed."""
    values = objective_of(np.moveaxis(result.values(metric), -1, 0), objective)
    return np.where(result.failed_runs(), np.nan, values)
