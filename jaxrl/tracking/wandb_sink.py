"""Runs of Weights & Biases, many at once in one process, whose ids are stored in a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from envs.errors import UserValueError
from envs.files import replacing, require_room, writing
from jaxrl.tracking.runs import Points, Tracked

IDS = "jaxrl-wandb.json"
ROOM = 2**18  # bytes on the disk that the library takes for logs and points until the next ones
EXIT_CODES = {"finished": 0, "failed": 1, "stopped": 255}

__all__ = ["WandB"]


class WandB:
    """A sink that logs to Weights & Biases.

    Args:
      directory: Directory for the library's folder `wandb` and for the file of ids.
      project, entity, group, tags, mode: Arguments of `wandb.init`; a group of None is named after
        the algorithm and the environment.
    """

    def __init__(
        self,
        directory: Path,
        project: str,
        entity: str | None,
        group: str | None,
        tags: Sequence[str],
        mode: str | None,
    ) -> None:
        self._directory, self._project, self._entity = directory, project, entity
        self._group, self._tags, self._mode = group, tags, mode

    def open(self, tracked: Tracked, resuming: bool) -> np.ndarray:
        """See `Sink.open`; raises ValueError if the library cannot start a run."""
        self._tracked = tracked
        with writing(self._directory):
            self._directory.mkdir(parents=True, exist_ok=True)
            require_room(self._directory, ROOM)  # or the library prints tracebacks
        file = self._directory / IDS
        self._ids = _ids_in(file)
        self._known = self._ids.get(tracked.identity, {}) if resuming else {}
        self._ids[tracked.identity] = self._known
        self._runs: dict[int, Any] = {}
        self._begin(0)  # early, so that a missing login is reported before anything is computed
        return np.array([self._known.get(run.name, {"env_step": -1})["env_step"] for run in tracked.runs], np.int64)

    def write(self, points: Points) -> None:
        """See `Sink.write`; the library's step is the environment step."""
        with writing(self._directory):
            require_room(self._directory, ROOM)  # the library would lose the points in silence
        for i, values in zip(points.runs.tolist(), points.values.tolist(), strict=True):
            run = self._runs[i] if i in self._runs else self._begin(i)
            numbers = dict(zip(points.names, values, strict=True))
            run.log(numbers | {"env_step": points.env_step}, step=points.env_step, commit=True)
            self._known[self._tracked.runs[i].name] = {"id": run.id, "env_step": points.env_step}
        with replacing(self._directory / IDS) as part:
            part.write_text(json.dumps(self._ids, indent=1), encoding="utf-8")

    def film(self, run: int, env_step: int, path: Path) -> None:
        """See `Sink.film`; it follows the points of its step, to which the library adds nothing more."""
        import wandb

        shown = wandb.Video(str(path), format="gif")
        self._runs[run].log({"film": shown, "env_step": env_step}, commit=True)

    def close(self, ends: list[str]) -> None:
        """See `Sink.close`."""
        for i, run in self._runs.items():
            run.summary["end"] = ends[i]
            run.finish(exit_code=EXIT_CODES[ends[i]])

    def _begin(self, i: int) -> Any:
        import wandb

        run = self._tracked.runs[i]
        known = run.name in self._known
        # Features that cost half a second per run, or describe the process rather than a run, are disabled.
        settings = wandb.Settings(console="off", silent=True, x_disable_stats=True, x_save_requirements=False)
        try:
            self._runs[i] = wandb.init(
                project=self._project,
                entity=self._entity,
                group=self._group or self._tracked.name,
                tags=list(self._tags),
                mode=self._mode,  # pyright: ignore[reportArgumentType] -- checked when the sink was made
                name=run.name,
                id=self._known[run.name]["id"] if known else None,
                resume="allow" if known else None,
                config=run.config,
                dir=self._directory,
                reinit="create_new",
                settings=settings,
            )
        except wandb.Error as error:
            raise UserValueError(f"Weights & Biases cannot start a run in project {self._project!r}: {error}") from None
        return self._runs[i]


def _ids_in(file: Path) -> dict[str, dict[str, Any]]:
    """Ids and last steps of runs by the identity of their call and their name.

    Raises:
      UserValueError: The file is damaged.
    """
    if not file.is_file():
        return {}
    try:
        ids = json.loads(file.read_text(encoding="utf-8"))
        return {
            str(call): {
                str(name): {"id": str(run["id"]), "env_step": int(run["env_step"])} for name, run in runs.items()
            }
            for call, runs in ids.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UserValueError(f"{file} is damaged: delete it to log to new runs of Weights & Biases.") from None
