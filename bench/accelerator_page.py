"""The tables of docs/results/accelerators.md, from bench/accelerators.json."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxrl.results.format import counted
from jaxrl.results.text_tables import markdown_row
from jaxrl.runtime.accelerators.targets import TARGETS

PAGE = Path(__file__).resolve().parents[1] / "docs/results/accelerators.md"
BEGIN, END = "<!-- accelerators:begin -->", "<!-- accelerators:end -->"
COLUMNS = (
    "Program",
    "Target",
    "Runs",
    "Compiled in",
    "State of a run",
    "Temporary",
    "Kernels",
    "Traffic",
    "Operations",
)
# Base and units of sizes in memory, of bytes that are moved, and of operations.
MEMORY = 1024, ("B", "KiB", "MiB", "GiB")
TRAFFIC = 1000, ("B", "kB", "MB", "GB", "TB")
OPERATIONS = 1000, ("", "k", "M", "G", "T")

__all__ = ["tables", "write_page"]


def write_page(table: Mapping[str, Mapping[str, Any]]) -> None:
    """Replace the tables of the page."""
    text = PAGE.read_text()
    before, after = text[: text.index(BEGIN)], text[text.index(END) :]
    PAGE.write_text(f"{before}{BEGIN}\n{tables(table)}\n{after}")


def tables(table: Mapping[str, Mapping[str, Any]]) -> str:
    """Rows of all cells in Markdown, and the versions that they were compiled from."""
    rows = [markdown_row(COLUMNS), "|---" * len(COLUMNS) + "|"]
    rows += [markdown_row(_cells(name, record)) for name, record in table.items()]
    return "\n".join([origin(table), "", *rows])


def origin(table: Mapping[str, Mapping[str, Any]]) -> str:
    """Sentences on the versions and days of the rows."""
    versions, days, sources = (sorted({row[key] for row in table.values()}) for key in ("jax", "date", "source"))
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return (
        f"jax {', '.join(versions)}, {counted(len(table), 'compilation')} of {when}, from "
        f"{counted(len(sources), 'version')} of the library's files ({', '.join(sources)}). "
        "Programs of the present code may differ: these figures predate every later change of the library."
    )


def three_digits(number: float, base: int, units: tuple[str, ...]) -> str:
    """A number to three significant digits, in the first unit in which it is below 1,000; the first is a whole number.

    Args:
      number: Number, at least 0.
      base: Factor between a unit and the one before it.
      units: Units, the smallest first.
    """
    power = 0
    while number >= 999.5 and power < len(units) - 1:
        number, power = number / base, power + 1
    return f"{number:.0f} {units[power]}" if power == 0 else f"{f'{number:#.3g}'.rstrip('.')} {units[power]}"


def _cells(name: str, record: Mapping[str, Any]) -> list[str]:
    case, target, runs = name.split("/")
    at = TARGETS[target]
    return [
        case,
        at.label,
        f"{int(runs):,}",
        f"{record['seconds']:.0f} s",
        three_digits(record["state"], *MEMORY),
        three_digits(max(record["temporary"].values()), *MEMORY),
        f"{record['kernels']:,.0f}",
        three_digits(record["bytes"], *TRAFFIC),
        three_digits(record["operations"], *OPERATIONS).rstrip(),
    ]
