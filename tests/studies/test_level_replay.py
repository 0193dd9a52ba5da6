"""The study of replayed levels: settings, agents that differ in one thing, solve rates, and its table."""

import re
from typing import Any

import numpy as np
import pytest
import xarray

from bench.studies import level_replay, run_study
from bench.studies.level_replay import Settings, agent, solve_rates, table


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"tasks": ("mase",)}, "tasks has 'mase'; did you mean 'maze'?"),
        ({"levels": ("new",)}, "levels has 'new'"),
        ({"seeds": 1}, "seeds must be a whole number of at least 2, got 1"),
    ],
)
def test_settings_are_checked(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}"):
        Settings(**fields)


@pytest.mark.parametrize("task", ["maze", "cartpole", "crowd/corridor"])
def test_agents_differ_in_their_levels(task: str) -> None:
    usual, replayed = (agent(task, levels, Settings()) for levels in ("draws", "max-return"))
    assert usual.env == replayed.env
    assert replayed.config.replace(levels="draws", num_levels=256) == usual.config
    assert usual.hparams.level_replay is None and replayed.hparams.level_replay is not None
    names = ("lr", "discount", "entropy_coef", "lam")
    assert all(getattr(usual.hparams, name) == getattr(replayed.hparams, name) for name in names)


def test_solve_rates_are_means_over_levels_with_a_way() -> None:
    draws = np.random.default_rng(0)
    shape, dims = (2, 3, 40), ("eval.wall_share", "seed", "episode")
    returns, solvable = draws.integers(0, 2, shape).astype(float), draws.integers(0, 2, shape).astype(float)
    returns[:, 2] = solvable[:, 2] = np.nan
    names = {"return": returns, "return_sampled": 0 * returns + 1, "solvable": solvable, "solvable_sampled": solvable}
    episodes = xarray.Dataset({name: (dims, values) for name, values in names.items()})
    rates = solve_rates(episodes, "maze")
    for seed in range(2):
        expected = np.mean([returns[i, seed][solvable[i, seed] == 1].mean() for i in range(2)])
        assert rates["greedy"][seed] == pytest.approx(expected)
        assert rates["sampled"][seed] == 1
    assert np.isnan(rates["greedy"][2]) and np.isnan(rates["sampled"][2])


def test_a_pole_is_solved_from_a_return_of_475() -> None:
    returns = np.array([[475.0, 474.0, 500.0, 10.0]])
    episodes = xarray.Dataset({name: (("seed", "episode"), returns) for name in ("return", "return_sampled")})
    assert solve_rates(episodes, "cartpole")["greedy"] == [0.5]


def test_the_solve_rate_of_a_crowd_is_its_share_of_arrivals() -> None:
    arrived = np.array([[1.0, 0.5, 0.75], [0.0, 0.25, np.nan]])
    dims = ("seed", "episode")
    values = {"return": -arrived, "return_sampled": -arrived, "success": arrived, "success_sampled": arrived / 2}
    episodes = xarray.Dataset({name: (dims, column) for name, column in values.items()})
    rates = solve_rates(episodes, "crowd/corridor")
    assert rates["greedy"][0] == 0.75 and rates["sampled"][0] == 0.375
    assert np.isnan(rates["greedy"][1]) and np.isnan(rates["sampled"][1])


def test_the_table_compares_with_new_levels() -> None:
    rows = {("maze", "draws"): {"greedy": np.full(8, 0.5)}, ("maze", "max-return"): {"greedy": np.full(8, 0.75)}}
    rows["maze", "max-return"]["greedy"][0] = np.nan
    frame: Any = table(rows)
    assert list(frame["greedy"]) == ["0.500 [0.500, 0.500]", "0.750 [0.750, 0.750]"]
    assert frame["P(better greedy)"][0] == ""
    assert frame["P(better greedy)"][1].startswith("0.88 [")  # the failed run is the lowest
    assert list(frame["failed"]) == [0, 1]


@pytest.mark.slow
def test_a_small_run_writes_a_table(tmp_path: Any) -> None:
    steps: dict[str, Any] = {"maze_env_steps": 2048, "cartpole_env_steps": 1024, "crowd_env_steps": 400}
    settings = Settings(num_levels=8, seeds=2, eval_episodes=25, **steps)
    run_study(level_replay.STUDY, settings, tmp_path / "study", progress=False)
    assert len((tmp_path / "study/solve_rates.csv").read_text().splitlines()) == 10
