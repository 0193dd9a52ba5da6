"""Files of a comparison: figures and tables in a directory of their own, or one figure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from envs.errors import ExistsError, UserValueError
from envs.files import replacing, writing
from jaxrl.report.compared import Compared
from jaxrl.report.pictures import draw_curves, draw_profiles
from jaxrl.results.plotting.style import require_picture
from jaxrl.results.text_tables import spreadsheet_cell

if TYPE_CHECKING:
    import pandas

FORMATS = ("png", "pdf", "svg")
FIGURES, TABLES = ("curves", "profiles"), ("table", "tasks", "matrix", "differences")
NAMES = frozenset([f"{name}.{suffix}" for name in FIGURES for suffix in FORMATS] + [f"{name}.csv" for name in TABLES])

__all__ = ["check_place", "save"]


def save(comparison: Compared, path: Path) -> Path:
    """Write a directory, or a figure with the learning curves; see `Comparison.save`."""
    check_place(path)
    if _is_picture(path):
        draw_curves(comparison, path)
        return path
    for suffix in FORMATS:
        draw_curves(comparison, path / f"curves.{suffix}")
        draw_profiles(comparison, path / f"profiles.{suffix}", None)
    tables: dict[str, Any] = {
        "table": comparison.table().to_pandas(),
        "differences": comparison.differences.to_pandas(),
    }
    if len(comparison.tasks) > 1:
        import pandas

        each = {task: comparison.table(task).to_pandas() for task in comparison.tasks}
        tables["tasks"] = pandas.concat(each, names=["task"]).reset_index("task")
    if comparison.direction:
        matrix = comparison.matrix().to_dataframe().reset_index()
        tables["matrix"] = matrix[matrix["name"] != matrix["than"]]
    for name, frame in tables.items():
        _write(frame, path / f"{name}.csv")
    return path


def check_place(path: Path) -> None:
    """Reject a file that is no picture, and a directory with files that a comparison does not write.

    Raises:
      ValueError: The name has another suffix, or the path is a file.
      FileExistsError: The directory holds other files.
    """
    if _is_picture(path):
        require_picture(path)
        return
    if path.exists() and not path.is_dir():
        raise UserValueError(f"{path} is a file; out takes a directory, or a name that ends in .png, .pdf or .svg.")
    with writing(path):
        others = sorted({entry.name for entry in path.iterdir()} - NAMES) if path.exists() else []
    if others:
        raise ExistsError(f"{path} holds other files, such as {others[0]}; choose a new directory.")


def _is_picture(path: Path) -> bool:
    return bool(path.suffix) and not path.is_dir()


def _write(frame: pandas.DataFrame, file: Path) -> None:
    with replacing(file) as part:
        frame.map(spreadsheet_cell).rename(columns=spreadsheet_cell).to_csv(part, index=False)
