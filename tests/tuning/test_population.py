"""Population-based training: it improves its start, and records the lineage."""

import csv
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import envs
import jaxrl
from jaxrl import Choice, LogUniform, Uniform
from jaxrl.algorithms.contract import Algorithm
from jaxrl.runtime import programs

SPACE = {"lr": LogUniform(1e-6, 1e-1), "entropy_coef": Uniform(0.0, 0.1), "lam": Choice([0.8, 0.9, 0.95])}


@pytest.fixture(scope="module")
def algo() -> Algorithm:
    config = jaxrl.PPOConfig(num_envs=4, num_steps=32, num_epochs=4, num_minibatches=2, hidden=(16,))
    return jaxrl.ppo(envs.make("cartpole"), config)


def train(algo: Algorithm, **changes: Any) -> jaxrl.PopulationResult:
    options: dict[str, Any] = {
        "members": 16,
        "env_steps": 15_360,
        "rounds": 8,
        "eval_episodes": 16,
        "block": 8,
        "progress": False,
    }
    return jaxrl.population_based_training(algo, changes.pop("space", SPACE), **(options | changes))


@pytest.fixture(scope="module")
def trained(algo: Algorithm, tmp_path_factory: pytest.TempPathFactory) -> tuple[jaxrl.PopulationResult, Path]:
    before = programs.compilations()
    out = tmp_path_factory.mktemp("population") / "out"
    actual = train(algo, out=out)
    assert programs.compilations() == before + 1
    return actual, out


@pytest.mark.slow
def test_a_population_improves_on_its_first_members_at_equal_length(algo: Algorithm, trained: Any):
    actual, _ = trained
    alone = train(algo, replaced=0)
    assert alone.settings[-1] == alone.settings[0] == actual.settings[0]
    # The first round is the same; then the worse quarter continues from the better.
    np.testing.assert_array_equal(alone.returns[0], actual.returns[0])
    better = jaxrl.statistics.probability_of_improvement(actual.returns[-1], alone.returns[-1])
    assert float(better.low) > 0.5
    assert actual.returns[-1].mean() > 1.25 * alone.returns[-1].mean()


@pytest.mark.slow
def test_the_lineage_names_parents(trained: Any):
    actual, out = trained
    for i in range(1, len(actual.returns)):
        order = np.argsort(-actual.returns[i - 1], kind="stable")
        worst, best = set(order[-4:].tolist()), set(order[:4].tolist())
        for member, parent in enumerate(actual.parents[i].tolist()):
            assert (parent in best) if member in worst else parent == member
            changed = actual.settings[i][member] != actual.settings[i - 1][parent]
            assert not changed or member in worst
    settings = [setting for of_round in actual.settings for setting in of_round]
    assert all(1e-6 <= s["lr"] <= 1e-1 and 0 <= s["entropy_coef"] <= 0.1 for s in settings)
    assert {s["lam"] for s in settings} == {0.8, 0.9, 0.95}
    line = actual.ancestry(actual.best)
    assert line[-1] == actual.best and len(line) == len(actual.returns) == 8
    assert all(actual.parents[i][line[i]] == line[i - 1] for i in range(1, 8))
    assert actual.schedule(actual.best)[-1] == actual.settings[-1][actual.best]
    with (out / "lineage.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 8 * 16
    assert [int(row["parent"]) for row in rows] == actual.parents.ravel().tolist()
    loaded = jaxrl.load_result(out)
    assert [setting["lr"] for setting in loaded.settings] == [s["lr"] for s in actual.settings[-1]]
    np.testing.assert_array_equal(loaded.values("return")[:, 0].T, actual.returns)


@pytest.mark.slow
def test_a_signal_leaves_the_rounds_that_are_done(algo: Algorithm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    evaluate, calls = jaxrl.runtime.runs.Runs.evaluate, []  # pyright: ignore[reportAttributeAccessIssue]

    def stop(self: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return evaluate(self)

    monkeypatch.setattr("jaxrl.runtime.runs.Runs.evaluate", stop)
    actual = train(algo, out=tmp_path / "out")
    assert actual.returns.shape == (3, 16) and len(actual.settings) == 3
    assert actual.result.metrics.attrs["stopped_by_signal"] == signal.SIGTERM
    assert jaxrl.load_result(tmp_path / "out").metrics.sizes["env_step"] == 3


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"members": 0}, "members must be"),
        ({"rounds": 0}, "rounds must be"),
        ({"env_steps": 0}, "env_steps must be"),
        ({"replaced": 0.6}, r"replaced must be a number in \[0, 0.5\], got 0.6"),
        ({"redraw": -1}, r"redraw must be a number in \[0, 1\]"),
        ({"perturb": 1}, "perturb must be a number above 1"),
        ({"seed": -1}, "seed must be"),
        ({"space": {}}, "at least one path"),
        ({"space": {"lrr": Uniform(0, 1)}}, "did you mean 'lr'"),
        ({"space": {"config.num_steps": Choice([16, 32])}}, "config.num_steps is static, and cannot change within"),
    ],
)
def test_bad_arguments_raise_one_sentence(algo: Algorithm, changes: Any, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        train(algo, **changes)
