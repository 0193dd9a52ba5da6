"""Marks of rows, on small files."""

import textwrap

import pytest

pytest_plugins = ["pytester"]

ROWS = '@pytest.mark.parametrize("x", ["one", "two", pytest.param("three", marks=pytest.mark.slow)])\n'
TEST = "def test_it(x):\n    pass\n"


def collected(pytester: pytest.Pytester, text: str) -> pytest.RunResult:
    pytester.makepyfile(test_file="import pytest\n" + text)
    return pytester.runpytest_inprocess("-p", "suite.rows", "-m", "not slow", "--collect-only", "-q", "-W", "ignore")


@pytest.mark.parametrize(
    ("mark", "rows"),
    [('fast_rows("tw")', ["two"]), ('slow_rows("two")', ["one"]), ("seconds_to_compile(1)", ["one", "two"])],
)
def test_fast_rows_are_collected(pytester: pytest.Pytester, mark: str, rows: list[str]) -> None:
    result = collected(pytester, f"@pytest.mark.{mark}\n{ROWS}{TEST}")
    assert result.ret == 0
    assert [line for line in result.outlines if "::" in line] == [f"test_file.py::test_it[{row}]" for row in rows]


SLOW = "@pytest.mark.slow\n"
FAST = '@pytest.mark.fast_rows("one")\n'
CLASS = "class TestIt:\n" + textwrap.indent(FAST + ROWS + TEST.replace("(x)", "(self, x)"), "    ")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (SLOW + FAST + ROWS + TEST, "test_file.py::test_it is marked slow as a whole and has fast_rows"),
        (FAST + ROWS + SLOW + TEST, "test_file.py::test_it is marked slow as a whole and has fast_rows"),
        (
            SLOW + '@pytest.mark.slow_rows("one")\n' + ROWS + TEST,
            "test_file.py::test_it is marked slow as a whole and has slow_rows",
        ),
        (
            "pytestmark = pytest.mark.slow\n" + FAST + ROWS + TEST,
            "test_file.py::test_it is marked slow as a whole and has fast_rows",
        ),
        (SLOW + CLASS, "test_file.py::TestIt::test_it is marked slow as a whole and has fast_rows"),
        (
            FAST + '@pytest.mark.slow_rows("two")\n' + ROWS + TEST,
            "test_file.py::test_it has both fast_rows and slow_rows",
        ),
        (
            '@pytest.mark.fast_rows("three")\n' + ROWS + TEST,
            "test_file.py::test_it[three] is marked slow and named by fast_rows",
        ),
    ],
)
def test_contradictory_marks_fail_collection(pytester: pytest.Pytester, text: str, sentence: str) -> None:
    result = collected(pytester, text)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: contradictory marks:"])
    assert [line for line in result.errlines if line and "ERROR" not in line] == [sentence]
