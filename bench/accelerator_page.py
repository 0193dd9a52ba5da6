"""The tables of docs/results/accelerators.md, from bench/accelerators.json."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bench.accelerator_cases import RUNS, cells
from jaxrl.results.format import counted
from jaxrl.results.text_tables import markdown_row
from jaxrl.runtime.accelerators.targets import TARGETS
from jaxrl.runtime.machine.memory import MIB

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


class Aim(NamedTuple):
    """Aim for a program.

    Attributes:
      name: Name of its cell in the table.
      of: Figure that it is about, as text.
      most: Largest value that reaches the aim.
      value: Function of the cell's record that computes the figure.
      shown: Function that writes a value as text.
    """

    name: str
    of: str
    most: float
    value: Callable[[Mapping[str, Any]], float]
    shown: Callable[[float], str]

    def reached(self, table: Mapping[str, Mapping[str, Any]]) -> float:
        """Value in a table."""
        return self.value(table[self.name])


def _temporary(record: Mapping[str, Any]) -> float:
    return max(record["temporary"].values())


# Half of what a run of PPO moved among 1,024, when the aims were set: 39.6 GB an iteration of the block.
HALF_OF_TRAFFIC = 39.6e9 / 1024 / 2
AIMS = (
    Aim("crowd/h100/256", "kernels", 25_000, lambda row: row["kernels"], "{:,.0f}".format),
    Aim("ppo/h100/256", "kernels", 1_500, lambda row: row["kernels"], "{:,.0f}".format),
    Aim(
        "ppo/h100/256",
        "traffic of a run",
        HALF_OF_TRAFFIC,
        lambda row: row["bytes"] / RUNS,
        lambda value: three_digits(value, *TRAFFIC),
    ),
    Aim("minatar/h100/256", "temporary", 8 * MIB, _temporary, lambda value: three_digits(value, *MEMORY)),
    Aim("reinforce/h100/256", "temporary", 4, lambda row: _temporary(row) / row["state"], "{:.2f} x the state".format),
)

__all__ = ["AIMS", "Aim", "tables", "three_digits", "write_page"]


def write_page(table: Mapping[str, Mapping[str, Any]]) -> None:
    """Replace the tables of the page."""
    text = PAGE.read_text()
    before, after = text[: text.index(BEGIN)], text[text.index(END) :]
    PAGE.write_text(f"{before}{BEGIN}\n{tables(table)}\n{after}")


def tables(table: Mapping[str, Mapping[str, Any]]) -> str:
    """Rows of all cells in Markdown, their versions, and the aims beside what was reached."""
    rows = [markdown_row(COLUMNS), "|---" * len(COLUMNS) + "|"]
    rows += [markdown_row(_cells(name, record)) for name, record in table.items()]
    return "\n".join([origin(table), *missing(table), "", *rows, "", *aims(table)])


def missing(table: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Sentence that names the cells without a row; none if there are no such cells."""
    absent = [f"`{cell}`" for cell in cells() if str(cell) not in table]
    return [f"Not compiled yet: {', '.join(absent)}."] if absent else []


def aims(table: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Lines of the aims of one iteration beside what was reached."""
    lines = [
        "Aims for one iteration beside what the rows above reach; those of PPO were set for 1,024 runs, that of its "
        "traffic as half of the 39.6 GB that these moved before:",
        "",
    ]
    lines += [markdown_row(("Program", "Figure", "At most", "Compiled", "Reached")), "|---" * 5 + "|"]
    for aim in AIMS:
        case, target, runs = aim.name.split("/")
        program = f"{case}, {TARGETS[target].label}, {runs} runs"
        value = aim.reached(table)
        verdict = "yes" if value <= aim.most else "no"
        lines.append(markdown_row((program, aim.of, aim.shown(aim.most), aim.shown(value), verdict)))
    return lines


def origin(table: Mapping[str, Mapping[str, Any]]) -> str:
    """Sentences on the versions and days of the rows."""
    versions, days, sources = (sorted({row[key] for row in table.values()}) for key in ("jax", "date", "source"))
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return (
        f"jax {', '.join(versions)}, {counted(len(table), 'compilation')} of {when}, from "
        f"{counted(len(sources), 'version')} of the library's files ({', '.join(sources)}). "
        "Programs of the present code may differ: later changes of the library are not in these figures."
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
