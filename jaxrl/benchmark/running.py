"""Train a cell of the benchmark and store its data, or compare its returns with the stored ones."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from envs.errors import UserError
from jaxrl.benchmark.cells import EVAL_EPISODES, POINTS, Cell
from jaxrl.benchmark.data import data_directory, estimates_at, load, require_writers, returns_at, store
from jaxrl.results.p_values import corrected, improvement_p_value
from jaxrl.results.result import Result
from jaxrl.results.tables import Table
from jaxrl.runtime.training import train

__all__ = ["run", "verify"]

RUNS = Path("runs", "benchmark")


def run(
    cell: Cell, directory: str | Path | None = None, *, runs: str | Path | None = RUNS, **options: Any
) -> Result | None:
    """Train a cell and store its curves, one policy and its origin among the data of the benchmark.

    Args:
      cell: Cell to train.
      directory: Directory of the data; None for that of the clone.
      runs: Directory of the run itself, with a subdirectory named after the cell. The next call resumes a stopped run
        from its checkpoint there, and a finished call deletes the subdirectory, also if all runs failed; None keeps no
        checkpoints.
      **options: Options of execution, see `jaxrl.RunOptions`.

    Returns:
      The result; None if a signal stopped the training, of which nothing is stored.

    Raises:
      ImportError: An extra that writes the files, `parquet` or `export`, is not installed.
      ResultError: There is no such directory, or all runs failed.
    """
    data = data_directory(directory, writing=True)
    require_writers()
    origin, out = commit(), None
    if runs is not None:
        out = Path(runs) / cell.stem
        begun = out.with_suffix(".commit")  # of a call that was stopped
        if out.exists() and begun.is_file() and (first := begun.read_text().strip()) != origin:
            origin = f"{first}, resumed at {origin}"
        begun.parent.mkdir(parents=True, exist_ok=True)
        begun.write_text(origin)
        options = {"out": out, "resume": out.exists(), **options}
    result = _trained(cell, range(cell.seeds), **options)
    if result.metrics.attrs["interrupted"]:
        return None
    if result.failed_runs()[0].all():  # of which nothing is stored, and which the next call trains, not loads
        _delete(out)
    store(cell, result, data, origin)
    _delete(out)
    return result


def _delete(out: Path | None) -> None:
    """Delete the directory of a finished run, and the commit beside it."""
    if out is not None:
        shutil.rmtree(out, ignore_errors=True)
        out.with_suffix(".commit").unlink(missing_ok=True)


def verify(
    cells: Sequence[Cell],
    directory: str | Path | None = None,
    *,
    confidence: float = 0.95,
    on_error: Callable[[Cell, Exception], None] | None = None,
    **options: Any,
) -> Table:
    """Train cells that have data again, with other seeds, and compare their last returns with those that are stored.

    If nothing has changed, the returns of both have one distribution, and the corrected p-value of any cell is at most
    1 - `confidence` with a probability of at most 1 - `confidence`. How often a new interquartile mean lies in the
    stored interval depends on the returns, since both vary: more often than not, and always where all seeds have one
    return.

    Args:
      cells: Cells to train.
      directory: Directory of the data; None for that of the clone, of the current directory, or of a download.
      confidence: Confidence level of the intervals.
      on_error: Function of a cell that cannot be trained, such as for a missing package, or whose new curves end
        before the stored ones, and of its error; the cell is left out of the table. None raises the error, and the
        cells before it are lost.
      **options: Options of execution, see `jaxrl.RunOptions`.

    Returns:
      A row for each cell, up to the first whose training a signal stopped: the stored interquartile mean and its
      interval, the new ones, whether the new one lies in the stored interval, the numbers of failed runs of both, and
      the corrected p-value, for which failed runs have the lowest return.

    Raises:
      ResultError: A cell has no data.
    """
    benchmark = load(directory)
    rows, p_values = [], []
    every = [benchmark.result(each.algorithm, each.environment) for each in cells]  # before any is trained
    for each, stored in zip(cells, every, strict=True):
        first = max(stored.seeds) + 1
        try:
            again = _trained(each, range(first, first + len(stored.seeds)), **options)
            if again.metrics.attrs["interrupted"]:
                break
            numbers, p_value = _compared(stored, again, confidence)
        except UserError as error:
            if on_error is None:
                raise
            on_error(each, error)
            continue
        p_values.append(p_value)
        rows.append((each.environment, each.algorithm, *numbers))
    columns = ("task", "algorithm", "iqm", "low", "high", "again", "again_low", "again_high", "inside")
    columns = (*columns, "failed", "failed_again", "p_value")
    title = f"cells trained again with other seeds: interquartile means with {confidence:.0%} intervals"
    filled = tuple((*row, value) for row, value in zip(rows, corrected(p_values), strict=True))
    return Table(title, columns, filled, 2, (("low", "high"), ("again_low", "again_high")), decimals={"p_value": 4})


def _compared(stored: Result, again: Result, confidence: float) -> tuple[tuple[Any, ...], float]:
    """Numbers of a row on a cell's stored and new returns, where the stored curves end, and the p-value."""
    last, both = int(stored.metrics["env_step"][-1]), (stored, again)
    old, new = (estimates_at(result, last, confidence) for result in both)
    sound = [returns_at(result, last) for result in both]
    failed = [len(result.seeds) - len(values) for result, values in zip(both, sound, strict=True)]
    returns = [[np.append(values, [-np.inf] * count)] for values, count in zip(sound, failed, strict=True)]
    inside = "yes" if old[1] <= new[0] <= old[2] else "no"
    return (*old[:3], *new[:3], inside, *failed), improvement_p_value(*returns)


def _trained(cell: Cell, seeds: Iterable[int], **options: Any) -> Result:
    """The result of a cell's training with some seeds."""
    return train(
        cell.algo(),
        seeds=list(seeds),
        env_steps=cell.env_steps,
        evals=POINTS,
        eval_episodes=EVAL_EPISODES,
        eval_at_start=True,
        **options,
    )


def commit() -> str:
    """Commit of the clone that contains this module, with "+" if the code differs; "unknown" outside a clone."""
    root = Path(__file__).resolve().parents[2]

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")).resolve() != root:  # installed below another repository
            return "unknown"
        changed = git("status", "--porcelain", "--", "jaxrl", "envs")
        return git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
