"""Parts of all tests: each test in one of them, about equally long, and stable."""

import re
import subprocess
from pathlib import Path

import pytest
from suite import parts

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]


def test_the_tests_are_spread() -> None:
    own = [parts.part_of(f"tests/test_it.py::test_it[{i}]", 12) for i in range(1200)]
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
        result = run("-v", "-p", "suite.parts", f"--part={part}/4", "-W", "ignore", *workers)
        assert result.ret == 0
        seen += re.findall(
            r"test_\w+\.py::test_\w+\[\d\] PASSED|PASSED test_\w+\.py::test_\w+\[\d\]", "\n".join(result.outlines)
        )
    names = [line.replace("PASSED", "").strip() for line in seen]
    assert len(names) == len(set(names)) == 30


@pytest.mark.parametrize("text", ["3", "0/16", "17/16", "x/16", "3/", "-1/16", "3/16/1"])
def test_a_part_that_does_not_exist_is_an_error(pytester: pytest.Pytester, text: str) -> None:
    result = pytester.runpytest_inprocess("-p", "suite.parts", f"--part={text}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*--part takes a part and the number of parts, such as 3/16, got '{text}'"])


def git(where: Path, *words: str) -> str:
    own = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always"]
    return subprocess.run(["git", *own, *words], cwd=where, check=True, capture_output=True, text=True).stdout


def part_now(where: Path) -> str:
    make = ["make", "--silent", "-f", str(ROOT / "Makefile"), "part"]
    return subprocess.run(make, cwd=where, check=True, capture_output=True, text=True).stdout.strip()


def test_sixteen_commits_run_sixteen_parts(tmp_path: Path) -> None:
    origin, shallow = tmp_path / "origin", tmp_path / "shallow"
    origin.mkdir()
    git(origin, "init", "--quiet")
    printed = []
    for _ in range(17):
        git(origin, "commit", "--quiet", "--allow-empty", "--message=more")
        printed.append(part_now(origin))
    assert printed == [*(f"{part}/16" for part in range(2, 17)), "1/16", "2/16"]
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{origin}", str(shallow))
    assert part_now(shallow) == f"{int(git(shallow, 'rev-parse', '--short=8', 'HEAD'), 16) % 16 + 1}/16"
    assert part_now(tmp_path) == "1/16"
