"""The study of a learned drift: settings, objectives of samples, the comparison, its table, and a small run."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pandas
import pytest
import xarray

import jaxrl
from bench.studies import learned_drift
from bench.studies.__main__ import main
from bench.studies.learned_drift import TEST_SEEDS, TEST_STEPS, Settings, figure, table
from jaxrl.learning.drift import Drift


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"tasks": ("acrobats",)}, "tasks has 'acrobats'; did you mean 'acrobot'?"),
        ({"held_out": ()}, "held_out takes one or more different values, got none"),
        ({"seeds": 1}, "seeds must be a whole number of at least 2, got 1"),
        ({"test_seeds": 1}, "test_seeds must be a whole number of at least 2, got 1"),
        ({"evals": 1}, "evals must be a whole number of at least 2, got 1"),
    ],
)
def test_settings_are_checked(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}"):
        Settings(**fields)


RATIO = np.linspace(0.4, 1.8, 141)


def clipped(advantage: float, eps: float) -> np.ndarray:
    return np.minimum(RATIO * advantage, np.clip(RATIO, 1 - eps, 1 + eps) * advantage)


def drifted(drift: Drift, advantage: float, eps: float) -> np.ndarray:
    """r A - relu(C + q net) of Lu et al. (2022) in float64, sample by sample."""
    weights = {name: np.asarray(getattr(drift, name), np.float64) for name in ("hidden", "bias", "out", "offset")}
    values = []
    for ratio in RATIO:
        log = np.log(ratio)
        narrow, size = np.tanh(5 * log), np.tanh(advantage)
        features = np.asarray([np.tanh(log), narrow, size, narrow * size, abs(narrow) * size])
        net = np.tanh(features @ weights["hidden"] + weights["bias"]) @ weights["out"] + weights["offset"]
        clip = max((ratio - np.clip(ratio, 1 - eps, 1 + eps)) * advantage, 0.0)
        values.append(ratio * advantage - max(clip + (np.sqrt(1 + log**2) - 1) * net, 0.0))
    return np.asarray(values)


def moved(drift: Drift, seed: int) -> Drift:
    """A drift with random weights, of either sign."""
    generator = np.random.default_rng(seed)
    return Drift(*(generator.normal(size=np.shape(getattr(drift, name))).astype(np.float32) for name in drift.names))


@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_objectives_of_samples_are_those_of_the_clip_and_of_a_drift(advantage: float) -> None:
    start = learned_drift._algo("cartpole").hparams.drift
    at_start = learned_drift._objective(start, np.log(RATIO), advantage, 0.2)
    np.testing.assert_allclose(at_start, clipped(advantage, 0.2), atol=1e-6)
    drift = moved(start, 1)
    expected = drifted(drift, advantage, 0.2)
    assert np.abs(expected - at_start).max() > 0.1
    np.testing.assert_allclose(learned_drift._objective(drift, np.log(RATIO), advantage, 0.2), expected, atol=1e-5)


def test_the_comparison_trains_the_clip_first_and_each_learned_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    start = learned_drift._algo("cartpole").hparams.drift
    drifts = [moved(start, seed) for seed in range(3)]
    flat = [np.concatenate([np.ravel(each) for each in jax.tree.leaves(drift)]) for drift in drifts]
    data = xarray.Dataset({"theta": (("outer_seed", "number"), np.stack(flat))})
    seen: dict[str, Any] = {"stopped": 0}

    def train(algo: Any, sweep: Any, **options: Any) -> SimpleNamespace:
        seen.update(options, env=algo.env.name, drifts=sweep.hparams.drift)
        setting, seed, point = np.indices((4, len(options["seeds"]), options["evals"]))
        values = {"return": 100.0 * setting + 10.0 * seed + point}
        return SimpleNamespace(
            values=values.__getitem__, metrics=SimpleNamespace(attrs={"stopped_by_signal": seen["stopped"]})
        )

    monkeypatch.setattr(jaxrl, "train", train)
    settings = Settings(test_seeds=2, evals=3, eval_episodes=5)
    compared = learned_drift._compared("acrobot", data, settings, False)["value"].values
    np.testing.assert_array_equal(compared, 1 + np.asarray([[0, 10], [100, 110], [200, 210], [300, 310]]))
    for i, drift in enumerate([start, *drifts]):
        for all_of_them, leaf in zip(jax.tree.leaves(seen["drifts"]), jax.tree.leaves(drift), strict=True):
            np.testing.assert_array_equal(all_of_them[i], leaf)
    assert (seen["env"], seen["env_steps"], seen["evals"], seen["eval_episodes"]) == ("acrobot", 65_536, 3, 5)
    assert list(seen["seeds"]) == [TEST_SEEDS, TEST_SEEDS + 1] and seen["progress"] is False
    seen["stopped"] = 15
    with pytest.raises(KeyboardInterrupt):
        learned_drift._compared("acrobot", data, settings, False)


RUNS = np.asarray([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 99.0])  # with an interquartile mean of 3.5


def test_the_table_has_the_clip_over_test_seeds_and_drifts_over_outer_seeds() -> None:
    returns = {
        "cartpole": np.stack([RUNS, RUNS[::-1], RUNS, RUNS]),
        "acrobot": np.stack([RUNS, RUNS + 3, RUNS - 1, RUNS + 1]),
    }
    frame: Any = table(returns)
    assert list(frame["task"]) == ["cartpole", "acrobot"] and list(frame["env steps"]) == [32_768, 65_536]
    low, high = map(float, re.findall(r"[\d.]+", frame["clip"][0])[1:])
    assert frame["clip"][0].startswith("3.50 [") and low < 3 and high > 4
    assert frame["learned"][0] == "3.50 [3.50, 3.50]" and frame["learned"][1].startswith("4.50 [")
    assert list(frame["outer seeds above the clip"]) == ["0 of 3", "2 of 3"]
    assert "failed" not in frame


def test_the_table_leaves_out_and_counts_failed_runs() -> None:
    values = np.asarray([[2.0, np.nan, 2.0, 2.0], [5.0, 5.0, np.nan, 5.0], [1.0, 1.0, 1.0, 1.0], [np.nan] * 4])
    frame: Any = table({"cartpole": values, "acrobot": np.ones((4, 4))})
    assert frame["clip"][0] == "2.00 [2.00, 2.00]" and frame["learned"][0].startswith("3.00 [")
    assert frame["outer seeds above the clip"][0] == "1 of 3"
    assert list(frame["failed"]) == [6, 0]


def test_the_figure_shows_the_clip_and_each_outer_seed() -> None:
    objective = np.random.default_rng(0).normal(size=(3, 2, 4))
    data = xarray.Dataset(
        {
            "objective": (("outer_seed", "advantage", "ratio"), objective),
            "clip": (("advantage", "ratio"), np.arange(8.0).reshape(2, 4)),
        },
        {"advantage": [1.0, -1.0], "ratio": [0.5, 1.0, 1.5, 2.0]},
    )
    axes = figure(data).axes
    assert [ax.get_title() for ax in axes] == ["advantage 1", "advantage -1"]
    for i, ax in enumerate(axes):
        drawn = np.asarray([line.get_ydata() for line in ax.get_lines()])
        np.testing.assert_array_equal(drawn, [*objective[:, i], np.arange(8.0).reshape(2, 4)[i]])
    legend: Any = axes[0].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["learned, 3 outer seeds", "clip"]


@pytest.mark.slow
def test_a_small_run_writes_a_table_and_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(TEST_STEPS, "gymnax/Catch-bsuite", 1024)
    counts = "--inner-steps 1024 --seeds 2 --generations 1 --population 4 --test-seeds 2 --eval-episodes 1 --evals 2"
    tasks = "--tasks cartpole --held-out gymnax/Catch-bsuite"
    words, out = f"learned-drift {tasks} {counts} --no-progress --out".split(), tmp_path / "study"
    assert main([*words, str(out)]) == 0
    printed, reported = capsys.readouterr()
    assert reported == ""  # no progress
    assert "drifts that 1 generations of 4 members learned on cartpole" in printed
    assert list(pandas.read_csv(out / "returns.csv")["task"]) == ["gymnax/Catch-bsuite"]
    assert (out / "drift.png").exists() and (out / "gymnax_Catch-bsuite.nc").exists()
    data = xarray.load_dataset(out / "drift.nc")
    assert data["curve"].shape == (2, 1)
    for i, advantage in enumerate(data["advantage"].values):
        np.testing.assert_allclose(data["clip"][i], clipped(advantage, 0.2), atol=1e-6)
        for numbers, objective in zip(data["theta"].values, data["objective"].values, strict=True):
            drift = learned_drift._algo("cartpole").hparams.drift
            ends = np.cumsum([np.size(leaf) for leaf in jax.tree.leaves(drift)])[:-1]
            parts = [
                part.reshape(np.shape(leaf))
                for part, leaf in zip(np.split(numbers, ends), jax.tree.leaves(drift), strict=True)
            ]
            drift = Drift(*parts)
            np.testing.assert_allclose(objective[i], drifted(drift, advantage, 0.2), atol=1e-5)

    def again(*args: Any, **options: Any) -> None:
        raise AssertionError("a finished part is computed again")

    monkeypatch.setattr(jaxrl, "train", again)
    monkeypatch.setattr(jaxrl, "meta", again)
    assert main([*words, str(out)]) == 0
    assert capsys.readouterr().out == printed
