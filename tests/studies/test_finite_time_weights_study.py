"""The study on finite-time weights: the bias of random ends, equal conditions, tables, and a small run."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jaxrl
from bench.studies import STUDIES, finite_time_weights, run_study
from bench.studies.finite_time_weights import Settings, agent


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"tasks": ("pendulum",)}, r"^tasks has 'pendulum'"),
        ({"lam": (1.0,)}, r"^lam takes numbers in \[0, 1\], one of them below 1, got 1\.0$"),
        ({"lam": (0.5, -0.5)}, r"^lam takes numbers in \[0, 1\], one of them below 1, got 0\.5 -0\.5$"),
        ({"error": 1.0}, r"^error must lie in \[0, 1\), got 1\.0$"),
        ({"discounts": ("hyperbole",)}, r"^The discount 'hyperbole' does not parse"),
        ({"seeds": 1}, r"^seeds must be a whole number of at least 2, got 1$"),
    ],
)
def test_invalid_settings_get_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Settings(**changes)


@pytest.mark.parametrize("task", finite_time_weights.TASKS)
def test_only_the_weights_differ(task: str) -> None:
    one, other = agent(task, "truncated"), agent(task, "finite-time")
    assert (one.config.lam_weights, other.config.lam_weights) == ("truncated", "finite-time")
    assert dataclasses.replace(other.config, lam_weights="truncated") == one.config
    assert (one.env, one.hparams) == (other.env, other.hparams)


def test_the_lander_is_trained_on_request_for_the_steps_of_its_preset() -> None:
    assert "lander" not in Settings().tasks and Settings(tasks=("lander",)).tasks == ("lander",)
    assert finite_time_weights.STEPS["lander"] == jaxrl.preset("ppo", "lander").env_steps
    assert agent("lander", "truncated").hparams == jaxrl.preset("ppo", "lander").algo.hparams


def test_random_ends_bias_finite_time_weights_alone() -> None:
    """By exact values under an exponential discount, under which truncated weights have no bias."""
    settings = Settings(discounts=("exp:gamma=0.99",), lam=(0.9, 1.0), num_steps=32, walks=100, seeds=8)
    dataset = finite_time_weights.errors(settings).sel(discount="exp:gamma=0.99", values="exact")
    bias = dataset["bias"].transpose("lam", "weights", "seed").values
    mean, standard_error = bias.mean(axis=-1), bias.std(axis=-1, ddof=1) / np.sqrt(settings.seeds)
    assert np.all(np.abs(mean[:, 0]) < 5 * standard_error[:, 0])
    assert np.all(mean[:, 1] > 10 * standard_error[:, 1]) and mean[1, 1] > mean[0, 1]
    assert np.all(dataset["rmse"].values >= np.abs(dataset["bias"].values))


def test_tables_have_both_settings_and_count_failures() -> None:
    settings = Settings(discounts=("0.9",), seeds=4)
    truncated, finite = np.full((1, 4, 2), 1.0), np.full((1, 4, 2), 2.0)
    finite[0, 0] = np.nan
    frame = finite_time_weights.returns_table({"pathworld": {"truncated": truncated, "finite-time": finite}}, settings)
    assert frame["truncated"].tolist() == ["1.000 [1.000, 1.000]"] * 2
    assert frame["finite-time"].tolist() == ["2.000 [2.000, 2.000]"] * 2
    assert frame["failed"].tolist() == [1, 1]
    assert [text.split()[0] for text in frame["P(finite-time > truncated)"]] == ["0.75", "0.75"]


@pytest.mark.slow
def test_a_small_run_writes_both_tables(tmp_path: Path) -> None:
    settings = Settings(
        discounts=("hyperbolic:k=0.02",),
        lam=(0.9,),
        num_steps=8,
        walks=10,
        tasks=("pathworld",),
        seeds=2,
        env_steps=2048,
        evals=2,
        eval_episodes=2,
    )
    study = run_study(STUDIES["finite-time-weights"], settings, tmp_path / "out", progress=False)
    assert {"errors.md", "errors.csv", "returns.md", "ring.nc"} <= {file.name for file in study.directory.iterdir()}
    loaded = jaxrl.load_result(study.directory / "pathworld_finite-time")
    assert loaded.algo is not None and loaded.algo.config.lam_weights == "finite-time"
