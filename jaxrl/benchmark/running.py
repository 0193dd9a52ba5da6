"""Train a cell of the benchmark, and store what the benchmark keeps of it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from jaxrl.benchmark.cells import EVAL_EPISODES, POINTS, Cell
from jaxrl.benchmark.data import data_directory, require_writers, store
from jaxrl.results.result import Result
from jaxrl.runtime.training import train

__all__ = ["run"]

RUNS = Path("runs", "benchmark")


def run(
    cell: Cell, directory: str | Path | None = None, *, runs: str | Path | None = RUNS, **options: Any
) -> Result | None:
    """Train a cell and store its curves, one policy and its origin among the data of the benchmark.

    Args:
      cell: Cell to train.
      directory: Directory of the data; None for that of the clone.
      runs: Directory of the run itself, from whose checkpoint a call that was stopped is resumed, in a directory named
        after the cell that a finished call deletes; None keeps no checkpoints.
      **options: Options of execution, see `jaxrl.RunOptions`.

    Returns:
      The result; None if a signal stopped the training, of which nothing is stored.

    Raises:
      ImportError: An extra that writes the files, `parquet` or `export`, is not installed.
      ResultError: There is no such directory.
    """
    data = data_directory(directory)
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
    result = train(
        cell.algo(),
        seeds=cell.seeds,
        env_steps=cell.env_steps,
        evals=POINTS,
        eval_episodes=EVAL_EPISODES,
        eval_at_start=True,
        **options,
    )
    if result.metrics.attrs["interrupted"]:
        return None
    store(cell, result, data, origin)
    if out is not None:  # so that the next call trains
        shutil.rmtree(out, ignore_errors=True)
        out.with_suffix(".commit").unlink(missing_ok=True)
    return result


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
