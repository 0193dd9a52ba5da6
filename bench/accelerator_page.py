"""The tables of docs/results/accelerators.md, from bench/accelerators.json."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxrl.results.format import counted
from jaxrl.results.text_tables import markdown_row
from jaxrl.runtime.accelerators.targets import TARGETS
from jaxrl.runtime.machine.memory import size

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


def _cells(name: str, record: Mapping[str, Any]) -> list[str]:
    case, target, runs = name.split("/")
    at = TARGETS[target]
    return [
        case,
        at.label,
        f"{int(runs):,}",
        f"{record['seconds']:.0f} s",
        size(record["state"]),
        size(max(record["temporary"].values())),
        f"{record['kernels']:,.0f}",
        f"{record['bytes'] / 1e9:,.2f} GB",
        f"{record['operations'] / 1e9:,.1f} G",
    ]
