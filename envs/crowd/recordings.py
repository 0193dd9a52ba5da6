"""Recorded paths of people: CSV files of (time, person, x, y), conversion to a scenario, and paths at even times."""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from envs.arguments import check_count, check_number
from envs.crowd.trajectories import Trajectory
from envs.crowd.user_scenarios import Recorded
from envs.errors import UserValueError
from envs.files import replacing

__all__ = ["Recording"]

COLUMNS = ("time", "person", "x", "y")
GOAL_HALF = 0.05  # m; smaller than that of other scenarios, so that simulated paths end near the recorded ones


@dataclasses.dataclass(frozen=True, eq=False)
class Recording:
    """Paths of people, in the order in which they appear.

    Attributes:
      people: Names, one for each of N people.
      times: Times of each person's positions, ascending, N arrays `[R_i]` s; the first of all is 0.
      positions: Positions, N arrays `[R_i, 2]` m.
    """

    people: tuple[str, ...]
    times: tuple[np.ndarray, ...]
    positions: tuple[np.ndarray, ...]

    @classmethod
    def read(cls, path: str | Path) -> Recording:
        """The recording in a CSV file.

        Args:
          path: File whose first line names the columns `time` (s), `person` (any text), `x` and `y` (m), in any order;
            other columns are ignored. Without such a line, there are these four columns in this order. Rows may have
            any order.

        Raises:
          UserValueError: The file cannot be read, a row is invalid, or a person has fewer than two rows.
        """
        rows: dict[str, dict[float, tuple[float, float]]] = {}
        for line, (time, person, x, y) in _rows(Path(path)):
            numbers = [_number(text) for text in (time, x, y)]
            if not np.all(np.isfinite(numbers)):
                raise UserValueError(
                    f"{path} must have finite numbers as time, x and y, but line {line} has {time}, {x}, {y}"
                )
            moments = rows.setdefault(person, {})
            if numbers[0] in moments:
                raise UserValueError(f"{path} must have one place per person and time, but line {line} is a second one")
            moments[numbers[0]] = (numbers[1], numbers[2])
        if not rows:
            raise UserValueError(f"{path} must have rows of {', '.join(COLUMNS)}, got none")
        for person, moments in rows.items():
            if len(moments) < 2:
                raise UserValueError(f"{path} must have two rows or more of each person, but {person!r} has one")
        start = min(min(moments) for moments in rows.values())
        paths = sorted(
            ((sorted(moments.items()), person) for person, moments in rows.items()), key=lambda it: it[0][0][0]
        )
        return cls(
            tuple(person for _, person in paths),
            tuple(np.array([time - start for time, _ in path]) for path, _ in paths),
            tuple(np.array([place for _, place in path]) for path, _ in paths),
        )

    @classmethod
    def of(cls, trajectory: Trajectory) -> Recording:
        """The paths of a simulated episode, from each agent's entry to its arrival.

        Args:
          trajectory: Trajectory of one episode, from `roll`.
        """
        walking, position = np.asarray(trajectory.walking), np.asarray(trajectory.position, np.float64)
        time = np.arange(len(walking)) * float(trajectory.interval)
        here = walking | np.concatenate([np.zeros_like(walking[:1]), walking[:-1]])  # with the moment of arrival
        agents = [agent for agent in np.flatnonzero(trajectory.present) if np.sum(here[:, agent]) > 1]
        if not agents:
            raise UserValueError("trajectory must have an agent that walks for a decision, but none does")
        agents.sort(key=lambda agent: int(np.argmax(here[:, agent])))
        start = np.min(time[np.any(here[:, agents], axis=1)])
        return cls(
            tuple(map(str, agents)),
            tuple(time[here[:, agent]] - start for agent in agents),
            tuple(position[here[:, agent], agent] for agent in agents),
        )

    def write(self, path: str | Path) -> Path:
        """Write the recording as a CSV file with the columns time, person, x and y, by person, and return its path."""
        file = Path(path)
        with replacing(file) as part, part.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream)
            writer.writerow(COLUMNS)
            for person, times, positions in zip(self.people, self.times, self.positions, strict=True):
                for time, (x, y) in zip(times.tolist(), positions.tolist(), strict=True):
                    writer.writerow([time, person, x, y])
        return file

    def scenario(
        self, walls: Sequence[Any] = (), pillars: Sequence[Any] = (), goal_half: float = GOAL_HALF
    ) -> Recorded:
        """The scene in which everyone enters at the first recorded place and time, and walks to the last place.

        Args:
          walls, pillars: Solid areas `((low x, low z), (high x, high z))` and discs `(x, z, radius)` in m; the recorded
            x and y are the scene's x and z.
          goal_half: Half the side of each goal in m. A goal is reached where a body touches it, so that a simulated
            path ends up to this plus a radius before the last recorded place.
        """
        table = [[*path[0].tolist(), *path[-1].tolist()] for path in self.positions]
        entries = [float(times[0]) for times in self.times]
        return Recorded(table, goal_half, walls=walls, pillars=pillars, entries=entries if any(entries) else ())

    def sample(self, interval: npt.ArrayLike, num_steps: int) -> tuple[np.ndarray, np.ndarray]:
        """Positions at even times, linear between recorded ones.

        Args:
          interval: Time between two positions in s, such as `Trajectory.interval`; a number, or equal ones, as of
            several trajectories.
          num_steps: Number of intervals, T.

        Returns:
          Positions `[T + 1, N, 2]` m, constant before a person's first and after the last recorded time; and whether
          each person was present, bool `[T + 1, N]`, with recorded times rounded to whole intervals.
        """
        intervals = np.unique(np.asarray(interval, np.float64))
        if len(intervals) != 1:
            raise UserValueError(f"interval must be one number, or equal ones, got {intervals}")
        (seconds,) = intervals.tolist()
        check_number("interval", seconds, low=0.0)
        check_count("num_steps", num_steps)
        time = np.arange(num_steps + 1) * seconds
        position = np.stack(
            [
                np.stack([np.interp(time, times, path[:, axis]) for axis in (0, 1)], axis=-1)
                for times, path in zip(self.times, self.positions, strict=True)
            ],
            axis=1,
        )
        first, last = (np.array([times[end] for times in self.times]) for end in (0, -1))
        step = np.arange(num_steps + 1)[:, None]
        present = (step >= np.ceil(first / seconds - 0.5)) & (step <= np.floor(last / seconds + 0.5))
        return position, present


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Line numbers and the four columns."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.reader(stream)
            order = None
            for row in reader:
                cells = [cell.strip() for cell in row]
                if not any(cells):
                    continue
                if order is None:
                    header = [cell.lower() for cell in cells]
                    if set(COLUMNS) <= set(header):
                        order = [header.index(name) for name in COLUMNS]
                        continue
                    order = list(range(4))
                    if len(cells) != 4 or not np.isfinite(_number(cells[0])):
                        raise UserValueError(
                            f"{path} must have the columns {', '.join(COLUMNS)}, but begins with {', '.join(cells)}"
                        )
                if len(cells) <= max(order):
                    raise UserValueError(
                        f"{path} must have the columns {', '.join(COLUMNS)}, but line "
                        f"{reader.line_num} has {len(cells)} cells"
                    )
                yield reader.line_num, [cells[place] for place in order]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UserValueError(f"{path} cannot be read: {reason}") from None


def _number(text: str) -> float:
    """The number of a cell, or nan."""
    try:
        return float(text)
    except ValueError:
        return float("nan")
