"""Group-sequential permutation tests of pairs of algorithms, corrected over looks and over pairs, in NumPy.

At each look, new runs of both algorithms of a pair are added, and the pair is decided or gets further runs. Under the
null hypothesis that the returns of both have one distribution, the runs of a look are exchangeable between them. The
statistic, the absolute difference of means, is computed for random assignments of the runs of every look, and the pair
differs if the observed one is among the largest that no earlier look has rejected. Every look spends an equal part of
the level, which bounds the error for any distribution of returns and any number of runs. The level of a pair is that of
a family divided by the number of pairs that may still be equal, which bounds the probability that any pair with one
distribution of returns is found to differ. The bound says nothing about means: where two distributions differ, the
sign of the difference of sample means may be wrong more often, above all where few runs determine a mean, as in rare
successes.

A margin, the smallest difference of means that matters, ends pairs that do not differ by so much: those whose repeated
confidence interval lies within the margin on both sides are equal, and get no further runs. The error of this verdict
is bounded where distributions differ by a shift. Since a few runs may contain no rare outcome, such as a failure
to learn, a pair has at least 32 runs of each algorithm before it is equal.

Source: Mathieu et al. (2023), "AdaStop: adaptive statistical testing for sound comparisons of deep RL agents", for the
permutations within looks; Lan and DeMets (1983), "Discrete sequential boundaries for clinical trials", for spending the
level; Shaffer (1986), "Modified sequentially rejective multiple test procedures", for the levels of a family; Jennison
and Turnbull (1993), "Sequential equivalence testing and repeated confidence intervals", for the margin.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from jaxrl.results.statistics import Array, Interval

FIRST = 8  # runs of an algorithm at the first look: two samples of 8 have 12,870 assignments
LEAST_EQUAL = 32  # runs of an algorithm before a pair is equal: an outcome of probability 0.1 occurs in 97 % of samples
DRAWS = 10_000
DRAWS_OF_A_LOOK = 4  # least number of draws that a look may reject
DECIMALS = 9  # of statistics relative to the largest one: others are ties, and differ by rounding

Pair = TypeVar("Pair", bound=Hashable)

__all__ = ["LEAST_EQUAL", "Decision", "Design", "Family", "PairTest", "can_decide", "looks_up_to", "most_equal_pairs"]


class Design(NamedTuple):
    """Looks and random assignments of a test.

    Attributes:
      looks: Numbers of runs of each algorithm at the looks, increasing.
      draws: Number of random assignments, without the observed one.
      seed: Random seed of the assignments.
    """

    looks: tuple[int, ...]
    draws: int = DRAWS
    seed: int = 0

    @classmethod
    def of(cls, max_seeds: int, pairs: int, confidence: float = 0.95, seed: int = 0) -> Design:
        """The design of a family of pairs, with enough assignments for the level of a look.

        Args:
          max_seeds: Number of runs of each algorithm at the last look.
          pairs: Number of pairs of the family.
          confidence: Confidence level of the family, in (0, 1).
          seed: Random seed of the assignments.
        """
        looks = looks_up_to(max_seeds)
        level_of_a_look = (1 - confidence) / (pairs * len(looks))
        return cls(looks, max(DRAWS, int(np.ceil(DRAWS_OF_A_LOOK / level_of_a_look))), seed)

    def num_bytes(self, pairs: int) -> int:
        """Number of bytes of tests with all looks: numbers of every pair, and the assignments that they share.

        Args:
          pairs: Number of pairs, each of which has a test of this design.
        """
        of_a_pair = 8 * (3 + 3 * len(self.looks))  # sums; differences, their changes and statistics of every look
        most = max(last - first for first, last in itertools.pairwise((0, *self.looks)))
        of_assignments = 2 * self.looks[-1] + 8 * 2 * most  # and a float64 copy of those of a look, for its sums
        return (self.draws + 1) * (pairs * of_a_pair + of_assignments)


def looks_up_to(max_seeds: int) -> tuple[int, ...]:
    """Numbers of runs at the looks: 8, 16, 24, 32, 48, 64, 96, 128, ..., each at most twice the one before.

    Args:
      max_seeds: Number of runs at the last look.
    """
    looks = [min(FIRST, max_seeds)]
    while looks[-1] < max_seeds:
        step = max(FIRST, 1 << (looks[-1].bit_length() - 2))
        looks.append(min(looks[-1] + step, max_seeds))
    return tuple(looks)


def can_decide(max_seeds: int, pairs: int, confidence: float = 0.95) -> bool:
    """Whether any pair of a family can be decided: whether so many assignments exist that the level holds two of them.

    Two assignments, the observed one and the one with both groups exchanged, have the largest difference of means.

    Args:
      max_seeds: Number of runs of each algorithm at the last look.
      pairs: Number of pairs of the family, each of which may be equal.
      confidence: Confidence level of the family, in (0, 1).
    """
    looks = looks_up_to(max_seeds)
    sizes = (last - first for first, last in itertools.pairwise((0, *looks)))
    return math.prod(math.comb(2 * size, size) for size in sizes) >= 2 * pairs * len(looks) / (1 - confidence)


class PairTest:
    """Test of one pair, of which each look adds the runs.

    Args:
      design: Design of the test.
    """

    def __init__(self, design: Design) -> None:
        self.design = design
        self._sums = np.zeros((design.draws + 1, 3))  # of the first group of every assignment, cumulative
        self._totals = np.zeros(3)
        self._looks: list[tuple[Array, Array]] = []  # differences of means, and their change by a unit shift
        self._statistics: list[Array] = []
        self._values: tuple[list[Array], list[Array]] = ([], [])

    @property
    def num_looks(self) -> int:
        """Number of looks so far."""
        return len(self._looks)

    @property
    def num_runs(self) -> int:
        """Number of runs of each algorithm so far, failed ones included."""
        return sum(map(len, self._values[0]))

    @property
    def difference(self) -> float:
        """Mean of the first minus mean of the second; nan where no run of one is left."""
        first, second = map(self._finite, (0, 1))
        return float(first.mean() - second.mean()) if first.size and second.size else float("nan")

    @property
    def failed(self) -> int:
        """Number of runs that failed, of both algorithms."""
        return sum(int(np.isnan(values).sum()) for side in self._values for values in side)

    def add(self, first: npt.ArrayLike, second: npt.ArrayLike) -> None:
        """Add the runs of the next look.

        Args:
          first, second: Returns of new runs of each algorithm, `[n]` of equal length; nan for a run that failed, which
            is left out of the means.
        """
        sides = [np.asarray(side, np.float64) for side in (first, second)]
        for kept, side in zip(self._values, sides, strict=True):
            kept.append(side)
        pooled, size = np.concatenate(sides), len(sides[0])
        good = np.isfinite(pooled)
        of_second = good & (np.arange(2 * size) >= size)
        columns = np.stack([np.where(good, pooled, 0.0), good, of_second], axis=1)
        self._sums = self._sums + _assignments(self.num_looks, size, self.design.draws, self.design.seed) @ columns
        self._totals = self._totals + columns.sum(axis=0)
        rest = self._totals - self._sums
        (total, count, shifted), (other_total, other_count, other_shifted) = self._sums.T, rest.T
        both = (count > 0) & (other_count > 0)
        counts = np.where(both, count, 1.0), np.where(both, other_count, 1.0)
        differences = np.where(both, total / counts[0] - other_total / counts[1], 0.0)
        self._looks.append((differences, np.where(both, shifted / counts[0] - other_shifted / counts[1], 0.0)))
        self._statistics.append(_rounded(np.abs(differences)))

    def rejects(self, level: float) -> bool:
        """Whether the pair differs at a level, by this look or an earlier one whose difference has the same sign."""
        alive = np.ones(self.design.draws + 1, bool)
        for statistic, (differences, _) in zip(self._statistics, self._looks, strict=True):
            kept = statistic <= self._boundary(statistic[alive], level)
            if not kept[0] and differences[0] * self.difference > 0:
                return True
            alive &= kept
        return False

    def p_value(self) -> float:
        """The smallest level at which the pair differs, up to 1."""
        low, high = 0.0, 1.0
        while high - low > 1e-3 * high and high > 1e-9:
            middle = (low + high) / 2
            low, high = (low, middle) if self.rejects(middle) else (middle, high)
        return high

    def interval(self, level: float) -> Interval:
        """The repeated confidence interval of the difference: shifts of the second that this look does not reject.

        It is exact where the distributions differ by a shift, and contains 0 unless the pair differs at this level by
        this look. Its ends are nan where a look of so few runs, or so small a level, rejects no difference at all.

        Args:
          level: Level of all looks together, such as .05 for intervals of 95 % confidence.

        Source: Jennison and Turnbull (1989), "Interim analyses: the repeated confidence interval approach".
        """
        middle = self.difference
        if np.isnan(middle):
            return Interval(np.asarray(middle), np.asarray(middle), np.asarray(middle))
        spreads = [np.var(self._finite(side)) / self._finite(side).size for side in (0, 1)]
        unit = float(np.sqrt(sum(spreads))) or 1e-9 * max(abs(middle), 1.0)
        low, high = (self._end(middle, sign * unit, level) for sign in (-1, 1))
        return Interval(np.asarray(middle), np.asarray(low), np.asarray(high))

    def is_within(self, margin: float, level: float) -> bool:
        """Whether the interval of a level lies within a margin on both sides of 0, ends excluded.

        Args:
          margin: Positive difference of means.
          level: Level of all looks together, as that of `interval`.
        """
        interval = self.interval(level)
        return bool(-margin < interval.low and interval.high < margin)

    def _finite(self, side: int) -> Array:
        values = np.concatenate([np.zeros(0), *self._values[side]])
        return values[np.isfinite(values)]

    def _end(self, middle: float, unit: float, level: float) -> float:
        """The end of the interval in the direction of the unit, nan without one."""
        inside, outside = 0.0, 1.0
        while self._accepts(middle + outside * unit, level):
            inside, outside = outside, 2 * outside
            if outside > 1e6:
                return float("nan")
        while outside - inside > 1e-3 * outside:
            between = (inside + outside) / 2
            inside, outside = (between, outside) if self._accepts(middle + between * unit, level) else (inside, between)
        return middle + outside * unit

    def _accepts(self, shift: float, level: float) -> bool:
        """Whether the last look does not reject that the second, shifted, has the distribution of the first."""
        alive = np.ones(self.design.draws + 1, bool)
        accepted = True
        for differences, by_shift in self._looks:
            statistic = _rounded(np.abs(differences + shift * by_shift))
            below = statistic <= self._boundary(statistic[alive], level)
            alive, accepted = alive & below, bool(below[0])
        return accepted

    def _boundary(self, statistic: Array, level: float) -> float:
        """The largest value that a look does not reject: at most its part of all assignments are above."""
        rejected = int(level / len(self.design.looks) * (self.design.draws + 1) + 1e-9)
        if rejected >= statistic.size:
            return -1.0
        return float(np.partition(statistic, -rejected - 1)[-rejected - 1])


class Decision(NamedTuple):
    """Decision on a pair.

    Attributes:
      look: Number of looks after which the pair was decided.
      p: Smallest level of the family at which it is decided.
    """

    look: int
    p: float


class Family(Generic[Pair]):
    """Tests of several pairs, decided step by step with the error of a single decision.

    Args:
      pairs: Names of the pairs.
      design: Design of every test.
      most_equal: Function of the decided pairs that returns the largest number of other pairs that may be equal at
        once, at least 1 while there are others.
      confidence: Confidence level of all decisions that pairs differ, and again of all that pairs are equal, in (0, 1).
      margins: Positive margin of each pair that may end as equal; None for no pair.
    """

    def __init__(
        self,
        pairs: Sequence[Pair],
        design: Design,
        most_equal: Callable[[Sequence[Pair]], int],
        confidence: float = 0.95,
        margins: Mapping[Pair, float] | None = None,
    ) -> None:
        self.tests = {pair: PairTest(design) for pair in pairs}
        self.decisions: dict[Pair, Decision] = {}
        self.equal: set[Pair] = set()
        self.level = 1 - confidence
        self._most_equal = most_equal
        self._margins = margins or {}

    @property
    def open(self) -> list[Pair]:
        """Pairs that neither differ nor are equal so far."""
        return [pair for pair in self.tests if pair not in self.decisions and pair not in self.equal]

    def decide(self) -> list[Pair]:
        """Find by all looks so far which pairs differ and then which are equal, and return those found to differ now.

        Every decision may raise the level of the others, also of equal pairs, so that decisions go on until there is
        none. A pair is equal if it has enough runs, and its interval lies within its margin.
        """
        before = len(self.decisions)
        while untested := [pair for pair in self.tests if pair not in self.decisions]:
            level = self.level / self._most_equal(list(self.decisions))
            differing = {pair: test.p_value() for pair in untested if (test := self.tests[pair]).rejects(level)}
            if not differing:
                break
            pair = min(differing, key=lambda name: differing[name])
            p = min(self.p_value(pair), self.level)
            self.decisions[pair] = Decision(self.tests[pair].num_looks, p)
            self.equal.discard(pair)
        for pair in self.open:
            test, margin = self.tests[pair], self._margins.get(pair)
            if margin is not None and test.num_runs >= LEAST_EQUAL and test.is_within(margin, self._level_of_intervals):
                self.equal.add(pair)
        return list(self.decisions)[before:]

    def p_value(self, pair: Pair) -> float:
        """The smallest level of the family at which a pair is decided, up to 1."""
        if pair in self.decisions:
            return self.decisions[pair].p
        least = max((decision.p for decision in self.decisions.values()), default=0.0)
        return min(1.0, max(least, self._most_equal(list(self.decisions)) * self.tests[pair].p_value()))

    def interval(self, pair: Pair) -> Interval:
        """The interval of a pair's difference; the confidence level of the family holds for all intervals together.

        It is that of Bonferroni: a pair that only the higher levels of later steps decide may have 0 in its interval.
        """
        return self.tests[pair].interval(self._level_of_intervals)

    @property
    def _level_of_intervals(self) -> float:
        return self.level / len(self.tests)


@functools.cache
def most_equal_pairs(algorithms: int, differing: int) -> int:
    """The largest possible number of equal pairs among algorithms of which some pairs differ.

    Two algorithms that each equal a third are equal, so that 3 algorithms have 3 equal pairs or at most 1.

    Args:
      algorithms: Number of algorithms, all pairs of which are compared.
      differing: Number of pairs that are known to differ.

    Source: Shaffer (1986), table 1.
    """
    pairs = algorithms * (algorithms - 1) // 2
    return max(count for count in _equal_pairs(algorithms) if count <= pairs - differing)


@functools.cache
def _equal_pairs(algorithms: int) -> frozenset[int]:
    """The possible numbers of equal pairs: sums over the classes of equal algorithms."""
    if algorithms < 2:
        return frozenset({0})
    return frozenset(
        size * (size - 1) // 2 + rest for size in range(1, algorithms + 1) for rest in _equal_pairs(algorithms - size)
    )


@functools.lru_cache(maxsize=32)
def _assignments(look: int, size: int, draws: int, seed: int) -> Array:
    """The observed assignment of a look's runs to the first group, and random ones: bool `[draws + 1, 2 * size]`."""
    observed = np.arange(2 * size) < size
    drawn = np.random.default_rng([seed, look]).permuted(np.tile(observed, (draws, 1)), axis=1)
    return np.concatenate([observed[None], drawn])


def _rounded(statistic: Array) -> Array:
    """The statistic relative to its largest value, in which those that only rounding tells apart are equal."""
    largest = statistic.max()
    return np.round(statistic / largest, DECIMALS) if largest > 0 else statistic
