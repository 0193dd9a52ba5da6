"""What a report reads of a search: how its trials ended, and what was trained anew on test seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl.report.text import cell, ranges
from jaxrl.results.checksums import checksum_of_file, read_sealed
from jaxrl.results.dataset import ResultError, metrics_dataset
from jaxrl.results.loading import load_metrics
from jaxrl.results.result import Result
from jaxrl.results.storage import CHECKSUMS, CONFIG, SEARCH
from jaxrl.results.words import counted
from jaxrl.sweeps.sweep import Sweep
from jaxrl.tuning.result import TESTED
from jaxrl.tuning.study import Told

__all__ = ["Search", "holds_search", "read_search", "search_facts", "search_note"]


@dataclass(frozen=True)
class Search:
    """What the directory of a search tells.

    Attributes:
      told: `search.json`: the study, its tuning seeds and what all trials have in common.
      best: the trial of the best score among those that are complete.
      ended: `{state: number}` of the trials.
      trials: the returns of those that are complete, on the tuning seeds: a setting each.
      tests: the default setting and the incumbent on the test seeds; empty where they were not trained there.
    """

    told: Mapping[str, Any]
    best: Told
    ended: Mapping[str, int]
    trials: Result
    tests: Mapping[str, Result]


def holds_search(path: str | Path) -> bool:
    """Whether a directory was written by `jaxrl sweep` or `jaxrl.search`."""
    return (Path(path) / SEARCH).is_file()


def read_search(path: str | Path, *, trust: bool = False) -> Search:
    """What a search has written so far.

    Args:
      path: its directory.
      trust: as in `load_metrics`.

    Raises:
      ResultError: no trial is complete yet, or a file is missing or damaged.
    """
    directory = Path(path)
    try:
        told = read_sealed(directory / SEARCH, trust=trust)
        every = [Told(**row) for row in told.get("trials", ())]
        complete = [trial for trial in every if trial.state == "complete"]
        if not complete:
            raise ResultError(f"{directory} holds a search of which no trial has come to its end yet.")
        trials = _trials(told, complete)
        checksums = {} if told["found"] is None else dict(told["found"][CHECKSUMS])
    except ResultError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ResultError(f"{directory} holds a search that is damaged: {reason}") from None
    best = max(complete, key=lambda trial: trial.score)
    ended = Counter(trial.state for trial in every)
    tests = {name: _test(directory / name, checksums[name], trust) for name in TESTED if name in checksums}
    return Search(told, best, ended, trials, tests)


def _test(directory: Path, checksum: Any, trust: bool) -> Result:
    """A result on the test seeds, which has to be the one that the search tells of."""
    result = load_metrics(directory, trust=trust)
    if not trust and checksum_of_file(directory / CONFIG) != checksum:
        raise ResultError(f"{directory} is of another search than {directory.parent / SEARCH}: run the search again.")
    return result


def search_facts(search: Search) -> dict[str, str]:
    """How a search went."""
    best, ended = search.best, search.ended
    states = f"{ended['complete']} complete, {ended['pruned']} stopped by halving, {ended['failed']} failed"
    told = {
        "Study": f"{search.told['study']}: {counted(sum(ended.values()), 'trial')}, {states}",
        "Searched": ", ".join(f"{path}={text}" for path, text in search.told["space"].items()),
        "Tuning seeds": ranges(search.told["seeds"]),
        "Incumbent": f"trial {best.number}, {search.told['aggregate']} final return {best.score:.2f} over the tuning "
        f"seeds, the best of {ended['complete']} and so too good",
        "Its values": ", ".join(f"{path}={cell(value)}" for path, value in best.setting.items()),
    }
    return told | ({"Test seeds": ranges(search.tests["incumbent"].seeds)} if search.tests else {})


def search_note(name: str, search: Search) -> str:
    """What the numbers of a search are worth."""
    importance = (
        f"the importance of hyper-parameters is told by its {counted(search.ended['complete'], 'complete trial')}"
    )
    if not search.tests:
        return (
            f"{name} is a search that was not tried on test seeds: these are its trials, and the best of them looks "
            f"better than it is; {importance}."
        )
    seen = set(search.told["seeds"]) & set(search.tests["incumbent"].seeds)
    which = "some of which its trials have seen, so that they look too good" if seen else "which no trial has seen"
    return (
        f"{name} is a search: its incumbent and the default setting were trained anew on test seeds, {which}; "
        f"{importance}."
    )


def _trials(told: Mapping[str, Any], complete: Sequence[Told]) -> Result:
    """The final returns of complete trials, as those of a sweep over their settings."""
    seeds, count = told["seeds"], len(complete)
    coords = {path: (("setting",), np.array([trial.setting[path] for trial in complete])) for path in told["space"]}
    returns = [[[value] for value in trial.returns] for trial in complete]
    attrs = {name: told[name] for name in ("algorithm", "environment", "eval_episodes")}
    dataset = metrics_dataset(
        {"return": returns},
        seeds=seeds,
        env_steps=[told["env_steps"]],
        sweep=Sweep(None, {}, ("setting",), (count,), coords, [{} for _ in complete]),
        attrs=attrs,
    )
    config = {"name": told["algorithm"], "hparams": told["hparams"], "devices": [], "versions": {}}
    return Result(dataset, {}, loaded=config)
