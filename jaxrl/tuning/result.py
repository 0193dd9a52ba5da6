"""Result of a search, as text and on disk."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from envs.errors import ExistsError
from envs.files import refuse_links, replacing
from jaxrl.results.checksums import read_sealed, sealed_json
from jaxrl.results.dataset import ResultError, range_of
from jaxrl.results.json_values import as_read
from jaxrl.results.parquet import write_parquet
from jaxrl.results.result import Result
from jaxrl.results.statistics import probability_of_improvement
from jaxrl.results.storage import SEARCH, write_csv
from jaxrl.results.tables import Table, estimates
from jaxrl.tuning.shared_study import IDENTITY, Outcome
from jaxrl.tuning.space import Setting

if TYPE_CHECKING:
    import pandas

TRIALS, PARQUET, INCUMBENT = "trials.csv", "trials.parquet", "incumbent.json"  # jaxrl does not read these
TESTED = ("default", "incumbent")  # directories of results on the test seeds; the first is the baseline
STUDY = "study.db"  # storage of the study, where none is named
_OWN = (SEARCH, STUDY, TRIALS, PARQUET, INCUMBENT, *TESTED)  # files and directories that a search writes
_PROGRESS = ("trials", "found")  # the entries of `search.json` that change while trials end
COMMAND = "command"  # entry of `search.json` with the arguments of the command that began the search
_COMMAND: ContextVar[tuple[str, ...]] = ContextVar("command", default=())

__all__ = ["COMMAND", "SearchResult", "claim", "command_recorded", "read_command", "write_json", "write_search"]


@dataclasses.dataclass(repr=False)
class SearchResult:
    """A search, complete or in progress.

    Attributes:
      identity: Settings that all trials share, as JSON values.
      study: Name of the study in the storage.
      trials: Finished trials of all processes, in the order of their numbers.
      num_trials: Number of trials of the complete study.
      num_running: Number of trials running in other processes.
      seconds: Time that this call spent on trials, in seconds.
      test_seconds: Time that this call spent on training on the test seeds, in seconds.
      static_groups: Number of static configurations in this call.
      compilations: Number of programs that this call compiled for them.
      env_steps: Number of environment steps of all finished trials, over all their seeds.
      test_seeds: Seeds on which the incumbent and the default setting are retrained.
      test: Result of the incumbent on the test seeds; None if the search is not complete or has no test seeds.
      default: Result of the algorithm's default setting on the test seeds, or None.
      stopped_by_signal: Signal that ended the search early, or 0.
    """

    identity: Mapping[str, Any]
    study: str
    trials: list[Outcome]
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
            f"details: report())"
        )

    @property
    def env_steps(self) -> int:
        """Number of environment steps of all finished trials, over all their seeds."""
        return sum(trial.env_steps for trial in self.trials)

    @property
    def incumbent(self) -> Outcome | None:
        """The complete trial with the best score; None if no trial is complete."""
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
          ResultError: They were not trained on test seeds.
        """
        if self.test is None or self.default is None:
            raise ResultError("this search has no results on test seeds: it is not complete, or test_seeds was 0")
        rows = []
        for name, result in (("incumbent", self.test), ("default", self.default)):
            returns = _test_returns(result)
            good = returns[np.isfinite(returns)]
            rows.append(
                (name, *estimates(good, confidence, range_of(result.metrics.attrs, "return")), len(returns) - len(good))
            )
        title = f"return on the test seeds: interquartile mean, {confidence:.0%} bootstrap interval"
        return Table(title, ("setting", "iqm", "low", "high", "mean", "seeds", "failed"), tuple(rows), 1)

    def report(self) -> str:
        """A summary of the search, in sentences and a table."""
        identity = self.identity
        count = {
            state: sum(trial.state == state for trial in self.trials) for state in ("complete", "pruned", "failed")
        }
        seeds = identity["seeds"]
        lines = [
            f"Study {self.study}: {len(self.trials)} of {self.num_trials} trials of {identity['algorithm']} on "
            f"{identity['environment']}, {identity['env_steps']:,} env steps of each of {len(seeds)} tuning seeds "
            f"({_span(seeds)})",
            f"  {count['complete']} complete, {count['pruned']} stopped by halving, {count['failed']} failed (a metric "
            f"that is not finite){f', {self.num_running} running elsewhere' if self.num_running else ''}",
            f"  {self.env_steps:,} env steps in all; the trials of this call took {self.seconds:.0f} s and "
            f"were compiled {self.compilations} times for {self.static_groups} static configurations",
        ]
        best = self.incumbent
        if best is None:
            return "\n".join([*lines, "No trial is complete, so there is no incumbent."])
        lines += [
            f"Incumbent: trial {best.number}, {identity['aggregate']} final return {best.score:.2f} over the tuning "
            f"seeds, biased upwards as the best of {count['complete']}",
            *(f"  {path} = {label}" for path, label in best.setting.items()),
        ]
        if self.test is None or self.default is None:
            return "\n".join(lines)
        incumbent, default = _test_returns(self.test), _test_returns(self.default)
        sound, default_sound = incumbent[np.isfinite(incumbent)], default[np.isfinite(default)]
        lines += [
            f"Retrained on {len(self.test_seeds)} test seeds ({_span(self.test_seeds)}), which no trial used; "
            f"report these numbers",
            str(self.table()),
        ]
        if len(sound) and len(default_sound):
            better = probability_of_improvement(sound, default_sound)
            lines.append(
                f"A run of the incumbent beats one of the default setting with probability {float(better.value):.2f} "
                f"[{float(better.low):.2f}, {float(better.high):.2f}]"
            )
        return "\n".join(lines)


@contextlib.contextmanager
def command_recorded(words: Sequence[str]) -> Iterator[None]:
    """Record the arguments of a command in the directories of searches within the context.

    Args:
      words: Arguments after `jaxrl search`, without those of the machine; none are recorded if empty.
    """
    token = _COMMAND.set(tuple(words))
    try:
        yield
    finally:
        _COMMAND.reset(token)


def read_command(directory: Path) -> list[str]:
    """Arguments of the command that began a search, empty for one that began in Python or in another storage.

    Raises:
      ResultError: The description of the search is damaged.
    """
    words = _read_search(directory / SEARCH).get(COMMAND, [])
    if not isinstance(words, list) or len(words) == 1 or not all(isinstance(word, str) for word in words):
        raise ResultError(f"{directory / SEARCH} is damaged: its command is {str(words)[:60]}.")
    return words


def _with_command(file: Path, content: Mapping[str, Any]) -> dict[str, Any]:
    """Contents of `search.json` with the command of this call, or else with that of an earlier one."""
    words = list(_COMMAND.get())
    if not words and file.is_file():
        words = _read_search(file).get(COMMAND, [])
    return {**content, COMMAND: words} if words else {**content}


def claim(path: str | Path, identity: Mapping[str, Any], study: str) -> Path:
    """Check that a directory can hold a search and does not hold another one.

    Raises:
      ResultError: The directory cannot be written, or holds another search or a result, or its description is damaged.
      ExistsError: The directory holds files of the names that a search writes, and no search.
      UserValueError: One of these files is a link.
    """
    directory = Path(path)
    if path == "":
        raise ResultError("out, the directory to save in, is an empty string; it takes a name, such as runs/search.")
    content = as_read({"study": study, **identity})
    try:
        directory.mkdir(parents=True, exist_ok=True)
        refuse_links(*(directory / name for name in _OWN))
        if (directory / SEARCH).is_file():
            saved = _read_search(directory / SEARCH)
            if {name: value for name, value in saved.items() if name not in (*_PROGRESS, COMMAND)} != content:
                raise ResultError(f"{directory} holds another search: choose another directory.")
        elif any(directory.glob("*.nc")):
            raise ResultError(f"{directory} holds a result of training: choose another directory.")
        elif not _is_own_study(directory / STUDY) and (
            foreign := [name for name in _OWN if (directory / name).exists()]
        ):
            raise ExistsError(
                f"{directory} holds {', '.join(foreign)}, which would be replaced and which no search of jaxrl wrote: "
                "choose another directory."
            )
        else:
            write_json(directory / SEARCH, _with_command(directory / SEARCH, content))
    except ExistsError:
        raise
    except OSError as error:
        raise ResultError(f"{directory} cannot be written: {error.strerror or error}.") from None
    return directory


def _is_own_study(file: Path) -> bool:
    """Whether a file is the storage of a study of jaxrl, such as of a search whose description was deleted."""
    if not file.is_file():
        return False
    query = f"SELECT 1 FROM study_user_attributes WHERE key = '{IDENTITY}'"
    try:
        with contextlib.closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as database:
            return database.execute(query).fetchone() is not None
    except sqlite3.Error:
        return False


def _read_search(file: Path) -> dict[str, Any]:
    """The description of the search in a directory, which the study in the storage has as well.

    Raises:
      ResultError: The file is damaged.
    """
    try:
        saved = read_sealed(file)
        if isinstance(saved, dict):
            return saved
    except (ResultError, ValueError, RecursionError):
        pass
    raise ResultError(f"{file} is damaged, or was changed by hand: delete it, and the same search writes it again.")


def write_search(
    directory: Path,
    study: str,
    identity: Mapping[str, Any],
    trials: Sequence[Outcome],
    summary: Mapping[str, Any] | None = None,
) -> None:
    """Write the state of a search: `search.json`, which reports read, and its trials as tables for other programs.

    Args:
      directory: Directory of the search.
      study: Name of the study.
      identity: Common description of all trials.
      trials: Trials that have ended.
      summary: Outcome of the search; None before its end.
    """
    _write_tables(directory, trials)
    rows = [trial._asdict() for trial in trials]
    content = {"study": study, **identity, "trials": rows, "found": summary}
    write_json(directory / SEARCH, _with_command(directory / SEARCH, content))


def _write_tables(directory: Path, trials: Sequence[Outcome]) -> None:
    """Write a row per trial to `trials.csv`, and to `trials.parquet` if pyarrow is installed."""
    import pandas

    columns, rows = _rows(trials)
    write_csv(directory / TRIALS, columns, [["" if cell is None else cell for cell in row] for row in rows])
    if trials and importlib.util.find_spec("pyarrow") is not None:
        frame = pandas.DataFrame(rows, columns=columns)
        for name in trials[0].setting:  # a column of Parquet has one type
            if len({type(value) for value in frame[name]}) > 1:
                frame[name] = frame[name].map(str)
        with replacing(directory / PARQUET, ResultError) as part:
            write_parquet(frame.convert_dtypes(), part)


def write_json(file: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file with its checksum atomically."""
    with replacing(file, ResultError) as part:
        part.write_bytes(sealed_json(value))


def _rows(trials: Sequence[Outcome]) -> tuple[list[str], list[list[Any]]]:
    setting: Setting = trials[0].setting if trials else {}
    num_seeds = len(trials[0].returns) if trials else 0
    columns = ["trial", "state", "score", *setting, "env_steps", *(f"return_{i}" for i in range(num_seeds))]
    rows = [[t.number, t.state, t.score, *t.setting.values(), t.env_steps, *t.returns] for t in trials]
    return columns, rows


def _test_returns(result: Result) -> np.ndarray:
    """Final return of each seed, nan for a failed run."""
    return np.where(result.failed_runs()[0], np.nan, result.values("return")[0, :, -1])


def _span(seeds: Sequence[int]) -> str:
    return f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
