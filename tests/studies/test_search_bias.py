"""The study of the bias of searches: settings, rows, and a small run."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

import jaxrl
from bench.studies import run_study, search_bias
from bench.studies.benchmark_samples import searches
from bench.studies.search_bias import Settings, rows


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"tasks": ("carpole",)}, "tasks has 'carpole'; did you mean 'cartpole'"),
        ({"candidates": 1}, "candidates must be a whole number of at least 2, got 1"),
        ({"seeds": 4}, "tuning_seeds takes numbers of seeds above 0 and below seeds=4, got (1, 2, 4, 8)"),
        ({"tuning_seeds": (1.5,)}, "tuning_seeds must be a whole number of at least 1, got 1.5"),
        ({"tuning_seeds": ()}, "tuning_seeds takes numbers of seeds above 0 and below seeds=16, got ()"),
    ],
)
def test_settings_are_checked(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}"):
        Settings(**fields)


def test_rows_are_those_of_searches_with_the_same_seeds() -> None:
    values = np.random.default_rng(0).normal(size=(5, 8))
    values[2, 3] = np.nan  # of a failed run, whose setting is left out
    settings = Settings(seeds=8, tuning_seeds=(1, 4), samples=100, resamples=2)
    few, more = rows("task", values, settings)
    kept = {str(at): values[at] for at in (0, 1, 3, 4)}
    for row, count in ((few, 1), (more, 4)):
        simulated = searches(kept, count, 100, paired=True)
        assert (row["task"], row["seeds"], row["settings"], row["failed"]) == ("task", count, 4, 1)
        for column, each in (
            ("in the search", simulated.own),
            ("on other seeds", simulated.others),
            ("optimism", simulated.own - simulated.others),
        ):
            assert row[column].startswith(f"{each.mean():.3f} [")
    values[1:] = np.nan
    with pytest.raises(ValueError, match=r"^values takes at least two settings without a failed run, got 1 on task$"):
        rows("task", values, settings)


@pytest.mark.parametrize("task", Settings().tasks)
def test_the_settings_of_a_search_differ_in_the_space_alone(task: str) -> None:
    algo = search_bias.agent(task)
    assert algo.env.name == task
    drawn = jaxrl.sample(algo.hparams, 64, search_bias.SPACE)
    assert all(set(setting) == set(search_bias.SPACE) for setting in drawn.settings)
    for path, distribution in search_bias.SPACE.items():
        values = [setting[path] for setting in drawn.settings]
        assert distribution.low <= min(values) < max(values) <= distribution.high and len(set(values)) == 64


@pytest.mark.slow
def test_a_small_run_writes_the_table(tmp_path: Path) -> None:
    settings = Settings(
        tasks=("delayed-choice",), candidates=2, seeds=2, env_steps=1024, tuning_seeds=(1,), samples=100, resamples=2
    )
    run_study(search_bias.STUDY, settings, tmp_path / "study", progress=False)
    table = pandas.read_csv(tmp_path / "study" / "searches.csv")
    assert table["settings"].tolist() == [2] and table["task"].tolist() == ["delayed-choice"]
    result = jaxrl.load_result(tmp_path / "study" / "delayed-choice")
    low, high, _ = jaxrl.benchmark.reference(jaxrl.benchmark.load(), "delayed-choice")
    expected = rows("delayed-choice", (result.values("return")[..., -1] - low) / (high - low), settings)
    assert table["optimism"].tolist() == [expected[0]["optimism"]]
