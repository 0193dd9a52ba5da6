"""What a benchmark gives: tables with every number, the targets it missed, and a sentence for the table of results.

A script makes a parser with `benchmark_parser`, a `Report` from what was parsed, adds rows to tables, which are
printed as they come, and ends with `Report.finish`. All is written to the file that `--json` names after every row,
so that what was measured before an error is kept.
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
from jaxrl.results.printing import markdown_row

Cell = str | float | Sequence[float] | None
NOT_TOLD = ("json", "worker", "rejax", "sb3", "peers")  # options that say where things are, and not what is measured


def benchmark_parser(description: str | None) -> argparse.ArgumentParser:
    """A parser with the module's docstring for its help, and the options of every benchmark."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write every figure")
    return parser


def spread(values: Sequence[float], style: str) -> str:
    """Median, least and most; of a single one nothing but that."""
    if len(values) == 1:
        return f"{values[0]:{style}}"
    return f"{statistics.median(values):{style}} ({min(values):{style}} to {max(values):{style}})"


def shown(cell: Cell, style: str) -> str:
    """A cell as it is read: text as it is, a number in its style, several as median (least to most)."""
    if cell is None:
        return ""
    if isinstance(cell, str):
        return cell
    return spread(cell, style) if isinstance(cell, Sequence) else f"{cell:{style}}"


def ratios(over: Sequence[float], under: Sequence[float]) -> list[float]:
    """The least ratio within a turn, the ratio of the medians and the most within a turn; of one turn its ratio alone.

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
      title: a line above it.
      columns: the format of each column's numbers by its name; a list of numbers is shown by median, least and most.
      on_row: called after each row.
    """

    def __init__(self, title: str, columns: Mapping[str, str], on_row: Callable[[], None]):
        self.title, self.columns, self._on_row = title, dict(columns), on_row
        self.rows: list[list[Cell]] = []
        print(f"\n{title}\n\n{header_lines(columns)}", flush=True)

    def add(self, *cells: Cell) -> None:
        """One row, a cell for each column."""
        self.rows.append(list(cells))
        print(row_line(self.columns, cells), flush=True)
        self._on_row()

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"title": self.title, "columns": self.columns, "rows": self.rows}


class Report:
    """Everything that one benchmark found.

    Args:
      parser, arguments: of the command line; what was not left at its default stands in the command.
      what: what is measured, for the table of results.
    """

    def __init__(self, parser: argparse.ArgumentParser, arguments: argparse.Namespace, what: str):
        self.what, self.file = what, arguments.json
        self.command = command(Path(sys.argv[0]).stem, parser, arguments)
        self.header = header()
        self.tables: list[Table] = []
        self.notes: list[str] = []
        self.missed: list[str] = []
        for name, value in self.header.items():
            print(f"{name}: {value}")

    def table(self, title: str, columns: Mapping[str, str]) -> Table:
        """A new table, see `Table`."""
        self.tables.append(Table(title, columns, lambda: self._write("unfinished")))
        return self.tables[-1]

    def note(self, sentence: str) -> None:
        """A sentence below the tables."""
        self.notes.append(sentence)
        print(f"\n{sentence}", flush=True)

    def require(self, met: bool, sentence: str) -> None:
        """A target; the sentence says how it was missed."""
        if not met:
            self.missed.append(sentence)

    def as_dict(self, result: str) -> dict[str, Any]:
        """For JSON."""
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
        """Writes the file, if any; the exit status is 1 where a target was missed.

        Args:
          result: one short sentence in markdown for the table of results.
        """
        print(f"\n{self.what}: {result}")
        self._write(result)
        if self.missed:
            sys.exit("\n".join(self.missed))

    def _write(self, result: str) -> None:
        if self.file is not None:
            self.file.write_text(json.dumps(self.as_dict(result), indent=1, default=float) + "\n")


def command(name: str, parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> str:
    """What to type for the same measurement."""
    words = ["python", f"bench/{name}.py"]
    for option, value in vars(arguments).items():
        if option in NOT_TOLD or value == parser.get_default(option):
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
