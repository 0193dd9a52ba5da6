"""Probability that the runs of one setting are better than those of another, on one task or on several."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxrl.report.runs import Run
from jaxrl.results.p_values import improvement_p_value
from jaxrl.results.statistics import probability_of_improvement

__all__ = ["Chance", "Scores", "chance_of", "chance_rows", "p_value_of", "rectangle"]


class Scores(NamedTuple):
    """Values of a line's runs that did not fail, on one task.

    Attributes:
      values: Values, `[num_runs]`.
      seeds: Seeds of these runs.
      trained: Seeds of all runs of the line.
      run: Run of the line; None for several.
    """

    values: np.ndarray
    seeds: np.ndarray
    trained: frozenset[int]
    run: Run | None

    def is_paired_with(self, other: Scores) -> bool:
        """Whether both lines ran one program with the same random keys."""
        if self.run is None or other.run is None or self.trained != other.trained:
            return False
        program = self.run.program
        return self.run is other.run or (program is not None and program == other.run.program)


class Chance(NamedTuple):
    """Probability that a run is better than a run of another line, with its interval, nan for fewer than two runs.

    Attributes:
      value, low, high: Probability and the ends of its interval.
      paired: Whether runs of equal seeds were compared.
    """

    value: float
    low: float
    high: float
    paired: bool

    @property
    def of_the_other(self) -> Chance:
        """The same for the other line."""
        return Chance(1 - self.value, 1 - self.high, 1 - self.low, self.paired)


def chance_of(ours: Sequence[Scores], theirs: Sequence[Scores], direction: int, confidence: float) -> Chance | None:
    """Probability that our run is better than theirs, ties counting one half, as a mean over tasks.

    Lines of one program that were trained on equal seeds are compared in pairs of runs with the same seed, of which
    neither failed. Equal seeds of different algorithms, environments or configurations are not paired: the keys of an
    evaluation depend on the seed and the iteration alone, so that they may share first states and noise, but not by
    design. They are treated as independent, which is conservative where this correlation is positive.

    Args:
      ours, theirs: Scores of both on each task, in one order.
      direction: 1 if higher is better, -1 if lower is better.
      confidence: Confidence level, in (0, 1).

    Returns:
      The probability; None if one of the two has no run left.
    """
    first, second, paired = _aligned(ours, theirs)
    fewest = min(values.size for values in (*first, *second))
    if not fewest:
        return None
    higher = probability_of_improvement(first, second, paired=paired, confidence=confidence)
    low, high = float(higher.low), float(higher.high)
    if fewest < 2:
        low = high = float("nan")
    chance = Chance(float(higher.value), low, high, paired)
    return chance if direction > 0 else chance.of_the_other


def chance_rows(
    count: int, bases: Sequence[int], chance: Callable[[int, int], Chance | None]
) -> dict[str, dict[str, Any]]:
    """Probabilities that each line is better than each baseline, ready for JSON, to four digits and with None for nan.

    Args:
      count: Number of lines.
      bases: Positions of the baselines.
      chance: Function `chance(line, other)`, which returns the probability that a run of the line is better, or None;
        it is called once for each pair, with the later line first.

    Returns:
      `better`: `{position of a baseline: [probability, low, high] of each line}`, and `paired`, with None for a line
      without a probability.
    """
    better: dict[int, list[list[float | None] | None]] = {base: [None] * count for base in bases}
    paired: dict[int, list[bool | None]] = {base: [None] * count for base in bases}
    for first, second in itertools.combinations(range(count), 2):
        if first not in better and second not in better:
            continue
        wins = chance(second, first)
        if wins is None:
            continue
        for base, line, each in ((first, second, wins), (second, first, wins.of_the_other)):
            if base in better:
                better[base][line] = [float(f"{part:.4f}") if np.isfinite(part) else None for part in each[:3]]
                paired[base][line] = each.paired
    return {
        "better": {str(base): row for base, row in better.items()},
        "paired": {str(base): row for base, row in paired.items()},
    }


def p_value_of(ours: Sequence[Scores], theirs: Sequence[Scores], comparisons: int = 1) -> float:
    """P-value of the hypothesis that both have one distribution of values on each task; nan if one has no run left.

    Of pairs, the hypothesis is that of `improvement_p_value`: an exchange of the two runs of a pair leaves their joint
    distribution unchanged.

    Args:
      ours, theirs: Scores of both on each task, in one order, paired where `chance_of` pairs them.
      comparisons: Number of comparisons for which the p-value is corrected.
    """
    first, second, paired = _aligned(ours, theirs)
    if not min(values.size for values in (*first, *second)):
        return float("nan")
    return improvement_p_value(first, second, paired=paired, comparisons=comparisons)


def _aligned(ours: Sequence[Scores], theirs: Sequence[Scores]) -> tuple[list[np.ndarray], list[np.ndarray], bool]:
    """Values of both on each task, and whether those at one place are of one seed, as `chance_of` says."""
    paired = all(one.is_paired_with(other) for one, other in zip(ours, theirs, strict=True))
    first, second = [one.values for one in ours], [other.values for other in theirs]
    if paired:
        common = [
            np.intersect1d(one.seeds, other.seeds, return_indices=True)[1:]
            for one, other in zip(ours, theirs, strict=True)
        ]
        first = [values[at] for values, (at, _) in zip(first, common, strict=True)]
        second = [values[at] for values, (_, at) in zip(second, common, strict=True)]
    return first, second, paired


def rectangle(values: Sequence[np.ndarray]) -> np.ndarray:
    """Values `[tasks, runs]` with as many runs of each task as there are of the one with the fewest, the first ones."""
    fewest = min(map(len, values))
    return np.stack([each[:fewest] for each in values])
