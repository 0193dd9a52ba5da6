"""Group-sequential permutation tests: against slow ones in plain Python, and their errors, power and seeds."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats

from jaxrl.results.sequential import Design, Family, PairTest, _assignments, can_decide, looks_up_to, most_equal_pairs

PAIRS = ((0, 1), (0, 2), (1, 2))
TIE = 1e-7


def slow_statistics(blocks, assignments, shift=0.0):
    """The absolute differences of means `[looks][assignments]`, by sums over lists of all runs so far.

    Args:
      blocks: Returns `(first, second)` of each look.
      assignments: Whether each run of a look belongs to the first group, for each look and assignment.
      shift: Number added to the returns of the second.
    """
    looks = []
    for look in range(len(blocks)):
        each = []
        for number in range(len(assignments[0])):
            groups = [], []
            for (first, second), drawn in zip(blocks[: look + 1], assignments[: look + 1], strict=True):
                pooled = [*map(float, first), *(float(value) + shift for value in second)]
                for value, is_first in zip(pooled, drawn[number], strict=True):
                    if not math.isnan(value):
                        groups[0 if is_first else 1].append(value)
            means = [sum(group) / len(group) for group in groups if group]
            each.append(abs(means[0] - means[1]) if len(means) == 2 else 0.0)
        looks.append(each)
    return looks


def slow_rejections(statistics, num_looks, level):
    """Whether each look rejects the first assignment, counted against all that no earlier look has rejected."""
    alive, rejections = set(range(len(statistics[0]))), []
    allowed = math.floor(Fraction(level) / num_looks * len(statistics[0]) + Fraction(1, 10**9))
    for statistic in statistics:
        tie = TIE * max(statistic)
        above = [sum(statistic[other] >= value - tie for other in alive) for value in statistic]
        rejections.append(above[0] <= allowed)
        alive -= {at for at in alive if above[at] <= allowed}
    return rejections


def slow_decision(blocks, statistics, num_looks, level):
    """Whether a look rejects whose difference has the sign of the present one."""
    differences = []
    for look in range(1, len(blocks) + 1):
        every = [[float(value) for block in blocks[:look] for value in block[side]] for side in (0, 1)]
        sides = [[value for value in side if not math.isnan(value)] for side in every]
        differences.append(sum(sides[0]) / len(sides[0]) - sum(sides[1]) / len(sides[1]) if all(sides) else 0.0)
    rejections = slow_rejections(statistics, num_looks, level)
    return any(
        rejected and difference * differences[-1] > 0.0
        for rejected, difference in zip(rejections, differences, strict=True)
    )


def blocks_of(key, sizes=(4, 4, 8), shift=0.0, failing=0.0, digits=3):
    """Skewed returns of both algorithms at each look, of few digits, so that some assignments tie."""
    generator = np.random.default_rng(key)
    blocks = []
    for size in sizes:
        pair = np.round(generator.lognormal(size=(2, size)), digits)
        pair[0] += shift
        pair[generator.random((2, size)) < failing] = np.nan
        blocks.append((pair[0], pair[1]))
    return blocks


def run_of(blocks, draws=199, looks=3):
    sizes = np.cumsum([len(first) for first, _ in blocks]).tolist()
    test = PairTest(Design((*sizes, *range(sizes[-1] + 1, sizes[-1] + 1 + looks - len(blocks))), draws))
    for block in blocks:
        test.add(*block)
    return test


def assignments_of(blocks, draws=199):
    return [_assignments(at, len(first), draws, 0) for at, (first, _) in enumerate(blocks)]


@pytest.mark.parametrize("failing", [0.0, 0.2])
@pytest.mark.parametrize("shift", [0.0, 1.0, 3.0])
def test_rejections_are_those_of_a_slow_test(shift, failing):
    for key in range(4):
        blocks = blocks_of(key, shift=shift, failing=failing, digits=1)
        statistics = slow_statistics(blocks, assignments_of(blocks))
        for looks in range(1, 4):
            test = run_of(blocks[:looks])
            for level in (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9):
                assert test.rejects(level) == slow_decision(blocks[:looks], statistics[:looks], 3, level)


def test_one_look_gives_the_share_of_assignments_that_are_as_extreme():
    blocks = blocks_of(1, (5,), shift=1.0)
    pooled = [*blocks[0][0], *blocks[0][1]]
    observed = sum(pooled[:5]) - sum(pooled[5:])
    every = [2 * sum(pooled[at] for at in chosen) - sum(pooled) for chosen in itertools.combinations(range(10), 5)]
    exact = sum(abs(value) >= abs(observed) - TIE for value in every) / len(every)
    draws = 20_000
    p = run_of(blocks, draws, looks=1).p_value()
    assert 0.01 < exact < 0.5 and abs(p - exact) < 4 * math.sqrt(exact / draws) + 1e-3 * exact


def test_assignments_are_fair_and_begin_with_the_observed_one():
    drawn = _assignments(3, 4, 7_000, 0)
    assert drawn[0].tolist() == [True] * 4 + [False] * 4 and np.all(drawn.sum(axis=1) == 4)
    _, counts = np.unique(drawn[1:], axis=0, return_counts=True)
    assert len(counts) == math.comb(8, 4) and scipy.stats.chisquare(counts).pvalue > 1e-4
    assert not np.array_equal(drawn[1:], _assignments(4, 4, 7_000, 0)[1:])


def test_the_p_value_is_the_level_of_the_rejection():
    for key in range(4):
        test = run_of(blocks_of(key, shift=key))
        p = test.p_value()
        assert p == 1.0 or test.rejects(p)
        assert not test.rejects(0.99 * p)
    values = [run_of(blocks_of(2, shift=1.0)[:looks]).p_value() for looks in (1, 2, 3)]
    assert values == sorted(values, reverse=True)  # of differences of one sign


@pytest.mark.parametrize("level", [0.1, 0.3])
def test_ends_of_the_interval_are_the_shifts_that_the_slow_test_rejects(level):
    blocks = blocks_of(7, shift=0.5)
    drawn = assignments_of(blocks)
    interval = run_of(blocks).interval(level)
    width = interval.high - interval.low

    def accepted(difference):
        """Whether the last look does not reject the second plus the difference."""
        return not slow_rejections(slow_statistics(blocks, drawn, difference), 3, level)[-1]

    for end, inwards in ((interval.low, 0.005 * width), (interval.high, -0.005 * width)):
        assert accepted(float(end + inwards)) and not accepted(float(end - inwards))
    moved = run_of([(first, second + 3.0) for first, second in blocks]).interval(level)
    assert [moved.value, moved.low, moved.high] == pytest.approx([float(end) - 3.0 for end in interval], abs=1e-3)


@pytest.mark.parametrize("shift", [-0.4, 0.5])
def test_a_pair_is_within_a_margin_where_both_ends_of_its_interval_are(shift):
    blocks = blocks_of(7, shift=shift)
    test, drawn = run_of(blocks), assignments_of(blocks)
    interval = test.interval(0.1)
    largest = max(-float(interval.low), float(interval.high))
    assert largest > 0.0
    for margin in (0.5 * largest, 0.995 * largest, 1.005 * largest, 2 * largest):
        rejected = [
            slow_rejections(slow_statistics(blocks, drawn, end), 3, 0.1)[-1]
            for end in (margin, -margin)  # numbers added to the second
        ]
        assert test.is_within(margin, 0.1) is all(rejected) is (margin > largest)


def test_a_difference_beyond_the_margin_is_not_within_it_at_any_number_of_runs():
    test = PairTest(Design((8,), 1_999))
    test.add(np.arange(8.0) + 100.0, np.arange(8.0))
    assert not test.is_within(50.0, 0.05) and not test.is_within(99.0, 0.05) and test.is_within(150.0, 0.05)
    few = PairTest(Design((2,), 500))
    few.add([1.0, 2.0], [1.0, 2.0])  # of 6 assignments, whose level rejects none
    failed = PairTest(Design((8,), 500))
    failed.add([np.nan] * 8, np.arange(8.0))
    some = PairTest(Design((8,), 1_999))
    some.add([*[500.0] * 6, np.nan, np.nan], [500.0] * 8)  # failed runs are left out
    assert not few.is_within(1e9, 0.05) and not failed.is_within(1e9, 0.05) and some.is_within(25.0, 0.05)


def test_the_interval_excludes_no_difference_where_the_pair_is_decided_and_only_there():
    decided = 0
    for key in range(12):
        blocks = blocks_of(key, shift=0.25 * key)
        for looks in (1, 2, 3):
            test = run_of(blocks[:looks])
            if test.rejects(0.1):
                interval = test.interval(0.1)
                assert interval.low > 0.0 or interval.high < 0.0
                decided += 1
                break
            interval = test.interval(0.1)
            assert not (interval.low > 0.0 or interval.high < 0.0)
    assert 3 <= decided <= 11


def test_equal_returns_are_never_decided_and_failed_runs_are_left_out():
    equal = PairTest(Design((4,), 500))
    equal.add([500.0] * 4, [500.0] * 4)
    interval = equal.interval(0.05)
    assert equal.p_value() == 1.0 and [interval.low, interval.high] == pytest.approx([0.0, 0.0], abs=1e-6)
    failed = PairTest(Design((4,), 500))
    failed.add([np.nan] * 4, [1.0, 2.0, 3.0, np.nan])
    assert failed.failed == 5 and np.isnan(failed.difference) and not failed.rejects(0.9)
    assert np.isnan([failed.interval(0.05).low, failed.interval(0.05).high]).all()
    few = PairTest(Design((2,), 500))
    few.add([1.0, 2.0], [9.0, 8.0])  # of 6 assignments, 2 are as extreme
    assert few.p_value() == pytest.approx(1 / 3, abs=0.08) and np.isnan(few.interval(0.05).low)


def test_bytes_are_those_of_the_arrays_after_all_looks():
    design = Design((4, 8, 16), 199)
    test = run_of(blocks_of(0))
    arrays = [test._sums, *(array for look in test._looks for array in look), *test._statistics]
    drawn = assignments_of(blocks_of(0))
    of_assignments = sum(each.nbytes for each in drawn) + drawn[-1].astype(np.float64).nbytes
    assert design.num_bytes(5) == 5 * sum(each.nbytes for each in arrays) + of_assignments


@pytest.mark.parametrize(
    ("max_seeds", "pairs", "confidence", "expected"),
    [
        (4, 1, 0.95, True),
        (4, 3, 0.95, False),
        (5, 3, 0.95, True),
        (4, 1, 0.99, False),
        (6, 1, 0.99, True),
        (9, 1_000, 0.95, False),
        (16, 1_000, 0.95, True),
    ],
)
def test_too_few_runs_decide_nothing_even_if_every_run_of_one_is_better(max_seeds, pairs, confidence, expected):
    design = Design.of(max_seeds, pairs, confidence)
    test, values = PairTest(design), np.random.default_rng(0).normal([[100.0], [0.0]], size=(2, max_seeds))
    for first, last in itertools.pairwise((0, *design.looks)):
        test.add(*values[:, first:last])
    assert test.rejects((1 - confidence) / pairs) is expected is can_decide(max_seeds, pairs, confidence)


def test_looks_double_at_most():
    assert looks_up_to(100) == (8, 16, 24, 32, 48, 64, 96, 100)
    assert looks_up_to(512)[-5:] == (128, 192, 256, 384, 512) and looks_up_to(5) == (5,)
    design = Design.of(64, 45, 0.99)
    assert (design.draws + 1) * 0.01 / (45 * len(design.looks)) >= 4


def classes_of(members):
    """Every way to divide members into classes."""
    if not members:
        yield []
        return
    first, *rest = members
    for size in range(len(rest) + 1):
        for others in itertools.combinations(rest, size):
            for classes in classes_of([member for member in rest if member not in others]):
                yield [[first, *others], *classes]


@pytest.mark.parametrize("algorithms", [2, 3, 4, 5])
def test_most_equal_pairs_are_those_of_all_divisions_into_classes(algorithms):
    pairs = algorithms * (algorithms - 1) // 2
    counts = {sum(math.comb(len(each), 2) for each in classes) for classes in classes_of(list(range(algorithms)))}
    for differing in range(pairs + 1):
        assert most_equal_pairs(algorithms, differing) == max(count for count in counts if count <= pairs - differing)


def family_of(values, looks, draws=1_999, margins=None):
    """Tests of three algorithms that stop as those of `jaxrl.compare`, and the number of seeds of each."""
    family = Family(PAIRS, Design(looks, draws), lambda decided: most_equal_pairs(3, len(decided)), 0.95, margins)
    seeds, before = [0, 0, 0], 0
    for look in looks:
        for pair in family.open:
            family.tests[pair].add(*(values[at][before:look] for at in pair))
            for at in pair:
                seeds[at] = look
        before = look
        family.decide()
    return family, seeds


def test_a_decision_raises_the_levels_of_the_others():
    generator = np.random.default_rng(0)
    for _ in range(20):
        values = generator.normal(size=(3, 16)) + np.asarray([[0.0], [0.0], [1.2]])
        family, _ = family_of(values, (16,))
        p = {pair: family.tests[pair].p_value() for pair in PAIRS}
        first, *others = sorted(PAIRS, key=lambda pair: p[pair])
        expected = []
        if p[first] <= 0.05 / 3:  # of three pairs; then one at most may be equal
            expected = [first, *(pair for pair in others if p[pair] <= 0.05)]
        assert sorted(family.decisions) == sorted(expected)
        adjusted = [3 * p[first], *(max(3 * p[first], p[pair]) for pair in others)]
        if expected:
            shown = [family.p_value(pair) for pair in (first, *others)]
            assert shown == pytest.approx(np.minimum(adjusted, 1.0), rel=3e-3)
    interval = family.interval((0, 1))
    alone = family.tests[0, 1].interval(0.05 / 3)
    assert [float(end) for end in interval] == pytest.approx([float(end) for end in alone])


def test_a_raised_level_decides_nothing_for_the_loser_of_a_look():
    steps = np.arange(8.0)
    first = [*(steps + 4.0), *(steps - 3.0)]  # better at the first look, worse with the second
    second = [*steps, *(steps + 3.0)]
    third = [*(steps + 2.0), *(steps + 40.0)]  # better than both by the second look, which raises the level to 0.05
    looks = (8, 16, 24)
    at_first = PairTest(Design(looks, 1_999))
    at_first.add(first[:8], second[:8])
    assert at_first.difference > 0.0 and 0.05 / 3 < at_first.p_value() < 0.05
    family = Family(PAIRS, Design(looks, 1_999), lambda decided: most_equal_pairs(3, len(decided)))
    for since, until in ((0, 8), (8, 16)):
        for pair in family.open:
            family.tests[pair].add(*((first, second, third)[at][since:until] for at in pair))
        family.decide()
    assert sorted(family.decisions) == [(0, 2), (1, 2)]
    assert family.tests[0, 1].difference < 0.0 and family.p_value((0, 1)) > 0.05


def test_equal_pairs_get_no_further_runs_and_raise_no_level():
    generator = np.random.default_rng(3)
    values = generator.normal(size=(3, 64)) + np.asarray([[0.0], [0.0], [2.0]])
    looks = (16, 32, 48, 64)
    without, seeds = family_of(values, looks)
    assert without.open == [(0, 1)] and seeds[:2] == [64, 64]
    family, seeds = family_of(values, looks, margins={(0, 1): 0.9})
    assert family.equal == {(0, 1)} and family.open == [] and seeds[:2] == [48, 48]
    low, high = family.interval((0, 1))[1:]
    assert -0.9 < low < 0.0 < high < 0.9
    early, seeds = family_of(np.full((3, 64), 500.0), looks, margins=dict.fromkeys(PAIRS, 1.0))
    assert early.equal == set(PAIRS) and seeds == [32, 32, 32]  # not after 16
    assert set(family.decisions) == set(without.decisions) and family.decisions == without.decisions
    differing, _ = family_of(values, looks, margins=dict.fromkeys(PAIRS, 100.0))  # differ, by less than the margin
    assert set(differing.decisions) == {(0, 2), (1, 2)} and differing.equal == {(0, 1)}
    assert differing.p_value((0, 1)) == pytest.approx(differing.tests[0, 1].p_value())  # one may be equal, and is


def test_an_equal_pair_may_still_differ_once_the_others_do():
    steps = np.arange(32.0)
    first, second = steps, steps + 6.0
    design, margins = Design((32, 64), 1_999), {(0, 1): 1e3}
    family = Family(PAIRS, design, lambda decided: most_equal_pairs(3, len(decided)), 0.95, margins)
    family.tests[0, 1].add(first, second)
    for pair in PAIRS[1:]:  # none differs yet
        family.tests[pair].add(first, first)
    family.level = 2.0 * family.tests[0, 1].p_value()  # enough for one pair that may be equal, not for three
    family.decide()
    assert family.equal == {(0, 1)} and not family.decisions
    for pair in PAIRS[1:]:
        family.tests[pair].add(steps, steps + 1e3)
    family.decide()
    assert set(family.decisions) == set(PAIRS) and family.equal == set() and family.open == []


def test_algorithms_that_differ_by_the_margin_are_rarely_equal():
    samples, wrong, right = 150, 0, 0
    for sample in range(samples):
        values = np.random.default_rng(sample).lognormal(size=(3, 48)) + np.asarray([[0.0], [0.0], [3.0]])
        family, _ = family_of(values, (16, 32, 48), 499, dict.fromkeys(PAIRS, 3.0))
        wrong += not family.equal.isdisjoint(PAIRS[1:])
        right += (0, 1) in family.equal
    assert wrong <= scipy.stats.binom.ppf(0.999, samples, 0.05) and right > samples / 2


def errors_of(samples, looks, draws, shift=0.0):
    """Number of samples of skewed returns with a wrong decision; the third may be better by a shift."""
    wrong = 0
    for sample in range(samples):
        values = np.random.default_rng(sample).lognormal(size=(3, looks[-1])) + np.asarray([[0.0], [0.0], [shift]])
        family, _ = family_of(values, looks, draws)
        pairs = family.decisions if not shift else [pair for pair in family.decisions if pair == (0, 1)]
        wrong += bool(pairs)
    return wrong


def test_errors_are_rare_in_small_samples():
    samples = 150
    assert errors_of(samples, (4, 8, 12), 499) <= scipy.stats.binom.ppf(0.999, samples, 0.05)


@pytest.mark.slow
@pytest.mark.parametrize("shift", [0.0, 3.0])
def test_family_wise_errors_are_at_most_5_percent(shift):
    samples = 1_000
    wrong = errors_of(samples, looks_up_to(64), 1_999, shift)
    upper = scipy.stats.beta.ppf(0.975, wrong + 1, samples - wrong)
    assert wrong <= 0.05 * samples + 1e-9 and upper <= 0.065


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["normal", "exponential", "lognormal"])
def test_differences_are_found_with_fewer_seeds(kind):
    samples, looks = 200, looks_up_to(64)
    deviation = {"normal": 1.0, "exponential": 1.0, "lognormal": math.sqrt((math.e - 1) * math.e)}[kind]
    for shift, least_power, most_seeds in ((1.0, 0.8, 64), (2.0, 0.99, 0.6 * 64)):
        detected, spent = 0, 0
        for sample in range(samples):
            values = getattr(np.random.default_rng(sample), kind)(size=(3, 64)) / deviation
            family, seeds = family_of(values + np.asarray([[0.0], [0.0], [shift]]), looks)
            detected += sum(pair in family.decisions and family.tests[pair].difference < 0 for pair in PAIRS[1:])
            spent += seeds[2]
        assert detected / (2 * samples) >= least_power and spent / samples <= most_seeds


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["normal", "lognormal"])
def test_a_margin_saves_seeds_and_loses_no_difference(kind):
    samples, looks = 200, looks_up_to(64)
    deviation = {"normal": 1.0, "lognormal": math.sqrt((math.e - 1) * math.e)}[kind]
    detected, spent, wrong = {1.0: 0, 2.0: 0}, 0, 0
    for shift in detected:
        for sample in range(samples):
            values = getattr(np.random.default_rng(sample), kind)(size=(3, 64)) / deviation
            values = values + np.asarray([[0.0], [0.0], [shift]])
            family, seeds = family_of(values, looks, margins=dict.fromkeys(PAIRS, 1.0))
            detected[shift] += sum(pair in family.decisions for pair in PAIRS[1:])
            wrong += shift == 1.0 and not family.equal.isdisjoint(PAIRS[1:])
            spent += sum(seeds) * (shift == 2.0)
    assert min(detected.values()) / (2 * samples) >= 0.8 and spent / samples <= 0.6 * 3 * 64
    assert wrong <= scipy.stats.binom.ppf(0.999, samples, 0.05)


@pytest.mark.slow
def test_intervals_contain_the_difference():
    inside, samples = 0, 300
    for sample in range(samples):
        values = np.random.default_rng(sample).lognormal(size=(3, 32)) + np.asarray([[0.0], [0.0], [2.0]])
        family, _ = family_of(values, looks_up_to(32))
        intervals = [family.interval(pair) for pair in PAIRS]
        true = (0.0, -2.0, -2.0)
        inside += all(not (each.low > at or each.high < at) for each, at in zip(intervals, true, strict=True))
    assert inside >= scipy.stats.binom.ppf(0.001, samples, 0.95)
