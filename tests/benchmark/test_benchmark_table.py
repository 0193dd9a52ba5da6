"""The table of the documentation is that of the data in the clone."""

import dataclasses

import benchmark_table

from jaxrl.benchmark import CELLS
from jaxrl.benchmark.measured import TASKS


def test_the_page_has_a_row_for_each_cell_with_data() -> None:
    text = benchmark_table.PAGE.read_text()
    assert text == benchmark_table.generated(text), "python tests/benchmark_table.py writes it"
    assert text.count("| preset |") + text.count("| defaults |") == len(benchmark_table.load().cells)


def test_tasks_without_data_are_named() -> None:
    whole = benchmark_table.load()
    part = dataclasses.replace(whole, cells=tuple(each for each in CELLS if each.environment != "fishery"))
    tasks = len({each.environment for each in CELLS})
    assert benchmark_table.absent(part) == f"No algorithm has data yet on 1 of {tasks} tasks: `fishery`."
    assert benchmark_table.absent(dataclasses.replace(whole, cells=CELLS)) == "Every task has data."
    assert all(f"`{task}`" in benchmark_table.PAGE.read_text() for task in TASKS if task not in whole.tasks)


def test_numbers_have_four_digits() -> None:
    values = (-35965.8, 487.06, 21.5293, 1.75, -0.0175, -0.0002)
    texts = ["-35,966", "487.1", "21.53", "1.750", "-0.018", "0.000"]
    assert [benchmark_table.number(value) for value in values] == texts
