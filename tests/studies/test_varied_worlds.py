"""The study of hidden masses and lengths: settings, learners that differ in one thing, places, and its table."""

import dataclasses
import re
from typing import Any

import numpy as np
import pytest
import xarray

import envs
from bench.studies import varied_worlds
from bench.studies.varied_worlds import (
    DRAWN,
    SEEN,
    USUAL,
    Learner,
    Settings,
    agent,
    critics,
    learners,
    returns_by_place,
    table,
)
from jaxrl.results.statistics import bootstrap_interval, iqm


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"tasks": ("cartpol",)}, "tasks has 'cartpol'; did you mean 'cartpole'?"),
        ({"algorithms": ("dqn",)}, "algorithms has 'dqn'"),
        ({"factor": 1.0}, "factor must be above 1, got 1.0"),
        ({"factors": (0.5, 2.0, 4.0)}, "factors takes 1, another number inside the range of the draws and one outside"),
        ({"factors": (0.5, 1.0, 2.0)}, "factors takes 1, another number inside the range of the draws and one outside"),
    ],
)
def test_settings_are_checked(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}"):
        Settings(**fields)


def test_learners_differ_in_one_thing() -> None:
    every = learners(Settings())
    assert [each.part for each in every[:3]] == ["ppo_none_usual", "ppo_none_drawn", "ppo_none_seen"]
    assert [each.part for each in every[-3:]] == ["sac_gru_usual", "sac_gru_drawn", "sac_gru_seen"]
    assert len(every) == 12
    settings, ways = Settings(), (USUAL, DRAWN, SEEN)
    usual, drawn, seen = (agent("pendulum", Learner("sac", "none", trained), settings) for trained in ways)
    assert usual.config == drawn.config
    assert usual.env == envs.make("pendulum")
    varied: Any = drawn.env
    assert dict(varied.parameters).keys() == {"length", "mass"}
    assert all((each.low, each.high) == (0.5, 2.0) for _, each in varied.parameters)
    assert seen.config.critic_sees == "privileged"
    assert usual.hparams == drawn.hparams == seen.hparams
    for algorithm in ("ppo", "sac"):
        assert agent("cartpole", Learner(algorithm, "gru", USUAL), Settings()).config.memory == "gru"
    changed = {"memory": "gru", "memory_hidden": (64,), "batch_size": 256, "num_updates": 16}
    without, remembering = (agent("cartpole", Learner("sac", name, DRAWN), settings) for name in ("none", "gru"))
    assert remembering.config == dataclasses.replace(without.config, **changed)


def test_returns_are_split_into_places() -> None:
    settings = Settings(factors=(0.25, 0.5, 1.0, 2.0))
    values = np.random.default_rng(0).normal(size=(4, 4, 3, 5))
    values[:, :, 2] = np.nan
    returns = xarray.DataArray(values, dims=("eval.length", "eval.mass", "seed", "episode"))
    split = returns_by_place(returns, settings)
    for seed in range(2):
        of_run = values[:, :, seed].mean(axis=-1)
        assert np.isclose(split["usual"][seed], of_run[2, 2])
        assert np.isclose(split["inside"][seed], of_run[1:, 1:].mean())
        assert np.isclose(split["outside"][seed], (of_run.sum() - of_run[1:, 1:].sum()) / 7)
    assert all(np.isnan(each[2]) for each in split.values())


def test_the_table_compares_with_training_on_the_usual_parameters() -> None:
    places = ("usual", "inside", "outside")
    rows = {
        ("pendulum", Learner("ppo", "none", USUAL)): {place: np.arange(8.0) for place in places},
        ("pendulum", Learner("ppo", "none", DRAWN)): {place: np.arange(8.0) + 100 for place in places},
    }
    rows["pendulum", Learner("ppo", "none", DRAWN)]["outside"] = np.full(8, np.nan)
    frame: Any = table(rows)
    assert list(frame["parameters"]) == [USUAL, DRAWN]
    assert critics(rows).empty
    rows["pendulum", Learner("ppo", "none", SEEN)] = {place: np.arange(8.0) + 104 for place in places}
    compared: Any = critics(rows)
    assert list(compared["algorithm"]) == ["ppo"]
    assert compared["inside"][0].startswith("0.88 [")  # of 64 pairs 54 are higher and 4 are equal
    assert compared["outside"][0].startswith("1.00 [")  # every run of the other has failed
    assert frame["inside"][1].startswith("103.5 [")
    assert frame["outside"][1] == "failed"
    assert frame["P(better inside)"][0] == ""
    assert frame["P(better inside)"][1].startswith("1.00 [")
    assert frame["P(better outside)"][1].startswith("0.00 [")


def test_no_interval_exceeds_the_highest_return() -> None:
    returns = np.array([500.0] * 22 + [200.0, 250.0, 300.0, 350.0, 400.0, 420.0, 460.0, 480.0, 490.0, 495.0])
    values = bootstrap_interval(iqm, returns)
    assert values.high > 500.0  # by the correction of the bootstrap
    rows: dict[tuple[str, Learner], dict[str, np.ndarray]] = {}
    rows["cartpole", Learner("sac", "none", USUAL)] = dict.fromkeys(("usual", "inside", "outside"), returns)
    frame: Any = table(rows)
    assert frame["outside"][0].endswith("500.0]")


@pytest.mark.slow
def test_a_small_run_writes_a_table_and_a_map(tmp_path: Any) -> None:
    from bench.studies import run_study

    settings = Settings(tasks=("pendulum",), algorithms=("sac",), memories=("none",), seeds=2, env_steps=1024)
    settings = dataclasses.replace(settings, eval_episodes=1)
    run_study(varied_worlds.STUDY, settings, tmp_path / "study", progress=False)
    assert (tmp_path / "study/pendulum_returns.png").is_file()
    assert len((tmp_path / "study/returns.csv").read_text().splitlines()) == 4
