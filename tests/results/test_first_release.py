"""Every version loads what 0.1.0 wrote, the first release, and its policies choose by the same scores."""

import json
import shutil
from pathlib import Path

import first_release
import jax
import numpy as np
import pandas
import previous_format
import pytest

import jaxrl
from jaxrl.results.dataset import ResultError
from jaxrl.results.policy import TrainedPolicy
from jaxrl.version import __version__

SCORES = json.loads((first_release.DIRECTORY / "scores.json").read_text())


@pytest.fixture(scope="module", params=first_release.RESULTS)
def name(request: pytest.FixtureRequest) -> str:
    """The name of a result."""
    return request.param


@pytest.fixture(scope="module")
def result(name: str) -> jaxrl.Result:
    """The result as 0.1.0 wrote it."""
    return jaxrl.load_result(first_release.DIRECTORY / name)


def test_all_results_are_kept() -> None:
    kept = {path.name for path in first_release.DIRECTORY.iterdir() if path.is_dir()}
    assert kept == set(first_release.RESULTS) == set(SCORES)
    for name in kept:
        config = json.loads((first_release.DIRECTORY / name / "config.json").read_text())
        assert config["versions"]["jaxrl"] == "0.1.0"


def test_the_algorithm_and_its_settings_are_known(name: str, result: jaxrl.Result) -> None:
    assert result.algo is not None and result.hparams is not None
    assert result.algo.name == result.metrics.attrs["algorithm"]
    discounts = {"ppo": ["exp:gamma=0.98", "beta:mu=0.98,eta=0.5"], "dqn": ["hyperbolic:k=0.02"]}
    if name == "ppo":
        assert [setting["discount"] for setting in result.settings] == discounts[name]
    if name == "dqn":
        assert str(result.algo.hparams.discount) == discounts[name][0]


def test_metrics_are_those_of_the_table(name: str, result: jaxrl.Result) -> None:
    table = pandas.read_csv(first_release.DIRECTORY / name / "metrics.csv")
    returns = table["return"].dropna()
    assert len(returns) and np.isfinite(returns).all()
    read = result.metrics["return"].values.ravel()
    np.testing.assert_allclose(np.sort(read[np.isfinite(read)]), np.sort(returns), rtol=1e-6)
    assert result.table()


def test_a_result_with_best_policies_and_a_swept_parameter_has_both() -> None:
    result = jaxrl.load_result(first_release.DIRECTORY / "best")
    assert [setting["env.length"] for setting in result.settings] == [0.5, 1.0]
    assert isinstance(result.policy(**{"env.length": 0.5}, seed=0, kept="best"), TrainedPolicy)


def described_by(release: str, tmp_path: Path) -> Path:
    """The result of PPO, without a hyper-parameter and a parameter that this release has, written by another one."""
    shutil.copytree(first_release.DIRECTORY / "ppo", tmp_path / release)
    file = tmp_path / release / "config.json"
    config = json.loads(file.read_text())
    del config["hparams"]["value_coef"], config["env_params"]["force_mag"]
    config["versions"]["jaxrl"] = release
    previous_format.write_json(file, config)
    return tmp_path / release


def test_a_parameter_that_a_later_release_added_has_its_default(tmp_path: Path) -> None:
    result = jaxrl.load_result(described_by("0.0.9", tmp_path))
    assert result.hparams is not None and result.env_params is not None
    np.testing.assert_array_equal(result.hparams.value_coef, np.full(2, jaxrl.PPOHParams().value_coef, np.float32))
    np.testing.assert_array_equal(result.env_params.force_mag, np.full(2, 10, np.float32))


@pytest.mark.parametrize("release", [__version__, "9.0.0"])
def test_a_parameter_that_the_same_or_a_later_release_lacks_is_an_error(release: str, tmp_path: Path) -> None:
    directory = described_by(release, tmp_path)
    with pytest.raises(ResultError, match=r"it has the parameters .*, not "):
        jaxrl.load_result(directory)
    config = json.loads((directory / "config.json").read_text())
    config["env_params"]["force_mag"] = [10.0, 10.0]
    previous_format.write_json(directory / "config.json", config)
    assert jaxrl.load_result(directory).hparams is None


# Of a small network: float32 on another processor or by another version of XLA differs in its last bits.
def test_policies_choose_by_the_same_scores(name: str, result: jaxrl.Result) -> None:
    shown = first_release.scores(result)
    assert shown.keys() == SCORES[name].keys()
    for key, rows in shown.items():
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), rows, SCORES[name][key])
        assert len(rows) > 1 and rows[0] != rows[1]
