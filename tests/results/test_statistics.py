"""Statistics against closed forms, scipy and slow loops; `test_rliable.py` has another library."""

import itertools
import time

import numpy as np
import pytest
import scipy.stats

from jaxrl.results import statistics
from jaxrl.results.p_values import improvement_p_value

EPS = np.finfo(np.float64).eps


@pytest.fixture
def scores():
    return np.random.default_rng(3).normal(size=(4, 23))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 8, 64, 101])
def test_iqm_is_the_trimmed_mean_of_scipy(count):
    values = np.random.default_rng(count).normal(size=(3, count))
    # Both are sums of at most 101 numbers of size one, in perhaps another order.
    np.testing.assert_allclose(statistics.iqm(values), scipy.stats.trim_mean(values, 0.25, axis=1), atol=101 * EPS)


def test_closed_forms():
    values = np.arange(8.0)
    assert statistics.mean(values) == statistics.median(values) == 3.5
    assert statistics.iqm([0.0, 1.0, 2.0, 3.0, 100.0]) == 2.0
    assert statistics.optimality_gap([0.0, 0.5, 1.0, 7.0]) == 0.375
    assert statistics.optimality_gap([0.0, 4.0], target=2.0) == 1.0
    np.testing.assert_array_equal(statistics.iqm(values.reshape(4, 2), axis=0), statistics.iqm(values.reshape(4, 2).T))


def test_probability_of_improvement_is_mann_whitney():
    generator = np.random.default_rng(0)
    x, y = generator.integers(0, 6, 30), generator.integers(1, 7, 20)
    estimate = statistics.probability_of_improvement(x, y)
    u = float(np.asarray(scipy.stats.mannwhitneyu(x, y))[0])
    assert estimate.value == pytest.approx(u / 600, abs=600 * EPS)
    assert 0 <= estimate.low < estimate.value < estimate.high <= 1


def test_pairs_are_compared_with_each_other():
    x = np.arange(20.0)
    paired = statistics.probability_of_improvement(x + 0.5, x, paired=True)
    # All of 20 wins: the lower end is the p of which 20 wins have a chance of 2.5 %.
    assert paired == pytest.approx((1.0, 0.025 ** (1 / 20), 1.0), rel=1e-12)
    unpaired = statistics.probability_of_improvement(x + 0.5, x)
    assert unpaired.value == pytest.approx((190 + 20) / 400)
    assert statistics.probability_of_improvement(x, x, paired=True).value == 0.5


@pytest.mark.parametrize("count", [4, 7])
def test_paired_intervals_are_those_of_the_binomial_test(count):
    for won in range(count + 1):
        x = np.where(np.arange(count) < won, 1.0, -1.0)
        ours = statistics.probability_of_improvement(x, np.zeros(count), paired=True, confidence=0.9)
        other = scipy.stats.binomtest(won, count).proportion_ci(0.9, method="exact")
        np.testing.assert_allclose(ours, (won / count, other.low, other.high), rtol=1e-9, atol=1e-12)


def test_unpaired_intervals_solve_the_equation_of_newcombe():
    """Slow search for the p whose modelled error is at most Student's quantile from the estimate."""
    generator = np.random.default_rng(1)
    for m, n, shift in ((5, 5, 0.5), (9, 4, 2.0), (3, 8, 9.0), (6, 2, -9.0)):
        x, y = generator.normal(shift, 1, m), generator.normal(0, 1, n)
        ours = statistics.probability_of_improvement(x, y)
        wins = [[float(a > b) for b in y] for a in x]
        estimate = sum(map(sum, wins)) / (m * n)
        by_x, by_y = np.mean(wins, axis=1), np.mean(wins, axis=0)
        parts = (np.var(by_x, ddof=1) / m, np.var(by_y, ddof=1) / n)
        degrees = m + n - 2
        if sum(parts) > 0:
            degrees = sum(parts) ** 2 / (parts[0] ** 2 / (m - 1) + parts[1] ** 2 / (n - 1))

        def variance(p, m=m, n=n):
            star = (m + n) / 2
            return p * (1 - p) * (1 + (star - 1) * (1 - p) / (2 - p) + (star - 1) * p / (1 + p)) / (m * n)

        ratio = max(1.0, sum(parts) / variance(estimate)) if 0 < estimate < 1 else 1.0
        grid = np.linspace(0, 1, 200_001)[1:-1]
        inside = grid[np.abs(estimate - grid) <= scipy.stats.t.ppf(0.975, degrees) * np.sqrt(ratio * variance(grid))]
        np.testing.assert_allclose(ours, (estimate, inside[0], inside[-1]), atol=2 / 200_000)


def test_the_interval_is_that_of_whichever_side_varies():
    varied, constant = np.arange(-5.0, 6.0), np.zeros(7)
    for pair in ((varied, constant), (constant, varied)):
        estimate = statistics.probability_of_improvement(*pair)
        assert estimate.value == 0.5
        # The mean of 11 numbers of 0, 1/2 and 1 has the standard error sqrt(10 / 11 / 4 / 10) = 0.151, and Student's
        # quantile for its 10 degrees of freedom is 2.23; the error shrinks from .5 towards the ends.
        assert 0.5 - 2.23 * 0.151 < estimate.low < 0.25 and 0.75 < estimate.high < 0.5 + 2.23 * 0.151


def test_tasks_may_have_different_numbers_of_seeds():
    generator = np.random.default_rng(4)
    x, y = [generator.normal(size=n) for n in (4, 9)], [generator.normal(0.5, size=n) for n in (6, 3)]
    shares = [np.mean(ours[:, None] > theirs[None, :]) for ours, theirs in zip(x, y, strict=True)]
    assert statistics.probability_of_improvement(x, y).value == pytest.approx(np.mean(shares), rel=1e-12)
    paired = statistics.probability_of_improvement(x, [x[0] + 1, x[1] - 1], paired=True)
    assert paired.value == 0.5  # the second wins none of 4 pairs, and all of 9
    with pytest.raises(ValueError, match=r"as many seeds in y as in x, got \[4, 9\] in x and \[6, 3\] in y"):
        statistics.probability_of_improvement(x, y, paired=True)
    with pytest.raises(ValueError, match=r"y\[1\] holds 1 nan among 3"):
        statistics.probability_of_improvement(x, [y[0], np.array([0.0, np.nan, 1.0])])


def test_pairs_of_tasks_with_different_numbers_are_averaged_over_tasks():
    """Wins on a task with more pairs do not count more, as in the statistic of the p-value."""
    wins, counts = (5, 12), (32, 16)
    x = [np.where(np.arange(count) < won, 1.0, -1.0) for won, count in zip(wins, counts, strict=True)]
    y = [np.zeros(count) for count in counts]
    ours = statistics.probability_of_improvement(x, y, paired=True, confidence=0.9)
    middle = (5 / 32 + 12 / 16) / 2
    ends = [
        scipy.stats.binomtest(won, count).proportion_ci(0.9, method="exact")
        for won, count in zip(wins, counts, strict=True)
    ]
    below = np.hypot(5 / 32 - ends[0].low, 12 / 16 - ends[1].low) / 2
    above = np.hypot(ends[0].high - 5 / 32, ends[1].high - 12 / 16) / 2
    np.testing.assert_allclose(ours, (middle, middle - below, middle + above), rtol=1e-9)
    opposite = [-np.ones(32), np.ones(16)]
    even = statistics.probability_of_improvement(opposite, y, paired=True)
    assert even.value == 0.5
    assert improvement_p_value(opposite, y, paired=True) == 1.0  # the distance from one half is 0


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.1, 0.9), (0.95, 0.6), (1.0, 0.3)])
def test_the_mean_of_unequally_many_pairs_is_covered(shares):
    """The probability of every pair of numbers of wins whose interval has the mean of the shares, summed."""
    counts = (9, 4)
    chances = [
        scipy.stats.binom.pmf(np.arange(count + 1), count, share) for count, share in zip(counts, shares, strict=True)
    ]
    covered = 0.0
    for first, second in itertools.product(range(10), range(5)):
        x = [np.where(np.arange(count) < won, 1.0, -1.0) for won, count in zip((first, second), counts, strict=True)]
        ours = statistics.probability_of_improvement(x, [np.zeros(9), np.zeros(4)], paired=True)
        covered += chances[0][first] * chances[1][second] * (ours.low <= np.mean(shares) <= ours.high)
    assert covered >= 0.95


def test_tasks_add_their_errors_in_squares():
    x, y = np.random.default_rng(2).normal(size=(2, 3, 8))
    alone = [statistics.probability_of_improvement(*pair) for pair in zip(x, y, strict=True)]
    together = statistics.probability_of_improvement(x, y)
    middle = np.mean([one.value for one in alone])
    half = [
        np.sqrt(sum((one.value - end(one)) ** 2 for one in alone)) / 3 for end in (lambda i: i.low, lambda i: i.high)
    ]
    np.testing.assert_allclose(together, (middle, middle - half[0], middle + half[1]), rtol=1e-12)


@pytest.mark.fast_rows("0.5-4", "0.9-8", "0.95-16")
@pytest.mark.parametrize("count", [4, 8, 16])
@pytest.mark.parametrize("probability", [0.5, 0.9, 0.95])
def test_the_probability_of_improvement_is_covered(probability, count):
    """Bootstraps of it cover 18 to 93 % here. Paired and unpaired, for normal and for exponential scores."""
    generator = np.random.default_rng(count)
    shift = np.sqrt(2) * scipy.stats.norm.ppf(probability)
    samples = {
        "normal": (generator.normal(shift, 1, (600, count)), generator.normal(size=(600, count))),
        "exponential": (
            generator.exponential(probability / (1 - probability), (600, count)),
            generator.exponential(size=(600, count)),
        ),
    }
    for x, y in samples.values():
        for paired in (False, True):
            ends = [statistics.probability_of_improvement(a, b, paired=paired) for a, b in zip(x, y, strict=True)]
            share = np.mean([low <= probability <= high for _, low, high in ends])
            # 93 % less three binomial errors of 600 samples.
            assert share > 0.93 - 3 * np.sqrt(0.93 * 0.07 / 600)
            assert all(high - low > 0 for _, low, high in ends)


def test_a_share_has_an_interval_where_all_runs_agree():
    profile = statistics.performance_profile(np.ones(8), [0.0, 2.0])
    low, high = scipy.stats.binomtest(8, 8).proportion_ci(method="exact")
    np.testing.assert_allclose(np.transpose(profile), [(1.0, low, high), (0.0, 1 - high, 1 - low)], rtol=1e-12)


def test_bootstrap_of_the_mean_has_its_standard_error():
    values = np.random.default_rng(5).normal(2, 3, size=400)
    estimate = statistics.bootstrap_interval(statistics.mean, values, num_resamples=4000)
    error = values.std() / 20
    # The ends are normal quantiles to O(1/n); their Monte-Carlo error is 0.0025 / 0.058 = 0.043 of the
    # standard error, of which this allows five.
    np.testing.assert_allclose((np.array(estimate[1:]) - values.mean()) / error, [-1.96, 1.96], atol=0.22)


def test_bootstrap_intervals_cover_the_mean_at_the_expected_rate():
    """Of 600 samples of 30 normal numbers, about 95 % of the intervals hold the true mean."""
    samples = np.random.default_rng(7).normal(1.0, 2.0, size=(600, 30))
    estimate = statistics.bootstrap_interval(statistics.mean, samples, num_resamples=1000, method="percentile")
    share = np.mean((estimate.low <= 1.0) & (estimate.high >= 1.0))
    # The percentile interval of 30 numbers covers 93.5 % (a normal quantile and the divisor n in
    # place of Student's and n - 1); four binomial errors of 600 samples are 0.04.
    assert abs(share - 0.935) < 0.04


@pytest.mark.parametrize("count", [4, 8, 16])
@pytest.mark.parametrize("statistic", [statistics.mean, statistics.iqm])
def test_few_seeds_are_covered_too(statistic, count):
    """Percentiles of the bootstrap cover 87 to 93 % at these numbers of seeds, below the coverage required here."""
    samples = np.random.default_rng(count).normal(1.0, 2.0, size=(2000, count))
    estimate = statistics.bootstrap_interval(statistic, samples, num_resamples=500)
    share = np.mean((estimate.low <= 1.0) & (estimate.high >= 1.0))
    # Three binomial errors of 2,000 samples are 0.015; above, the interval of the IQM is wider than it need be.
    assert 0.935 <= share <= 0.98


def test_the_ends_are_stretched_to_student(scores):
    percentile, student = (
        statistics.bootstrap_interval(statistics.iqm, scores, num_resamples=200, method=method)
        for method in ("percentile", "student")
    )
    factor = np.sqrt(23 / 22) * scipy.stats.t.ppf(0.975, 22) / scipy.stats.norm.ppf(0.975)
    np.testing.assert_allclose(student.high - student.value, factor * (percentile.high - percentile.value), rtol=1e-12)
    np.testing.assert_allclose(student.value - student.low, factor * (percentile.value - percentile.low), rtol=1e-12)


def test_bootstrap_is_stratified_over_tasks():
    tasks = np.array([[0.0, 0.0, 0.0], [10.0, 10.0, 10.0]])
    assert statistics.bootstrap_interval(statistics.mean, tasks, tasks=True) == (5.0, 5.0, 5.0)
    pooled = statistics.bootstrap_interval(statistics.mean, tasks.ravel())
    assert pooled.low < 5.0 < pooled.high


def test_tasks_are_drawn_independently():
    """Two tasks of opposite scores: their mean varies only if each task has its own draws."""
    half = np.random.default_rng(0).normal(size=50)
    estimate = statistics.bootstrap_interval(statistics.mean, np.stack([half, -half]), tasks=True)
    assert estimate.high - estimate.low > 0.1


def test_leading_axes_share_their_draws(scores):
    whole = statistics.bootstrap_interval(statistics.iqm, scores, num_resamples=50)
    assert whole.low.shape == (4,)
    for row in range(4):
        alone = statistics.bootstrap_interval(statistics.iqm, scores[row], num_resamples=50)
        assert (alone.value, alone.low, alone.high) == (whole.value[row], whole.low[row], whole.high[row])


def test_wider_confidence_is_a_wider_interval(scores):
    narrow = statistics.bootstrap_interval(statistics.median, scores[0], confidence=0.5)
    wide = statistics.bootstrap_interval(statistics.median, scores[0], confidence=0.99)
    assert wide.low < narrow.low <= narrow.value <= narrow.high < wide.high


def test_performance_profile_counts_runs(scores):
    thresholds = np.linspace(-2, 2, 9)
    profile = statistics.performance_profile(scores, thresholds)
    slow = [np.mean([[score > level for score in task] for task in scores]) for level in thresholds]
    np.testing.assert_allclose(profile.value, slow, atol=scores.size * EPS)
    assert np.all(np.diff(profile.value) <= 0)
    # A share p of n runs has the standard error sqrt(p (1 - p) / n), smaller where tasks differ.
    error = np.sqrt(np.array(slow) * (1 - np.array(slow)) / scores.size)
    assert np.all(profile.high - profile.low <= 2 * 1.96 * error * 1.2 + 1 / scores.size)
    assert np.all(profile.low <= profile.value) and np.all(profile.value <= profile.high)


def test_normalise_per_task():
    scores = np.array([[0.0, 5.0, 10.0], [100.0, 200.0, 300.0]])
    np.testing.assert_array_equal(statistics.normalise(scores, [0.0, 100.0], [10.0, 200.0]), [[0, 0.5, 1], [0, 1, 2]])
    np.testing.assert_array_equal(statistics.normalise([5.0], 0.0, 10.0), [0.5])
    with pytest.raises(ValueError, match="high must exceed low"):
        statistics.normalise(scores, 1.0, 1.0)
    with pytest.raises(ValueError, match=r"low has shape \(3,\)"):
        statistics.normalise(scores, [0.0, 1.0, 2.0], 3.0)


@pytest.mark.parametrize(
    "call",
    [
        statistics.mean,
        statistics.median,
        statistics.iqm,
        statistics.optimality_gap,
        lambda x: statistics.bootstrap_interval(statistics.iqm, x),
        lambda x: statistics.performance_profile(x, [0.0]),
        lambda x: statistics.probability_of_improvement(x, [1.0]),
    ],
)
def test_nan_is_never_silent(call):
    with pytest.raises(ValueError, match="holds 1 nan among 3"):
        call([1.0, np.nan, 2.0])
    with pytest.raises(ValueError, match="at least one score"):
        call([])


@pytest.mark.parametrize("statistic", [statistics.mean, statistics.median, statistics.iqm, statistics.optimality_gap])
def test_nan_propagates_on_request(statistic):
    value = statistic([[1.0, np.nan, 2.0, 3.0], [1.0, 1.0, 2.0, 3.0]], nan_policy="propagate")
    np.testing.assert_array_equal(np.isnan(value), [True, False])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"confidence": 95}, "confidence is 95"),
        ({"num_resamples": 0}, "num_resamples is 0"),
        ({"tasks": True}, "with tasks=True it takes"),
        ({"nan_policy": "ignore"}, "nan_policy is 'ignore'"),
        ({"method": "bca"}, "method is 'bca'; it takes 'student' or 'percentile'"),
    ],
)
def test_wrong_arguments_get_one_sentence(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        statistics.bootstrap_interval(statistics.mean, [1.0, 2.0], **arguments)


def test_a_thousand_seeds_are_quick():
    """Two thousand resamples of a thousand seeds take 0.1 s on a free core; a loop over resamples takes far longer."""
    scores = np.random.default_rng(0).normal(size=1000)
    start = time.process_time()
    statistics.bootstrap_interval(statistics.iqm, scores)
    assert time.process_time() - start < 1.0
