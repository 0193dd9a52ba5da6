"""Options of `jaxrl train` and `jaxrl bandit` for trackers."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from envs.files import replacing
from envs.spelling import near_or_all
from jaxrl.cli.dataclass_options import option
from jaxrl.cli.parsing import CommandError
from jaxrl.tracking.trackers import KINDS, by_name

CHOICE = "tracking.json"  # in the run directory, for `jaxrl resume`
FILMS = "films"  # folder in the run directory

__all__ = ["trackers_again", "trackers_of", "tracking_options"]


@dataclasses.dataclass(frozen=True)
class Choice:
    """Trackers of a call and their settings: the fields of `tracking_options`."""

    track: Sequence[str] = ()
    track_by: str = "seed"
    track_project: str = "jaxrl"
    track_group: str | None = None
    track_tags: Sequence[str] = ()
    film_every: int = 0


def tracking_options(films: bool = False) -> list[tuple[str, Any, Any]]:
    """Fields of an options class for trackers, and for films where a command has them."""
    texts = {
        "track": f"Trackers of the runs: {', '.join(KINDS)}. Each writes its files into --out.",
        "track_by": "Unit of a tracked run: seed, or setting, with bands over its seeds.",
        "track_project": "Name of the project (wandb) or experiment (mlflow).",
        "track_group": "Name of the group in wandb; the algorithm and the environment if None.",
        "track_tags": "Tags in wandb.",
    }
    if films:
        texts["film_every"] = (
            "Number of evaluations between two films of the first run of each setting, in OUT/films; 0 for none."
        )
    kinds = {"track": tuple[str, ...], "track_group": str | None, "track_tags": tuple[str, ...], "film_every": int}
    defaults = Choice()
    return [option(name, kinds.get(name, str), getattr(defaults, name), text) for name, text in texts.items()]


def trackers_of(options: Any, out: str | Path | None) -> Sequence[Any]:
    """Trackers that the options name.

    Args:
      options: Options of a command, with the fields of `tracking_options` and `force`.
      out: Run directory; None if nothing is written.

    Raises:
      CommandError: A name is unknown or repeated, or there is no run directory.
      ImportError: An extra is not installed.
    """
    usual = dataclasses.asdict(Choice())
    choice = Choice(**{name: getattr(options, name, default) for name, default in usual.items()})
    names = list(choice.track)
    for name in names:
        if name not in KINDS:
            raise CommandError(f"there is no tracker {name!r} for --track{near_or_all(name, KINDS)}")
    if len(set(names)) < len(names):
        raise CommandError(f"--track takes each of {', '.join(KINDS)} at most once, but got {' '.join(names)}")
    if choice.film_every < 0:
        raise CommandError(f"--film-every takes a number of evaluations, 0 or more, but got {choice.film_every}")
    if not names and not choice.film_every:
        return ()
    if out is None:
        what = "--track takes --out as well: trackers" if names else "--film-every takes --out as well: films"
        raise CommandError(f"{what} {'write' if names else 'are written'} there")
    return [_Remembered(choice, Path(out)), *_trackers(choice, Path(out), options.force)]


def trackers_again(directory: Path) -> Sequence[Any]:
    """Trackers of the earlier call in a run directory.

    Raises:
      CommandError: The record of the trackers is damaged.
      ImportError: An extra is not installed.
    """
    file = directory / CHOICE
    if not file.is_file():
        return ()
    try:
        choice = Choice(**json.loads(file.read_text(encoding="utf-8")))
    except (ValueError, TypeError, RecursionError) as error:
        raise CommandError(f"{file} is damaged ({error}): delete it to continue without trackers") from None
    return _trackers(choice, directory, force=False)


def _trackers(choice: Choice, out: Path, force: bool) -> list[Any]:
    tags = tuple(choice.track_tags)
    shared = {"by": choice.track_by, "project": choice.track_project, "group": choice.track_group, "tags": tags}
    films: list[Any] = []
    if choice.film_every:
        from jaxrl.policies.films import Films

        films = [Films(out / FILMS, choice.film_every)]
    return [*films, *(by_name(name, out, force=force, **shared) for name in choice.track)]


class _Remembered:
    """Tracker that records the trackers of a call in its directory, for `jaxrl resume`."""

    def __init__(self, choice: Choice, out: Path) -> None:
        self._choice, self._out = choice, out

    def start(self, call: Any, resumed: int | None) -> None:
        with replacing(self._out / CHOICE) as part:
            part.write_text(json.dumps(dataclasses.asdict(self._choice)) + "\n", encoding="utf-8")

    def __call__(self, env_step: int, metrics: Mapping[str, np.ndarray]) -> None:
        pass

    def finish(self, result: Any) -> None:
        pass
