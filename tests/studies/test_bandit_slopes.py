"""The study of late regret; KL-UCB and Thompson sampling come near the slope of Lai and Robbins."""

from pathlib import Path

import numpy as np
import pandas
import pytest

from bench.studies import STUDIES, run_study
from bench.studies.bandit_slopes import Settings, means_of, slopes
from jaxrl.bandits.bounds import lai_robbins


@pytest.mark.slow
def test_a_small_study_writes_a_row_for_each_instance(tmp_path: Path) -> None:
    settings = Settings(policies=("thompson",), instances=("0.9,0.3", "0.6,0.4,0.4"), steps=200, runs=20)
    run_study(STUDIES["bandit-slopes"], settings, tmp_path, progress=False)
    table = pandas.read_csv(tmp_path / "slopes.csv")
    assert table["means"].tolist() == ["0.9,0.3", "0.6,0.4,0.4"]
    assert table["Lai-Robbins"].tolist() == [0.58, 4.93]  # gap / kl: 0.6 / 1.0325, twice 0.2 / 0.0811
    actual = slopes(settings, "thompson", "0.9,0.3")
    assert table["thompson"].tolist()[0] == round(float(actual["slope"]), 2)


@pytest.mark.parametrize("instance", ["0.9", "0.9,0.9", "0.9,1.2", "0.9;0.8", ""])
def test_an_instance_needs_different_means(instance: str) -> None:
    with pytest.raises(ValueError, match=r"^instances takes different means in \[0, 1\] separated by commas"):
        means_of(instance)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kl-ucb", "thompson"])
def test_late_regret_grows_within_a_quarter_of_lai_and_robbins(name: str) -> None:
    actual = slopes(Settings(), name, "0.9,0.3")
    ratio = float(actual["slope"]) / float(lai_robbins(np.array([0.9, 0.3])))
    assert 0.75 < ratio < 1.25
