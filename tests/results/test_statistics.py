"""Statistics against closed forms, scipy and slow loops; `test_rliable.py` has another library."""

import time

import numpy as np
import pytest
import scipy.stats

from jaxrl.results import statistics

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
    assert paired == (1.0, 1.0, 1.0)
    unpaired = statistics.probability_of_improvement(x + 0.5, x)
    assert unpaired.value == pytest.approx((190 + 20) / 400)
    assert statistics.probability_of_improvement(x, x, paired=True).value == 0.5


def test_unpaired_resampling_draws_both_sides():
    """The variance of U / (n m) under the bootstrap, against a slow loop of draws."""
    generator = np.random.default_rng(1)
    x, y = generator.normal(0.5, 1, 12), generator.normal(0, 1, 9)
    slow = []
    for _ in range(4000):
        first, second = generator.choice(x, 12), generator.choice(y, 9)
        slow.append(np.mean(first[:, None] > second[None, :]))
    ours = statistics.probability_of_improvement(x, y, num_resamples=4000)
    # A 2.5 % quantile of 4,000 draws of width sigma = 0.11 has a standard error of
    # sqrt(.025 * .975 / 4000) / density = 0.0025 / (0.058 / sigma), about 0.005; five of the difference.
    np.testing.assert_allclose(ours[1:], np.quantile(slow, [0.025, 0.975]), atol=5 * np.sqrt(2) * 0.005)


def test_the_interval_is_that_of_whichever_side_varies():
    varied, constant = np.arange(-5.0, 6.0), np.zeros(7)
    for pair in ((varied, constant), (constant, varied)):
        estimate = statistics.probability_of_improvement(*pair)
        assert estimate.value == 0.5
        # The mean of 11 numbers of -1/2, 0 and 1/2 has the standard error sqrt(10 / 11 / 4 / 11) = 0.144.
        assert 0.2 < estimate.low < 0.3 and 0.7 < estimate.high < 0.8


def test_bootstrap_of_the_mean_has_its_standard_error():
    values = np.random.default_rng(5).normal(2, 3, size=400)
    estimate = statistics.bootstrap_interval(statistics.mean, values, num_resamples=4000)
    error = values.std() / 20
    # The ends are normal quantiles to O(1/n); their Monte-Carlo error is 0.0025 / 0.058 = 0.043 of the
    # standard error, of which this allows five.
    np.testing.assert_allclose((np.array(estimate[1:]) - values.mean()) / error, [-1.96, 1.96], atol=0.22)


def test_bootstrap_covers_what_it_says():
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
