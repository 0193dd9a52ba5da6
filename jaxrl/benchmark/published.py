"""Returns that other projects publish, and those of the benchmark after as many environment steps or all of its own."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple

from jaxrl.benchmark.cells import cell
from jaxrl.benchmark.data import Benchmark, estimates_at
from jaxrl.results.tables import Table

FEWER = 0.03  # share by which environment steps that count as equal may be fewer

__all__ = ["PUBLISHED", "Published", "beside_published"]


class Published(NamedTuple):
    """A return in a table of another project.

    Attributes:
      source: Project, with the date of its table where that is known.
      algorithm, task: Names here of the algorithm and of the task.
      env_steps: Number of environment steps of its training.
      value: Return that the project publishes.
      runs: Number of runs from which the return is computed.
    """

    source: str
    algorithm: str
    task: str
    env_steps: int
    value: float
    runs: int


def _read() -> tuple[Published, ...]:
    with Path(__file__).with_name("published.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.reader(stream))[1:]
    return tuple(
        Published(source, algorithm, task, int(steps), float(value), int(runs))
        for source, algorithm, task, steps, value, runs in rows
    )


PUBLISHED = _read()


def beside_published(benchmark: Benchmark, task: str | None = None, *, confidence: float = 0.95) -> Table:
    """A row for each published return of a cell that has data, with the return of the benchmark after as many steps.

    The published numbers differ in what they average: SLM-Lab's are moving averages of returns during training, the
    others are returns of trained policies. Those of the benchmark are greedy returns after training for as many steps,
    interpolated between two evaluations, or after all steps of the cell if it has fewer, which `our_steps` shows.

    The column `worse` says whether ours is worse after equally many steps, or up to 3 % fewer: "yes" if the published
    return is above our interval, "unclear" if it is in the interval above our interquartile mean, otherwise "no"; and
    "shorter" where our training has fewer steps, so that the two cannot be compared.

    Args:
      benchmark: Data of the benchmark.
      task: Task of the rows; None for all.
      confidence: Confidence level of the intervals.

    Raises:
      ValueError: The benchmark has no data on the task.
    """
    benchmark.require_task(task)
    rows = []
    for row in PUBLISHED:
        ours = cell(row.algorithm, row.task)
        if ours in benchmark.cells and task in (None, row.task):
            result = benchmark.result(row.algorithm, row.task)
            at = min(row.env_steps, int(result.metrics["env_step"][-1]))
            value, low, high, _, count = estimates_at(result, at, confidence)
            theirs = (row.task, row.algorithm, row.source, row.runs, row.env_steps, row.value)
            worse = "no" if row.value <= value else "unclear" if row.value <= high else "yes"
            if at < (1 - FEWER) * row.env_steps:
                worse = "shorter"
            rows.append((*theirs, at, count, value, low, high, worse))
    columns = (
        "task",
        "algorithm",
        "source",
        "runs",
        "env_steps",
        "published",
        "our_steps",
        "seeds",
        "iqm",
        "low",
        "high",
        "worse",
    )
    title = f"published returns, and interquartile means of the benchmark with {confidence:.0%} intervals"
    return Table(title, columns, tuple(rows), 3, decimals={"published": 1})
