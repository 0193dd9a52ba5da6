"""Plant every fault of the list and demand that its test fails.

    python tests/mutants                                all of them
    python tests/mutants --names discounts a-fault      those of an area, and one by its name
    python tests/mutants --workers 2                    in two copies of the tree at once
    python tests/mutants --page                         only writes the list to docs/planted-faults.md

Each fault is applied to a copy of the tree, and the test that the list names for it runs there. The command fails,
with a sentence for each, where a test passes in spite of the fault, a text does not occur exactly once, or a test fails
without any fault.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from faults import AREAS
from page import PAGE, page
from planting import CAUGHT, LOGS, Fault, Outcome, plant_all


def chosen(names: Sequence[str]) -> list[Fault]:
    """The faults of these names or areas, all where there are no names.

    Raises:
      SystemExit: There is no such fault or area.
    """
    faults = {fault.name: fault for area in AREAS.values() for fault in area}
    if not names:
        return list(faults.values())
    unknown = [name for name in names if name not in faults and name not in AREAS]
    if unknown:
        raise SystemExit(f"names takes names of faults or of the areas {', '.join(AREAS)}, got {', '.join(unknown)}.")
    return [fault for area, group in AREAS.items() for fault in group if area in names or fault.name in names]


def table(faults: Sequence[Fault], outcomes: dict[str, Outcome]) -> str:
    """The numbers of planted and of caught faults, and the seconds of their tests, by area."""
    rows = []
    for area, group in AREAS.items():
        ran = [outcomes[fault.name] for fault in group if fault in faults and fault.name in outcomes]
        if ran:
            caught = sum(outcome.verdict == CAUGHT for outcome in ran)
            rows.append((area, len(ran), caught, sum(outcome.seconds for outcome in ran)))
    rows.append(("all", *(sum(row[i] for row in rows) for i in (1, 2, 3))))
    lines = [f"{area:14}{planted:9d}{caught:9d}{seconds:9.0f}" for area, planted, caught, seconds in rows]
    return "\n".join([f"{'area':14}{'planted':>9}{'caught':>9}{'seconds':>9}", *lines])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the status is 0 where all faults are caught."""
    parser = argparse.ArgumentParser(prog="python tests/mutants", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--names", nargs="*", default=[], help="names of faults or areas (default: all)")
    parser.add_argument("--workers", default="auto", help="number of copies of the tree in use at once")
    parser.add_argument("--page", action="store_true", help="only write the page of the documentation")
    options = parser.parse_args(arguments)
    if options.page:
        PAGE.write_text(page())
        return 0
    faults = chosen(options.names)
    workers = min(os.cpu_count() or 1, 8) if options.workers == "auto" else max(1, int(options.workers))
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        outcomes, wrong = plant_all(faults, Path(folder), workers, lambda line: print(line, flush=True))
    print("", table(faults, outcomes), "", sep="\n")
    print(f"{time.monotonic() - start:.0f} s with {workers} at once; the output of each test is in {LOGS}.")
    if wrong:
        print("", *wrong, sep="\n", file=sys.stderr)
    elif not options.names:
        PAGE.write_text(page())
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
