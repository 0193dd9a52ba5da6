"""Twelve parts of all tests, which together run everything: `--part=3/12` runs the third.

`seconds.txt` has the measured seconds of slow tests. A row for a module counts all of its tests, except those of
functions, and rows of functions, that have a row of their own because they take long. The rows are divided so that the
parts take equally long. A test without such a row belongs to the part that a checksum of its id gives. Therefore no
test moves to another part because tests are added. `make seconds` writes the table from the seconds that each part
leaves in `build/parts/`.
"""

import heapq
import sys
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

TABLE = Path(__file__).with_name("seconds.txt")
LONG, SHORT = 240, 20  # seconds: what takes longer is split into rows, and what is shorter has no row of its own


def function_of(test: str) -> str:
    return test.partition("[")[0]


def module_of(test: str) -> str:
    return test.partition("::")[0]


def itself(test: str) -> str:
    return test


LEVELS: tuple[Callable[[str], str], ...] = (module_of, function_of, itself)


def read(path: Path) -> dict[str, float]:
    """Seconds by name, of lines such as `12.5 tests/laws/test_algorithms.py`."""
    rows = (line.partition(" ") for line in path.read_text().splitlines())
    return {name: float(seconds) for seconds, _, name in rows}


def write(path: Path, seconds: Mapping[str, float]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{seconds[name]:.1f} {name}\n" for name in sorted(seconds)))


def summed(seconds: Mapping[str, float], levels: Sequence[Callable[[str], str]] = LEVELS) -> dict[str, float]:
    """Rows of the table.

    Args:
      seconds: Seconds by test.
      levels: Functions from a test to the name of its group, the largest groups first.

    Returns:
      Seconds by group. Where a group takes long, its row is without the groups within it that have rows.
    """
    groups: dict[str, dict[str, float]] = defaultdict(dict)
    for test, took in seconds.items():
        groups[levels[0](test)][test] = took
    rows: dict[str, float] = {}
    for name, tests in groups.items():
        rows[name] = sum(tests.values())
        if rows[name] > LONG and len(levels) > 1:
            inner = summed(tests, levels[1:])
            own = {each: took for each, took in inner.items() if took >= SHORT}
            rows[name] = sum(took for each, took in inner.items() if each not in own)
            rows |= own
    return rows


def divided(seconds: Mapping[str, float], parts: int) -> dict[str, int]:
    """Part, from 0, of each row: the longest rows first, each in the part that takes least until then."""
    loads, taken = [(0.0, part) for part in range(parts)], {}
    for name in sorted(seconds, key=lambda name: (-seconds[name], name)):
        load, taken[name] = loads[0]
        heapq.heapreplace(loads, (load + seconds[name], taken[name]))
    return taken


def part_of(test: str, taken: Mapping[str, int], parts: int) -> int:
    """Part of a test, from 0."""
    for level in reversed(LEVELS):
        if level(test) in taken:
            return taken[level(test)]
    return zlib.crc32(test.encode()) % parts


def parsed(text: str) -> tuple[int, int]:
    """Part, from 0, and number of parts."""
    part, slash, parts = text.partition("/")
    if not (slash and part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise pytest.UsageError(f"--part takes a part and the number of parts, such as 3/12, got {text!r}")
    return int(part) - 1, int(parts)


class Part:
    """One part of the tests.

    Attributes:
      part: Number of the part, from 0.
      parts: Number of parts.
      seconds: Seconds of its slow tests.
    """

    def __init__(self, part: int, parts: int) -> None:
        self.part, self.parts = part, parts
        self.seconds: dict[str, float] = defaultdict(float)

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leaves out the tests of other parts."""
        taken = divided(read(TABLE), self.parts)
        own = [part_of(item.nodeid, taken, self.parts) == self.part for item in items]
        config.hook.pytest_deselected(items=[item for item, is_own in zip(items, own, strict=True) if not is_own])
        items[:] = [item for item, is_own in zip(items, own, strict=True) if is_own]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if "slow" in report.keywords:
            self.seconds[report.nodeid] += report.duration

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Leaves the seconds for `make seconds`."""
        if not hasattr(session.config, "workerinput") and not session.config.option.collectonly:
            write(session.config.rootpath / f"build/parts/{self.part + 1}-of-{self.parts}.txt", self.seconds)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", help="part of the tests to run, and number of parts, such as 3/12")


def pytest_configure(config: pytest.Config) -> None:
    if (text := config.getoption("--part")) is not None:
        config.pluginmanager.register(Part(*parsed(text)), "part")


def main(files: Sequence[str]) -> None:
    """Writes the table from the seconds of all parts."""
    parts = int(files[0].rpartition("-of-")[2].removesuffix(".txt")) if files else 12
    if len(files) != parts:
        sys.exit(f"the table takes the seconds of all {parts} parts, which make test-all PART=k/{parts} writes")
    write(TABLE, summed({test: took for file in files for test, took in read(Path(file)).items()}))


if __name__ == "__main__":
    main(sys.argv[1:])
