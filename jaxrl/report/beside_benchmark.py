"""Runs on a page beside those of the benchmark: by task, with its lines, and in normalised returns over all tasks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from envs.errors import UserTypeError, UserValueError
from envs.spelling import near_or_all
from jaxrl.report.benchmark_arguments import BENCHMARK, check_task_of_benchmark
from jaxrl.report.entries import Source, runs_with_names
from jaxrl.report.over_tasks import report_over_tasks
from jaxrl.report.runs import Run, runs_of
from jaxrl.results.dataset import NO_RANGE, ResultError, range_of

if TYPE_CHECKING:
    from jaxrl.benchmark.data import Benchmark

NORMALISED = (
    "Normalised returns are 0 at the mean of random actions, and 1 at the optimum or, where that is not known, at the "
    "interquartile mean of the best algorithm of the benchmark; intervals take these returns as exact."
)

__all__ = ["check_baseline", "of_benchmark", "over_benchmark", "references_of", "runs_by_task"]


def runs_by_task(
    sources: Sequence[Source] | Mapping[str, Source | Sequence[Source]], *, trust: bool = False
) -> dict[str, list[Run]]:
    """The runs of a page by environment.

    Args:
      sources: Runs as of `write_report`. Without names, runs on several environments have those of their algorithms.
      trust: Whether to read files that do not match their checksums.

    Raises:
      ValueError: Two runs on an environment have one name, a name has no runs, or is one of the benchmark.
      TypeError: A name has something else than runs.
      ResultError: A directory holds no result.
    """
    if isinstance(sources, Mapping):
        for name, source in sources.items():
            if isinstance(source, Mapping):
                raise UserTypeError(f"runs takes a run or a list of runs for each name, got a dictionary for {name!r}")
    by_task: dict[str, list[Run]] = {}
    for name, _, run in runs_with_names(sources, trust, argument="runs"):
        if name.startswith(f"{BENCHMARK} "):
            raise UserValueError(
                f"runs has the name {name!r}; names that begin with {BENCHMARK!r} are those of its lines"
            )
        others = by_task.setdefault(run.environment, [])
        if any(each.name == name for each in others):
            raise UserValueError(f"runs has two results of {name!r} on {run.environment}; give them different names")
        others.append(dataclasses.replace(run, name=name))
    return by_task


def of_benchmark(benchmark: Benchmark, task: str, runs: Sequence[Run], trust: bool) -> list[Run]:
    """Runs of the benchmark on a task, up to the last environment step of other runs.

    Args:
      benchmark: Data of the benchmark.
      task: Name of the task.
      runs: Other runs on it.
      trust: Whether to read files that do not match their checksums.

    Raises:
      ValueError: The benchmark has no data on the task, or only on another environment of its name.
    """
    from jaxrl.benchmark.data import up_to

    last = max(run.last_step for run in runs)
    results = {f"{BENCHMARK} {name}": each[0] for name, each in benchmark.results(task, trust=trust).items()}
    added = runs_of({name: up_to(result, last) for name, result in results.items()})
    for run in runs:
        ranges = [range_of(each.attributes, "return") for each in (run, added[0])]
        if NO_RANGE not in ranges and ranges[0] != ranges[1]:
            raise UserValueError(
                f"to takes the benchmark, whose returns on {task} lie in {[*ranges[1]]}, and those of {run.name} in "
                f"{[*ranges[0]]}"
            )
    return added


def over_benchmark(
    benchmark: Benchmark, runs: Mapping[str, Sequence[Run]], baseline: str | None, confidence: float, trust: bool
) -> dict[str, Any] | None:
    """The report over several tasks, as of `report_over_tasks`; None if none has returns that count as 0 and as 1.

    Args:
      benchmark: Data of the benchmark.
      runs: Runs on each task, with those of the benchmark.
      baseline: Name of the line with which others are compared initially; None for the first one.
      confidence: Confidence level of every interval, in (0, 1).
      trust: Whether to read files that do not match their checksums.

    Raises:
      ValueError: A run has several settings, or an environment whose parameters are not those of the benchmark.
      ResultError: Data of the benchmark are damaged.
    """
    for own in runs.values():
        for run in own:
            if len(run.result.settings) > 1:
                raise UserValueError(
                    f"runs on several environments take one setting each, and {run.name} on {run.environment} has "
                    f"{len(run.result.settings)}; write a report for each environment"
                )
    references = references_of(benchmark, list(runs), trust=trust)
    if not references:
        return None
    for task in references:
        own = [run for run in runs[task] if not run.is_of_benchmark]
        check_task_of_benchmark(benchmark, task, own, trust, argument="to")
    results = {task: {run.name: run.result for run in own} for task, own in runs.items()}
    report = report_over_tasks(results, references, note=NORMALISED, confidence=confidence)
    names = [line["label"] for line in report["lines"]]
    return report | {"baseline": names.index(baseline) if baseline in names else 0}


def references_of(benchmark: Benchmark, tasks: Sequence[str], *, trust: bool = False) -> dict[str, tuple[float, float]]:
    """Returns that count as 0 and as 1, of the tasks that have them.

    Args:
      benchmark: Data of the benchmark.
      tasks: Names of tasks.
      trust: Whether to read files that do not match their checksums.

    Raises:
      ResultError: Data of the benchmark are damaged.
    """
    from jaxrl.benchmark.references import reference

    ends = {}
    for task in tasks:
        try:
            ends[task] = reference(benchmark, task, trust=trust)[:2]
        except ResultError:
            raise
        except UserValueError:  # of a task without them, which the page lists
            continue
    return ends


def check_baseline(baseline: str | None, runs: Mapping[str, Sequence[Run]]) -> None:
    """Reject a baseline that no run has as its name.

    Args:
      baseline: Name, or None.
      runs: Runs on each task, with those of the benchmark.

    Raises:
      ValueError: No run has this name.
    """
    names = list(dict.fromkeys(run.name for own in runs.values() for run in own))
    if baseline is not None and baseline not in names:
        raise UserValueError(f"baseline is {baseline!r}{near_or_all(baseline, names)}")
