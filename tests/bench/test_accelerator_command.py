"""The command that compiles programs for absent accelerators, with a compiler that has an answer for every cell."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench import accelerators
from bench.accelerator_cases import Cell

ROW = {"seconds": 1.0, "kernels": 100}
FIRST, SECOND = Cell("ppo", "h100", 256), Cell("ppo", "h100", 1)


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """The command on a table in a folder of its own; returns the table after it."""
    monkeypatch.setattr(accelerators, "TABLE", tmp_path / "table.json")
    monkeypatch.setattr(accelerators, "write_page", lambda table: None)

    def call(*options: str, kernels: int | None = 100) -> dict[str, Any]:
        def compiled(cell: Cell) -> tuple[Cell, dict[str, Any] | None, str]:
            return (cell, None, "no memory") if kernels is None else (cell, ROW | {"kernels": kernels}, "")

        monkeypatch.setattr(accelerators, "compiled", compiled)
        monkeypatch.setattr("sys.argv", ["accelerators.py", "--only", "ppo", "--targets", "h100", *options])
        accelerators.main()
        return accelerators.stored()

    return call


def test_a_lower_number_of_kernels_is_accepted_and_a_higher_one_is_not():
    record = {"kernels": 120}
    assert accelerators.accepted(record, None) == 120
    assert accelerators.accepted(record, {"accepted": 100}) == 100
    assert accelerators.accepted(record, {"accepted": 150}) == 120


def test_more_kernels_fail_in_every_call_until_they_are_accepted(command: Callable[..., dict[str, Any]]):
    assert command()[str(FIRST)]["accepted"] == 100
    for options in (["--again"], [], ["--runs", "256"]):
        with pytest.raises(SystemExit, match=f"{FIRST} has 106 kernels, 100 are accepted"):
            command(*options, kernels=106)
    table = command("--runs", "256", "--accept", kernels=None)  # nothing is compiled: the rows are of this source
    assert table[str(FIRST)]["accepted"] == table[str(FIRST)]["kernels"] == 106
    assert command("--runs", "256") == table
    with pytest.raises(SystemExit, match=f"^{SECOND} has 106 kernels, 100 are accepted$"):
        command("--runs", "1")


def test_a_cell_that_does_not_compile_keeps_its_row(command: Callable[..., dict[str, Any]]):
    table = command()
    with pytest.raises(SystemExit, match=f"{FIRST} does not compile: no memory"):
        command("--again", kernels=None)
    assert json.loads(accelerators.TABLE.read_text()) == table


def test_a_cell_is_stored_while_an_earlier_one_is_still_compiled(
    command: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
):
    stored = accelerators.stored

    def slow(cell: Cell) -> tuple[Cell, dict[str, Any] | None, str]:
        deadline = time.monotonic() + 4
        while cell == FIRST and str(SECOND) not in stored() and time.monotonic() < deadline:
            time.sleep(0.01)
        return cell, ROW | {"others": len(stored())}, ""

    monkeypatch.setattr(accelerators, "compiled", slow)
    monkeypatch.setattr("sys.argv", ["accelerators.py", "--only", "ppo", "--targets", "h100", "--processes", "2"])
    accelerators.main()
    assert stored()[str(FIRST)]["others"] > 0
    assert list(stored())[:2] == [str(FIRST), str(SECOND)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--runs", "1024"], "got h100 with 1024 runs; the cells of ppo are h100 with 1 or 256 or 4096 runs; tpu-v5e"),
        (
            ["--only", "sac", "td3", "--targets", "t4"],
            "got t4 with any number of runs; the cells of sac, td3 are h100 with 256 runs; tpu-v5e with 256 runs",
        ),
    ],
)
def test_a_selection_without_a_cell_is_refused(
    options: list[str], message: str, command: Callable[..., dict[str, Any]], capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit, match="2"):
        command(*options)
    assert message in capsys.readouterr().err
