"""Report of a benchmark: tables with every number, the missed targets, and a sentence for the table of results.

A script creates a parser with `benchmark_parser` and a `Report` from the parsed arguments, adds rows to tables, which
are printed at once, and ends with `Report.finish`. The whole report is written to the file of `--json` after every row,
so that an error loses no measurement.
"""

import argparse
import json
import shlex
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.machine import header
from jaxrl.results.text_tables import markdown_row

Cell = str | float | Sequence[float] | None
# Options with locations, which do not affect the measurement.
UNLISTED = ("json", "worker", "rejax", "rejax012", "sbx", "sb3", "gem", "peers")


def benchmark_parser(description: str | None) -> argparse.ArgumentParser:
    """A parser with the module's docstring as its help, and the options that all benchmarks share."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="file for every figure")
    return parser


def spread(values: Sequence[float], style: str) -> str:
    """Median, least and most as text; a single value alone."""
    if len(values) == 1:
        return f"{values[0]:{style}}"
    return f"{statistics.median(values):{style}} ({min(values):{style}} to {max(values):{style}})"


def shown(cell: Cell, style: str) -> str:
    """A cell as text: a string unchanged, a number in its style, several numbers as median (least to most)."""
    if cell is None:
        return ""
    if isinstance(cell, str):
        return cell
    return spread(cell, style) if isinstance(cell, Sequence) else f"{cell:{style}}"


def ratios(over: Sequence[float], under: Sequence[float]) -> list[float]:
    """The least ratio within a turn, the ratio of the medians, and the largest within a turn; one turn has one ratio.

    A ratio of medians lies between the other two, so that it is the median of the three, which `spread` shows first.
    """
    within = [one / other for one, other in zip(over, under, strict=True)]
    if len(within) == 1:
        return within
    return [min(within), statistics.median(over) / statistics.median(under), max(within)]


def header_lines(columns: Mapping[str, str]) -> str:
    """The first two lines of a markdown table."""
    return f"{markdown_row(columns)}\n{'|---' * len(columns)}|"


def row_line(columns: Mapping[str, str], row: Sequence[Cell]) -> str:
    """A row of a markdown table."""
    return markdown_row(shown(cell, style) for cell, style in zip(row, columns.values(), strict=True))


class Table:
    """A table that is printed row by row.

    Args:
      title: Line above the table.
      columns: Format of the numbers of each column by its name; a list of numbers is shown as median (least to most).
      on_row: Function called after each row.
    """

    def __init__(self, title: str, columns: Mapping[str, str], on_row: Callable[[], None]) -> None:
        self.title, self.columns, self._on_row = title, dict(columns), on_row
        self.rows: list[list[Cell]] = []
        print(f"\n{title}\n\n{header_lines(columns)}", flush=True)

    def add(self, *cells: Cell) -> None:
        """One row, a cell for each column."""
        self.rows.append(list(cells))
        print(row_line(self.columns, cells), flush=True)
        self._on_row()

    def as_dict(self) -> dict[str, Any]:
        """The table as plain values for JSON."""
        return {"title": self.title, "columns": self.columns, "rows": self.rows}


class Report:
    """The results of one benchmark.

    Args:
      parser: Parser of the command line.
      arguments: Parsed arguments; those that differ from their defaults are listed in the command.
      what: Measured quantity, for the table of results.
    """

    def __init__(self, parser: argparse.ArgumentParser, arguments: argparse.Namespace, what: str) -> None:
        self.what, self.file = what, arguments.json
        self.command = command(Path(sys.argv[0]).stem, parser, arguments)
        self.header = header()
        self.tables: list[Table] = []
        self.notes: list[str] = []
        self.missed: list[str] = []
        for name, value in self.header.items():
            print(f"{name}: {value}")

    def table(self, title: str, columns: Mapping[str, str]) -> Table:
        """Add and return a new table; see `Table`."""
        self.tables.append(Table(title, columns, lambda: self._write("unfinished")))
        return self.tables[-1]

    def note(self, sentence: str) -> None:
        """Add a sentence below the tables."""
        self.notes.append(sentence)
        print(f"\n{sentence}", flush=True)

    def require(self, met: bool, sentence: str) -> None:
        """Add a target; `sentence` states how it was missed."""
        if not met:
            self.missed.append(sentence)

    def as_dict(self, result: str) -> dict[str, Any]:
        """The report as plain values for JSON."""
        return {
            "header": self.header,
            "command": self.command,
            "what": self.what,
            "result": result,
            "missed": self.missed,
            "notes": self.notes,
            "tables": [table.as_dict() for table in self.tables],
        }

    def finish(self, result: str) -> None:
        """Write the file, if any, and exit with status 1 if a target was missed.

        Args:
          result: Short sentence in Markdown for the table of results.
        """
        print(f"\n{self.what}: {result}")
        self._write(result)
        if self.missed:
            sys.exit("\n".join(self.missed))

    def _write(self, result: str) -> None:
        if self.file is not None:
            self.file.write_text(json.dumps(self.as_dict(result), indent=1, default=float) + "\n")


def command(name: str, parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> str:
    """The command line that repeats the measurement."""
    words = ["python", f"bench/{name}.py"]
    for option, value in vars(arguments).items():
        if option in UNLISTED or value == parser.get_default(option):
            continue
        words.append(f"--{option.replace('_', '-')}")
        if value is not True:
            words += [str(each) for each in value] if isinstance(value, list | tuple) else [str(value)]
    return shlex.join(words)


def markdown(name: str, document: Mapping[str, Any]) -> str:
    """A stored report as a page."""
    parts = [f"# {name}", f"`{document['command']}`: {document['what']}.", document["result"]]
    parts += ["\n".join(f"* {key}: {value}" for key, value in document["header"].items())]
    for table in document["tables"]:
        rows = [row_line(table["columns"], row) for row in table["rows"]]
        parts += [table["title"], "\n".join([header_lines(table["columns"]), *rows])]
    parts += document["notes"]
    missed = "\n".join(f"* {sentence}" for sentence in document["missed"])
    return "\n\n".join([*parts, *([f"Missed:\n\n{missed}"] if missed else [])]) + "\n"
