"""The study that compares learned crowds with planned ones: errors, the table of episodes, resuming."""

import pandas
import pytest

from bench.studies import StudyRun, crowd_planners
from bench.studies.crowd_planners import Settings
from envs.crowd import Crowd


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"scenarios": ("circel30",)},
            "scenarios takes a scenario and a number of agents, such as circle12, got 'circel3",
        ),
        ({"scenarios": ()}, "scenarios takes one or more different values, got none"),
        ({"planners": ("rvo",)}, "planners has 'rvo'; it takes orca, social-force, straight"),
        ({"dynamics": ("polar",)}, "dynamics has 'polar'"),
        ({"episodes": 1}, "episodes must be a whole number of at least 2, got 1"),
    ],
)
def test_settings_are_checked(wrong, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        Settings(**wrong)


@pytest.mark.slow
def test_every_scenario_has_settings_to_learn_with():
    for name in Settings().scenarios:
        place = crowd_planners.crowds.as_place(name)
        env = crowd_planners.learning(place).algo.env
        assert isinstance(env, Crowd)
        assert env.num_agents == place.num_agents


@pytest.mark.slow
def test_planners_are_played_and_tabled_once(tmp_path, capsys):
    settings = Settings(("circle2",), ("straight",), ("cartesian-velocity",), seeds=0, episodes=2)
    for _ in range(2):
        crowd_planners.run(settings, StudyRun(tmp_path, "crowd-planners", settings))
    assert "Skipped circle2_straight_cartesian-velocity" in capsys.readouterr().out
    frame = pandas.read_csv(tmp_path / "planners.csv")
    assert frame[["scenario", "policy", "dynamics"]].to_numpy().tolist() == [
        ["circle2", "straight", "cartesian-velocity"]
    ]
    assert frame["success"].iloc[0].startswith("1.00")  # two that meet head-on slide past each other
    assert (tmp_path / "crowd_planners.png").is_file()


@pytest.mark.slow
def test_the_learned_are_a_row_too(tmp_path):
    settings = Settings(("circle3",), (), ("cartesian-velocity",), seeds=2, env_steps=400, episodes=2)
    crowd_planners.run(settings, StudyRun(tmp_path, "crowd-planners", settings))
    frame = pandas.read_csv(tmp_path / "planners.csv")
    assert frame["policy"].tolist() == ["learned"]
    assert frame["dynamics"].tolist() == ["polar-acceleration"]
