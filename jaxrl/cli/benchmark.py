"""`jaxrl benchmark`: cells of the benchmark, trained, shown as a table or a page, and verified."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from envs.errors import UserError
from envs.spelling import near
from jaxrl.benchmark.cells import CELLS, Cell, cell
from jaxrl.benchmark.data import data_directory, load, require_writers
from jaxrl.benchmark.measured import TASKS, measured, store_measured
from jaxrl.benchmark.published import PUBLISHED, beside_published
from jaxrl.benchmark.references import measure
from jaxrl.benchmark.running import RUNS, run, verify
from jaxrl.checks import check_count
from jaxrl.cli.dataclass_options import WholeNumber
from jaxrl.cli.parsing import CommandError, parse
from jaxrl.report.benchmark_page import write_page
from jaxrl.runtime.call import shard_of

__all__ = ["COMMANDS", "run_benchmark"]

_USAGE = """usage: jaxrl benchmark run ALGORITHM ENVIRONMENT | run --missing | table | page | references | verify

  run     Train a cell (an algorithm on a task), or all cells without data; store the curves and a policy of each.
  table   Show the interquartile mean of each cell that has data.
  page    Write all curves as one page for a browser.
  references
          Measure the returns of random actions, the 0 of normalised values, and optima, their 1.
  verify  Train cells again with other seeds, and compare them with their data.

`jaxrl benchmark COMMAND --help` lists the options of a command."""


class _Failures:
    """Cells or tasks that cannot be computed, each printed with its error at once, and named again at the end."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def add(self, name: str, error: Exception) -> None:
        """Print the error of a cell or a task on standard error."""
        self.names.append(name)
        print(f"jaxrl benchmark: {name} is left out: {error}", file=sys.stderr)

    def status(self) -> int:
        """Print the names, if there are any, and return the exit status: 0 without any, otherwise 1."""
        if self.names:
            print(f"{len(self.names)} could not be computed: {', '.join(self.names)}", file=sys.stderr)
        return 1 if self.names else 0


@dataclass(frozen=True)
class RunCells:
    """Train cells of the benchmark; a command that was stopped is resumed by the same command."""

    names: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[ALGORITHM ENVIRONMENT]")] = ()
    """Algorithm and environment of one cell; all cells of a task or an algorithm if one word is named."""
    missing: tyro.conf.FlagCreatePairsOff[bool] = False
    """Flag to train only cells without data."""
    shard: str | None = None
    """Share of the cells, such as 0/4 for the first of four, so that several machines train different cells."""
    data: Path | None = None
    """Directory of the data; that of the clone if None."""
    runs: Path = RUNS
    """Directory of the runs, with the checkpoints from which a stopped command is resumed."""

    def run_command(self) -> int:
        """Train the cells, one after another, and go on after one that cannot be trained.

        Returns:
          Exit status: 0, 1 if a cell cannot be trained, or 130 after a signal.
        """
        if not self.names and not self.missing:
            raise CommandError("run takes an algorithm and an environment, or --missing for all cells without data")
        have = load(data_directory(self.data, writing=True))
        index, count = (0, 1) if self.shard is None else shard_of(self.shard)
        share = cells_named(self.names, "run")[index::count]
        chosen = [each for each in share if not (self.missing and each in have.cells)]
        if chosen:
            require_writers()
        failures = _Failures()
        for i, each in enumerate(chosen):
            print(f"{each.name}, cell {i + 1} of {len(chosen)}: {each.seeds} seeds, {each.env_steps:,} env steps")
            sys.stdout.flush()
            try:
                stopped = run(each, have.directory, runs=self.runs) is None
            except UserError as error:
                failures.add(each.name, error)
                continue
            if stopped:
                print("Stopped; to resume: the same command")
                return 130
        trained = len(chosen) - len(failures.names)
        print(f"{trained} of {len(CELLS)} cells trained; data in {have.directory} (next: jaxrl benchmark table)")
        return failures.status()


@dataclass(frozen=True)
class ShowTable:
    """Show the interquartile mean of the last returns of each cell that has data."""

    task: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[TASK]")] = None
    """Task of the rows; all tasks if None."""
    data: Path | None = None
    """Directory of the data; that of the clone, of the current directory, or of a download, if None."""
    published: tyro.conf.FlagCreatePairsOff[bool] = False
    """Flag to show the returns that other projects publish, beside ours after as many environment steps, or after all
    steps of a shorter cell."""
    confidence: float = 0.95
    """Confidence level of the intervals."""

    def run_command(self) -> None:
        """Print the table, and the number of cells with data."""
        have = load(self.data)
        if self.published:
            beside = beside_published(have, self.task, confidence=self.confidence)
            rows = [row for row in PUBLISHED if self.task in (None, row.task)]
            print(beside)
            print(f"\n{len(beside.rows)} of {len(rows)} published returns; the cells of the others have no data yet.")
            return
        print(have.table(self.task, confidence=self.confidence))
        print(f"\n{len(have.cells)} of {len(CELLS)} cells have data.")


@dataclass(frozen=True)
class MeasureReferences:
    """Measure the returns of random actions, and optima, on the tasks without them, and store them among the data."""

    tasks: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[TASK ...]")] = ()
    """Tasks to measure; those without a measurement if none are named."""
    data: Path | None = None
    """Directory of the data; that of the clone if None."""

    def run_command(self) -> int:
        """Measure one task after another, and go on after one that cannot be measured.

        Returns:
          Exit status: 0, or 1 if a task cannot be measured.
        """
        for task in self.tasks:
            if task not in TASKS:
                hint = near(task, TASKS) or f"; it takes {', '.join(TASKS)}"
                raise CommandError(f"references takes tasks of the benchmark, got {task}{hint}")
        directory = data_directory(self.data, writing=True)
        have, failures = measured(directory), _Failures()
        for task in self.tasks or [task for task in TASKS if task not in have]:
            try:
                each = measure(task)
            except UserError as error:
                failures.add(task, error)
                continue
            store_measured(each, directory)
            best = "" if each.optimum is None else f"; the optimum is {each.optimum:.6g}"
            print(
                f"{task}: random {each.random:.6g}, standard error {each.error:.2g}, {each.episodes:,} episodes{best}"
            )
            sys.stdout.flush()
        return failures.status()


@dataclass(frozen=True)
class WritePage:
    """Write the curves, final values and comparisons of all tasks as one page for a browser."""

    out: Path = Path("benchmark.html")
    """File to write, .html; an existing file is replaced."""
    data: Path | None = None
    """Directory of the data; that of the clone, of the current directory, or of a download, if None."""
    confidence: float = 0.95
    """Confidence level of the intervals."""

    def run_command(self) -> None:
        """Write the page."""
        print(f"Wrote {write_page(load(self.data), self.out, confidence=self.confidence)}")


@dataclass(frozen=True)
class VerifyCells:
    """Train cells that have data again, with other seeds, and compare their last returns with the stored ones."""

    names: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[ALGORITHM ENVIRONMENT]")] = ()
    """Algorithm and environment of one cell; cells picked at random if none is named."""
    cells: WholeNumber = 5
    """Number of cells that are picked at random."""
    seed: WholeNumber = 0
    """Seed of the random choice of cells."""
    data: Path | None = None
    """Directory of the data; that of the clone, of the current directory, or of a download, if None."""

    def run_command(self) -> int:
        """Train one cell after another, and print a table.

        Returns:
          Exit status: 0, 1 if a cell differs or cannot be trained, or 130 after a signal.
        """
        have = load(self.data).cells
        named = cells_named(self.names, "verify") if self.names else list(have)
        chosen = [each for each in named if each in have]
        if len(chosen) < len(named):
            print(f"{len(named) - len(chosen)} of {len(named)} cells have no data, and are left out.")
        if not chosen:
            raise CommandError(f"verify takes cells that have data, got {' '.join(self.names) or 'none'}")
        if not self.names:
            check_count("--cells", self.cells)
            order = np.random.default_rng(self.seed).permutation(len(chosen))
            chosen = [chosen[at] for at in order[: self.cells]]
        failures = _Failures()
        table = verify(chosen, self.data, on_error=lambda each, error: failures.add(each.name, error))
        print(table)
        inside, p_values = ([row[table.columns.index(name)] for row in table.rows] for name in ("inside", "p_value"))
        differ = sum(value <= 0.05 for value in p_values)
        print(
            f"\n{differ} of {len(table.rows)} cells differ from their data, by corrected p-values at the 5 % level; "
            f"{inside.count('yes')} interquartile means lie in the stored interval."
        )
        status = failures.status()
        if len(table.rows) + len(failures.names) < len(chosen):
            print("Stopped; the same command starts anew")
            return 130
        return 1 if differ else status


COMMANDS: dict[str, type] = {
    "run": RunCells,
    "table": ShowTable,
    "page": WritePage,
    "references": MeasureReferences,
    "verify": VerifyCells,
}


def run_benchmark(args: Sequence[str]) -> int:
    """Run one of the commands.

    Args:
      args: Arguments after `jaxrl benchmark`.

    Returns:
      Exit status: 0, 1 if a cell differs or cannot be computed, or 130 after a signal.
    """
    if not args or args[0] in ("-h", "--help"):
        print(_USAGE)
        return 0
    if args[0] not in COMMANDS:
        raise CommandError(f"benchmark takes {', '.join(COMMANDS)}, got {args[0]}")
    return parse(COMMANDS[args[0]], args[1:], f"jaxrl benchmark {args[0]}").run_command() or 0


def cells_named(names: Sequence[str], command: str) -> list[Cell]:
    """Cells of an algorithm and an environment, of one of the two, or all without a name, for a command."""
    if len(names) == 2:
        return [cell(*names)]
    if len(names) > 2:
        raise CommandError(f"{command} takes an algorithm and an environment, got {' '.join(names)}")
    chosen = [each for each in CELLS if all(name in (each.algorithm, each.environment) for name in names)]
    if not chosen:
        raise CommandError(f"{command} takes an algorithm or a task of the benchmark, got {names[0]}")
    return chosen
