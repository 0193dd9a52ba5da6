"""Which rows of a parametrised test are slow.

`fast_rows` names the fast rows by a part of their id, and all others are slow; `slow_rows` names the slow rows by their
whole id, and all others are fast. Collection fails where other marks contradict these: no row of a test that is marked
`slow` as a whole is fast, so that the rows named as fast would never run in the fast suite.
"""

from collections.abc import Iterator

import pytest


def row_of(item: pytest.Item) -> str:
    """The id of the row of a parametrised test; empty for other tests."""
    return item.callspec.id if isinstance(item, pytest.Function) and hasattr(item, "callspec") else ""


def contradictions(item: pytest.Item) -> Iterator[str]:
    """Sentences about marks of a test of which at most one can hold."""
    fast, slow = item.get_closest_marker("fast_rows"), item.get_closest_marker("slow_rows")
    if not (fast or slow):
        return
    name = item.nodeid.partition("[")[0]
    if fast and slow:
        yield f"{name} has both fast_rows and slow_rows"
    if any(mark.name == "slow" for mark in getattr(getattr(item, "function", None), "pytestmark", [])) or (
        item.parent is not None and item.parent.get_closest_marker("slow")
    ):
        yield f"{name} is marked slow as a whole and has {'fast_rows' if fast else 'slow_rows'}"
    elif fast and any(named in row_of(item) for named in fast.args) and item.get_closest_marker("slow"):
        yield f"{item.nodeid} is marked slow and named by fast_rows"


@pytest.hookimpl(tryfirst=True)  # before those marked slow are left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the slow rows, or fail where marks contradict each other."""
    if wrong := dict.fromkeys(sentence for item in items for sentence in contradictions(item)):
        raise pytest.UsageError("contradictory marks:\n" + "\n".join(wrong))
    for item in items:
        fast, slow = item.get_closest_marker("fast_rows"), item.get_closest_marker("slow_rows")
        if (fast and not any(name in row_of(item) for name in fast.args)) or (slow and row_of(item) in slow.args):
            item.add_marker("slow")
