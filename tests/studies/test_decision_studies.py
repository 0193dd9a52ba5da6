"""Calculations of the studies `preference-reversal` and `pathworld`, and a small run of each."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import xarray

from bench.studies import STUDIES, pathworld, preference_reversal, run_study
from bench.studies.preference_reversal import behaviour, break_even, preferences
from envs.decision.preference_reversal import PreferenceReversal

HYPERBOLIC, EXPONENTIAL = "hyperbolic:k=0.01", "exp:gamma=0.99"

# --- preference reversal -----------------------------------------------------------------


def test_hyperbolic_preferences_differ_and_exponential_ones_do_not() -> None:
    frame: Any = preferences(preference_reversal.Settings()).set_index(["discount", "tax"])
    plans, fresh, differ = frame["plan at t=0"], frame["afresh at t=99"], frame["differ"]
    for tax in (0.01, 0.1):
        assert (plans[HYPERBOLIC, tax], fresh[HYPERBOLIC, tax], differ[HYPERBOLIC, tax]) == ("later", "switch", "yes")
        assert (plans[EXPONENTIAL, tax], fresh[EXPONENTIAL, tax], differ[EXPONENTIAL, tax]) == (
            "sooner",
            "switch",
            "no",
        )
        assert (plans["exp:gamma=0.996", tax], fresh["exp:gamma=0.996", tax]) == ("later", "hold")
        assert differ["exp:gamma=0.996", tax] == "no"
        # Between the two: it would prefer to have chosen the sooner reward, but not to pay the tax.
        assert (plans["exp:gamma=0.9944", tax], fresh["exp:gamma=0.9944", tax]) == ("sooner", "hold")
        assert differ["exp:gamma=0.9944", tax] == "by the tax"
        assert frame["foreseeing, at t=0"][HYPERBOLIC, tax] == "sooner"
    row = frame.loc[(HYPERBOLIC, 0.01)]
    np.testing.assert_allclose(row[["t=0: sooner", "t=0: later", "t=99: switch", "t=99: hold"]].tolist(), [
        1 / 1.99, 1.75 / 2.99, 0.99, 1.75 / 2
    ], rtol=1e-6)  # fmt: skip
    steep = frame.loc[("quasi:beta=0.8,gamma=0.996", 0.1)]
    assert (steep["differ"], steep["afresh at t=99"]) == ("no", "hold")  # the larger tax keeps it to its plan


def test_no_exponential_is_said_to_differ() -> None:
    rates = tuple(f"exp:gamma={gamma:.4f}" for gamma in np.linspace(0.99, 1.0, 41))
    frame: Any = preferences(preference_reversal.Settings(discounts=rates, tax=(0.0, 0.01, 0.1)))
    assert set(frame["differ"]) == {"no", "by the tax"}
    assert set(frame["differ"][frame["tax"] == 0.0]) <= {"no"}


@pytest.mark.parametrize("tax", [0.01, 0.1])
def test_committing_pays_until_the_policy_switches_too_often(tax: float) -> None:
    curve = 1 / (1 + 0.01 * np.arange(200))
    params: Any = PreferenceReversal().default_params
    values = PreferenceReversal().values(curve, params.replace(tax=tax))
    rate = break_even(values)
    assert 0 < rate < 1
    for switches, pays in ((rate - 1e-6, True), (rate + 1e-6, False)):
        committed = (1 - switches) * 1.75 * curve[199] + switches * (1 - tax) * curve[99]
        assert (committed > curve[99]) == pays
    assert rate == pytest.approx({0.01: 0.943, 0.1: 0.622}[tax], abs=5e-4)


def test_behaviour_counts_reversals_and_commitments() -> None:
    """Two seeds and three evaluations of one discount: one seed reverses for good, the other for a while."""
    settings = preference_reversal.Settings(discounts=(HYPERBOLIC,), tax=(0.01,))
    commits = np.array([[0.5, 1.0, 1.0], [0.5, 0.5, 0.0]])
    switches = np.array([[0.25, 1.0, 0.75], [0.25, 0.5, 0.0]])
    dims = ("discount", "env.tax", "seed", "env_step")
    metrics = xarray.Dataset(
        {"chose_later_sampled": (dims, commits[None, None]), "switched_sampled": (dims, switches[None, None])},
        {"discount": [HYPERBOLIC], "env.tax": [0.01], "seed": [0, 1], "env_step": [100, 200, 300]},
    )
    row: Any = behaviour(metrics, settings).iloc[0]
    assert (row["most reversals"], row["at step"]) == (0.75, 200)
    assert row["reversals at the end"].startswith("0.38 [-3.06, 3.81]")  # 0.375, between the two seeds
    assert row["commits at the end"].startswith("0.50 [-4.08, 5.08]")
    assert row["switches if committed"] == 0.75 and row["seeds still reversing"] == "1 of 2"
    assert row["naive"] == "reverses" and row["foreseeing"] == "sooner"
    failed = metrics.copy(deep=True)
    failed["switched_sampled"][0, 0, 1, 2] = np.nan
    assert behaviour(failed, settings).iloc[0]["seeds still reversing"] == "1 of 1"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"tax": ()}, "tax takes one or more different values, got none"),
        ({"discounts": (EXPONENTIAL, EXPONENTIAL)}, "discounts takes one or more different values"),
        ({"discounts": ("hyperbolic:k=-1",)}, "k must be at least 0"),
        ({"sooner_step": 5, "later_step": 5}, "in this order, got 5 and 5"),
        ({"seeds": 1}, "seeds must be a whole number of at least 2, got 1"),
    ],
)
def test_settings_of_preference_reversal_are_checked(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        preference_reversal.Settings(**settings)


SMALL = preference_reversal.Settings(
    discounts=(EXPONENTIAL, "hyperbolic:k=0.4"),
    tax=(0.1,),
    sooner_step=3,
    later_step=6,
    seeds=8,
    env_steps=28_000,
    evals=25,
    eval_episodes=16,
    num_envs=32,
)


@pytest.mark.slow
def test_a_small_run_of_preference_reversal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Seven steps instead of 200: hyperbolic agents reverse for a while, and end with the choices of foresight."""
    run_study(STUDIES["preference-reversal"], SMALL, tmp_path / "run", progress=False)
    assert {"preferences.md", "behaviour.csv", "preference_reversal.png"} <= {
        f.name for f in (tmp_path / "run").iterdir()
    }
    frame: Any = pandas.read_csv(tmp_path / "run" / "behaviour.csv").set_index("discount")
    patient, hyperbolic = frame.loc[EXPONENTIAL], frame.loc["hyperbolic:k=0.4"]
    assert hyperbolic["naive"] == "reverses" and hyperbolic["foreseeing"] == "sooner"
    # Both are averages over 8 seeds and 16 episodes each; an undecided policy reverses in a quarter of its episodes.
    assert hyperbolic["most reversals"] > 0.1 and patient["seeds still reversing"] == "0 of 8"
    assert patient["commits at the end"] > "0.80"
    before = capsys.readouterr().out
    run_study(STUDIES["preference-reversal"], SMALL, tmp_path / "run", progress=False)
    assert capsys.readouterr().out == before


# --- pathworld ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def values() -> xarray.Dataset:
    return pathworld.path_values(pathworld.Settings(num_paths=5, episodes=500, gammas=(0.95,)))


@pytest.mark.slow
def test_the_published_errors() -> None:
    """To three digits; the simulation does not affect them."""
    actual: Any = (
        pathworld.errors(pathworld.path_values(pathworld.Settings(episodes=2))).set_index("hazard").loc["uniform"]
    )
    expected = {
        "Beta, heuristic": 0.0431,
        "hyperbolic": 0.2473,
        "exponential 0.975": 0.241,
        "exponential 0.95": 0.449,
        "exponential 0.99": 3.952,
    }
    assert {name: f"{actual[name]:.3g}" for name in expected} == {
        name: f"{value:.3g}" for name, value in expected.items()
    }
    assert actual["Beta, fitted"] < 0.1 * actual["Beta, heuristic"]


@pytest.mark.slow
def test_fitted_weights_are_the_best(values: xarray.Dataset) -> None:
    """Zero error where the hazard is exponential (hyperbolic) or constant (exponential), nowhere worse than others."""
    errors: Any = pathworld.errors(values).set_index("hazard")
    others = errors.drop(columns=["Beta, fitted", "(simulated)"])
    # Curves are float32: values of up to 2 are off by 1e-7 or so, and the fit stops at that.
    assert np.all(errors["Beta, fitted"] <= others.min(axis=1) + 1e-10)
    assert errors["Beta, fitted"]["exponential"] < 1e-10 and errors["Beta, fitted"]["constant"] < 1e-10
    assert errors["hyperbolic"]["exponential"] < 1e-10
    assert str(values["parameters"].sel(hazard="constant", discount="hyperbolic").item()) == "hyperbolic:k=0.05"


@pytest.mark.slow
def test_simulated_values_agree_with_exact_ones(values: xarray.Dataset) -> None:
    error = values["standard_error"].values
    off = np.abs(values["simulated"].values - values["exact"].values)
    assert np.all(off <= 4.5 * error + 1e-12)  # 15 of them: 1e-4 in all
    assert np.all(off[:, 0] == 0) and np.all(error < 0.12)


@pytest.mark.slow
def test_losses_of_choices_are_differences_of_exact_values(values: xarray.Dataset) -> None:
    frame: Any = pathworld.choices(values).set_index("discount")
    exact = values["exact"].sel(hazard="uniform").values
    assert frame["uniform: path"]["(exact)"] == np.argmax(exact) and frame["uniform: loss"]["(exact)"] == 0
    chosen = frame["uniform: path"]["exponential 0.95"]
    assert frame["uniform: loss"]["exponential 0.95"] == pytest.approx(exact.max() - exact[chosen])
    assert (frame.filter(like="loss") >= 0).all(axis=None)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"mean_hazard": 0.0}, r"mean_hazard must lie in \(0, 1\), got 0.0"),
        ({"num_paths": 2}, "num_paths must be a whole number of at least 3, got 2"),
        ({"gammas": (0.9, 0.9)}, "gammas takes different values, got 0.9 0.9"),
        ({"gammas": (1.1,)}, r"gamma must lie in \[0, 1\], got 1.1"),
    ],
)
def test_settings_of_pathworld_are_checked(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        pathworld.Settings(**settings)


@pytest.mark.slow
def test_a_small_run_of_pathworld(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = pathworld.Settings(num_paths=4, episodes=50)
    run_study(STUDIES["pathworld"], settings, tmp_path / "run", progress=False)
    written = {file.name for file in (tmp_path / "run").iterdir()}
    assert {"values.nc", "errors.md", "choices.csv", "pathworld.png"} <= written
    before = capsys.readouterr().out
    assert "Beta, fitted" in before and "constant" in before
    run_study(STUDIES["pathworld"], settings, tmp_path / "run", progress=False)
    assert capsys.readouterr().out == before
