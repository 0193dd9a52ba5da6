"""Files of a comparison: figures and tables in a directory of their own, or one figure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envs.errors import ExistsError, UserValueError
from envs.files import replacing, writing
from jaxrl.report.compared import Compared
from jaxrl.report.pictures import draw_curves, draw_profiles
from jaxrl.results.plotting.style import require_picture
from jaxrl.results.tables import Table
from jaxrl.results.text_tables import spreadsheet_cell

if TYPE_CHECKING:
    import pandas

FORMATS = ("png", "pdf", "svg")
FIGURES, TABLES = ("curves", "profiles"), ("table", "tasks", "matrix", "differences", "steps")
NAMES = frozenset([f"{name}.{suffix}" for name in FIGURES for suffix in FORMATS] + [f"{name}.csv" for name in TABLES])

__all__ = ["check_place", "is_picture", "save", "steps_to_each"]


def save(comparison: Compared, path: Path, level: float | Mapping[str, float] | None = None) -> Path:
    """Write a directory, or a figure with the learning curves; see `Comparison.save`."""
    check_place(path)
    steps = {} if level is None else steps_to_each(comparison, level)
    if is_picture(path):
        if steps:
            raise UserValueError(f"level takes effect only with a directory as path, got {str(path)!r}")
        draw_curves(comparison, path)
        return path
    import pandas

    for suffix in FORMATS:
        draw_curves(comparison, path / f"curves.{suffix}")
        draw_profiles(comparison, path / f"profiles.{suffix}", None)
    tables: dict[str, Any] = {
        "table": comparison.table().to_pandas(),
        "differences": comparison.differences.to_pandas(),
    }
    several = comparison.tasks if len(comparison.tasks) > 1 else []
    for name, each in {"tasks": {task: comparison.table(task) for task in several}, "steps": steps}.items():
        if each:
            frames = {task: table.to_pandas() for task, table in each.items()}
            tables[name] = pandas.concat(frames, names=["task"]).reset_index("task")
    if comparison.direction:
        matrix = comparison.matrix().to_dataframe().reset_index()
        tables["matrix"] = matrix[matrix["name"] != matrix["than"]]
    for name in TABLES:
        if name in tables:
            _write(tables[name], path / f"{name}.csv")
        else:  # of an earlier comparison there
            with writing(path):
                (path / f"{name}.csv").unlink(missing_ok=True)
    return path


def steps_to_each(comparison: Compared, level: float | Mapping[str, float]) -> dict[str, Table]:
    """The tables of `Comparison.steps_to`, by task.

    Args:
      comparison: Comparison.
      level: Value to reach, or values by the names of tasks.

    Raises:
      ValueError: One level is passed for several tasks, a task is unknown, or a level is not finite.
    """
    if isinstance(level, Mapping):
        return {task: comparison.steps_to(each, task) for task, each in level.items()}
    if len(comparison.tasks) > 1:
        tasks = ", ".join(comparison.tasks)
        raise UserValueError(f"level takes a value for each of {tasks}, such as {{{comparison.tasks[0]!r}: {level}}}")
    return {comparison.tasks[0]: comparison.steps_to(level)}


def check_place(path: Path) -> None:
    """Reject a file that is no picture, and a directory with files that a comparison does not write.

    Raises:
      ValueError: The name has another suffix, or the path is a file.
      FileExistsError: The directory holds other files.
    """
    if is_picture(path):
        require_picture(path)
        return
    if path.exists() and not path.is_dir():
        raise UserValueError(f"{path} is a file; out takes a directory, or a name that ends in .png, .pdf or .svg.")
    with writing(path):
        others = sorted({entry.name for entry in path.iterdir()} - NAMES) if path.exists() else []
    if others:
        raise ExistsError(f"{path} holds other files, such as {others[0]}; choose a new directory.")


def is_picture(path: Path) -> bool:
    """Whether a path is that of a picture rather than of a directory."""
    return bool(path.suffix) and not path.is_dir()


def _write(frame: pandas.DataFrame, file: Path) -> None:
    with replacing(file) as part:
        frame.map(spreadsheet_cell).rename(columns=spreadsheet_cell).to_csv(part, index=False)
