"""The study of characters: its groups, and a small run."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas
import pytest

from bench.studies import STUDIES, characters, run_study
from bench.studies.partner_play import Played
from envs.cooperation.characters import Character, with_characters
from envs.cooperation.levers import LeverGame


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"methods": ("staged",)}, r"^methods has 'staged'"),
        ({"characters": 31}, r"^characters must be a whole number of at least 32, got 31$"),
        ({"networks": 0}, r"^networks must be a whole number of at least 1, got 0$"),
    ],
)
def test_invalid_settings_get_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        characters.Settings(**changes)


def test_those_that_like_the_last_lever_most_are_held_out() -> None:
    weights = np.array([[0.5, 0.2, 0.1], [-0.9, -0.5, -0.2], [0, 0.3, 0.1], [0.2, 0.3, 0.9]])
    members = characters.groups(Character(weights, 0, 0, 0))
    assert {name: each.tolist() for name, each in members.items()} == {"training": [0, 2], "held-out favourite": [1, 3]}


def test_the_mean_explains_nothing_and_the_truth_everything() -> None:
    weights = np.random.default_rng(0).uniform([-1, -0.5, 0], [1, 1.5, 2], (50, 3))
    beliefs = np.stack([np.broadcast_to(weights.mean(axis=0), weights.shape), weights])
    error = ((beliefs - weights) ** 2).mean(axis=-1)
    np.testing.assert_allclose(characters.explained(error, weights), [0, 1], atol=1e-12)


def test_a_failed_run_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    reward, error = np.ones((3, 4, 8)) * np.array([1, 2, 4])[:, None, None], np.full((3, 4, 2, 8, 6), 0.25)
    monkeypatch.setattr(characters, "play", lambda *given: Played(reward, None, None, error))
    env = LeverGame(num_levers=3)
    result: Any = SimpleNamespace(
        algo=SimpleNamespace(env=env, actor=None),
        policies=(np.ones((1, 3, 2)),),
        failed_runs=lambda: np.array([[False, True, False]]),
    )
    partners: Any = SimpleNamespace(env_params=env.default_params)
    data = characters._played(result, "conditioned", partners, characters.Settings(num_levers=3))
    for values in (data["reward"].values, data["error"].values):
        assert np.isnan(values[1]).all() and np.isfinite(values[[0, 2]]).all()
    members, weights = {"training": np.arange(4)}, np.array([[0.0, 1], [1, 0], [0, 1], [1, 0]])
    table = characters._returns_table({"conditioned": data}, members, weights)
    assert table["failed"].tolist() == [1]
    # The mean of 8 and 32; the weights have a variance of 0.25, so an error of 0.25 explains nothing.
    for name, mean in (("training", "20.0"), ("explained, training", "0.0000")):
        (text,) = table[name].tolist()
        assert text.startswith(f"{mean} [")
    steps = characters._steps_table({"conditioned": data}, members["training"])
    assert steps["conditioned"].tolist() == [2.5] * 8


def test_the_habits_are_those_of_networks_that_did_not_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    def episodes(env: Any, actor: Any, policy: Any, keys: Any) -> Any:
        traits = [np.full((len(keys), *shape), float(policy[0])) for shape in ((3,), (), (), ())]
        pulled = np.ones((len(keys), 8), int)
        return Character(*traits), pulled, pulled == 1, pulled

    monkeypatch.setattr(characters, "_episodes", episodes)
    monkeypatch.setattr(characters, "NUM_EPISODES", 2)
    result: Any = SimpleNamespace(
        algo=SimpleNamespace(env=with_characters(LeverGame(num_levers=3)), actor=None),
        policies=(np.array([[0.25, np.nan, 0.75]]),),
        seeds=[0, 1, 2],
        failed_runs=lambda: np.array([[False, True, False]]),
    )
    assert characters._habits(result)["order"].values.tolist() == [0.25, 0.25, 0.75, 0.75]


@pytest.mark.slow
def test_methods_train_and_are_tabled(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {
        "characters": 24,
        "networks": 2,
        "network_env_steps": 4_096,
        "seeds": 2,
        "env_steps": 2_048,
    }
    settings = characters.Settings(("oracle", "feed-forward", "GRU", "conditioned"), num_levers=3, episodes=1, **sizes)
    run_study(STUDIES["characters"], settings, tmp_path, progress=False)
    traits = pandas.read_csv(tmp_path / "traits.csv")
    assert traits["trait"].tolist() == ["weight of lever 0", "order", "patience", "rationality"]
    returns = pandas.read_csv(tmp_path / "returns.csv")
    assert returns["method"].tolist() == list(settings.methods)
    assert returns["explained, held-out favourite"].isna().tolist() == [True, True, True, False]
    assert pandas.read_csv(tmp_path / "improvement.csv")["method"].tolist() == ["conditioned", "oracle"]
    steps = pandas.read_csv(tmp_path / "steps.csv")
    # The sum over steps of the mean rewards is the mean return of the partners of training, here of two seeds.
    mean = float(str(returns["training"].iloc[0]).split(" ")[0])
    assert float(steps["oracle"].to_numpy().sum()) == pytest.approx(mean, abs=0.01) and len(steps) == 8


def test_the_finished_parts_have_the_published_tables(tmp_path: Path, cells: Path) -> None:
    """The numbers of `docs/results/characters.md`, of parts whose resuming computes nothing."""
    out = shutil.copytree(cells / "characters", tmp_path / "out")
    run_study(STUDIES["characters"], characters.Settings(), out, progress=False)
    assert not [part for part in out.iterdir() if part.is_dir()]
    returns = pandas.read_csv(out / "returns.csv").set_index("method")
    assert returns["training"].to_dict() == {
        "oracle": "3.99 [3.98, 4.01]",
        "feed-forward": "3.54 [3.53, 3.56]",
        "GRU": "3.71 [3.69, 3.74]",
        "auxiliary": "3.73 [3.70, 3.75]",
        "conditioned": "3.73 [3.71, 3.75]",
        "random belief": "3.75 [3.72, 3.77]",
    }
    improvement = pandas.read_csv(out / "improvement.csv").set_index("method")
    assert improvement.loc["conditioned"].tolist() == ["0.61 [0.40, 0.79]", "0.58 [0.37, 0.76]"]
    traits = pandas.read_csv(out / "traits.csv").set_index("trait")
    assert traits.loc["rationality"].tolist() == ["paid pulls", "1.625 ± 0.028", "2.154 ± 0.043"]
