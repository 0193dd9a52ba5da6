"""What a search found, in words and on disk."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from envs.files import replacing
from jaxrl.results.dataset import ResultError
from jaxrl.results.plain import as_read, from_json, to_json
from jaxrl.results.result import Result
from jaxrl.results.statistics import bootstrap_interval, iqm, probability_of_improvement
from jaxrl.results.storage import CSV_NEWLINE, SEARCH
from jaxrl.results.tables import Table
from jaxrl.tuning.space import Setting
from jaxrl.tuning.study import Told

if TYPE_CHECKING:
    import pandas

TRIALS, PARQUET, INCUMBENT = "trials.csv", "trials.parquet", "incumbent.json"

__all__ = ["SearchResult", "claim", "write_json", "write_trials"]


@dataclasses.dataclass(repr=False)
class SearchResult:
    """A search, as far as it has come.

    Attributes:
      identity: what all trials have in common, as JSON has it.
      study: its name in the storage.
      trials: those that have ended, in the order of their numbers, whichever process did them.
      num_trials: that the study is to have.
      num_running: under way in other processes.
      seconds: that this call took for trials, and `test_seconds` for training on the test seeds.
      static_groups: static configurations that this call has met.
      compilations: of programs, that this call made for them.
      env_steps: of all trials that have ended, all their seeds together.
      test_seeds: on which the incumbent and the default setting were trained anew.
      test: the incumbent's result there; None where the search is not over, or nobody asked.
      default: that of the setting which the search started from.
      stopped_by_signal: the signal that ended the search early, or 0.
    """

    identity: Mapping[str, Any]
    study: str
    trials: list[Told]
    num_trials: int
    num_running: int
    seconds: float
    static_groups: int
    compilations: int
    test_seeds: list[int]
    test: Result | None = None
    default: Result | None = None
    test_seconds: float = 0.0
    stopped_by_signal: int = 0

    def __repr__(self) -> str:
        best = "none" if self.incumbent is None else f"trial {self.incumbent.number}, {self.incumbent.score:.5g}"
        return (
            f"SearchResult({self.study}: {len(self.trials)} of {self.num_trials} trials; incumbent: {best}; "
            f"report() says more)"
        )

    @property
    def env_steps(self) -> int:
        """Environment steps of all trials that have ended, all their seeds together."""
        return sum(trial.env_steps for trial in self.trials)

    @property
    def incumbent(self) -> Told | None:
        """The trial of the best score among those that ran to their end; None where there is none."""
        whole = [trial for trial in self.trials if trial.state == "complete"]
        return max(whole, key=lambda trial: trial.score, default=None)

    def to_pandas(self) -> pandas.DataFrame:
        """A row per trial."""
        import pandas

        columns, rows = _rows(self.trials)
        return pandas.DataFrame(rows, columns=columns)

    def table(self, confidence: float = 0.95) -> Table:
        """The incumbent and the default setting on the test seeds.

        Raises:
          ResultError: they were not trained there.
        """
        if self.test is None or self.default is None:
            raise ResultError("this search has no results on test seeds: it is not over, or was made with test_seeds=0")
        rows = []
        for name, result in (("incumbent", self.test), ("default", self.default)):
            returns = _test_returns(result)
            good = returns[np.isfinite(returns)]
            value, low, high = float("nan"), float("nan"), float("nan")
            if len(good):
                value = float(iqm(good))
            if len(good) > 1:
                interval = bootstrap_interval(iqm, good, confidence=confidence)
                low, high = float(interval.low), float(interval.high)
            mean = float(good.mean()) if len(good) else float("nan")
            rows.append((name, value, low, high, mean, len(good), len(returns) - len(good)))
        title = f"return on the test seeds: interquartile mean, {confidence:.0%} bootstrap interval"
        return Table(title, ("setting", "iqm", "low", "high", "mean", "seeds", "failed"), tuple(rows), 1)

    def report(self) -> str:
        """What was done and found, in sentences and a table."""
        told = self.identity
        count = {
            state: sum(trial.state == state for trial in self.trials) for state in ("complete", "pruned", "failed")
        }
        seeds = told["seeds"]
        lines = [
            f"Study {self.study}: {len(self.trials)} of {self.num_trials} trials of {told['algorithm']} on "
            f"{told['environment']}, {told['env_steps']:,} env steps of each of {len(seeds)} tuning seeds "
            f"({_span(seeds)})",
            f"  {count['complete']} complete, {count['pruned']} stopped by halving, {count['failed']} failed (a metric "
            f"that is not finite){f', {self.num_running} under way elsewhere' if self.num_running else ''}",
            f"  {self.env_steps:,} env steps in all; this call took {self.seconds:.0f} s, and compiled "
            f"{self.compilations} times for {self.static_groups} static configurations",
        ]
        best = self.incumbent
        if best is None:
            return "\n".join([*lines, "No trial has come to its end, so there is no incumbent."])
        lines += [
            f"Incumbent: trial {best.number}, {told['aggregate']} final return {best.score:.2f} over the tuning seeds, "
            f"the best of {count['complete']} and so too good",
            *(f"  {path} = {label}" for path, label in best.setting.items()),
        ]
        if self.test is None or self.default is None:
            return "\n".join(lines)
        found, usual = _test_returns(self.test), _test_returns(self.default)
        good, also = found[np.isfinite(found)], usual[np.isfinite(usual)]
        lines += [
            f"Trained anew on {len(self.test_seeds)} test seeds ({_span(self.test_seeds)}), which no trial has seen; "
            f"these are the numbers to quote",
            str(self.table()),
        ]
        if len(good) and len(also):
            better = probability_of_improvement(good, also)
            lines.append(
                f"A run of the incumbent beats one of the default setting with probability {float(better.value):.2f} "
                f"[{float(better.low):.2f}, {float(better.high):.2f}]"
            )
        return "\n".join(lines)


def claim(path: str | Path, identity: Mapping[str, Any], study: str) -> Path:
    """Makes sure that a directory can hold a search, and holds no other one.

    Raises:
      ResultError: it cannot, or does.
    """
    directory = Path(path)
    if path == "":
        raise ResultError("out, the directory to save in, is an empty string; it takes a name, such as runs/search.")
    told = as_read({"study": study, **identity})
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if (directory / SEARCH).is_file():
            saved = from_json(json.loads((directory / SEARCH).read_text(encoding="utf-8")))
            if {**saved, "found": None} != {**told, "found": None}:
                raise ResultError(f"{directory} holds another search: choose another directory.")
        elif any(directory.glob("*.nc")):
            raise ResultError(f"{directory} holds a result of training: choose another directory.")
        else:
            write_json(directory / SEARCH, told)
    except OSError as error:
        raise ResultError(f"{directory} cannot be written: {error.strerror or error}.") from None
    except json.JSONDecodeError as error:
        raise ResultError(f"{directory / SEARCH} is damaged: {error}.") from None
    return directory


def write_trials(directory: Path, trials: Sequence[Told]) -> None:
    """A row per trial in `trials.csv`, and in `trials.parquet` where pyarrow is installed."""
    import pandas

    columns, rows = _rows(trials)
    typed = pandas.DataFrame([["" if cell is None else cell for cell in row] for row in rows], None, columns, object)
    with replacing(directory / TRIALS, None) as part:
        typed.to_csv(part, index=False, na_rep="nan", lineterminator=CSV_NEWLINE)
    if trials and importlib.util.find_spec("pyarrow") is not None:
        frame = pandas.DataFrame(rows, columns=columns)
        for name in trials[0].setting:  # a column of Parquet has one type
            if len({type(value) for value in frame[name]}) > 1:
                frame[name] = frame[name].map(str)
        with replacing(directory / PARQUET, None) as part:
            frame.convert_dtypes().to_parquet(part, index=False)


def write_json(file: Path, value: Any) -> None:
    """A file that is whole or not there."""
    with replacing(file, None) as part:
        part.write_text(json.dumps(to_json(value), indent=2, default=str, allow_nan=False) + "\n", encoding="utf-8")


def _rows(trials: Sequence[Told]) -> tuple[list[str], list[list[Any]]]:
    setting: Setting = trials[0].setting if trials else {}
    num_seeds = len(trials[0].returns) if trials else 0
    columns = ["trial", "state", "score", *setting, "env_steps", *(f"return_{i}" for i in range(num_seeds))]
    rows = [[t.number, t.state, t.score, *t.setting.values(), t.env_steps, *t.returns] for t in trials]
    return columns, rows


def _test_returns(result: Result) -> np.ndarray:
    """Of each seed at the end, nan where the run failed."""
    return np.where(result.failed_runs()[0], np.nan, result.values("return")[0, :, -1])


def _span(seeds: Sequence[int]) -> str:
    return f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
