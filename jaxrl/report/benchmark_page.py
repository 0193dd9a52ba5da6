"""The benchmark as one page for a browser."""

from __future__ import annotations

from pathlib import Path

from jaxrl.benchmark.cells import CELLS
from jaxrl.benchmark.data import Benchmark
from jaxrl.report.beside_benchmark import NORMALISED, references_of
from jaxrl.report.over_tasks import report_over_tasks
from jaxrl.report.page import write_reports
from jaxrl.results.dataset import ResultError

__all__ = ["write_page"]


def write_page(benchmark: Benchmark, out: str | Path, *, confidence: float = 0.95) -> Path:
    """Write a self-contained page with a report over all tasks and one for each, of which a reader selects one.

    Args:
      benchmark: Data of the benchmark.
      out: File to write, `.html`; an existing file is replaced.
      confidence: Confidence level of the intervals.

    Returns:
      The file.

    Raises:
      ResultError: No cell has data.
      ValueError: The suffix is not `.html`, or the file cannot be written.
    """
    if not benchmark.cells:
        raise ResultError(f"{benchmark.directory} has no data of the benchmark: jaxrl benchmark run --missing")
    tasks = {
        task: {
            each.algorithm: benchmark.result(each.algorithm, task)
            for each in benchmark.cells
            if each.environment == task
        }
        for task in benchmark.tasks
    }
    description = (
        f"{len(benchmark.cells)} of {len(CELLS)} cells, each an algorithm on a task with 16 or 32 seeds: learning "
        "curves of greedy returns, final values, and the probability that a run of one algorithm is better than a run "
        "of another. Select a task below."
    )
    references = references_of(benchmark, benchmark.tasks)
    overview = report_over_tasks(tasks, references, note=NORMALISED, confidence=confidence) if references else None
    return write_reports(
        tasks,
        out,
        title="The benchmark of jaxrl",
        description=description,
        overview=overview,
        confidence=confidence,
    )
