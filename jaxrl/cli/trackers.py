"""Options of `jaxrl train` and `jaxrl bandit` that say who follows the runs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from envs.spelling import near_or_all
from jaxrl.cli.fields import option
from jaxrl.cli.parsing import CommandError
from jaxrl.tracking.trackers import KINDS, by_name

CHOICE = "tracking.json"  # in the run directory, for `jaxrl resume`

__all__ = ["trackers_again", "trackers_of", "tracking_options"]


@dataclasses.dataclass(frozen=True)
class Choice:
    """Who follows a call, and how: the fields of `tracking_options`."""

    track: Sequence[str] = ()
    track_by: str = "seed"
    track_project: str = "jaxrl"
    track_group: str | None = None
    track_tags: Sequence[str] = ()


def tracking_options() -> list[tuple[str, Any, Any]]:
    """The fields of an options class."""
    texts = {
        "track": f"Who follows the runs while they train: {', '.join(KINDS)}. Each writes into --out.",
        "track_by": "What is one run to them: seed, or setting, whose bands they then show.",
        "track_project": "Project of wandb, experiment of mlflow.",
        "track_group": "Group of wandb; the algorithm and the environment where there is none.",
        "track_tags": "Tags of wandb.",
    }
    kinds = {"track": tuple[str, ...], "track_group": str | None, "track_tags": tuple[str, ...]}
    defaults = Choice()
    return [option(name, kinds.get(name, str), getattr(defaults, name), text) for name, text in texts.items()]


def trackers_of(options: Any, out: str | Path | None) -> Sequence[Any]:
    """The trackers that the options name.

    Args:
      options: of a command, with the fields of `tracking_options` and `force`.
      out: the run directory, None where nothing is written.

    Raises:
      CommandError: a name is unknown or there twice, or there is no run directory.
      ImportError: an extra is not installed.
    """
    choice = Choice(**{field.name: getattr(options, field.name) for field in dataclasses.fields(Choice)})
    names = list(choice.track)
    for name in names:
        if name not in KINDS:
            raise CommandError(f"there is no tracker {name!r} for --track{near_or_all(name, KINDS)}")
    if len(set(names)) < len(names):
        raise CommandError(f"--track takes each of {', '.join(KINDS)} at most once, but got {' '.join(names)}")
    if not names:
        return ()
    if out is None:
        raise CommandError("--track takes --out as well: what is tracked is written there")
    return [_Remembered(choice, Path(out)), *_trackers(choice, Path(out), options.force)]


def trackers_again(directory: Path) -> Sequence[Any]:
    """The trackers that followed the call of a run directory.

    Raises:
      CommandError: what is told of them is damaged.
      ImportError: an extra is not installed.
    """
    file = directory / CHOICE
    if not file.is_file():
        return ()
    try:
        choice = Choice(**json.loads(file.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise CommandError(f"{file} is damaged ({error}): delete it to go on without trackers") from None
    return _trackers(choice, directory, force=False)


def _trackers(choice: Choice, out: Path, force: bool) -> list[Any]:
    tags = tuple(choice.track_tags)
    shared = {"by": choice.track_by, "project": choice.track_project, "group": choice.track_group, "tags": tags}
    return [by_name(name, out, force=force, **shared) for name in choice.track]


class _Remembered:
    """Writes down who follows a call when it begins, for those who go on with it."""

    def __init__(self, choice: Choice, out: Path):
        self._choice, self._out = choice, out

    def start(self, call: Any, resumed: int | None) -> None:
        (self._out / CHOICE).write_text(json.dumps(dataclasses.asdict(self._choice)) + "\n", encoding="utf-8")

    def __call__(self, env_step: int, metrics: Mapping[str, np.ndarray]) -> None:
        pass

    def finish(self, result: Any) -> None:
        pass
