"""Train a cell of the benchmark, and store what the benchmark keeps of it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from jaxrl.benchmark.cells import EVAL_EPISODES, POINTS, Cell
from jaxrl.benchmark.data import data_directory, store
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
        after the cell; None keeps no checkpoints.
      **options: Options of execution, see `jaxrl.RunOptions`.

    Returns:
      The result; None if a signal stopped the training, of which nothing is stored.
    """
    data = data_directory(directory)
    if runs is not None:
        out = Path(runs) / cell.stem
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
    store(cell, result, data, commit())
    return result


def commit() -> str:
    """Commit of the clone that contains this module, with "+" if the code differs; "unknown" outside a clone."""
    root = Path(__file__).parents[2]
    words = []
    for command in (["rev-parse", "--short=12", "HEAD"], ["status", "--porcelain", "--", "jaxrl", "envs"]):
        try:
            done = subprocess.run(["git", "-C", str(root), *command], capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return "unknown"
        words.append(done.stdout.strip())
    return words[0] + ("+" if words[1] else "")
