"""The study of partners: its groups, calibration compared with a loop, a small run."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from envs.cooperation.levers import LeverGame
from envs.cooperation.partners import RULES
from jaxrl.experiments import EXPERIMENTS, partners, run_experiment
from jaxrl.experiments.partner_play import reliability


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"methods": ("GRUs",)}, r"^methods has 'GRUs'"),
        ({"held_out_rule": "copycat"}, r"^held_out_rule has 'copycat'"),
        ({"num_levers": 4}, r"^held_out_preferences must be a whole number from 0 to 3, the last lever, got 7"),
        ({"seeds": 1}, r"^seeds must be a whole number of at least 2, got 1$"),
    ],
)
def test_settings_that_make_no_sense_get_one_sentence(changes: dict[str, Any], sentence: str) -> None:
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
    study = run_experiment(EXPERIMENTS["partners"], settings, tmp_path / "out", progress=False)
    written = {file.name for file in study.directory.iterdir()}
    assert {"returns.md", "improvement.md", "adaptation.md", "steps.md"} <= written
    assert {"adaptation.png", "cross_play.png", "cross_play.nc"} <= written
    text = (study.directory / "returns.md").read_text()
    assert "Best responses earn" in text and "| conditioned" in text
