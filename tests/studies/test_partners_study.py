"""The study of partners: its groups, calibration compared with a loop, a small run."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import xarray

from bench.studies import STUDIES, partners, run_study
from bench.studies.frames import MISSING
from bench.studies.partner_play import Played, reliability
from bench.studies.partners_report import adaptation_table, improvement_table, returns_table
from envs.cooperation import bayes
from envs.cooperation.levers import LeverGame
from envs.cooperation.partners import RULES


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"methods": ("GRUs",)}, r"^methods has 'GRUs'"),
        ({"held_out_rule": "copycat"}, r"^held_out_rule has 'copycat'"),
        ({"num_levers": 4}, r"^held_out_preferences must be a whole number from 0 to 3, the last lever, got 7"),
        ({"seeds": 1}, r"^seeds must be a whole number of at least 2, got 1$"),
    ],
)
def test_invalid_settings_get_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        partners.Settings(**changes)


def test_held_out_partners_are_not_met_in_training() -> None:
    params = LeverGame(num_levers=10).default_params
    members = partners.groups(params, partners.Settings())
    everyone = np.concatenate(list(members.values()))
    assert sorted(everyone) == list(range(70))
    rule, preference = np.asarray(params.population.rule), np.asarray(params.population.preference)
    assert set(rule[members["held-out rule"]]) == {RULES.index("win-stay")}
    assert {
        (RULES[r], p)
        for r, p in zip(rule[members["held-out region"]], preference[members["held-out region"]], strict=True)
    } == {
        ("alternate", 3),
        ("copy", 3),
        ("alternate", 7),
        ("copy", 7),
    }


def test_reliability_is_that_of_a_loop() -> None:
    rng = np.random.default_rng(0)
    confidence, right = rng.uniform(0.3, 1.0, (40, 5)), rng.random((40, 5)) < 0.6
    confidence[0, 0] = 1.0  # belongs to the last bin
    mean, share, error = reliability(right, confidence)
    total = 0.0
    for index in range(10):
        inside = [
            (c, r) for c, r in zip(confidence.ravel(), right.ravel(), strict=True) if min(int(c * 10), 9) == index
        ]
        if not inside:
            assert np.isnan(mean[index]) and np.isnan(share[index])
            continue
        confident, true = np.mean([c for c, _ in inside]), np.mean([r for _, r in inside])
        np.testing.assert_allclose([mean[index], share[index]], [confident, true])
        total += len(inside) / right.size * abs(confident - true)
    assert error == pytest.approx(total)


class Untrained:
    """A study that trains nothing."""

    def compute(self, part: str, function: Any) -> Any:
        raise AssertionError(f"computes {part}")


def test_exact_values_out_of_reach_are_refused_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bayes, "MAX_BELIEFS", 100)
    settings = partners.Settings(num_levers=3, held_out_preferences=(2,), rate=0.1, num_steps=4)
    with pytest.raises(ValueError, match=r"optimum takes at most 100 beliefs, got .* fewer partners with a rate "):
        partners.run(settings, cast(Any, Untrained()))


def played_for_nothing(task: Any, actor: Any, policies: Any, params: Any, *rest: Any) -> Played:
    """Episodes in which policies earn 1 + their index in every step, and beliefs are always right."""
    episodes, steps, *_ = rest
    (logits,), count = policies, len(params.weights)
    shape = (len(logits), count, episodes, steps)
    reward = np.broadcast_to(1.0 + np.arange(len(logits))[:, None, None], (len(logits), count, steps))
    return Played(reward, np.ones((*shape, 2), bool), np.full((*shape, 2), 0.95), np.full((*shape, 5), 0.5))


def trained(env: Any, failed: list[bool]) -> Any:
    """A result of one run for each entry, which failed or not; failed ones have weights of nan and finite returns."""
    logits = np.where(np.array(failed)[:, None], np.nan, np.ones((len(failed), 3)))
    metrics = {"env_step": SimpleNamespace(values=np.array([10, 20]))}
    return SimpleNamespace(
        algo=SimpleNamespace(env=env, actor=None),
        policies=(logits[None],),
        metrics=metrics,
        failed_runs=lambda: np.array([failed]),
        values=lambda name: np.ones((1, len(failed), 2)),
    )


def test_a_failed_run_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partners, "play", played_for_nothing)
    env = LeverGame(num_levers=3)
    settings = partners.Settings(num_levers=3, held_out_preferences=(2,), num_steps=2, episodes=4)
    params = partners._params(env, settings)
    members = partners.groups(params, settings)
    strangers: Any = SimpleNamespace(task=env, env_params=env.default_params)
    data = {
        method: partners._played(trained(env, failed), method, params, strangers, settings)
        for method, failed in {"GRU": [False] * 4, "conditioned": [False, True, False, False]}.items()
    }
    for name in ("reward", "trained_return", "stranger_reward", "accuracy"):
        runs = data["conditioned"][name].values.reshape(4, -1)
        assert np.isnan(runs[1]).all() and np.isfinite(runs[[0, 2, 3]]).all()
        assert np.isfinite(data["GRU"][name].values).all()
    assert float(data["conditioned"]["calibration_error"]) == pytest.approx(0.05)
    known = np.ones((len(params.weights), 2))
    table = returns_table(data, members, known, 2.0)
    assert table["failed"].tolist() == [0, 1]
    assert table["training"].tolist()[1].startswith("5.33 [")  # the mean of 2, 6 and 8
    assert "failed" not in returns_table({"GRU": data["GRU"]}, members, known, 2.0)
    # Of the 12 pairs of runs that did not fail, 5 wins and 3 ties.
    (chance,) = improvement_table(data, members, ["conditioned"])["training"].tolist()
    assert chance.startswith(f"{(5 + 3 / 2) / 12:.2f} [")
    steps = adaptation_table(data | {"oracle": data["conditioned"]}, members["training"])["environment steps"]
    assert steps.tolist() == ["10", "10", "10"]


def test_with_fewer_than_two_good_runs_there_is_no_improvement() -> None:
    reward = np.ones((3, 2, 4))
    played = {"GRU": {"reward": SimpleNamespace(values=reward)}, "conditioned": {"reward": None}}
    failed = reward * np.array([1, np.nan, np.nan])[:, None, None]
    played["conditioned"]["reward"] = SimpleNamespace(values=failed)
    table = improvement_table(played, {"training": np.arange(2)}, ["conditioned"])
    assert table["training"].tolist() == [MISSING]


def test_cross_play_has_no_returns_of_failed_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partners, "play", played_for_nothing)
    env, settings = LeverGame(num_levers=3), partners.Settings(num_levers=3, held_out_preferences=(2,), num_steps=2)
    # `load_partners` leaves out the failed run.
    strangers: Any = SimpleNamespace(task=env, env_params=dataclasses.replace(env.default_params, weights=np.ones(2)))
    alike = trained(env, [False, True, False])
    returns = partners._cross_play(alike, strangers, settings)["return"].values
    nan = np.nan
    np.testing.assert_array_equal(returns, [[2, nan, 2], [nan, nan, nan], [4, nan, 4]])


def test_the_finished_parts_have_the_published_tables(cells: Path) -> None:
    """Runs of `docs/results/partners.md`, none of which failed."""
    played = {
        name: xarray.load_dataset(cells / "partners" / f"{name}_play.nc", engine="h5netcdf")
        for name in ("GRU", "conditioned")
    }
    settings = partners.Settings()
    params = partners._params(LeverGame(num_levers=10), settings)
    members = partners.groups(params, settings)
    row = improvement_table(played, members, ["conditioned"]).iloc[0].tolist()
    assert row == ["conditioned", "0.53 [0.33, 0.72]", "0.55 [0.34, 0.74]", "0.41 [0.23, 0.62]"]
    table = returns_table(played, members, np.ones((70, 8)), 5.661)
    assert table["training"].tolist() == ["5.42 [5.34, 5.46]", "5.42 [5.37, 5.47]"] and "failed" not in table


@pytest.mark.slow
def test_methods_train_and_are_tabled(tmp_path: Path) -> None:
    settings = partners.Settings(
        ("oracle", "GRU", "conditioned", "staged"),
        held_out_preferences=(2,),
        num_levers=3,
        seeds=2,
        env_steps=8192,
        episodes=2,
    )
    study = run_study(STUDIES["partners"], settings, tmp_path / "out", progress=False)
    written = {file.name for file in study.directory.iterdir()}
    assert {"returns.md", "improvement.md", "adaptation.md", "steps.md"} <= written
    assert {"adaptation.png", "cross_play.png", "cross_play.nc"} <= written
    text = (study.directory / "returns.md").read_text()
    assert "Best responses earn" in text and "| conditioned" in text
