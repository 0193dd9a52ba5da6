"""One run of an experiment: a directory of finished parts, tables and figures, that a second call resumes."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jaxrl
from envs.errors import UserValueError
from envs.files import replacing
from jaxrl.experiments.frames import markdown, plain
from jaxrl.results.description import attribute
from jaxrl.results.plain import as_read, from_json, to_json, versions
from jaxrl.results.storage import CONFIG, claim_directory

if TYPE_CHECKING:
    import matplotlib.figure
    import pandas
    import xarray

    from jaxrl.algorithms.contract import Algorithm
    from jaxrl.results.result import Result

MANIFEST = "experiment.json"
FORCE_HINT = "choose another directory, or start over with --force (force=True)"

__all__ = ["Experiment", "Study", "StudyError", "default_directory", "run_experiment"]


class StudyError(UserValueError):
    """A directory does not hold the experiment that is to go on in it."""


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A study that `jaxrl experiment NAME` runs.

    Attributes:
      name: as on the command line.
      summary: one line of the list.
      settings: a frozen dataclass of defaults, each field with a docstring: the flags. Its
        `__post_init__` refuses what makes no sense.
      run: called as `run(settings, study)`; does all of its work through the study.
    """

    name: str
    summary: str
    settings: type
    run: Callable[[Any, Study], None]


class Study:
    """Where an experiment's parts, tables and figures go.

    A part is done once: a later study of the same experiment with equal settings loads it. A
    part that was interrupted is done again.

    Args:
      directory: made where it is missing.
      name: the experiment's.
      settings: a dataclass instance; a directory remembers with which settings it was made.
      force: do every part again, whatever the directory holds.
      progress: whether to show what is going on.

    Raises:
      StudyError: the directory holds another experiment, other settings, or other files.
      ResultError: the directory cannot be written.
    """

    def __init__(self, directory: str | Path, name: str, settings: Any, *, force: bool = False, progress: bool = True):
        self.directory = Path(directory)
        self.progress = progress
        self._manifest: dict[str, Any] = {
            "experiment": name,
            "settings": as_read(dataclasses.asdict(settings)),
            "versions": {},
            "seconds": {},
        }
        self._used: set[str] = set()
        finished = self._found(force)
        claim_directory(self.directory, force=True)
        if not force:
            self._manifest |= finished

    def train(self, part: str, algo: Algorithm, hparams: Any = None, **train_arguments: Any) -> Result:
        """What `jaxrl.train` returns, saved in the directory `part` and loaded from there once it is finished.

        Args:
          part: a name of its own.
          algo, hparams, **train_arguments: as for `jaxrl.train`, without `out`, `force` and `progress`.

        Raises:
          KeyboardInterrupt: a signal ended training; the part counts as finished only if it was.
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
        """What a function returns, kept as `part.nc` and loaded from there once it is finished.

        Args:
          part: a name of its own.
          function: takes nothing and returns a Dataset that netCDF can hold.
        """
        import xarray

        file = self._part(part).with_name(f"{part}.nc")
        if not self._is_finished(part, file):
            started = self._begin(part)
            dataset = function()
            dataset = dataset.assign_attrs({name: attribute(value) for name, value in dataset.attrs.items()})
            with replacing(file, None) as whole:
                dataset.to_netcdf(whole, engine="h5netcdf")
            self._finish(part, started)
        return xarray.load_dataset(file, engine="h5netcdf")

    def table(self, name: str, frame: pandas.DataFrame, caption: str) -> None:
        """Prints a table and writes it as `name.md`, rounded, and `name.csv`, with every digit.

        Args:
          name: of the files.
          frame: its columns are printed, its index is not.
          caption: one or a few sentences that head it.
        """
        print(f"\n{caption}\n\n{plain(frame)}\n", flush=True)
        (self.directory / f"{name}.md").write_text(f"{caption}\n\n{markdown(frame)}\n", encoding="utf-8")
        frame.to_csv(self.directory / f"{name}.csv", index=False)

    def figure(self, name: str, figure: matplotlib.figure.Figure) -> None:
        """Writes a figure as `name.png` and says so."""
        file = self.directory / f"{name}.png"
        figure.savefig(file, dpi=150)
        self._say(f"Wrote {file}.")

    def say_what_is_left(self) -> None:
        """Says, after an interruption, what stays and how to go on."""
        done = ", ".join(self._manifest["seconds"]) or "nothing"
        print(f"Stopped with {done} finished in {self.directory}; the same command goes on from there.", flush=True)

    def _found(self, force: bool) -> dict[str, Any]:
        """The `seconds` and `versions` of a directory's finished parts, if they are this experiment's."""
        file = self.directory / MANIFEST
        if not file.is_file():
            if self.directory.is_dir() and any(self.directory.iterdir()):
                raise StudyError(f"{self.directory} holds other files and no experiment: choose another directory.")
            return {}
        if force:
            return {}
        try:
            found = from_json(json.loads(file.read_text(encoding="utf-8")))
            name, settings = found["experiment"], dict(found["settings"])
            finished = {"seconds": dict(found["seconds"]), "versions": dict(found["versions"])}
        except (OSError, ValueError, KeyError, TypeError):
            raise StudyError(f"{file} is damaged: {FORCE_HINT}.") from None
        if not finished["seconds"]:  # nothing there that could be of other settings
            return {}
        if name != self._manifest["experiment"]:
            raise StudyError(
                f"{self.directory} holds the experiment {name}, not {self._manifest['experiment']}: {FORCE_HINT}."
            )
        wanted = self._manifest["settings"]
        differing = [
            f"{_shown(field, settings)}, not {_shown(field, wanted, short=True)}"
            for field in (wanted | settings)
            if (field in settings, settings.get(field)) != (field in wanted, wanted.get(field))
        ]
        if differing:
            raise StudyError(f"{self.directory} was made with {' and '.join(differing)}: {FORCE_HINT}.")
        return finished

    def _part(self, part: str) -> Path:
        if not part or part != Path(part).name or part.startswith("."):
            raise UserValueError(f"part must be a file's name, got {part!r}")
        if part in self._used:
            raise UserValueError(f"part must be a name of its own, but {part!r} is another part's already")
        self._used.add(part)
        return self.directory / part

    def _is_finished(self, part: str, file: Path) -> bool:
        finished = part in self._manifest["seconds"] and file.is_file()
        if finished:
            then, now = self._manifest["versions"].get(part, {}), versions()
            other = ", ".join(f"{name} {then[name]}" for name in then if then[name] != now.get(name))
            self._say(
                f"Skipped {part}: finished before, in {self._manifest['seconds'][part]:.0f} s"
                f"{f', with {other}' if other else ''}."
            )
        return finished

    def _begin(self, part: str) -> float:
        """Forgets that a part was finished, before its files change."""
        self._manifest["seconds"].pop(part, None)
        self._write_manifest()
        self._say(f"Working on {part} ...")
        return time.perf_counter()

    def _finish(self, part: str, started: float) -> None:
        self._manifest["seconds"][part] = round(time.perf_counter() - started, 3)
        self._manifest["versions"][part] = versions()
        self._write_manifest()
        self._say(f"Finished {part} in {self._manifest['seconds'][part]:.0f} s.")

    def _write_manifest(self) -> None:
        with replacing(self.directory / MANIFEST, None) as part:
            part.write_text(json.dumps(to_json(self._manifest), indent=2, allow_nan=False) + "\n", encoding="utf-8")

    def _say(self, sentence: str) -> None:
        if self.progress:
            print(sentence, flush=True)


def default_directory(experiment: Experiment) -> Path:
    """Where an experiment goes if not told otherwise."""
    return Path("runs/experiments") / experiment.name


def run_experiment(
    experiment: Experiment,
    settings: Any = None,
    out: str | Path | None = None,
    *,
    force: bool = False,
    progress: bool = True,
) -> Study:
    """Runs an experiment, or what is left of it.

    Args:
      experiment: such as `EXPERIMENTS["ugae-vs-monte-carlo"]`.
      settings: of the experiment's type; its defaults if None.
      out: a directory; `runs/experiments/<name>` if None.
      force: do every part again.
      progress: whether to show what is going on.

    Returns:
      The study, with the directory that holds parts, tables and figures.

    Raises:
      StudyError: the directory holds something else.
      ResultError: it cannot be written.
    """
    settings = experiment.settings() if settings is None else settings
    directory = default_directory(experiment) if out is None else out
    study = Study(directory, experiment.name, settings, force=force, progress=progress)
    try:
        experiment.run(settings, study)
    except KeyboardInterrupt:
        study.say_what_is_left()
        raise
    return study


def _shown(field: str, settings: dict[str, Any], *, short: bool = False) -> str:
    if field not in settings:
        return "without it" if short else f"no setting {field}"
    value = settings[field]
    text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if short else f"{field} {text}"
