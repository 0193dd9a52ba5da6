"""The page of the documentation that lists the planted faults."""

from faults import AREAS
from planting import ROOT

PAGE = ROOT / "docs" / "planted-faults.md"

INTRODUCTION = """\
# Planted faults

`make mutants` plants each of these {count} faults in a copy of the library, one at a time, and demands that the fast
test named beside it fails. Most are faults that published libraries have had: a bootstrap after a termination, targets
that are off by one step, an interval of half its width. `make mutants NAMES="discounts"` plants those of one area. The
changes themselves are in `tests/mutants/faults/`; this page is written from them by the command.
"""


def page() -> str:
    """The text of the page."""
    parts = [INTRODUCTION.format(count=sum(map(len, AREAS.values())))]
    for area, faults in AREAS.items():
        head = [f"## {area.capitalize()}", "", "Fault|File|Test in `tests`", "---|---|---"]
        rows = [f"{fault.name}|`{fault.file}`|`{fault.test.removeprefix('tests/')}`" for fault in faults]
        parts.append("\n".join([*head, *rows, ""]))
    return "\n".join(parts)
