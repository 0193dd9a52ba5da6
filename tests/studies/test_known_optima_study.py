"""The study on known optima: its agents, gaps of constructed returns, and a small run."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import envs
import jaxrl
from bench.studies import STUDIES, known_optima, run_study
from bench.studies.known_optima import Settings
from bench.studies.known_optima_agents import AGENTS


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"tasks": ("cartpole",)}, r"^tasks has 'cartpole'"),
        ({"algorithms": ("ddpg",)}, r"^algorithms has 'ddpg'"),
        ({"algorithms": ("dqn",), "tasks": ("fishery",)}, r"^algorithms has dqn, none of which trains on fishery$"),
        ({"discounts": ("hyperbole",)}, r"^The discount 'hyperbole' does not parse"),
        ({"seeds": 1}, r"^seeds must be a whole number of at least 2, got 1$"),
    ],
)
def test_invalid_settings_get_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Settings(**changes)


@pytest.mark.parametrize(("name", "task"), [(name, task) for name in AGENTS for task in AGENTS[name]])
def test_every_agent_takes_every_discount(name: str, task: str) -> None:
    preset = AGENTS[name][task]
    algo = preset.algo
    assert algo.env.name == preset.environment == task and preset.env_steps >= algo.env_steps_per_iteration
    for discount in Settings().discounts:
        algo.prepare(dataclasses.replace(algo.hparams, discount=jaxrl.as_discount(discount)))


def test_a_mixture_of_critics_is_all_that_differs() -> None:
    for task in AGENTS["ppo-mixture"]:
        one, mixture = AGENTS["ppo"][task].algo, AGENTS["ppo-mixture"][task].algo
        assert (one.config.critic, mixture.config.critic) == ("single", "mixture") and one.env == mixture.env
        assert vars(mixture.hparams).items() >= {k: v for k, v in vars(one.hparams).items() if v is not None}.items()


def test_the_kinds_of_optimum_differ_where_the_study_asks_which_is_approached() -> None:
    best = known_optima.optima_of("fishery", Settings().discounts)
    exponential, _, hyperbolic = ({kind: float(values[i]) for kind, values in best.items()} for i in range(3))
    assert exponential["precommitted"] == pytest.approx(exponential["sophisticated"], rel=1e-6)
    assert hyperbolic["precommitted"] > 1.05 * hyperbolic["stationary"] > 1.5 * hyperbolic["sophisticated"]
    direct = envs.make("fishery").optimum(discount=jaxrl.Hyperbolic(k=0.3), kind="sophisticated")
    assert hyperbolic["sophisticated"] == direct


def test_the_table_has_gaps_in_per_cent_of_the_size_of_each_optimum() -> None:
    best = {"precommitted": np.array([-10.0]), "stationary": np.array([np.nan]), "sophisticated": np.array([-16.0])}
    returns = {"ppo": np.array([[-12.0, -12.0, -12.0, np.nan]])}
    ppo, optimum = known_optima.gaps_table(returns, best, ("0.9",)).to_dict("records")
    assert ppo["gap, precommitted"] == "20.00 [20.00, 20.00]" and ppo["gap, sophisticated"] == "-25.00 [-25.00, -25.00]"
    assert ppo["gap, stationary"] == "\N{EN DASH}" and ppo["failed"] == 1
    assert optimum["gap, stationary"] == "\N{EN DASH}"
    assert (optimum["gap, precommitted"], optimum["gap, sophisticated"]) == ("(-10.0000)", "(-16.0000)")


def test_the_figure_has_a_line_for_each_optimum_and_a_point_for_each_algorithm() -> None:
    best = {"precommitted": np.full(2, 3.0), "stationary": np.full(2, 2.0), "sophisticated": np.full(2, 1.0)}
    returns = {"ppo": np.array([[1.0, 2.0], [2.0, 3.0]]), "a2c": np.array([[1.0, 2.0], [np.nan, 3.0]])}
    one, other = known_optima.gaps_figure("fishery", returns, best, ("0.9", "0.5")).axes
    for ax in (one, other):
        assert [np.asarray(line.get_xdata())[0] for line in ax.lines[:3]] == [3.0, 2.0, 1.0]
    assert len(one.lines) == 3 + 4 and len(other.lines) == 3 + 2  # no interval of a single run
    assert [text.get_text() for text in one.get_yticklabels()] == ["ppo", "a2c"]


@pytest.mark.slow
def test_a_small_run_writes_a_table_and_a_figure_for_each_task(tmp_path: Path) -> None:
    settings = Settings(
        tasks=("fishery", "stopping"), algorithms=("a2c", "dqn"), seeds=2, env_steps=2048, eval_episodes=4
    )
    study = run_study(STUDIES["known-optima"], settings, tmp_path / "out", progress=False)
    names = {file.name for file in study.directory.iterdir()}
    assert {"fishery.md", "fishery.png", "stopping.csv", "fishery_a2c", "stopping_dqn"} <= names
    assert "fishery_dqn" not in names
