"""Laws of the programs that were compiled for absent accelerators, held of the stored table."""

import re
from typing import Any, get_args, get_type_hints

import pytest

from bench import accelerator_cases as cases
from bench import accelerator_page, accelerators
from jaxrl.learning.network_config import NetworkConfig

TABLE = accelerators.stored()
ROWS = pytest.mark.parametrize("name", TABLE)
# Kernels are fused by their sizes.
SPREAD_OF_KERNELS = 1.2
# Room for arrays of a block that its runs share.
SPREAD_OF_MEMORY = 1.1
# Operations of one program on two kinds of devices: compilers share out work between forms that compute the same.
SPREAD_OF_OPERATIONS = 1.5
# Programs that break a law, which are to be mended; docs/results/accelerators.md names them.
LARGER = ("ppo/tpu-v5e/4096",)
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


def widest() -> list[Any]:
    """Rows with the most runs; those that break the law must fail."""
    breaks = pytest.mark.xfail(strict=True, reason="what no longer fits on the chip is transferred by more operations")
    names = [name for name in TABLE if name.endswith(f"/{cases.MOST}")]
    return [pytest.param(name, marks=breaks if name in LARGER else ()) for name in names]


@pytest.mark.parametrize("name", widest())
def test_neither_kernels_nor_memory_of_a_run_grow_with_the_runs(name: str):
    usual, most = TABLE[name.replace(str(cases.MOST), str(cases.RUNS))], TABLE[name]
    assert most["kernels"] <= SPREAD_OF_KERNELS * usual["kernels"]
    assert max(most["temporary"].values()) <= SPREAD_OF_MEMORY * max(usual["temporary"].values())
    assert most["state"] == usual["state"]


def on_both() -> list[str]:
    """Cases with a row for a GPU and for a TPU."""
    return [case for case in cases.CASES if {str(cases.Cell(case, at, cases.RUNS)) for at in cases.USUAL} <= set(TABLE)]


@pytest.mark.parametrize("case", on_both())
def test_a_program_has_as_many_operations_on_a_tpu_as_on_a_gpu(case: str):
    gpu, tpu = (TABLE[str(cases.Cell(case, target, cases.RUNS))]["operations"] for target in cases.USUAL)
    assert gpu / SPREAD_OF_OPERATIONS <= tpu <= gpu * SPREAD_OF_OPERATIONS


def test_the_table_has_its_cells_in_order_and_the_page_names_those_that_it_lacks():
    known = [str(cell) for cell in cases.cells()]
    assert list(TABLE) == [name for name in known if name in TABLE]
    lacks = [f"`{name}`" for name in known if name not in TABLE]
    page = accelerator_page.PAGE.read_text()
    assert re.findall("`[^`]*/[^`]*/[0-9]+`", page) == lacks
    rows: dict[str, dict[str, Any]] = {name: {} for name in known}
    assert accelerator_page.missing(rows) == []
    del rows["ppo/h100/256"]
    assert accelerator_page.missing(rows) == ["Not compiled yet: `ppo/h100/256`."]


def test_every_memory_is_a_case():
    kinds = set(get_args(get_type_hints(NetworkConfig)["memory"])) - {"none"}
    for kind in kinds:
        assert cases.CHANGED[kind] == (("ppo", "memory/repeat-first"), {"memory": kind})
        assert cases.call_of(kind).attrs["environment"] == "memory/repeat-first"


def test_every_algorithm_is_compiled():
    from jaxrl.algorithms.registry import ROWS as ALGORITHMS

    assert set(ALGORITHMS) <= set(cases.PRESETS)


def test_the_page_has_the_stored_table():
    assert accelerator_page.tables(TABLE) in accelerator_page.PAGE.read_text()


def test_the_page_states_the_days_and_the_versions_of_its_rows():
    days = (("2026-11-27", "b"), ("2026-12-01", "a"))
    rows = [{"jax": "0.10.2", "date": day, "source": source} for day, source in days]
    both, one = ({str(i): row for i, row in enumerate(some)} for some in (rows, rows[:1]))
    assert "2 compilations of 2026-11-27 to 2026-12-01, from 2 versions" in accelerator_page.origin(both)
    assert "1 compilation of 2026-11-27, from 1 version of the library's files (b)" in accelerator_page.origin(one)
    assert "later changes of the library are not in these figures" in accelerator_page.origin(one)
    assert accelerator_page.origin(TABLE) in accelerator_page.PAGE.read_text()


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"),
        (368, "368 B"),
        (1_000, "0.977 KiB"),
        (110_052, "107 KiB"),
        (4_713_856, "4.50 MiB"),
        (4_735_724, "4.52 MiB"),
        (1_047_900, "0.999 MiB"),
    ],
)
def test_sizes_on_the_page_have_three_digits(number: int, text: str):
    assert accelerator_page.three_digits(number, *accelerator_page.MEMORY) == text


def test_the_page_says_which_aims_are_reached():
    row = {"state": 110_000, "temporary": {"advance": 440_000, "init": 9}, "kernels": 25_000, "bytes": 4.95e9}
    table = {aim.name: row for aim in accelerator_page.AIMS}
    *_, crowd, kernels, traffic, minatar, reinforce = accelerator_page.aims(table)
    assert crowd == "| crowd, NVIDIA H100 80GB, 256 runs | kernels | 25,000 | 25,000 | yes |"
    assert "| 1,500 | 25,000 | no |" in kernels
    assert "| 19.3 MB | 19.3 MB | yes |" in traffic
    assert "| 8.00 MiB | 430 KiB | yes |" in minatar
    assert "| 4.00 x the state | 4.00 x the state | yes |" in reinforce
