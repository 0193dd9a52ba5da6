"""Studies on DQN, value losses and time limits: settings, equal conditions, tables, and a small run of each."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jaxrl
from bench.studies import STUDIES, run_study, time_limits, value_losses


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"tasks": ("cartpol",)}, "tasks has 'cartpol'; did you mean 'cartpole' or 'memory/cartpole'?"),
        ({"losses": ("hl-gaus",)}, "losses has 'hl-gaus'; did you mean 'hl-gauss'?"),
        ({"losses": ("huber", "huber")}, "losses takes one or more different values, got huber huber"),
        ({"bins": 1}, "bins must be a whole number of at least 6, got 1"),
    ],
)
def test_settings_of_value_losses_are_checked(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        value_losses.Settings(**settings)


@pytest.mark.parametrize("limits", [(), (50, 50), (0, 200)])
def test_time_limits_are_checked(limits: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="limits takes one or more different whole numbers of at least 1, got"):
        time_limits.Settings(limits=limits)


@pytest.mark.parametrize("loss", value_losses.Settings.losses)
def test_only_the_loss_differs(loss: str) -> None:
    config = jaxrl.preset("dqn", "cartpole").config
    other = dataclasses.replace(config, **value_losses.fields(loss, value_losses.Settings()))
    assert other.value_loss == loss
    assert other.num_atoms == {"quantile": 25, "hl-gauss": 101, "categorical": 101}.get(loss, config.num_atoms)
    assert dataclasses.replace(other, value_loss=config.value_loss, num_atoms=config.num_atoms) == config


def test_only_the_treatment_of_limits_differs() -> None:
    one, other = (
        time_limits.agent(name, time_limits.Settings()) for name in (time_limits.BOOTSTRAP, time_limits.TERMINAL)
    )
    assert (one.config.time_limits, other.config.time_limits) == ("bootstrap", "terminal")
    assert dataclasses.replace(other.config, time_limits="bootstrap") == one.config
    assert (one.env, one.hparams) == (other.env, other.hparams)


def test_losses_are_compared_with_the_first_of_their_task() -> None:
    returns = {
        ("acrobot", "huber"): np.full(16, -80.0),
        ("acrobot", "quantile"): np.array([-84.0] * 15 + [np.nan]),
        ("cartpole", "huber"): np.full(16, 400.0),
        ("cartpole", "quantile"): np.full(16, np.nan),
    }
    frame = value_losses.table(returns, dict.fromkeys(returns, 3.0)).set_index(["task", "loss"])
    assert frame["better by, %"].tolist() == ["+0.0", "-5.0", "+0.0", "\N{EN DASH}"]
    assert frame["IQM"].tolist()[1::2] == ["-84.0 [-84.0, -84.0]", "failed"]
    assert frame["failed"].tolist() == [0, 1, 0, 16]


def test_treatments_are_compared_limit_by_limit() -> None:
    returns = {
        time_limits.BOOTSTRAP: np.array([[-150.0] * 8, [-150.0] * 8]),
        time_limits.TERMINAL: np.array([[-300.0] * 7 + [np.nan], [-140.0] * 8]),
    }
    frame = time_limits.table(returns, time_limits.Settings(limits=(50, 200), seeds=8))
    assert frame["limit"].tolist() == [50, 200]
    assert frame["P(bootstrap > terminal)"].tolist() == ["1.00 [0.72, 1.00]", "0.00 [0.00, 0.28]"]
    assert frame["terminal: IQM"].tolist() == ["-300.0 [-300.0, -300.0]", "-140.0 [-140.0, -140.0]"]
    assert frame["failed"].tolist() == [1, 0]


@pytest.mark.slow
def test_a_small_run_of_value_losses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = value_losses.Settings(tasks=("acrobot",), quantiles=3, bins=7, seeds=2, env_steps=64, eval_episodes=2)
    for _ in range(2):  # the second reads what the first wrote
        run_study(STUDIES["value-losses"], settings, tmp_path, progress=False)
        shown = capsys.readouterr().out
        assert all(loss in shown for loss in settings.losses)
    assert {"returns.md", "returns.csv", "acrobot_hl-gauss"} <= {file.name for file in tmp_path.iterdir()}


@pytest.mark.slow
def test_a_small_run_of_time_limits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = time_limits.Settings(limits=(5, 20), seeds=2, env_steps=16, eval_episodes=4)
    shown = set()
    for _ in range(2):
        run_study(STUDIES["time-limits"], settings, tmp_path, progress=False)
        shown.add(capsys.readouterr().out)
    assert len(shown) == 1 and "P(bootstrap > terminal)" in shown.pop()
    assert {"returns.md", "returns.csv", "bootstrap", "terminal_evaluated.nc"} <= {
        file.name for file in tmp_path.iterdir()
    }
