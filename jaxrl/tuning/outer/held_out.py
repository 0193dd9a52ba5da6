"""Learned thetas on tasks and seeds that the outer loop has not seen."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxrl.algorithms.contract import Algorithm
from jaxrl.pytrees import PyTree
from jaxrl.results.dataset import range_of
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
from jaxrl.tuning.outer.inner_task import sweep_of

FIRST_TEST_SEED = 1_000_000  # inner seeds are drawn from all of uint32, which repeats one with negligible probability
START = "start"
EVALS = 10

__all__ = ["EVALS", "FIRST_TEST_SEED", "START", "held_out_results", "table_of"]


def held_out_results(
    algos: Sequence[Algorithm],
    theta: Theta,
    learned: Sequence[PyTree],
    seeds: Sequence[int],
    *,
    env_steps: int,
    eval_episodes: int,
    test_seeds: int,
    objective: str,
    directory: Path | None,
    options: Options,
    stop: StopRequest,
) -> dict[str, Result]:
    """Results of trainings under theta at its start, and as each outer run learned it.

    Args:
      algos: Algorithms on the held-out tasks.
      theta: Theta.
      learned: Learned theta of each outer seed.
      seeds: Outer seeds.
      env_steps: Number of environment steps of a training.
      eval_episodes: Number of episodes of an evaluation.
      test_seeds: Number of test seeds of each theta.
      objective: Discount of the objective, which results record.
      directory: Directory to save the results in, one directory for each task; None saves nothing.
      options: Options of the execution.
      stop: Stop request that a signal sets.

    Returns:
      Results by the names of the tasks, with the axis `theta`: "start", and "seed 0", "seed 1", ... for the outer
      seeds; none after a signal. A directory with the trainings of the same thetas is resumed, and one with others is
      replaced.
    """
    stacked = jax.tree.map(
        lambda *leaves: np.stack([np.asarray(leaf, np.float32) for leaf in leaves]), theta.initial, *learned
    )
    labels = [START, *(f"seed {seed}" for seed in seeds)]
    results: dict[str, Result] = {}
    for i, (name, algo) in enumerate(zip(_names(algos), algos, strict=True)):
        hparams = jax.jit(jax.vmap(lambda value, algo=algo: theta.apply(value, algo.hparams)))(stacked)
        call = training_call(
            algo,
            sweep_of(hparams, labels),
            seeds=list(range(FIRST_TEST_SEED, FIRST_TEST_SEED + test_seeds)),
            points=evaluation_points(env_steps, EVALS, algo.env_steps_per_iteration),
            eval_episodes=eval_episodes,
        )
        call = dataclasses.replace(call, attrs={**call.attrs, "objective_discount": objective})
        out = None if directory is None else directory / f"{i}-{algo.env.name.replace('/', '-')}"
        try:
            results[name] = _trained(call, out, options, stop)
        except KeyboardInterrupt as interrupt:  # before there was anything to save
            stop.signal = stop.signal or (interrupt.args[0] if interrupt.args else signal.SIGINT)
        if stop:
            return {}
    return results


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


def _names(algos: Sequence[Algorithm]) -> list[str]:
    """Names of tasks: those of their environments, with a number where two have one name."""
    names = [algo.env.name for algo in algos]
    return [f"{name} {names[:i].count(name) + 1}" if names.count(name) > 1 else name for i, name in enumerate(names)]


def table_of(results: Mapping[str, Result], metric: str, confidence: float) -> Table:
    """Table of held-out tasks: theta at its start, and as it was learned.

    A row "learned" has the mean over outer seeds of the interquartile mean over test seeds, and the interval of that
    mean over outer seeds: the outer loop is repeated, not only its last trainings.

    Args:
      results: Results by the names of tasks, of `held_out_results`.
      metric: Metric at the end of training.
      confidence: Confidence level of the intervals.
    """
    rows: list[tuple[Any, ...]] = []
    for name, result in results.items():
        values = np.where(result.failed_runs(), np.nan, result.values(metric)[:, :, -1])
        limits = range_of(result.metrics.attrs, metric)
        start = values[0][np.isfinite(values[0])]
        rows.append((name, START, *estimates(start, confidence, limits), len(values[0]) - len(start)))
        each = [run[np.isfinite(run)] for run in values[1:]]
        iqms = np.asarray([float(iqm(run)) for run in each if len(run)])
        interval = bootstrap_interval(mean, iqms, confidence=confidence).within(*limits) if len(iqms) > 1 else None
        ends = (np.nan, np.nan) if interval is None else (float(interval.low), float(interval.high))
        centre = float(iqms.mean()) if len(iqms) else np.nan
        good = sum(map(len, each))
        overall = float(np.concatenate(each).mean()) if good else np.nan
        rows.append((name, "learned", centre, *ends, overall, good, values[1:].size - good))
    title = (
        f"{metric} on test seeds: interquartile mean, {confidence:.0%} bootstrap interval, over test seeds for the "
        "start and over outer seeds for learned thetas"
    )
    return Table(title, ("task", "theta", "iqm", "low", "high", "mean", "runs", "failed"), tuple(rows), 2)
