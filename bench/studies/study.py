"""One run of a study: a directory of finished parts, tables and figures, which a second call resumes."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import jaxrl
from bench.studies.frames import markdown, plain
from envs.errors import UserValueError
from jaxrl.results.storage import CONFIG, claim_directory

if TYPE_CHECKING:
    import matplotlib.figure
    import pandas
    import xarray

    from jaxrl.algorithms.contract import Algorithm
    from jaxrl.results.result import Result

MANIFEST = "study.json"
FORCE_HINT = "choose another directory, or restart with --force (force=True), which computes all parts again"

__all__ = ["Study", "StudyError", "StudyRun", "default_directory", "require_whole", "run_study"]


class StudyError(UserValueError):
    """Error for a directory that does not hold the study to be resumed."""


@dataclasses.dataclass(frozen=True)
class Study:
    """A study that `python -m bench.studies NAME` runs.

    Attributes:
      name: Name on the command line.
      summary: Line in the list of studies.
      settings: Frozen dataclass whose fields, with defaults and docstrings, are the flags. Its
        `__post_init__` raises an error for invalid values.
      run: Function called as `run(settings, study)`, which does all of its work through the study.
    """

    name: str
    summary: str
    settings: type
    run: Callable[[Any, StudyRun], None]


class StudyRun:
    """The directory of a study with its parts, tables and figures.

    A part is computed once: a later run of the same study with equal settings loads it. An
    interrupted part is computed again. The seconds of a part, in the file `study.json`, are without those of the
    parts that are computed within it.

    Args:
      directory: Directory, created if it is missing.
      name: Name of the study.
      settings: Dataclass instance with the settings, which are recorded in the directory.
      force: Whether to compute every part again, regardless of the directory's contents.
      progress: Whether to show progress.

    Raises:
      StudyError: The directory holds another study, other settings, or other files.
      ResultError: The directory cannot be written.
    """

    def __init__(
        self, directory: str | Path, name: str, settings: Any, *, force: bool = False, progress: bool = True
    ) -> None:
        self.directory = Path(directory)
        self.progress = progress
        self._manifest: dict[str, Any] = {
            "study": name,
            "settings": json.loads(json.dumps(dataclasses.asdict(settings))),
            "versions": {},
            "seconds": {},
        }
        self._used: set[str] = set()
        self._within: list[float] = []  # seconds of the parts within each part that is being computed
        finished = self._finished_parts(force)
        claim_directory(self.directory, force=True)
        if not force:
            self._manifest |= finished

    def train(self, part: str, algo: Algorithm, hparams: Any = None, **train_arguments: Any) -> Result:
        """The result of `jaxrl.train`, saved in the directory `part` and loaded from there once it is finished.

        Args:
          part: Name of the part, unique in the study.
          algo, hparams, **train_arguments: Arguments of `jaxrl.train`, without `out`, `force` and `progress`.

        Raises:
          KeyboardInterrupt: A signal ended training; the part counts as finished only if training was complete.
        """
        where = self._part(part)
        if self._is_finished(part, where / CONFIG):
            return jaxrl.load_result(where, algo=algo)
        started = self._begin(part)
        result = jaxrl.train(algo, hparams, out=where, force=True, progress=self.progress, **train_arguments)
        attrs = result.metrics.attrs
        if not attrs["interrupted"]:
            self._finish(part, started)
        if attrs["stopped_by_signal"]:
            raise KeyboardInterrupt(attrs["stopped_by_signal"])
        return result

    def compute(self, part: str, function: Callable[[], xarray.Dataset]) -> xarray.Dataset:
        """The Dataset that a function returns, saved as `part.nc` and loaded from there once it is finished.

        Args:
          part: Name of the part, unique in the study.
          function: Function without arguments that returns a Dataset that netCDF can store.
        """
        import xarray

        file = self._part(part).with_name(f"{part}.nc")
        if not self._is_finished(part, file):
            started = self._begin(part)
            dataset = function()
            dataset = dataset.assign_attrs({name: _attribute(value) for name, value in dataset.attrs.items()})
            with _whole(file) as part_file:
                dataset.to_netcdf(part_file.absolute(), engine="h5netcdf")
            self._finish(part, started)
        return xarray.load_dataset(file.absolute(), engine="h5netcdf")

    def table(self, name: str, frame: pandas.DataFrame, caption: str) -> None:
        """Print a table and write it as `name.md`, rounded, and `name.csv`, with all digits.

        Args:
          name: Name of the files.
          frame: Frame, printed without its index.
          caption: Sentences above the table.
        """
        print(f"\n{caption}\n\n{plain(frame)}\n", flush=True)
        (self.directory / f"{name}.md").write_text(f"{caption}\n\n{markdown(frame)}\n", encoding="utf-8")
        frame.to_csv(self.directory / f"{name}.csv", index=False)

    def figure(self, name: str, figure: matplotlib.figure.Figure) -> None:
        """Write a figure as `name.png` and print its path."""
        file = self.directory / f"{name}.png"
        figure.savefig(file, dpi=150)
        self._say(f"Wrote {file}.")

    def print_status(self) -> None:
        """Print, after an interruption, the finished parts and how to resume."""
        done = ", ".join(self._manifest["seconds"]) or "nothing"
        print(f"Stopped with {done} finished in {self.directory}; the same command resumes from there.", flush=True)

    def _finished_parts(self, force: bool) -> dict[str, Any]:
        """The `seconds` and `versions` of a directory's finished parts, if they are this study's."""
        file = self.directory / MANIFEST
        if not file.is_file():
            if self.directory.is_dir() and any(self.directory.iterdir()):
                raise StudyError(f"{self.directory} holds files other than a study: choose another directory.")
            return {}
        if force:
            return {}
        try:
            manifest = json.loads(file.read_text(encoding="utf-8"))
            name, settings = manifest["study"], dict(manifest["settings"])
            finished = {"seconds": dict(manifest["seconds"]), "versions": dict(manifest["versions"])}
        except (OSError, ValueError, KeyError, TypeError):
            raise StudyError(f"{file} is damaged: {FORCE_HINT}.") from None
        if not finished["seconds"]:  # no parts that could be of other settings
            return {}
        if name != self._manifest["study"]:
            raise StudyError(f"{self.directory} holds the study {name}, not {self._manifest['study']}: {FORCE_HINT}.")
        current = self._manifest["settings"]
        differing = [
            f"{_shown(field, settings)}, not {_shown(field, current, short=True)}"
            for field in (current | settings)
            if (field in settings, settings.get(field)) != (field in current, current.get(field))
        ]
        if differing:
            raise StudyError(f"{self.directory} was made with {' and '.join(differing)}: {FORCE_HINT}.")
        return finished

    def _part(self, part: str) -> Path:
        if not part or part != Path(part).name or part.startswith("."):
            raise UserValueError(f"part must be a file's name, got {part!r}")
        if part in self._used:
            raise UserValueError(f"part must be unique, but {part!r} is the name of another part")
        self._used.add(part)
        return self.directory / part

    def _is_finished(self, part: str, file: Path) -> bool:
        finished = part in self._manifest["seconds"] and file.is_file()
        if finished:
            then, now = self._manifest["versions"].get(part, {}), jaxrl.versions()
            other = ", ".join(f"{name} {then[name]}" for name in then if then[name] != now.get(name))
            self._say(
                f"Skipped {part}: finished before, in {self._manifest['seconds'][part]:.0f} s"
                f"{f', with {other}' if other else ''}."
            )
        return finished

    def _begin(self, part: str) -> float:
        """Record that a part is not finished, before its files change."""
        self._manifest["seconds"].pop(part, None)
        self._write_manifest()
        self._say(f"Working on {part} ...")
        self._within.append(0.0)
        return time.perf_counter()

    def _finish(self, part: str, started: float) -> None:
        seconds = time.perf_counter() - started
        self._manifest["seconds"][part] = round(seconds - self._within.pop(), 3)
        if self._within:
            self._within[-1] += seconds
        self._manifest["versions"][part] = jaxrl.versions()
        self._write_manifest()
        self._say(f"Finished {part} in {self._manifest['seconds'][part]:.0f} s.")

    def _write_manifest(self) -> None:
        with _whole(self.directory / MANIFEST) as file:
            file.write_text(json.dumps(self._manifest, indent=2, allow_nan=False) + "\n", encoding="utf-8")

    def _say(self, sentence: str) -> None:
        if self.progress:
            print(sentence, flush=True)


def require_whole(signal: int) -> None:
    """Raise KeyboardInterrupt where a signal, not 0, ended a training within a part, which is then not finished."""
    if signal:
        raise KeyboardInterrupt(signal)


def default_directory(study: Study) -> Path:
    """The default directory of a study."""
    return Path("runs/studies") / study.name


def run_study(
    study: Study,
    settings: Any = None,
    out: str | Path | None = None,
    *,
    force: bool = False,
    progress: bool = True,
) -> StudyRun:
    """Run a study, or the remaining parts of an interrupted one.

    Args:
      study: Study, such as `STUDIES["ugae-vs-monte-carlo"]`.
      settings: Settings of the study's type; None for its defaults.
      out: Directory; None for `runs/studies/<name>`.
      force: Whether to compute every part again.
      progress: Whether to show progress.

    Returns:
      The run, with the directory that holds parts, tables and figures.

    Raises:
      StudyError: The directory holds other files, another study or other settings.
      ResultError: The directory cannot be written.
    """
    settings = study.settings() if settings is None else settings
    directory = default_directory(study) if out is None else out
    run = StudyRun(directory, study.name, settings, force=force, progress=progress)
    try:
        study.run(settings, run)
    except KeyboardInterrupt:
        run.print_status()
        raise
    return run


@contextlib.contextmanager
def _whole(file: Path) -> Iterator[Path]:
    """Yield a path that replaces a file once the block has written it."""
    part = file.with_name(f".{file.name}.part")
    yield part
    os.replace(part, file)


def _attribute(value: Any) -> Any:
    """A value that netCDF can store: text and numbers unchanged, others as JSON."""
    plain = isinstance(value, str | int | float | np.number) and not isinstance(value, bool)
    return value if plain else json.dumps(value, default=str)


def _shown(field: str, settings: dict[str, Any], *, short: bool = False) -> str:
    if field not in settings:
        return "without it" if short else f"no setting {field}"
    value = settings[field]
    text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if short else f"{field} {text}"
