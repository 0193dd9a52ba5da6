"""Parts of all tests: each test in one of them, equally long, and stable."""

import subprocess
from pathlib import Path

import pytest
from suite import parts

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
SECONDS = {
    "a.py::test_long[1]": 250.0,
    "a.py::test_long[2]": 30.0,
    "a.py::test_long[3]": 3.0,
    "a.py::test_middle[1]": 25.0,
    "a.py::test_middle[2]": 24.0,
    "a.py::test_short": 19.0,
    "a.py::test_longest": 300.0,
    "b.py::test_it": 100.0,
    "b.py::test_other": 90.0,
}


def test_what_takes_long_has_rows_of_its_own() -> None:
    assert parts.summed(SECONDS) == {
        "a.py": 19 + 3,
        "a.py::test_long[1]": 250,
        "a.py::test_long[2]": 30,
        "a.py::test_middle": 49,
        "a.py::test_longest": 300,
        "b.py": 190,
    }


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    parts.write(tmp_path / "new" / "seconds.txt", SECONDS)
    assert parts.read(tmp_path / "new" / "seconds.txt") == SECONDS


def test_rows_are_divided_equally() -> None:
    rows = {str(i): float(1 + i % 60) for i in range(600)}
    taken = parts.divided(rows, 12)
    loads = [sum(rows[name] for name in rows if taken[name] == part) for part in range(12)]
    # The part that is longest was shortest before it got its last row, of at least one second.
    assert max(loads) - min(loads) <= 1


def test_a_test_belongs_to_its_most_particular_row() -> None:
    taken = {"a.py": 0, "a.py::test_long": 1, "a.py::test_long[1]": 2}
    names = ["a.py::test_long[1]", "a.py::test_long[2]", "a.py::test_new", "a.py::TestIt::test_new[1]"]
    assert [parts.part_of(name, taken, 12) for name in names] == [2, 1, 0, 0]


def test_new_tests_are_spread() -> None:
    own = [parts.part_of(f"new.py::test_it[{i}]", {}, 12) for i in range(1200)]
    # 100 in each on average; six standard deviations of a binomial, sqrt(1200 / 12 * 11 / 12) = 9.6, are 58.
    assert all(42 < own.count(part) < 158 for part in range(12))


def test_every_test_runs_in_one_part(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests"))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they take seconds to import
    text = "import pytest\n\n@pytest.mark.slow\n@pytest.mark.parametrize('x', range(3))\ndef test_{}(x):\n    pass\n"
    pytester.makepyfile("\n\n".join(text.format(i) for i in range(10)))
    seen: list[str] = []
    for part in range(1, 5):
        run = pytester.runpytest_subprocess if part == 1 else pytester.runpytest_inprocess
        workers = ["-p", "xdist", "-n", "1"] if part == 1 else []
        result = run("-p", "suite.parts", f"--part={part}/4", "-W", "ignore", *workers)
        assert result.ret == 0
        left = parts.read(pytester.path / f"build/parts/{part}-of-4.txt")
        assert len(left) == result.parseoutcomes()["passed"]
        seen += left
    assert len(seen) == len(set(seen)) == 30


@pytest.mark.parametrize("text", ["3", "0/12", "13/12", "x/12", "3/", "-1/12", "3/12/1"])
def test_a_part_that_does_not_exist_is_an_error(pytester: pytest.Pytester, text: str) -> None:
    result = pytester.runpytest_inprocess("-p", "suite.parts", f"--part={text}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*--part takes a part and the number of parts, such as 3/12, got '{text}'"])


def test_the_table_takes_the_seconds_of_all_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "TABLE", tmp_path / "seconds.txt")
    files = [str(tmp_path / f"{part}-of-2.txt") for part in (1, 2)]
    with pytest.raises(SystemExit, match="the table takes the seconds of all 2 parts"):
        parts.main(files[:1])
    with pytest.raises(SystemExit, match="the table takes the seconds of all 12 parts"):
        parts.main([])
    for file, names in zip(files, (list(SECONDS)[:4], list(SECONDS)[4:]), strict=True):
        parts.write(Path(file), {name: SECONDS[name] for name in names})
    parts.main(files)
    assert parts.read(parts.TABLE) == parts.summed(SECONDS)


def git(where: Path, *words: str) -> str:
    own = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always"]
    return subprocess.run(["git", *own, *words], cwd=where, check=True, capture_output=True, text=True).stdout


def part_now(where: Path) -> str:
    make = ["make", "--silent", "-f", str(ROOT / "Makefile"), "part"]
    return subprocess.run(make, cwd=where, check=True, capture_output=True, text=True).stdout.strip()


def test_twelve_commits_run_twelve_parts(tmp_path: Path) -> None:
    origin, shallow = tmp_path / "origin", tmp_path / "shallow"
    origin.mkdir()
    git(origin, "init", "--quiet")
    printed = []
    for _ in range(13):
        git(origin, "commit", "--quiet", "--allow-empty", "--message=more")
        printed.append(part_now(origin))
    assert printed == [*(f"{part}/12" for part in range(2, 13)), "1/12", "2/12"]
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{origin}", str(shallow))
    assert part_now(shallow) == f"{int(git(shallow, 'rev-parse', '--short=8', 'HEAD'), 16) % 12 + 1}/12"
    assert part_now(tmp_path) == "1/12"
