"""The study of memories: settings, rows, and a small run."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

import jaxrl
from bench.studies import memories, run_study
from bench.studies.memories import Settings, agent, chosen, row
from jaxrl.algorithms.ppo import PPOConfig


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"tasks": ("memory/chains",)}, "tasks has 'memory/chains'; did you mean 'memory/chain'"),
        ({"memories": ("gruu",)}, "memories has 'gruu'; did you mean 'gru'"),
        ({"step_sizes": ()}, "step_sizes takes one or more numbers above 0, got none"),
        ({"step_sizes": (0.0,)}, "step_sizes takes one or more numbers above 0, got (0.0,)"),
        ({"window": 1}, "window must be a whole number of at least 2, got 1"),
        ({"seeds": 1}, "seeds must be a whole number of at least 2, got 1"),
    ],
)
def test_settings_are_checked(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}"):
        Settings(**fields)


def test_a_gain_counts_from_the_best_policy_without_a_memory() -> None:
    """In the T-maze, a policy without a memory returns 0.5 at best, and one with a memory 1."""
    values = np.array([0.5, 0.75, 1.0, 0.96, 0.94, np.nan])
    cells = row("memory/t-maze", values)
    assert cells["solved"] == 2 and cells["seeds"] == 6
    gains = (np.sort(values[:5]) - 0.5) / 0.5
    trimmed = gains[1:4].mean()  # without a quarter of the five runs at either end, rounded down
    assert cells["gain"] == f"{trimmed:.2f}" and cells["IQM"].startswith(f"{0.5 + 0.5 * trimmed:.3f} [")
    unknown = row("memory/cartpole", np.array([500.0, 475.0, 474.0]))
    assert unknown["gain"] == memories.MISSING and unknown["solved"] == 2


def test_a_step_size_with_a_failed_run_is_not_chosen() -> None:
    returns = np.array([[np.nan, 9.0], [1.0, 2.0], [2.0, 2.0]])
    assert chosen((0.1, 0.2, 0.3), returns, "part") == 0.3
    returns[1:, 0] = np.nan
    with pytest.raises(ValueError, match=r"^step_sizes takes one with which no run of part fails, got \(0\.1, 0\.2, 0"):
        chosen((0.1, 0.2, 0.3), returns, "part")


def test_memories_differ_in_nothing_else() -> None:
    settings = Settings(memory_size=8, window=12)
    default = PPOConfig()
    for kind in memories.KINDS:
        algo = agent("memory/chain", kind, settings)
        config: Any = algo.config
        assert config.memory == kind and (kind == "none" or config.memory_size == 8)
        assert config.memory_window == (12 if kind == "gtrxl" else default.memory_window)
        without = {"memory": "none", "memory_size": default.memory_size, "memory_window": default.memory_window}
        assert dataclasses.replace(config, **without) == memories.CONFIG
        assert algo.hparams.lr_end == 0.0


def test_a_memory_that_heads_do_not_divide_is_refused_before_training(tmp_path: Path) -> None:
    settings = Settings(memories=("none", "gtrxl"), memory_size=6)
    with pytest.raises(ValueError, match="memory_heads must divide memory_size=6"):
        run_study(memories.STUDY, settings, tmp_path / "study", progress=False)
    assert [file.name for file in (tmp_path / "study").iterdir() if file.is_dir()] == []


@pytest.mark.slow
def test_a_small_run_chooses_a_step_size(tmp_path: Path) -> None:
    settings = Settings(
        tasks=("memory/chain",), memories=("mingru",), memory_size=4, tuning_seeds=1, seeds=2, env_steps=2048,
        eval_episodes=4,
    )  # fmt: skip
    run_study(memories.STUDY, settings, tmp_path / "study", progress=False)
    table = pandas.read_csv(tmp_path / "study" / "memories.csv")
    assert table["task"].tolist() == ["memory/chain"] and table["seeds"].tolist() == [2]
    tuning = jaxrl.load_result(tmp_path / "study" / "chain_mingru_tuning")
    best = chosen(settings.step_sizes, tuning.values("return")[..., -1], "chain")
    assert table["lr"].item() == best and tuning.seeds == [memories.FIRST_TUNING_SEED]
    result = jaxrl.load_result(tmp_path / "study" / "chain_mingru")
    assert float(np.ravel(result.hparams.lr)[0]) == pytest.approx(best) and result.seeds == [0, 1]
