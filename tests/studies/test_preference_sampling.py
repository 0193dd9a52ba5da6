"""The study on sampling preferences: its errors of models, counts of comparisons, tables, and error messages."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pandas
import pytest
import xarray

from bench.studies import STUDIES, preference_sampling, run_study
from bench.studies.preference_sampling import Settings
from jaxrl.bandits import BanditAlgorithm


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


@pytest.mark.parametrize("beta", [0.3, 2.0])
def test_errors_are_those_of_the_definitions_and_forgive_a_constant(beta: float) -> None:
    generator = np.random.default_rng(0)
    rewards, model = generator.normal(size=(2, 6))

    def objective(policy: np.ndarray) -> float:
        return float(policy @ rewards - beta * policy @ np.log(policy * 6))

    best, implied = softmax(rewards / beta), softmax(model / beta)
    difference = model - rewards
    expected = {
        "uniform_error": np.std(difference),
        "policy_error": np.sqrt(best @ difference**2 - (best @ difference) ** 2),
        "policy_shortfall": objective(best) - objective(implied),
    }
    for constant in (0.0, 5.0):
        actual = preference_sampling.errors(jnp.float32(model + constant), jnp.float32(rewards), jnp.float32(beta))
        # Rewards of up to 8, rounded, over beta, are summed over 6 arms.
        assert {name: float(value) for name, value in actual.items()} == pytest.approx(
            expected, abs=6 * 8 / beta * 2.0**-23
        )


def test_comparisons_are_counted_where_a_curve_comes_down_to_stay() -> None:
    at = np.array([10, 100, 1000, 10_000])
    curves = np.array([[1.0, 0.1, 0.01, 0.001], [0.05, 0.05, 0.3, 0.05], [0.05, 1.0, 0.05, 0.3], [0.05, 0.1, 0.1, 0.1]])
    actual = preference_sampling.reached(curves, at, 0.1)
    # On lines through logarithms; the third curve is above at the end, the last one never.
    share = np.log(0.3 / 0.1) / np.log(0.3 / 0.05)
    np.testing.assert_allclose(actual, [100, 1000 * 10**share, np.inf, 10], rtol=1e-12)
    np.testing.assert_allclose(preference_sampling.reached(curves[0], at, 10**-1.5), 10**2.5, rtol=1e-12)


def made_up(sampler: BanditAlgorithm, settings: Settings) -> xarray.Dataset:
    """Errors of factor / comparisons in every run but for noise that all samplers share."""
    factor = {"uniform-pairs": 1.0, "policy-pairs": 2.0, "pilaf": 0.5, "pilaf-weighted": 1.0}[sampler.name]
    at = preference_sampling.points(settings.comparisons)
    noise = 1 + 0.2 * np.random.default_rng(1).normal(size=(len(settings.betas), settings.runs, 1))
    values = (("beta", "run", "comparison"), factor * noise / at)
    return xarray.Dataset(dict.fromkeys(preference_sampling.ERRORS, values), coords={"comparison": at})


@pytest.mark.slow
def test_the_tables_give_comparisons_relative_to_uniform_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preference_sampling, "measure", made_up)
    settings = Settings(betas=(0.5, 1.0), at=(100, 600), runs=50, comparisons=1000)
    at = preference_sampling.points(settings.comparisons)
    assert at[0] == 10 and at[-1] == 1000
    run_study(STUDIES["preference-sampling"], settings, tmp_path / "run", progress=False)
    assert (tmp_path / "run" / "preference_sampling.png").stat().st_size > 10_000
    for error in preference_sampling.ERRORS:
        frame = pandas.read_csv(tmp_path / "run" / f"{error}.csv")
        assert frame["beta"].tolist() == [0.5, 0.5, 1.0, 1.0]
        # Runs are paired, so that a multiple of the error is a multiple of the comparisons in every bootstrap.
        assert frame["pilaf / uniform"].tolist() == ["0.50 [0.50, 0.50]"] * 4
        assert frame["weighted / uniform"].tolist() == ["1.00 [1.00, 1.00]"] * 4
        # Twice 600 comparisons is more than were made.
        assert frame["policy / uniform"].tolist() == ["2.00 [2.00, 2.00]", "never [never, never]"] * 2
        # Of 1200, which were not made, it is only known that they are above 1000.
        assert frame["pilaf / policy"].tolist()[::2] == ["0.25 [0.25, 0.25]"] * 2
        assert all(text.startswith("0.30 [") for text in frame["pilaf / policy"].tolist()[1::2])
        middle, low, high = (float(word.strip("[],")) for word in str(frame["uniform-pairs"][0]).split())
        assert middle == 100
        # The mean of 50 errors varies by 0.2 / sqrt(50) = 3 % of it, and comparisons by as much: 4 of them are 12 %.
        assert 88 < low < 100 < high < 112


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"arms": 1}, "arms must be a whole number of at least 2, got 1"),
        ({"runs": 1}, "runs must be a whole number of at least 2, got 1"),
        ({"scale": -1.0}, "scale must be finite and above 0, got -1.0"),
        ({"betas": ()}, "betas takes one or more different values, got none"),
        ({"betas": (0.5, 0.0)}, "betas takes finite numbers above 0, got 0.0"),
        ({"at": (100, 100)}, "at takes one or more different values, got 100 100"),
        ({"at": (100, 4000)}, "at takes numbers from 10 to comparisons=3000, got 4000"),
    ],
)
def test_invalid_settings_are_refused(settings: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Settings(**settings)


def test_a_model_approaches_the_rewards_of_its_own_arms() -> None:
    measured = preference_sampling.measure(
        preference_sampling.SAMPLERS[0], Settings(arms=3, comparisons=200, at=(30,), runs=8)
    )
    # 67 comparisons of each of three pairs: errors of differences near 1 / sqrt(67 * 0.2) = 0.27, and rewards of the
    # scale 1, whose deviation is near 0.8 where the model has learned nothing of them, or of other arms.
    last = measured["uniform_error"].isel(comparison=-1)
    assert float(last.mean()) < 0.4


@pytest.mark.slow
def test_a_small_study_writes_its_tables_and_its_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = Settings(arms=3, betas=(0.5, 1.0), comparisons=60, at=(30,), runs=40)
    run_study(STUDIES["preference-sampling"], settings, tmp_path / "run", progress=False)
    written = {file.name for file in (tmp_path / "run").iterdir()}
    samplers = {"uniform-pairs.nc", "policy-pairs.nc", "pilaf.nc", "pilaf-weighted.nc"}
    assert samplers | {f"{error}.md" for error in preference_sampling.ERRORS} | {"preference_sampling.png"} <= written
    for name in samplers:
        of = xarray.load_dataset(tmp_path / "run" / name, engine="h5netcdf")
        for error in preference_sampling.ERRORS:
            mean = of[error].mean("run").values
            assert np.all(mean[:, -1] < mean[:, 0]), (name, error)  # each learns
    uniform = xarray.load_dataset(tmp_path / "run" / "uniform-pairs.nc", engine="h5netcdf")
    # Uniform pairs know of no temperature, and equal runs of equal rewards.
    np.testing.assert_array_equal(uniform["uniform_error"][0], uniform["uniform_error"][1])
    assert "as ratios between samplers" in capsys.readouterr().out
