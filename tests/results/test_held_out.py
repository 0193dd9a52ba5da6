"""Returns over parameters: table and map of colours, against means by NumPy, and their errors."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray

import jaxrl
from jaxrl.plotting import heat_map

SEEDS, LENGTHS, MASSES, EPISODES = 8, (0.1, 0.5, 2.0), (1.0, 3.0), 5
RNG = np.random.default_rng(0)


def episodes_of(*settings: str, failed: bool = False, masses: tuple[float, ...] = MASSES) -> xarray.Dataset:
    """Random returns as `jaxrl.evaluate` labels them."""
    dims = (*settings, "seed", "eval.length", "eval.mass", "episode")
    values = RNG.normal(100.0, 10.0, (*[2] * len(settings), SEEDS, len(LENGTHS), len(masses), EPISODES))
    if failed:
        values[..., 3, :, :, :] = np.nan
    coords = {"eval.length": list(LENGTHS), "eval.mass": list(masses), "seed": range(SEEDS), "episode": range(EPISODES)}
    return xarray.Dataset(
        {"return": (dims, values.astype(np.float32))}, coords | {name: [0.1, 0.2] for name in settings}
    )


def middle(runs: np.ndarray) -> float:
    """Mean of the middle half of eight runs."""
    return float(np.sort(runs)[2:6].mean())


@pytest.mark.parametrize("settings", [(), ("lr",)], ids=["one setting", "a sweep"])
def test_a_row_has_the_interquartile_mean_over_seeds_of_each_runs_mean(settings: tuple[str, ...]) -> None:
    episodes = episodes_of(*settings)
    table = jaxrl.held_out_table(episodes)
    frame = table.to_pandas()
    assert list(frame.columns) == [*settings, "length", "mass", "iqm", "low", "high", "mean", "seeds"]
    assert len(frame) == 2 ** len(settings) * len(LENGTHS) * len(MASSES)
    for row in frame.to_dict("records"):
        at = {"eval.length": row["length"], "eval.mass": row["mass"], **{name: row[name] for name in settings}}
        runs = episodes["return"].sel(at).values.astype(np.float64).mean(axis=-1)
        assert runs.shape == (SEEDS,)
        np.testing.assert_allclose([row["iqm"], row["mean"]], [middle(runs), runs.mean()], rtol=1e-5)
        assert row["low"] < row["iqm"] < row["high"]
    assert table.title == "return of 8 seeds, 5 episodes each: interquartile mean, 95% bootstrap interval"


def test_failed_runs_are_left_out_and_counted() -> None:
    episodes = episodes_of(failed=True)
    episodes["return"].values[4, 0, 0] = np.nan  # a run that failed under one combination alone
    frame = jaxrl.held_out_table(episodes, confidence=0.9).to_pandas()
    assert frame["seeds"].tolist() == [6] + [7] * 5
    assert frame["failed"].tolist() == [2] + [1] * 5


def test_settings_of_a_random_design_have_their_values() -> None:
    """Its axis has no coordinate of its own name, and one for each hyper-parameter."""
    episodes = episodes_of("setting").drop_vars("setting")
    episodes = episodes.assign_coords(lr=("setting", [0.1, 0.2]), lam=("setting", [0.9, 0.9]))
    frame = jaxrl.held_out_table(episodes).to_pandas()
    assert list(frame.columns[:4]) == ["lr", "lam", "length", "mass"]
    assert frame["lr"].tolist() == [0.1] * 6 + [0.2] * 6
    assert [ax.get_title() for ax in heat_map(episodes).axes if ax.get_title()] == ["lr 0.1", "lr 0.2"]


def test_a_parameter_with_the_name_of_a_hyper_parameter_keeps_its_prefix() -> None:
    frame = jaxrl.held_out_table(episodes_of("mass")).to_pandas()
    assert list(frame.columns[:3]) == ["mass", "eval.length", "eval.mass"]


def test_one_policy_has_no_intervals() -> None:
    episodes = episodes_of().isel(seed=0, drop=True)
    frame = jaxrl.held_out_table(episodes).to_pandas()
    assert np.isnan(frame["low"].to_numpy()).all()
    np.testing.assert_allclose(frame["iqm"], episodes["return"].mean("episode").values.ravel(), rtol=1e-6)


def test_the_colours_are_interquartile_means_on_one_scale() -> None:
    named = {"one": episodes_of(), "other": episodes_of("lr", failed=True)}
    figure = heat_map(named)
    panels = [ax for ax in figure.axes if ax.get_title()]
    assert [ax.get_title() for ax in panels] == ["one", "other, lr 0.1", "other, lr 0.2"]
    expected = []
    for episodes in [named["one"], *(named["other"].isel(lr=place) for place in (0, 1))]:
        runs = episodes["return"].values.astype(np.float64).mean(axis=-1)
        good = np.sort(runs[np.isfinite(runs).all(axis=(1, 2))], axis=0)
        cut = len(good) // 4
        expected.append(good[cut : len(good) - cut].mean(axis=0))
    for ax, values in zip(panels, expected, strict=True):
        (image,) = ax.get_images()
        np.testing.assert_allclose(np.asarray(image.get_array()), values.T, rtol=1e-5)  # a line for each mass
        assert image.get_clim() == panels[0].get_images()[0].get_clim()
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("length", "mass")
        assert [text.get_text() for text in ax.get_xticklabels()] == ["0.1", "0.5", "2"]
        assert len(ax.texts) == len(LENGTHS) * len(MASSES)
    assert panels[0].get_images()[0].get_clim() == pytest.approx((np.min(expected), np.max(expected)))
    assert any(ax.get_ylabel() == "return, interquartile mean of 8 runs" for ax in figure.axes)


def test_axes_can_be_chosen_and_one_parameter_is_one_line() -> None:
    ax = heat_map(episodes_of(), x="mass").axes[0]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("mass", "length")
    one = heat_map(episodes_of().isel({"eval.mass": 0}, drop=True)).axes[0]
    assert (one.get_xlabel(), one.get_ylabel()) == ("length", "")
    assert np.asarray(one.get_images()[0].get_array()).shape == (1, len(LENGTHS))
    line = heat_map(episodes_of(masses=(1.0,)), x="length", y="eval.mass").axes[0]
    assert line.get_ylabel() == "mass"
    three = episodes_of().expand_dims({"eval.gravity": [9.8]})  # the first, and of one value
    assert [heat_map(three).axes[0].get_xlabel(), heat_map(three).axes[0].get_ylabel()] == ["length", "mass"]


def test_cells_without_a_run_are_marked_as_failed() -> None:
    episodes = episodes_of()
    episodes["return"].values[:, 1, 0] = np.nan
    texts = heat_map(episodes).axes[0].texts
    assert [(text.get_text(), text.get_color()) for text in texts if text.get_text() == "failed"] == [
        ("failed", "black")
    ]


def test_few_of_many_values_are_written_at_an_axis() -> None:
    many = episodes_of(masses=tuple(np.linspace(1.0, 2.0, 60)))
    assert len(heat_map(many).axes[0].get_yticklabels()) == 20


def test_a_picture_is_written(tmp_path: Path) -> None:
    heat_map(episodes_of(), path=tmp_path / "map.png")
    assert (tmp_path / "map.png").read_bytes()[:4] == b"\x89PNG"


ERRORS: dict[str, tuple[Any, str]] = {
    "a table of a result": (lambda: jaxrl.held_out_table(5), r"^episodes must be those of jaxrl\.evaluate\(.*got int$"),  # pyright: ignore[reportArgumentType]
    "a metric": (lambda: jaxrl.held_out_table(episodes_of(), "retrun"), r"^metric is 'retrun'; did you mean 'return'"),
    "a confidence": (lambda: jaxrl.held_out_table(episodes_of(), confidence=95), r"^confidence must "),
    "no parameters": (
        lambda: heat_map(episodes_of().isel({"eval.mass": 0, "eval.length": 0}, drop=True)),
        r"^episodes must have axes of parameters, as of jaxrl\.evaluate",
    ),
    "an axis": (lambda: heat_map(episodes_of(), x="lenght"), r"^x is 'lenght'; did you mean 'length'"),
    "an axis that is the only one": (
        lambda: heat_map(episodes_of().isel({"eval.mass": 0}, drop=True), y="length"),
        r"^y takes a second parameter, and length is the only one; x takes it$",
    ),
    "means over episodes": (
        lambda: jaxrl.held_out_table(episodes_of().mean("episode")),
        r"^episodes must be those of .*, got Dataset with the axes seed, eval\.length, eval\.mass$",
    ),
    "one axis twice": (lambda: heat_map(episodes_of(), x="mass", y="mass"), r"^x and y must be two parameters, got"),
    "a third parameter": (
        lambda: heat_map(episodes_of().expand_dims({"eval.gravity": [5.0, 9.8]})),
        r"^mass has several values and is neither x nor y: choose one, such as episodes\.sel\(",
    ),
    "other axes": (
        lambda: heat_map({"one": episodes_of(), "other": episodes_of().rename({"eval.mass": "eval.gravity"})}),
        r"^episodes must have equal axes of parameters, got .* of 'other'$",
    ),
    "none": (lambda: heat_map({}), r"^episodes must be those of jaxrl\.evaluate\(result, \.\.\.\), or several by name"),
    "a picture's name": (
        lambda: heat_map(episodes_of(), path="map.txt"),
        r"^path is 'map\.txt'; a picture's name ends in",
    ),
    "too many settings": (
        lambda: heat_map({str(i): episodes_of() for i in range(13)}),
        r"^13 settings make as many panels, at most 12: choose some",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_wrong_arguments_are_refused_in_one_sentence(name: str) -> None:
    call, sentence = ERRORS[name]
    with pytest.raises((TypeError, ValueError), match=sentence):
        call()
