"""The outcome of a sequential comparison: a decision on every pair of algorithms and every task."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jaxrl.results.format import counted
from jaxrl.results.result import Result
from jaxrl.results.tables import Table

UNDECIDED, EQUAL = "undecided", "equal"

__all__ = ["PairDecision", "SequentialComparison"]


class PairDecision(NamedTuple):
    """Decision on a pair of algorithms on a task.

    Attributes:
      task: Name of the task.
      first, second: Names of the algorithms.
      better: Name of the better one; None if the pair is equal or not decided.
      difference: Mean of the first minus mean of the second, of the runs that did not fail.
      low, high: Ends of the interval of the difference, nan where there are too few seeds for one. They are those of
        the level divided by the number of all pairs, and a pair may be decided at a higher level after others, so that
        the interval of a decided pair may contain 0.
      seeds: Number of seeds of each algorithm at the decision, or so far if the pair is not decided.
      failed: Number of runs that failed, of both.
      p: Smallest level of all decisions together at which the pair differs, up to 1.
      equal: Whether the interval lies within the margin of the task on both sides of 0, and the pair does not differ.
    """

    task: str
    first: str
    second: str
    better: str | None
    difference: float
    low: float
    high: float
    seeds: int
    failed: int
    p: float
    equal: bool = False


@dataclasses.dataclass(frozen=True, repr=False)
class SequentialComparison:
    """Decisions on pairs of algorithms, and the results that they are based on; see `jaxrl.compare`, which makes it.

    Attributes:
      metric: Name of the metric, whose last value of each run is compared.
      direction: 1 if higher values are better, -1 if lower values are.
      confidence: Confidence level of all decisions that pairs differ, again of all that pairs are equal, and of all
        intervals.
      max_seeds: Largest number of seeds of each algorithm on each task.
      decisions: Decisions on all pairs on all tasks.
      results: Results of the blocks of seeds, `{name: {task: results}}`.
      stopped_by_signal: Signal that ended the comparison early, or 0.
      margins: Smallest difference of means that matters on each task; none where every pair is tested for a difference
        only.
    """

    metric: str
    direction: int
    confidence: float
    max_seeds: int
    decisions: tuple[PairDecision, ...]
    results: Mapping[str, Mapping[str, Sequence[Result]]]
    stopped_by_signal: int = 0
    margins: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def undecided(self) -> list[PairDecision]:
        """Pairs that neither differ nor are equal."""
        return [decision for decision in self.decisions if decision.better is None and not decision.equal]

    @property
    def num_runs(self) -> int:
        """Number of runs that were trained."""
        tasks = [blocks for by_task in self.results.values() for blocks in by_task.values()]
        return sum(len(block.seeds) for blocks in tasks for block in blocks)

    @property
    def most_runs(self) -> int:
        """Number of runs of an experiment with the largest number of seeds."""
        return sum(self.max_seeds for by_task in self.results.values() for _ in by_task)

    def sources(self, task: str) -> dict[str, list[Result]]:
        """Results on a task by name, which `jaxrl.compare` takes for tables, probabilities and figures.

        Args:
          task: Name of the task.
        """
        return {name: list(by_task[task]) for name, by_task in self.results.items()}

    def table(self) -> Table:
        """A row for each pair on each task: its decision, the difference of means with its interval, seeds and p."""
        columns = ["task", "first", "second", "better", "difference", "low", "high", "seeds", "failed", "p"]
        if not any(decision.failed for decision in self.decisions):
            columns.remove("failed")
        rows = []
        for decision in self.decisions:
            better = decision.better or (EQUAL if decision.equal else UNDECIDED)
            values = {**decision._asdict(), "better": better}
            rows.append(tuple(values[name] for name in columns))
        pairs = counted(len(self.decisions), "pair")
        title = (
            f"{self.metric} at the end of training: mean of first minus mean of second, its {self.confidence:.0%} "
            f"interval, and p, the level at which the pair differs, corrected over looks and over {pairs}"
        )
        if self.margins:
            sizes = {task: f"±{margin:g}" for task, margin in self.margins.items()}
            each = [size if len(set(sizes.values())) == 1 else f"{size} ({task})" for task, size in sizes.items()]
            title += f"; equal: interval within {', '.join(dict.fromkeys(each))}"
        return Table(title, tuple(columns), tuple(rows), 4, decimals={"p": 4})

    def __str__(self) -> str:
        return f"{self.table()}\n\n{self._sentence()}"

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"{self.table()._repr_html_()}<p>{html.escape(self._sentence())}</p>"

    def _sentence(self) -> str:
        decided = len(self.decisions) - len(self.undecided)
        return (
            f"Decided {decided} of {counted(len(self.decisions), 'pair')}, by {self.num_runs:,} runs of at most "
            f"{self.most_runs:,}."
        )
