"""The comparison of critics for several agents: errors, its table, a small run."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jaxrl
from bench.studies import STUDIES, centralised_critic, run_study


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"tasks": ("climb",)}, r"^tasks has 'climb'"),
        ({"tasks": ()}, r"^tasks takes one or more different values, got none$"),
        ({"penalty": float("nan")}, r"^penalty must be finite, got nan$"),
        ({"seeds": 1}, r"^seeds must be a whole number of at least 2, got 1$"),
    ],
)
def test_invalid_settings_get_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        centralised_critic.Settings(**changes)


def test_the_table_has_failures_lose() -> None:
    own, whole = np.tile([1.0, 3.0], (4, 1)), np.tile([2.0, 4.0], (4, 1))
    both = {"IPPO": own, "MAPPO": whole}
    frame = centralised_critic.table({"climbing": both}, {"climbing": both})
    assert frame["P(improvement)"].tolist() == ["1.00 [0.47, 1.00]"] * 2 and frame["failed"].tolist() == [0, 0]
    assert [text.split(" [")[0] for text in frame["MAPPO"]] == ["4.00", "3.00"]
    assert [text.split(" [")[0] for text in frame["explained variance, IPPO"]] == ["3.00", "2.00"]
    whole[:, -1] = np.nan
    frame = centralised_critic.table({"climbing": both}, {"climbing": both})
    assert frame["P(improvement)"].tolist() == ["0.00 [0.00, 0.53]"] * 2 and frame["failed"].tolist() == [4, 4]


@pytest.mark.slow
def test_both_critics_train_and_are_tabled(tmp_path: Path) -> None:
    settings = centralised_critic.Settings(
        ("climbing",), penalty=-5.0, seeds=2, env_steps=640, evals=2, eval_episodes=2
    )
    study = run_study(STUDIES["centralised-critic"], settings, tmp_path / "out", progress=False)
    assert {"returns.md", "centralised_critic.png"} <= {file.name for file in study.directory.iterdir()}
    assert "Optimum: climbing 110." in (study.directory / "returns.md").read_text()
    loaded = jaxrl.load_result(study.directory / "climbing_global")
    assert loaded.algo is not None and loaded.algo.config.critic_sees == "global"
