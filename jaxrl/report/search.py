"""What a report reads of a search: how its trials ended, and what was trained anew on test seeds."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl.report.text import cell, ranges
from jaxrl.results.dataset import ResultError, metrics_dataset
from jaxrl.results.loading import load_metrics
from jaxrl.results.plain import from_json
from jaxrl.results.result import Result
from jaxrl.results.storage import SEARCH
from jaxrl.results.words import counted
from jaxrl.sweeps.sweep import Sweep
from jaxrl.tuning.result import INCUMBENT, TRIALS

TESTED = ("default", "incumbent")  # directories of what was trained on the test seeds; the first is what to beat

__all__ = ["Search", "holds_search", "read_search", "search_facts", "search_note"]


@dataclass(frozen=True)
class Search:
    """What the directory of a search tells.

    Attributes:
      told: `search.json`: the study, its tuning seeds and what all trials have in common.
      best: `incumbent.json`.
      ended: `{state: number}` of the trials.
      trials: the returns of those that are complete, on the tuning seeds: a setting each.
      tests: the default setting and the incumbent on the test seeds; empty where they were not trained there.
    """

    told: Mapping[str, Any]
    best: Mapping[str, Any]
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
        told = _json(directory / SEARCH)
        rows = _rows(directory / TRIALS) if (directory / TRIALS).is_file() else []
        complete = [row for row in rows if row["state"] == "complete"]
        if not complete:
            raise ResultError(f"{directory} holds a search of which no trial has come to its end yet.")
        best = _json(directory / INCUMBENT)
        trials = _trials(told, complete)
        tested = bool(best["trained_on_test_seeds"])
    except ResultError:
        raise
    except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ResultError(f"{directory} holds a search that is damaged: {reason}") from None
    ended = Counter(row["state"] for row in rows)
    tests = {name: load_metrics(directory / name, trust=trust) for name in TESTED} if tested else {}
    return Search(told, best, ended, trials, tests)


def search_facts(search: Search) -> dict[str, str]:
    """How a search went."""
    best, ended = search.best, search.ended
    states = f"{ended['complete']} complete, {ended['pruned']} stopped by halving, {ended['failed']} failed"
    told = {
        "Study": f"{search.told['study']}: {counted(sum(ended.values()), 'trial')}, {states}",
        "Searched": ", ".join(f"{path}={text}" for path, text in search.told["space"].items()),
        "Tuning seeds": ranges(search.told["seeds"]),
        "Incumbent": f"trial {best['trial']}, {best['aggregate']} final return {best['score']:.2f} over the tuning "
        f"seeds, the best of {ended['complete']} and so too good",
        "Its values": ", ".join(f"{path}={cell(value)}" for path, value in best["setting"].items()),
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


def _json(file: Path) -> dict[str, Any]:
    return from_json(json.loads(file.read_text(encoding="utf-8")))


def _rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def _trials(told: Mapping[str, Any], complete: Sequence[Mapping[str, str]]) -> Result:
    """The final returns of complete trials, as those of a sweep over their settings."""
    seeds, count = told["seeds"], len(complete)
    coords = {path: (("setting",), _column([row[path] for row in complete])) for path in told["space"]}
    returns = [[[float(row[f"return_{i}"])] for i in range(len(seeds))] for row in complete]
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


def _column(texts: list[str]) -> np.ndarray:
    """Values as numbers, where all of them are."""
    try:
        return np.array([float(text) for text in texts])
    except ValueError:
        return np.array(texts)
