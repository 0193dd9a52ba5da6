"""Comparison of policies: means and intervals, the table, the picture, and the bounds."""

import dataclasses
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats
from matplotlib.figure import Figure
from PIL import Image

from envs.bandits.bernoulli import BernoulliBandit
from envs.bandits.contextual import LinearBandit
from envs.bandits.gaussian import GaussianBandit
from envs.bandits.positive import ExponentialBandit, PoissonBandit
from jaxrl import plotting
from jaxrl.bandits.bounds.prior import lai
from jaxrl.bandits.comparing import bounds_of, regret_table
from jaxrl.results.dataset import metrics_dataset
from jaxrl.results.mean_curves import lines_of, mean_interval
from jaxrl.results.result import Result

STEPS = (10, 100, 1_000)


def result_of(regret: np.ndarray, paths: dict[str, list[float]] | None = None, runs: int = 20, **others: Any) -> Result:
    """A result `[settings, 20 runs, 3 points]`, or of fewer runs."""
    regret = regret[:, :runs]
    metrics = {"regret": regret, "optimal": regret / 100, "simple_regret": regret / 1e4} | others
    sweep: Any = None
    if paths:
        coords = {path: ((path,), values) for path, values in paths.items()}
        sweep = SimpleNamespace(dims=tuple(paths), shape=tuple(map(len, paths.values())), coords=coords)
    shown = {name: np.asarray(value, np.float32) for name, value in metrics.items() if value is not None}
    return Result(metrics_dataset(shown, seeds=range(runs), env_steps=STEPS, sweep=sweep), {})


@pytest.fixture
def regret() -> np.ndarray:
    drawn = np.random.default_rng(0).gamma(5, 2, size=(2, 20, 3)) * [1, 3, 5]
    return np.asarray(drawn, np.float32)


def test_the_interval_is_students(regret):
    actual = mean_interval(regret[0, :, 2], confidence=0.9)
    runs = regret[0, :, 2].astype(np.float64)
    low, high = scipy.stats.t.interval(0.9, 19, loc=runs.mean(), scale=scipy.stats.sem(runs))
    np.testing.assert_allclose(actual, (runs.mean(), low, high), rtol=1e-12)
    assert np.isnan(mean_interval([3.0])[1:]).all() and mean_interval([3.0]).value == 3
    with pytest.raises(ValueError, match="confidence is 95; it takes a number between 0 and 1"):
        mean_interval([1.0, 2.0], confidence=95)


def test_the_interval_of_the_mean_has_its_nominal_coverage():
    runs = np.random.default_rng(1).exponential(size=(100, 4_000))
    actual = mean_interval(runs)
    covered = np.mean((actual.low < 1) & (actual.high > 1))
    # 95 % less the loss by skewness, below 1.5 % at 100 exponential numbers, and 3 standard errors of 4,000 trials.
    assert 0.95 - 0.015 - 3 * math.sqrt(0.05 * 0.95 / 4_000) < covered < 0.95 + 3 * math.sqrt(0.05 * 0.95 / 4_000)


def test_the_table_has_a_row_for_every_policy_and_setting(regret):
    results = {"a": result_of(regret, {"exploration": [0.5, 2.0]}), "b": result_of(regret[:1])}
    table = regret_table(results)
    frame = table.to_pandas()
    assert list(frame.columns) == [
        *("policy", "exploration", "regret", "low", "high", "optimal pulls", "simple regret", "runs")
    ]
    assert frame["policy"].tolist() == ["a", "a", "b"] and frame["exploration"].tolist() == [0.5, 2.0, ""]
    expected = regret[:, :, 2].astype(np.float64).mean(axis=1)
    np.testing.assert_allclose(frame["regret"], [*expected, expected[0]])
    np.testing.assert_allclose(frame["optimal pulls"], frame["regret"] / 100, rtol=1e-6)
    np.testing.assert_allclose(frame["simple regret"], frame["regret"] / 1e4, rtol=1e-6)
    assert str(table).startswith("regret after 1,000 pulls: mean over runs, 95% interval of the mean\n")


def test_runs_that_failed_are_left_out_and_counted(regret):
    regret[0, 3, 1:] = np.nan
    results = {"a": result_of(regret[:1]), "b": result_of(regret[1:])}
    frame = regret_table(results).to_pandas()
    assert frame["failed"].tolist() == [1, 0] and frame["runs"].tolist() == [19, 20]
    assert frame["regret"].tolist()[0] == pytest.approx(np.delete(regret[0, :, 2], 3).mean(), rel=1e-6)
    assert lines_of(results)[0].label_with_failures == "a (1 of 20 failed)"


def test_a_bandit_without_a_regret_is_compared_by_its_reward(regret):
    result = result_of(regret[:1], optimal=None, simple_regret=None)
    result.metrics = result.metrics.rename(regret="reward")
    frame = regret_table({"whittle": result}).to_pandas()
    assert list(frame.columns) == ["policy", "reward", "low", "high", "runs"]


def test_the_picture_shows_means_bands_and_bounds(regret, tmp_path):
    results = {"a": result_of(regret, {"exploration": [0.5, 2.0]}), "b": result_of(regret[:1] * 2)}
    path = tmp_path / "pictures" / "regret.png"
    linear, logarithmic = plotting.regret_curves(results, bounds={"log": np.log}, path=path)
    means = np.stack([*regret.astype(np.float64).mean(axis=1), 2 * regret[0].astype(np.float64).mean(axis=0)])
    for line, mean in zip(linear.lines, means, strict=False):
        np.testing.assert_allclose(line.get_xdata(), [0, *STEPS])
        np.testing.assert_allclose(line.get_ydata(), [0, *mean], rtol=1e-6)
    for line, mean in zip(logarithmic.lines, means, strict=False):
        np.testing.assert_allclose(line.get_ydata(), mean, rtol=1e-6)
    assert linear.get_legend_handles_labels()[1] == ["a, exploration 0.5", "a, exploration 2", "b", "log"]
    for ax in (linear, logarithmic):
        np.testing.assert_allclose(ax.lines[3].get_ydata(), np.log(ax.lines[3].get_xdata()))
        assert len(ax.collections) == 3
    assert logarithmic.get_xscale() == logarithmic.get_yscale() == "log"
    assert linear.get_xscale() == linear.get_yscale() == "linear"
    corners = logarithmic.collections[0].get_paths()[0].vertices
    ends = corners[corners[:, 0] == STEPS[-1]][:, 1]
    expected = mean_interval(regret[0])
    assert (ends.min(), ends.max()) == pytest.approx((expected.low[-1], expected.high[-1]))
    with Image.open(path) as picture:
        assert picture.size == (1560, 630)


def test_means_of_zero_have_no_place_on_logarithmic_axes(regret):
    nothing = {"a": result_of(np.zeros_like(regret[:1])), "b": result_of(regret[:1])}
    _, logarithmic = plotting.regret_curves(nothing, figure=Figure())
    assert logarithmic.get_ylim()[0] > 0
    _, logarithmic = plotting.regret_curves({"a": nothing["a"]}, figure=Figure())
    assert logarithmic.get_yscale() == "linear"


@pytest.mark.parametrize(
    ("results", "arguments", "sentence"),
    [
        ({}, {}, "results is empty; it takes at least one result of run_bandit"),
        ({"a": None}, {"metric": "pulls"}, "metric is 'pulls'; the result of a has regret, optimal, simple_regret"),
        ({"a": None}, {"path": "regret.docx"}, "a picture's name ends in .png"),
        ({"a": None}, {"confidence": 1.0}, "confidence is 1.0"),
        ({f"{i}": None for i in range(40)}, {}, "40 lines cannot be distinguished"),
    ],
)
def test_wrong_arguments_get_one_sentence(results, arguments, sentence, regret):
    results = {label: result_of(regret[:1]) for label in results}
    with pytest.raises(ValueError, match=sentence):
        plotting.regret_curves(results, figure=Figure(), **arguments)


def test_the_bounds_of_a_given_instance():
    actual = bounds_of(BernoulliBandit(means=(0.5, 0.8)))
    divergence = 0.5 * math.log(0.5 / 0.8) + 0.5 * math.log(0.5 / 0.2)
    lai_robbins, minimax = actual.values()
    assert lai_robbins(np.array([math.e**2])) == pytest.approx(2 * 0.3 / divergence)
    assert minimax(np.array([200.0])) == pytest.approx(math.sqrt(2 * 200) / 20)


def test_the_bounds_of_gaussian_arms_know_their_noise():
    env = GaussianBandit(means=(0.0, 1.0))
    params = dataclasses.replace(env.default_params, sigma=3.0)
    (lai_robbins,) = bounds_of(env, params).values()
    assert lai_robbins(np.array([math.e])) == pytest.approx(2 * 9)  # 2 sigma^2 / gap
    assert bounds_of(env, dataclasses.replace(params, sigma=0.0)) == {}


def test_the_bound_over_a_uniform_prior_is_its_closed_form():
    for num_arms in (2, 3, 10, 100):
        assert lai(num_arms) == pytest.approx((num_arms - 1) / (2 * num_arms + 2), rel=1e-6)
    over_prior, _ = bounds_of(BernoulliBandit(num_arms=10)).values()
    assert over_prior(np.array([math.e**3])) == pytest.approx(9 * 9 / 22)


def test_the_bound_over_a_prior_is_the_integral_of_the_densities_of_two_arms():
    """Half the sum over arms of the density that an arm is exactly as good as the best of the others, by variances."""
    prior: Any = scipy.stats.beta(2, 3)
    both = scipy.integrate.quad(lambda mean: mean * (1 - mean) * prior.pdf(mean) ** 2, 0, 1)[0]
    assert lai(2, 2, 3) == pytest.approx(both, rel=1e-6)
    assert lai(3, 0.5, 0.5) > 0


@pytest.mark.parametrize(
    ("alpha", "beta"), [(1e-3, 1e-3), (0.1, 0.1), (0.02, 30.0), (5.0, 0.01), (1e3, 1e3), (1.0, 1e5)]
)
def test_the_bound_over_a_prior_is_finite_however_the_prior_leans(alpha, beta):
    """Of two arms it is the integral of mean^(2 alpha - 1) (1 - mean)^(2 beta - 1) / B(alpha, beta)^2."""
    both = math.exp(scipy.special.betaln(2 * alpha, 2 * beta) - 2 * scipy.special.betaln(alpha, beta))
    # quad ends at 1.5e-8 of the result; the logarithms of Beta functions of 1e5 lose as much as 1e-10.
    assert lai(2, alpha, beta) == pytest.approx(both, rel=2e-8)
    assert lai(2, alpha, beta) < lai(10, alpha, beta) < math.inf


@pytest.mark.parametrize(("arguments", "sentence"), [((1,), "num_arms must be at least 2"), ((2, 0.0), "above 0")])
def test_the_bound_over_a_prior_takes_two_arms_and_a_prior(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        lai(*arguments)


def test_where_no_bound_is_known_none_is_drawn():
    assert bounds_of(LinearBandit()) == {}
    # Arms that never pay are distinguished at once.
    assert bounds_of(PoissonBandit(means=(0.0, 1.0))) == bounds_of(ExponentialBandit(means=(0.0, 1.0))) == {}


def test_one_run_is_a_line_without_a_band(regret):
    linear, logarithmic = plotting.regret_curves({"a": result_of(regret[:1], runs=1)}, figure=Figure())
    assert linear.get_ylim()[0] == 0 and logarithmic.get_yscale() == "log"
    np.testing.assert_array_equal(linear.lines[0].get_ydata(), [0, *regret[0, 0]])


def test_the_title_counts_the_runs_that_are_drawn(regret):
    figure = Figure()
    some = regret.copy()
    some[1, :3, -1] = np.nan
    plotting.regret_curves({"a": result_of(some[:1]), "b": result_of(some[1:])}, figure=figure)
    assert figure.get_suptitle() == "17 to 20 runs, 95% interval of the mean"
    figure = Figure()
    plotting.regret_curves({"a": result_of(some[:1])}, figure=figure)
    assert figure.get_suptitle() == "20 runs, 95% interval of the mean"


def test_learning_curves_pool_no_arms(regret):
    result = result_of(regret[:1])
    result.metrics["pulls"] = result.metrics["regret"].expand_dims(arm=2, axis=-1)
    with pytest.raises(ValueError, match=r"metric is 'pulls', which has a number for each arm; choose one, such as"):
        plotting.learning_curves(result, "pulls")
    assert plotting.learning_curves(result.metrics.isel(arm=0), "pulls", num_resamples=10).lines
