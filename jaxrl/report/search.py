"""Searches in a report: the states of their trials, and the results on test seeds."""

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

TESTED = ("default", "incumbent")  # directories of the results on the test seeds; the first is the baseline

__all__ = ["Search", "holds_search", "read_search", "search_facts", "search_note"]


@dataclass(frozen=True)
class Search:
    """The contents of the directory of a search.

    Attributes:
      summary: Contents of `search.json`: the study, its tuning seeds and the settings that all trials share.
      best: Contents of `incumbent.json`.
      ended: Number of trials by state, `{state: number}`.
      trials: Returns of the complete trials on the tuning seeds, with a setting for each trial.
      tests: Results of the default setting and the incumbent on the test seeds; empty without such results.
    """

    summary: Mapping[str, Any]
    best: Mapping[str, Any]
    ended: Mapping[str, int]
    trials: Result
    tests: Mapping[str, Result]


def holds_search(path: str | Path) -> bool:
    """Whether a directory was written by `jaxrl sweep` or `jaxrl.search`."""
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
        summary = _json(directory / SEARCH)
        rows = _rows(directory / TRIALS) if (directory / TRIALS).is_file() else []
        complete = [row for row in rows if row["state"] == "complete"]
        if not complete:
            raise ResultError(f"{directory} holds a search without a complete trial.")
        best = _json(directory / INCUMBENT)
        trials = _trials(summary, complete)
        tested = bool(best["trained_on_test_seeds"])
    except ResultError:
        raise
    except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ResultError(f"{directory} holds a search that is damaged: {reason}") from None
    ended = Counter(row["state"] for row in rows)
    tests = {name: load_metrics(directory / name, trust=trust) for name in TESTED} if tested else {}
    return Search(summary, best, ended, trials, tests)


def search_facts(search: Search) -> dict[str, str]:
    """The facts about a search for the reader, by name."""
    best, ended = search.best, search.ended
    states = f"{ended['complete']} complete, {ended['pruned']} stopped by halving, {ended['failed']} failed"
    summary = {
        "Study": f"{search.summary['study']}: {counted(sum(ended.values()), 'trial')}, {states}",
        "Searched": ", ".join(f"{path}={text}" for path, text in search.summary["space"].items()),
        "Tuning seeds": ranges(search.summary["seeds"]),
        "Incumbent": f"trial {best['trial']}, {best['aggregate']} final return {best['score']:.2f} over the tuning "
        f"seeds, biased upwards as the best of {ended['complete']}",
        "Its values": ", ".join(f"{path}={cell(value)}" for path, value in best["setting"].items()),
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


def _json(file: Path) -> dict[str, Any]:
    return from_json(json.loads(file.read_text(encoding="utf-8")))


def _rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def _trials(summary: Mapping[str, Any], complete: Sequence[Mapping[str, str]]) -> Result:
    """The final returns of complete trials, as a result of a sweep over their settings."""
    seeds, count = summary["seeds"], len(complete)
    coords = {path: (("setting",), _column([row[path] for row in complete])) for path in summary["space"]}
    returns = [[[float(row[f"return_{i}"])] for i in range(len(seeds))] for row in complete]
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


def _column(texts: list[str]) -> np.ndarray:
    """The values as numbers if all of them are numbers."""
    try:
        return np.array([float(text) for text in texts])
    except ValueError:
        return np.array(texts)
