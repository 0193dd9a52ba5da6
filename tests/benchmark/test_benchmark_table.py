"""The table of the documentation is that of the data in the clone."""

import benchmark_table


def test_the_page_has_a_row_for_each_cell_with_data() -> None:
    text = benchmark_table.PAGE.read_text()
    assert text == benchmark_table.generated(text), "python tests/benchmark_table.py writes it"
    assert text.count("| preset |") + text.count("| defaults |") == len(benchmark_table.load().cells)


def test_numbers_have_four_digits() -> None:
    values = (-35965.8, 487.06, 21.5293, 1.75, -0.0175, -0.0002)
    texts = ["-35,966", "487.1", "21.53", "1.750", "-0.018", "0.000"]
    assert [benchmark_table.number(value) for value in values] == texts
