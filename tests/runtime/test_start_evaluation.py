"""An evaluation before training: one more point, at step 0, and no bit of the other points changes."""

import csv
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from chaotic_algorithm import PER_ITERATION, wandering
from matplotlib.figure import Figure

import jaxrl
from jaxrl.report.runs import Run

STEPS = [0, 2 * PER_ITERATION, 4 * PER_ITERATION]


def train(eval_at_start: bool = True, **changes: Any) -> jaxrl.Result:
    options: dict[str, Any] = {"env_steps": STEPS[-1], "evals": 2, "eval_episodes": 2, "block": 4, "progress": False}
    sweep = jaxrl.grid(wandering().hparams, {"lr": [0.1, 0.2]})
    return jaxrl.train(wandering(), sweep, seeds=3, eval_at_start=eval_at_start, **(options | changes))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("start")


@pytest.fixture(scope="module")
def result(folder: Path) -> jaxrl.Result:
    return train(out=folder / "run", trackers=[jaxrl.tracking.csv(folder / "bands.csv", by="setting"), "csv"])


@pytest.mark.slow
def test_it_is_a_point_more_and_changes_no_other(result: jaxrl.Result) -> None:
    without = train(eval_at_start=False)
    assert result.metrics["env_step"].values.tolist() == STEPS
    for name in without.metrics.data_vars:
        np.testing.assert_array_equal(result.values(str(name))[:, :, 1:], without.values(str(name)))
    for one, other in zip(jax.tree.leaves(result.policies), jax.tree.leaves(without.policies), strict=True):
        np.testing.assert_array_equal(one, other)
    assert np.isfinite(result.values("return")).all()
    assert np.isnan(result.values("norm")[:, :, 0]).all() and not result.failed


def test_metrics_without_a_value_are_no_nan_of_a_program() -> None:
    with jax.debug_nans(True):
        result = train(evals=1, env_steps=PER_ITERATION, block=8)  # in this thread, which alone has the setting
    assert np.isnan(result.values("norm")[:, :, 0]).all() and np.isfinite(result.values("norm")[:, :, 1]).all()
    assert np.isfinite(result.values("return")).all()


@pytest.mark.slow
def test_make_train_evaluates_at_the_start_too(result: jaxrl.Result) -> None:
    algo = wandering()
    shared: dict[str, Any] = {"env_steps": STEPS[-1], "evals": 2, "eval_episodes": 2}
    output, without = (
        jax.jit(jaxrl.make_train(algo, **shared, eval_at_start=start))(jax.random.key(0)) for start in (True, False)
    )
    assert output.env_steps.tolist() == STEPS and without.env_steps.tolist() == STEPS[1:]
    np.testing.assert_array_equal(output.metrics["return"][1:], without.metrics["return"])
    np.testing.assert_array_equal(output.state, without.state)


@pytest.mark.slow
def test_curves_begin_at_the_start(result: jaxrl.Result) -> None:
    for metric, steps in (("return", STEPS), ("norm", STEPS[1:])):
        ax = result.plot(metric, ax=Figure().subplots())
        (line, _) = ax.get_lines()
        assert np.asarray(line.get_xdata()).tolist() == steps
        assert np.isfinite(np.asarray(line.get_ydata(), float)).all()
        assert ax.get_legend_handles_labels()[1] == ["0.1", "0.2"]  # none has failed


def test_trackers_receive_the_evaluation_at_the_start(result: jaxrl.Result, folder: Path) -> None:
    rows = list(csv.DictReader((folder / "run" / "progress.csv").read_text().splitlines()))
    assert [int(row["env_step"]) for row in rows] == [step for step in STEPS for _ in range(6)]
    assert {row["norm"] for row in rows[:6]} == {"nan"} and "nan" not in {row["return"] for row in rows}
    bands = list(csv.DictReader((folder / "bands.csv").read_text().splitlines()))
    assert {float(row["failed_seeds"]) for row in bands} == {0.0}
    assert "nan" not in {row["return/low"] for row in bands}


def test_a_report_counts_no_failure(result: jaxrl.Result) -> None:
    assert Run("run", None, result, {}).finite.all()


@pytest.mark.slow
def test_it_continues_from_a_checkpoint(result: jaxrl.Result, tmp_path: Path) -> None:
    short = train(out=tmp_path / "run", env_steps=STEPS[1], evals=1)
    assert short.metrics["env_step"].values.tolist() == STEPS[:2]
    longer = train(out=tmp_path / "run", resume=True)
    resumed = jaxrl.resume(tmp_path / "run", algo=wandering(), env_steps=STEPS[-1] * 2, progress=False)
    np.testing.assert_array_equal(longer.values("return"), result.values("return"))
    assert resumed.metrics["env_step"].values.tolist() == [*STEPS, 6 * PER_ITERATION, 8 * PER_ITERATION]
    with pytest.raises(TypeError, match="eval_at_start takes True or False, got 1"):
        train(eval_at_start=1)  # pyright: ignore[reportArgumentType]
