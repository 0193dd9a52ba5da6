"""Cells trained again with other seeds: p-values, failed and interrupted runs, and the command."""

from collections.abc import Hashable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import jaxrl
from envs.errors import MissingPackageError
from jaxrl.benchmark import CELLS, Benchmark, Cell, load, verify
from jaxrl.cli.benchmark import run_benchmark
from jaxrl.cli.parsing import CommandError
from jaxrl.results.dataset import metrics_dataset
from jaxrl.results.p_values import corrected, improvement_p_value
from jaxrl.results.result import Result


def again(values: npt.ArrayLike, failed: int = 0, *, interrupted: bool = False, last: int = 2_400) -> Result:
    """Last returns of a training of the small cell, of which some runs failed."""
    returns = np.broadcast_to(np.asarray(values, np.float32)[None, :, None], (1, len(np.asarray(values)), 21)).copy()
    returns[0, :failed] = np.nan
    steps = (np.arange(21) * last // 20).tolist()
    attrs = {"algorithm": "a2c", "environment": "delayed-choice", "interrupted": interrupted}
    metrics = metrics_dataset({"return": returns}, seeds=range(returns.shape[1]), env_steps=steps, attrs=attrs)
    return Result(metrics, {})


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> npt.NDArray[np.float64]:
    """Returns of 32 seeds that two cells have."""
    values = np.random.default_rng(0).normal(size=32)
    monkeypatch.setattr(Benchmark, "result", lambda *_, **__: again(values))
    return values


def verified(monkeypatch: pytest.MonkeyPatch, *results: Result) -> list[dict[Hashable, Any]]:
    """Rows of as many cells whose new trainings have these results."""
    left = iter(results)
    monkeypatch.setattr("jaxrl.benchmark.running._trained", lambda *_, **__: next(left))
    return verify(CELLS[: len(results)], load().directory).to_pandas().to_dict("records")


def test_cells_that_are_trained_again_are_compared_with_their_data(
    stored: npt.NDArray[np.float64], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = np.random.default_rng(1).normal(size=32)
    same, moved = verified(monkeypatch, again(other), again(other + 3))
    single = [improvement_p_value([stored], [values]) for values in (other, other + 3)]
    # Float32 of the results keeps the ranks.
    assert [same["p_value"], moved["p_value"]] == corrected(single) and moved["p_value"] == 2e-4 < 0.05 < same[
        "p_value"
    ]
    assert moved["inside"] == "no" and same["failed_again"] == 0
    assert moved["again"] == pytest.approx(float(jaxrl.statistics.iqm(other + 3)), rel=1e-6)


def test_runs_that_fail_in_a_repetition_count_as_the_worst(
    stored: npt.NDArray[np.float64], monkeypatch: pytest.MonkeyPatch
) -> None:
    few, none = verified(monkeypatch, again(stored, failed=2), again(stored, failed=30))
    assert few["failed_again"] == 2 and few["p_value"] > 0.05
    assert none["failed_again"] == 30 and none["p_value"] == 2e-4 and none["failed"] == 0


def test_a_signal_ends_the_verification(stored: npt.NDArray[np.float64], monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(verified(monkeypatch, again(stored), again(stored, interrupted=True), again(stored))) == 1


def test_a_cell_that_cannot_be_trained_is_left_out_of_a_verification(
    stored: npt.NDArray[np.float64], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def trained(cell: Cell, *_: Any, **__: Any) -> Result:
        if cell.algorithm == "dqn":
            raise MissingPackageError("no package")
        return again(stored)

    monkeypatch.setattr("jaxrl.benchmark.running._trained", trained)
    assert run_benchmark(["verify", "delayed-choice"]) == 1
    out, error = capsys.readouterr()
    assert "0 of 7 cells differ from their data" in out and "Stopped" not in out
    assert error.endswith("1 could not be computed: dqn on delayed-choice\n") and "left out: no package" in error
    with pytest.raises(MissingPackageError, match="no package"):
        verify([each for each in load().cells if each.environment == "delayed-choice"])


def test_a_cell_that_has_become_shorter_is_left_out_of_a_verification(
    stored: npt.NDArray[np.float64], monkeypatch: pytest.MonkeyPatch
) -> None:
    shorter, errors = CELLS[1], []

    def trained(cell: Cell, *_: Any, **__: Any) -> Result:
        return again(stored, last=1_200 if cell == shorter else 2_400)

    monkeypatch.setattr("jaxrl.benchmark.running._trained", trained)
    table = verify(CELLS[:3], load().directory, on_error=lambda cell, error: errors.append((cell, str(error))))
    assert [row[1] for row in table.rows] == [CELLS[0].algorithm, CELLS[2].algorithm]
    assert errors == [(shorter, "env_step is 2,400, and the curves end at 1,200")]


def test_the_command_verifies_named_or_random_cells(
    stored: npt.NDArray[np.float64], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[str] = []
    shift = [0.0]

    def trained(cell: Cell, *_: Any, **__: Any) -> Result:
        seen.append(cell.name)
        return again(stored + shift[0], interrupted=shift[0] > 100)

    monkeypatch.setattr("jaxrl.benchmark.running._trained", trained)
    assert run_benchmark(["verify", "ppo", "cartpole"]) == 0
    assert "0 of 1 cells differ from their data" in capsys.readouterr().out
    shift[0] = 5.0
    assert run_benchmark(["verify", "a2c", "cartpole"]) == 1 and seen == ["ppo on cartpole", "a2c on cartpole"]
    assert run_benchmark(["verify", "--cells", "3", "--seed", "1"]) == 1
    assert len(set(seen[2:])) == 3 and "3 of 3 cells differ" in capsys.readouterr().out
    shift[0] = 500.0
    assert run_benchmark(["verify", "a2c", "cartpole"]) == 130
    with pytest.raises(CommandError, match="verify takes an algorithm or a task of the benchmark, got nothing"):
        run_benchmark(["verify", "nothing"])
    with pytest.raises(ValueError, match="--cells must be a whole number of at least 1, got 0"):
        run_benchmark(["verify", "--cells", "0"])
