"""Searches in a report: the states of their trials, and the results on test seeds."""

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
from jaxrl.results.format import counted
from jaxrl.results.loading import load_metrics
from jaxrl.results.result import Result
from jaxrl.results.storage import CHECKSUMS, CONFIG, SEARCH
from jaxrl.sweeps.sweep import Sweep
from jaxrl.tuning.result import TESTED
from jaxrl.tuning.shared_study import Outcome


@dataclass(frozen=True)
class Search:
    """The contents of the directory of a search.

    Attributes:
      summary: Contents of `search.json`: the study, its tuning seeds and the settings that all trials share.
      best: Complete trial of the best score.
      ended: Number of trials by state, `{state: number}`.
      trials: Returns of the complete trials on the tuning seeds, with a setting for each trial.
      tests: Results of the default setting and the incumbent on the test seeds; empty without such results.
    """

    summary: Mapping[str, Any]
    best: Outcome
    ended: Mapping[str, int]
    trials: Result
    tests: Mapping[str, Result]


def holds_search(path: str | Path) -> bool:
    """Whether a directory was written by `jaxrl search` or `jaxrl.search`."""
    return (Path(path) / SEARCH).is_file()


def read_search(path: str | Path, *, trust: bool = False) -> Search:
    """Read the files that a search has written so far.

    Args:
      path: Directory of the search.
      trust: Whether to read files that do not match their checksums, as in `load_metrics`.

    Raises:
      ResultError: No trial is complete yet, or a file is missing or damaged.
    """
    directory = Path(path)
    try:
        summary = read_sealed(directory / SEARCH, trust=trust)
        every = [Outcome(**row) for row in summary.get("trials", ())]
        complete = [trial for trial in every if trial.state == "complete"]
        if not complete:
            raise ResultError(f"{directory} holds a search without a complete trial.")
        trials = _trials(summary, complete)
        checksums = {} if summary["found"] is None else dict(summary["found"][CHECKSUMS])
    except ResultError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ResultError(f"{directory} holds a search that is damaged: {reason}") from None
    best = max(complete, key=lambda trial: trial.score)
    ended = Counter(trial.state for trial in every)
    tests = {name: _test(directory / name, checksums[name], trust) for name in TESTED if name in checksums}
    return Search(summary, best, ended, trials, tests)


def _test(directory: Path, checksum: Any, trust: bool) -> Result:
    """A result on the test seeds, which must be the one that the search names."""
    result = load_metrics(directory, trust=trust)
    if not trust and checksum_of_file(directory / CONFIG) != checksum:
        raise ResultError(f"{directory} belongs to another search than {SEARCH}: run the search again.")
    return result


def search_facts(search: Search) -> dict[str, str]:
    """The facts about a search for the reader, by name."""
    best, ended = search.best, search.ended
    states = f"{ended['complete']} complete, {ended['pruned']} stopped by halving, {ended['failed']} failed"
    summary = {
        "Study": f"{search.summary['study']}: {counted(sum(ended.values()), 'trial')}, {states}",
        "Searched": ", ".join(f"{path}={text}" for path, text in search.summary["space"].items()),
        "Tuning seeds": ranges(search.summary["seeds"]),
        "Incumbent": f"trial {best.number}, {search.summary['aggregate']} final return {best.score:.2f} over the "
        f"tuning seeds, biased upwards as the best of {ended['complete']}",
        "Its values": ", ".join(f"{path}={cell(value)}" for path, value in best.setting.items()),
    }
    return summary | ({"Test seeds": ranges(search.tests["incumbent"].seeds)} if search.tests else {})


def search_note(name: str, search: Search) -> str:
    """A note for the reader on the numbers of a search."""
    importance = (
        f"the importance of hyper-parameters is that in its {counted(search.ended['complete'], 'complete trial')}"
    )
    if not search.tests:
        return (
            f"{name} is a search without results on test seeds: its lines are the trials, and the return of the best "
            f"is biased upwards; {importance}."
        )
    seen = set(search.summary["seeds"]) & set(search.tests["incumbent"].seeds)
    which = "some of which its trials used, so that the returns are biased upwards" if seen else "which no trial used"
    return (
        f"{name} is a search: its incumbent and the default setting were retrained on test seeds, {which}; "
        f"{importance}."
    )


def _trials(summary: Mapping[str, Any], complete: Sequence[Outcome]) -> Result:
    """The final returns of complete trials, as a result of a sweep over their settings."""
    seeds, count = summary["seeds"], len(complete)
    coords = {path: (("setting",), np.array([trial.setting[path] for trial in complete])) for path in summary["space"]}
    returns = [[[value] for value in trial.returns] for trial in complete]
    attrs = {name: summary[name] for name in ("algorithm", "environment", "eval_episodes")}
    dataset = metrics_dataset(
        {"return": returns},
        seeds=seeds,
        env_steps=[summary["env_steps"]],
        sweep=Sweep(None, {}, ("setting",), (count,), coords, [{} for _ in complete]),
        attrs=attrs,
    )
    config = {"name": summary["algorithm"], "hparams": summary["hparams"], "devices": [], "versions": {}}
    return Result(dataset, {}, loaded=config)
