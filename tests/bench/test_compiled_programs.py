"""Laws of the programs that were compiled for absent accelerators, held of the stored table."""

from typing import Any

import pytest

from bench import accelerator_cases as cases
from bench import accelerator_page, accelerators
from jaxrl.runtime.accelerators.targets import TARGETS

TABLE = accelerators.stored()
ROWS = pytest.mark.parametrize("name", TABLE)
# Kernels are fused by their sizes. A TPU's operations include transfers of what no longer fits on the chip.
SPREAD_OF_KERNELS = {"gpu": 1.2, "tpu": 2.0}
SPREAD_OF_MEMORY = {"gpu": 1.1, "tpu": 1.5}
# Programs with copies of arrays of the replay buffer, which are to be mended; docs/results/accelerators.md names them.
COPIED = {"sac/tpu-v5e/256": 4, "td3/tpu-v5e/256": 4, "dqn/tpu-v5e/1": 2}


@ROWS
def test_a_program_computes_in_single_precision_on_the_device_alone(name: str):
    row = TABLE[name]
    assert row["doubles"] == 0
    assert row["host"] == []


@ROWS
def test_the_state_is_updated_in_place(name: str):
    row = TABLE[name]
    assert row["aliased"] > 0.999
    assert row["copied"] == COPIED.get(name, 0)
    assert row["selected"] == 0


@ROWS
def test_kernels_have_not_become_more(name: str):
    assert TABLE[name]["kernels"] <= accelerators.GROWTH * TABLE[name]["accepted"], name


@pytest.mark.parametrize("name", [name for name in TABLE if name.endswith(f"/{cases.MOST}")])
def test_neither_kernels_nor_memory_of_a_run_grow_with_the_runs(name: str):
    usual, most = TABLE[name.replace(str(cases.MOST), str(cases.RUNS))], TABLE[name]
    platform = TARGETS[name.split("/")[1]].platform
    assert most["kernels"] <= SPREAD_OF_KERNELS[platform] * usual["kernels"]
    assert max(most["temporary"].values()) <= SPREAD_OF_MEMORY[platform] * max(usual["temporary"].values())
    assert most["state"] == usual["state"]


def test_the_table_has_its_cells_in_order_and_every_case_on_both_kinds_of_devices():
    known = [str(cell) for cell in cases.cells()]
    assert list(TABLE) == [name for name in known if name in TABLE]
    assert {str(cases.Cell(case, target, cases.RUNS)) for case in cases.CASES for target in cases.USUAL} <= set(TABLE)


def test_every_algorithm_is_compiled():
    from jaxrl.algorithms.registry import ROWS as ALGORITHMS

    assert set(ALGORITHMS) <= set(cases.PRESETS)


def test_the_page_has_the_stored_table():
    assert accelerator_page.tables(TABLE) in accelerator_page.PAGE.read_text()


def test_a_lower_number_of_kernels_is_accepted_and_a_higher_one_only_if_asked():
    record: dict[str, Any] = {"kernels": 120}
    assert accelerators.accepted(record, None, accept=False) == 120
    assert accelerators.accepted(record, {"accepted": 100}, accept=False) == 100
    assert accelerators.accepted(record, {"accepted": 150}, accept=False) == 120
    assert accelerators.accepted(record, {"accepted": 100}, accept=True) == 120
