"""Parts of all tests, which together run everything: `--part=3/16` runs the third of sixteen.

A checksum of its id chooses the part of a test, so that no test moves to another part because tests are added, and so
that the parts take about equally long.
"""

import zlib

import pytest


def part_of(test: str, parts: int) -> int:
    """Part of a test, from 0."""
    return zlib.crc32(test.encode()) % parts


def parsed(text: str) -> tuple[int, int]:
    """Part, from 0, and number of parts."""
    part, slash, parts = text.partition("/")
    if not (slash and part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise pytest.UsageError(f"--part takes a part and the number of parts, such as 3/16, got {text!r}")
    return int(part) - 1, int(parts)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", help="part of the tests to run, and number of parts, such as 3/16")


def pytest_configure(config: pytest.Config) -> None:
    if (text := config.getoption("--part")) is not None:
        parsed(text)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the tests of other parts."""
    if (text := config.getoption("--part")) is None:
        return
    part, parts = parsed(text)
    others = [item for item in items if part_of(item.nodeid, parts) != part]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if part_of(item.nodeid, parts) == part]
