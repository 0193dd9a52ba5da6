"""Pictures: their contents, by their artists, and their files."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.stats
import xarray
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image

from jaxrl import plotting
from jaxrl.discounts import properties
from jaxrl.discounts.hazards import UniformHazard
from jaxrl.discounts.parsing import as_discount
from jaxrl.results import statistics
from jaxrl.results.dataset import metrics_dataset
from jaxrl.results.result import Result

LRS, DISCOUNTS = (3e-4, 1e-3), ("exp:gamma=0.98", "hyperbolic:k=0.02")
ENV_STEPS = (0, 250_000, 500_000)


@pytest.fixture
def ax():
    return Figure().subplots()


@pytest.fixture
def values():
    return np.random.default_rng(0).normal(100, 10, size=(4, 16, 3)).astype(np.float32)


def result_of(values, shape=(2, 2)):
    coords = {"lr": (("lr",), list(LRS)), "discount": (("discount",), list(DISCOUNTS))}
    sweep: Any = SimpleNamespace(dims=("lr", "discount"), shape=shape, coords=coords) if shape else None
    return Result(metrics_dataset({"return": values}, seeds=range(16), env_steps=ENV_STEPS, sweep=sweep), {})


def labels(ax):
    return ax.get_legend_handles_labels()[1]


def test_a_line_per_setting_at_its_interquartile_mean(ax, values):
    assert plotting.learning_curves(result_of(values), ax=ax) is ax
    assert labels(ax) == [f"{lr:g}, {discount}" for lr in LRS for discount in DISCOUNTS]
    for line, runs in zip(ax.lines, values, strict=True):
        # A float64 mean of eight float32 numbers.
        np.testing.assert_allclose(line.get_ydata(), scipy.stats.trim_mean(runs, 0.25, axis=0), rtol=1e-6)
        np.testing.assert_array_equal(line.get_xdata(), ENV_STEPS)
    assert len(ax.collections) == 4
    assert ax.get_xlabel() == "environment steps" and ax.get_ylabel() == "return per episode"
    assert ax.get_legend().get_title().get_text() == "lr, discount"


def test_the_band_is_the_bootstrap_interval(ax, values):
    plotting.learning_curves(result_of(values).metrics, ax=ax, confidence=0.8, num_resamples=100)
    expected = statistics.bootstrap_interval(statistics.iqm, values[0].T, confidence=0.8, num_resamples=100)
    corners = ax.collections[0].get_paths()[0].vertices
    for step, low, high in zip(ENV_STEPS, expected.low, expected.high, strict=True):
        heights = corners[corners[:, 0] == step][:, 1]
        assert (heights.min(), heights.max()) == pytest.approx((low, high))


def test_hue_pools_the_other_coordinates(ax, values):
    result_of(values).plot("return", hue="discount", ax=ax)
    assert labels(ax) == list(DISCOUNTS)
    pooled = np.concatenate([values[1], values[3]])
    np.testing.assert_allclose(ax.lines[1].get_ydata(), scipy.stats.trim_mean(pooled, 0.25, axis=0), rtol=1e-6)
    assert "32 runs over lr" in ax.get_title()


def test_a_single_setting_needs_no_legend(ax, values):
    plotting.learning_curves(result_of(values[:1], shape=()), ax=ax)
    assert len(ax.lines) == 1 and ax.get_legend() is None


def test_failed_runs_are_left_out_and_counted(ax, values):
    values[0, 3, 1:] = np.nan
    plotting.learning_curves(result_of(values), ax=ax)
    assert labels(ax)[0] == "0.0003, exp:gamma=0.98 (1 of 16 failed)"
    rest = np.delete(values[0, :, 2], 3)
    assert ax.lines[0].get_ydata()[2] == pytest.approx(statistics.iqm(rest))


def test_the_runs_left_out_are_those_that_the_table_leaves_out(ax, values):
    result = result_of(values)
    loss = np.zeros_like(values)
    loss[1, 5, 2], loss[2, 6, 1] = np.inf, np.nan
    result.metrics["loss"] = (result.metrics["return"].dims, loss.reshape(2, 2, 16, 3))
    result.plot("return", ax=ax)
    table = result.table("return").to_pandas()
    assert table["failed"].tolist() == [0, 1, 0, 0]
    assert [line.get_ydata()[2] for line in ax.lines] == pytest.approx(table["iqm"].tolist())
    assert ax.lines[2].get_ydata()[1] == pytest.approx(statistics.iqm(np.delete(values[2, :, 1], 6)))
    assert [label.partition(" (")[2] for label in labels(ax)] == [
        "",
        "1 of 16 failed)",
        "1 of 16 failed for a time)",
        "",
    ]


def test_bands_stay_within_the_range_of_the_metric(ax, values):
    """Four runs far apart have a widened interval that would reach below 0 and above the largest return."""
    runs = np.array([9.6, 20.0, 62.0, 237.0], np.float32)[None, :, None] + np.array([0.0, 200.0, 263.0], np.float32)
    data = metrics_dataset({"return": runs}, seeds=range(4), env_steps=ENV_STEPS, attrs={"return_low": 1.0})
    free = statistics.bootstrap_interval(statistics.iqm, runs[0].T, num_resamples=500)
    assert free.low[0] < 1.0 and free.high[-1] > 500.0
    plotting.learning_curves(data.assign_attrs(return_high=500.0), ax=ax)
    band = np.asarray(ax.collections[0].get_paths()[0].vertices)[:, 1]
    assert band.min() == 1.0 and band.max() == 500.0
    plotting.learning_curves(data, ax=(other := Figure().subplots()))
    assert np.asarray(other.collections[0].get_paths()[0].vertices)[:, 1].max() > 500.0


def results_of_other_lengths():
    """Three results, each with points of its own."""
    return [
        metrics_dataset(
            {"return": np.full((1, 4, 3), 10.0 * (i + 1)) + np.arange(3), "length": np.ones((1, 4, 3))},
            seeds=range(4),
            env_steps=steps,
        )
        for i, steps in enumerate(((0, 100, 200), (0, 90, 190), (0, 50, 100)))
    ]


def joined(datasets, dim="algorithm", names=("a", "b", "c")) -> xarray.Dataset:
    """The results along a new dimension, as a user joins them."""
    together: Any = xarray.concat(datasets, xarray.DataArray(list(names), dims=dim, name=dim), join="outer")
    return together


@pytest.mark.parametrize("only", [["return"], ["return", "length"]])
def test_points_of_other_results_are_not_failures(ax, only):
    datasets = results_of_other_lengths()
    plotting.learning_curves(joined([each[only] for each in datasets]), "return", hue="algorithm", ax=ax)
    assert labels(ax) == ["a", "b", "c (until 100 steps)"]
    for line, alone in zip(ax.lines, datasets, strict=True):
        np.testing.assert_array_equal(line.get_xdata(), alone["env_step"])
        np.testing.assert_array_equal(line.get_ydata(), alone["return"].values[0])
    assert ax.get_title().startswith("interquartile mean of 4 runs,")


def test_seeds_and_metrics_of_other_results_are_not_failures(ax):
    one = metrics_dataset({"return": np.ones((1, 4, 2))}, seeds=range(4), env_steps=(0, 10))
    other = metrics_dataset({"return": np.ones((1, 6, 2)), "q": np.ones((1, 6, 2))}, seeds=range(6), env_steps=(0, 10))
    both = joined([one.assign(q=one["return"] * np.nan), other], names=("one", "other"))
    plotting.learning_curves(both, "return", hue="algorithm", ax=ax)
    assert labels(ax) == ["one (2 of 6 without values)", "other"] and ax.get_title().startswith(
        "interquartile mean of 4 to 6 runs,"
    )


def test_a_run_that_failed_from_the_start_is_not_hidden(ax):
    """With the return alone, a Dataset cannot tell it from a seed that other results have."""
    data = metrics_dataset({"return": np.ones((1, 4, 2))}, seeds=range(4), env_steps=(0, 10))
    data["return"][2] = np.nan
    plotting.learning_curves(data, ax=ax)
    assert labels(ax) == ["(1 of 4 without values)"]


def test_failures_among_joined_results_are_counted(ax):
    datasets = results_of_other_lengths()
    datasets[0]["return"][1, -1] = np.nan  # one run at its own last point; its length is finite
    datasets[1]["return"][:, 1:] = np.inf
    plotting.learning_curves(joined(datasets), "return", hue="algorithm", ax=ax)
    assert labels(ax) == ["a (1 of 4 failed)", "b (4 of 4 failed)", "c (until 100 steps)"]


def test_a_sensitivity_plot_of_joined_results_takes_the_last_point_of_each(ax):
    plotting.learning_curves(joined(results_of_other_lengths(), "lr", (0.1, 0.2, 0.3)), "return", x="lr", ax=ax)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [12.0, 22.0, 32.0])


def test_lines_differ_in_colour_and_style(ax, values):
    plotting.learning_curves(result_of(values), ax=ax)
    assert len({line.get_color() for line in ax.lines}) == len({line.get_linestyle() for line in ax.lines}) == 4
    looks = [tuple(plotting.style(index).values()) for index in range(plotting.MOST_LINES)]
    assert len(set(looks)) == plotting.MOST_LINES


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"metric": "loss"}, "metric is 'loss'; there are return"),
        ({"hue": "lam"}, "hue is 'lam'; the coordinates are lr, discount"),
        ({"path": "curve.docx"}, "a picture's name ends in .png"),
    ],
)
def test_wrong_arguments_get_one_sentence(values, arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        plotting.learning_curves(result_of(values), **arguments)


def test_too_many_lines_are_refused():
    with pytest.raises(ValueError, match="lines cannot be distinguished"):
        plotting.performance_profiles({str(i): [1.0, 2.0] for i in range(plotting.MOST_LINES + 1)})


def test_pictures_are_written(tmp_path, values):
    file = tmp_path / "new" / "curves.png"
    result_of(values).plot(path=file)
    with Image.open(file) as picture:
        assert picture.size == (960, 630)
        colours = picture.convert("RGB").getcolors(maxcolors=picture.width * picture.height)
    assert colours is not None and len(colours) > 20


def test_performance_profiles_fall_from_one_to_zero(ax, values):
    scores = {"a": values[0, :, 0], "b": values[:, :, 1]}
    plotting.performance_profiles(scores, ax=ax, label="score")
    assert labels(ax) == ["a", "b"] and ax.get_xlabel() == "threshold (score)"
    for line, runs in zip(ax.lines, scores.values(), strict=True):
        levels, share = line.get_data()
        np.testing.assert_allclose(share, [(runs > level).mean() for level in levels], atol=1e-12)
    with pytest.raises(ValueError, match="scores is empty"):
        plotting.performance_profiles({})


def test_discount_curves(ax):
    plotting.discount_curves([0.9, "hyperbolic:k=0.5"], horizon=10, ax=ax)
    delay = np.arange(11)
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), delay)
    # Ten float32 products.
    np.testing.assert_allclose(ax.lines[0].get_ydata(), 0.9**delay, rtol=11 * float(np.finfo(np.float32).eps))
    np.testing.assert_allclose(ax.lines[1].get_ydata(), 1 / (1 + 0.5 * delay), rtol=1e-5)
    assert labels(ax) == ["exp:gamma=0.9", "hyperbolic:k=0.5"]
    named = plotting.discount_curves({"steep": 0.5}, horizon=3, ax=Figure().subplots())
    assert labels(named) == ["steep"]


FAMILIES = ["exp:gamma=0.99", "beta:mu=0.99,eta=0.5", "hyperbolic:k=0.0101", "quasi:beta=0.7,gamma=0.995", "fixed:100"]


def test_discount_overview_shows_the_properties_of_discounts(tmp_path):
    file = tmp_path / "new" / "discounts.png"
    figure = plotting.discount_overview(FAMILIES, 400, path=file)
    curves, rates, shares = figure.axes
    drawn = [line for line in curves.lines if not str(line.get_label()).startswith("_")]
    assert [line.get_label() for line in drawn] == [
        "exp:gamma=0.99: effective horizon 99 steps",
        "beta:mu=0.99,eta=0.5: effective horizon 340 steps",
        "hyperbolic:k=0.0101: effective horizon infinite",
        "quasi:beta=0.7,gamma=0.995: effective horizon 199 steps",
        "fixed:horizon=100: effective horizon 63 steps",
    ]
    assert len(figure.legends) == 1
    low, high = rates.get_ylim()
    assert 0.9 < low < 0.99 and high > 1  # the end of the fixed horizon leaves room for the rest
    dots = [line for line in curves.lines if line.get_marker() == "o"]
    assert [np.ravel(dot.get_xdata())[0] for dot in dots] == [99, 340, 199, 63]
    for line, text in zip(drawn, FAMILIES, strict=True):
        np.testing.assert_array_equal(line.get_ydata(), as_discount(text).curve(400))
    for line, text in zip(rates.lines, FAMILIES, strict=True):
        np.testing.assert_array_equal(line.get_ydata(), properties.one_step_rates(text, 400))
    bars: Any = shares.patches
    widths = np.reshape([bar.get_width() for bar in bars], (3, len(FAMILIES))).T
    np.testing.assert_allclose(widths, [properties.future_shares(text) for text in FAMILIES], rtol=1e-6)
    assert [label.get_text() for label in shares.get_yticklabels()] == [str(as_discount(text)) for text in FAMILIES]
    with Image.open(file) as picture:
        assert picture.size == (1650, 990)


def test_discount_overview_takes_a_bare_curve_and_refuses_bad_arguments():
    figure = plotting.discount_overview({"unsure": UniformHazard(0, 0.1)}, 50)
    assert labels(figure.axes[0]) == ["unsure"]
    with pytest.raises(ValueError, match="discounts takes 1 to 7 discounts, got 0"):
        plotting.discount_overview([], 50)
    with pytest.raises(ValueError, match="a picture's name ends in"):
        plotting.discount_overview([0.9], 50, path="x.docx")
    with pytest.raises(ValueError, match="boundaries takes three delays"):
        plotting.discount_overview([0.9], 50, boundaries=(1, 2))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(("count", "alpha", "linewidth"), [(2, 0.18, 0), (4, 0.06, 0.6)])
def test_many_bands_are_faint_and_have_edges(ax, values, count, alpha, linewidth):
    result = result_of(values[:count], (count // 2, 2)) if count == 4 else result_of(values)
    plotting.learning_curves(result, ax=ax, hue=None if count == 4 else "lr")
    assert len(ax.collections) == count
    for each in ax.collections:
        np.testing.assert_allclose([each.get_facecolor()[0, 3], each.get_linewidth()[0]], [alpha, linewidth])


def test_sensitivity_is_the_end_against_a_coordinate(ax, values):
    result = result_of(values)
    result.plot("return", x="lr", hue="discount", ax=ax)
    assert ax.get_xlabel() == "lr" and labels(ax) == list(DISCOUNTS) and len(ax.collections) == 2
    for line, runs in zip(ax.lines, (values[[0, 2]], values[[1, 3]]), strict=True):
        np.testing.assert_array_equal(line.get_xdata(), LRS)
        np.testing.assert_allclose(line.get_ydata(), scipy.stats.trim_mean(runs[..., -1], 0.25, axis=1), rtol=1e-6)


def test_sensitivity_pools_unnamed_dimensions_and_takes_labels(ax, values):
    values[0, 3, -1] = np.nan
    result_of(values).plot("return", x="discount", ax=ax)
    (line,) = ax.lines
    good = np.concatenate([np.delete(values[0, :, -1], 3), values[2, :, -1]])
    np.testing.assert_allclose(line.get_ydata()[0], statistics.iqm(good), rtol=1e-6)
    assert [text.get_text() for text in ax.get_xticklabels()] == list(DISCOUNTS)
    assert "interquartile mean over lr" in ax.get_title()
    with pytest.raises(ValueError, match="x is 'lrr'; did you mean 'lr'"):
        result_of(values).plot("return", x="lrr", ax=ax)


def named(values, algorithm, env_steps=ENV_STEPS):
    attrs = {"algorithm": algorithm}
    return Result(metrics_dataset({"return": values.copy()}, seeds=range(16), env_steps=env_steps, attrs=attrs), {})


def test_results_on_the_same_axes_have_colours_and_labels_of_their_own(ax, values):
    lengths = {"dqn": 1.0, "pqn": 1.2, "ppo": 0.5, "dqn (2)": 1.1}
    for at, (name, factor) in enumerate(lengths.items()):
        steps = [int(step * factor) for step in ENV_STEPS]
        named(values[at : at + 1], name.partition(" ")[0], steps).plot("return", ax=ax)
        assert (ax.get_legend() is None) == (at == 0)  # one curve needs none
    assert labels(ax) == [text.get_text() for text in ax.get_legend().get_texts()] == list(lengths)
    assert [line.get_color() for line in ax.lines] == list(plotting.COLOURS[:4])
    bands = [tuple(each.get_facecolor()[0, :3]) for each in ax.collections]
    assert bands == [to_rgb(colour) for colour in plotting.COLOURS[:4]]
    assert {each.get_facecolor()[0, 3] for each in ax.collections} == {0.06}
    assert ax.get_xlim() == (0, 600_000) and ax.get_ylabel() == "return per episode"
    assert ax.get_title() == "interquartile mean of 16 runs, 95% interval"


def test_axes_of_several_results_are_labelled_with_their_common_properties(ax, values):
    named(values[:1], "ppo").plot("return", ax=ax, label="mine")
    assert labels(ax) == ["mine"] and ax.get_legend() is not None
    fewer = named(values[1:2], "ppo")
    fewer.metrics = fewer.metrics.isel(seed=slice(0, 4))
    fewer.metrics["return"][2, -1] = np.nan
    fewer.plot("return", ax=ax)
    assert labels(ax) == ["mine", "ppo (1 of 4 failed)"] and ax.get_title() == "interquartile means with intervals"
    result = result_of(values)
    result.metrics.attrs["algorithm"] = "ppo"
    result.plot("return", hue="discount", ax=ax)
    assert labels(ax)[2:] == [f"ppo: {discount}" for discount in DISCOUNTS]
    twenty = metrics_dataset({"length": np.ones((1, 16, 3))}, seeds=range(16), env_steps=ENV_STEPS)
    plotting.learning_curves(twenty, ax=ax, label="ppo")
    assert labels(ax)[-1] == "ppo (2)" and ax.get_ylabel() == "return per episode, episode length (steps)"
    with pytest.raises(ValueError, match="29 lines cannot be distinguished"):
        for _ in range(plotting.MOST_LINES):
            named(values[:1], "ppo").plot(ax=ax)


def test_sensitivity_of_several_results_on_the_same_axes(ax, values):
    for name in ("ppo", "a2c"):
        result = result_of(values)
        result.metrics.attrs["algorithm"] = name
        result.plot(x="discount", ax=ax)
    assert labels(ax) == ["ppo", "a2c"] and len({line.get_color() for line in ax.lines}) == 2
    with pytest.raises(ValueError, match=r"x is 'discount', and the axes have other labels, exp:gamma=0.98"):
        Result(result.metrics.isel(discount=[0]), {}).plot(x="discount", ax=ax)
