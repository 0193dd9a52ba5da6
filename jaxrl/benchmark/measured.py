"""Returns of random actions and optima of the tasks of the benchmark, in one file among its data."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import NamedTuple

from envs.files import replacing
from jaxrl.benchmark.cells import CELLS
from jaxrl.benchmark.fetching import TRUSTED, remedy
from jaxrl.results.checksums import UNSEALED, check_seal, sealed
from jaxrl.results.dataset import ResultError
from jaxrl.results.format import reason

__all__ = ["TASKS", "Measured", "has_measured", "measured", "store_measured"]

FILE = "references.csv"
COMMAND = "jaxrl benchmark references"
EFFECT = "delete it, and `COMMAND` measures them again"  # them, the returns
SEAL = "# "  # begins the last line, with the checksum of the file
TASKS = tuple(dict.fromkeys(each.environment for each in CELLS))


class Measured(NamedTuple):
    """Return of uniformly random actions on a task, and its optimum.

    Attributes:
      task: Name of the task.
      episodes: Number of whole episodes of random actions.
      random: Mean of their returns.
      error: Standard error of the mean.
      optimum: The best expected return; None where it is not known.
    """

    task: str
    episodes: int
    random: float
    error: float
    optimum: float | None


def has_measured(directory: Path) -> bool:
    """Whether a directory has a file of these returns with a checksum, as that of a clone has.

    Args:
      directory: Directory.
    """
    file = directory / FILE
    return file.is_file() and f"{SEAL}{UNSEALED[:-8]}".encode() in file.read_bytes()


def measured(directory: Path, *, trust: bool = False) -> dict[str, Measured]:
    """The stored returns of random actions, and optima, by task.

    Args:
      directory: Directory of the data.
      trust: Whether to read a file that does not match its checksum.

    Raises:
      ResultError: The file of the returns is damaged.
    """
    file = directory / FILE
    if not file.is_file():
        return {}
    content = file.read_bytes()
    anew = remedy(file, COMMAND, EFFECT)
    check_seal(file, content, trust=trust, remedy=f"{anew}; {TRUSTED}")
    try:
        lines = content.decode("utf-8").splitlines()
        rows = [line for line in lines if not line.startswith(SEAL)]
        if rows == lines and not trust:
            raise ResultError("it has no checksum, which trust=True ignores")
        return {
            task: Measured(task, int(episodes), float(random), float(error), float(optimum) if optimum else None)
            for task, episodes, random, error, optimum in list(csv.reader(rows))[1:]
        }
    except (ValueError, csv.Error) as error:
        raise ResultError(f"{file} is damaged: {reason(error)}; {anew}") from None


def store_measured(each: Measured, directory: Path) -> None:
    """Write the measurement of a task among those of the others, in the order of the cells.

    Args:
      each: Return of random actions on the task, and its optimum.
      directory: Directory of the data.
    """
    every = measured(directory) | {each.task: each}
    order = {task: at for at, task in enumerate(TASKS)}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Measured._fields)
    for row in sorted(every.values(), key=lambda row: order.get(row.task, len(order))):
        optimum = "" if row.optimum is None else f"{row.optimum:.8g}"
        writer.writerow([row.task, row.episodes, f"{row.random:.6g}", f"{row.error:.3g}", optimum])
    with replacing(directory / FILE, ResultError) as part:
        part.write_bytes(sealed(f"{text.getvalue()}{SEAL}{UNSEALED}\n".encode()))
