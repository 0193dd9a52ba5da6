"""Data of the benchmark: for each cell its curves (Parquet), one policy (safetensors) and its origin (JSON)."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from envs.errors import MissingPackageError, UserValueError, installing
from envs.files import replacing
from envs.spelling import near
from jaxrl.benchmark.cells import CELLS, Cell, cell
from jaxrl.benchmark.fetching import TRUSTED, address, cached, download, of_clone, remedy
from jaxrl.benchmark.measured import has_measured, measured
from jaxrl.policies.export import export_policy
from jaxrl.policies.load_exported import load_weights
from jaxrl.results.checksums import checksum_of_file, read_sealed, sealed_json
from jaxrl.results.dataset import UNKNOWN, ResultError, metrics_dataset, range_of
from jaxrl.results.description import config_of
from jaxrl.results.format import reason
from jaxrl.results.optima import OPTIMA
from jaxrl.results.parquet import write_parquet
from jaxrl.results.policy import TrainedPolicy
from jaxrl.results.result import Result
from jaxrl.results.tables import Table, estimates
from jaxrl.runtime.machine.processors import model

if TYPE_CHECKING:
    import pandas

__all__ = [
    "METRICS",
    "Benchmark",
    "data_directory",
    "estimates_at",
    "load",
    "require_writers",
    "returns_at",
    "store",
    "up_to",
]

METRICS = ("return", "discounted_return")
ORIGIN = "benchmark"  # key of `config.json` with the origin of a cell
CHECKSUMS = "checksums"


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """Results of the benchmark.

    Attributes:
      directory: Directory of the data.
      cells: Cells that have data, in the order of `CELLS`.
      origin: "clone", "download", or "directory" for one that was passed.
    """

    directory: Path
    cells: tuple[Cell, ...]
    origin: str = "directory"

    def __repr__(self) -> str:
        return f"Benchmark({len(self.cells)} of {len(CELLS)} cells in {self.directory}, {self.origin})"

    @property
    def missing(self) -> tuple[Cell, ...]:
        """Cells without data."""
        return tuple(each for each in CELLS if each not in self.cells)

    @property
    def tasks(self) -> list[str]:
        """Tasks of the cells that have data."""
        return list(dict.fromkeys(each.environment for each in self.cells))

    def result(self, algorithm: str, environment: str, *, trust: bool = False) -> Result:
        """The curves of a cell as a result without policies.

        Args:
          algorithm: Name of the algorithm.
          environment: Name of the environment.
          trust: Whether to read files that do not match their checksums.

        Raises:
          ValueError: There is no such cell.
          ResultError: The cell has no data, or they are damaged.
        """
        each, known = self._stored(algorithm, environment), measured(self.directory, trust=trust).get(environment)
        return _read(each, self.directory, trust, None if known is None else known.optimum)

    def policy(self, algorithm: str, environment: str, *, trust: bool = False) -> TrainedPolicy:
        """The stored policy of a cell, that of its first seed which did not fail.

        Args:
          algorithm: Name of the algorithm.
          environment: Name of the environment.
          trust: Whether to read files that do not match their checksums.

        Raises:
          ValueError: There is no such cell.
          ResultError: The cell has no data, or they are damaged.
        """
        each = self._stored(algorithm, environment)
        weights = self.directory / f"{each.stem}.safetensors"
        _description(each, weights, trust)
        return load_weights(weights, trust=trust)

    def results(self, *tasks: str, trust: bool = False) -> dict[str, list[Result]]:
        """Results by the names of algorithms that have data on all of some tasks, as `jaxrl.compare` takes them.

        Args:
          *tasks: Names of tasks.
          trust: Whether to read files that do not match their checksums.

        Raises:
          ValueError: No algorithm has data on all of them.
        """
        have = {(each.algorithm, each.environment) for each in self.cells}
        names = dict.fromkeys(each.algorithm for each in self.cells)
        complete = [name for name in names if tasks and all((name, task) in have for task in tasks)]
        for task in tasks:
            if task not in self.tasks:
                cells = [each for each in CELLS if each.environment == task]
                hint = f": jaxrl benchmark run {task}" if cells else f"; it has {', '.join(self.tasks) or 'none yet'}"
                raise UserValueError(f"the benchmark has no data on {task}{' yet' if cells else ''}{hint}")
        if not complete:
            raise UserValueError(f"no algorithm has data of the benchmark on all of {', '.join(tasks) or 'no task'}")
        return {name: [self.result(name, task, trust=trust) for task in tasks] for name in complete}

    def _stored(self, algorithm: str, environment: str) -> Cell:
        each = cell(algorithm, environment)
        if each not in self.cells:
            raise ResultError(f"the benchmark has no data of {each.name} yet: {each.command}")
        return each

    def require_task(self, task: str | None) -> None:
        """Reject a task without data; None stands for all.

        Raises:
          ValueError: There are no data on the task.
        """
        if task is not None and task not in self.tasks:
            hint = near(str(task), self.tasks) or f"; there are data on {', '.join(self.tasks) or 'none yet'}"
            raise UserValueError(f"task is {task!r}{hint}")

    def table(self, task: str | None = None, *, confidence: float = 0.95) -> Table:
        """A row for each cell: the interquartile mean of its last returns, with its interval.

        Args:
          task: Task of the rows; None for all.
          confidence: Confidence level of the intervals.

        Raises:
          ValueError: The benchmark has no data on the task.
        """
        self.require_task(task)
        rows = []
        for each in sorted(self.cells, key=lambda each: self.tasks.index(each.environment)):
            if task in (None, each.environment):
                result = self.result(each.algorithm, each.environment)
                attrs, last = result.metrics.attrs, int(result.metrics["env_step"][-1])
                *numbers, count = estimates_at(result, last, confidence)
                settings = "defaults" if attrs["settings_from"] == "defaults" else "preset"
                seconds = float(attrs["run_seconds"] + attrs["compile_seconds"])
                row = (each.environment, each.algorithm, settings, last)
                rows.append((*row, *numbers, count, len(result.seeds) - count, seconds))
        columns = ("task", "algorithm", "settings", "env_steps", "iqm", "low", "high", "mean", "seeds", "failed")
        title = f"return after training: interquartile mean, {confidence:.0%} bootstrap interval"
        # Numbers of several tasks have no common size.
        decimals = {} if task is not None else dict.fromkeys(("iqm", "low", "high", "mean"), 3)
        return Table(title, (*columns, "seconds"), tuple(rows), 3, decimals={**decimals, "seconds": 0})


def estimates_at(result: Result, env_step: int, confidence: float) -> tuple[float, float, float, float, int]:
    """IQM of the returns of the runs that did not fail, its interval, their mean and their number.

    Args:
      result: Curves of a cell.
      env_step: Environment step, between two evaluations of which a run is interpolated.
      confidence: Confidence level of the interval.
    """
    return estimates(returns_at(result, env_step), confidence, range_of(result.metrics.attrs, "return"))


def up_to(result: Result, env_step: int) -> Result:
    """The curves of a cell up to an environment step, where each run is interpolated between two evaluations.

    Args:
      result: Curves of a cell.
      env_step: Last environment step, of at least the first evaluation; a later one than the last changes nothing.
    """
    steps = np.asarray(result.metrics["env_step"].values)
    if env_step >= steps[-1]:
        return result
    before = int(np.searchsorted(steps, env_step))
    kept = [*steps[:before].tolist(), env_step]
    values = {}
    for name in METRICS:
        curves = result.values(name)[..., :before]
        values[name] = np.concatenate([curves, _between(result, name, env_step)[..., None]], axis=-1).astype(np.float32)
    metrics = metrics_dataset(values, seeds=result.seeds, env_steps=kept, attrs=result.metrics.attrs)
    return Result(metrics, {}, loaded=result.loaded, directory=None)


def returns_at(result: Result, env_step: float) -> np.ndarray:
    """Returns of the runs that had not failed there, `[runs]`, interpolated between the evaluations of each.

    Args:
      result: Curves of a cell.
      env_step: Environment step.

    Raises:
      ResultError: The curves end before it.
    """
    last = result.metrics["env_step"].values[-1]
    if env_step > last:
        raise ResultError(f"env_step is {env_step:,}, and the curves end at {last:,}")
    values = _between(result, "return", env_step)[0]
    return values[np.isfinite(values)]


def _between(result: Result, name: str, env_step: float) -> np.ndarray:
    """A metric at a step, `[1, seeds]`, nan for a run of which any metric is not finite at the evaluations around it.

    It follows `jaxrl.report.alignment.values_at`, by which results are compared.
    """
    steps, values = np.asarray(result.metrics["env_step"].values), result.values(name).astype(np.float64)
    values = np.where(_failed(result), np.nan, values)
    after = int(np.searchsorted(steps, env_step))
    if steps[after] == env_step or not after:
        return values[..., after]
    share = (env_step - steps[after - 1]) / (steps[after] - steps[after - 1])
    return values[..., after - 1] + share * (values[..., after] - values[..., after - 1])


def load(directory: str | Path | None = None) -> Benchmark:
    """The results of the benchmark.

    Args:
      directory: Directory of the data; None for that of the clone from which jaxrl is imported, otherwise for
        `bench/benchmark` below the current directory if that is a clone, otherwise for the data of this version's
        release, which are downloaded once.

    Returns:
      The results; `origin` says where they are from.

    Raises:
      ResultError: There is no such directory, or nothing can be downloaded.
    """
    where = data_directory(directory)
    origin = "directory" if directory is not None else "download" if where == cached() else "clone"
    return Benchmark(where, tuple(each for each in CELLS if (where / f"{each.stem}.json").is_file()), origin)


def data_directory(directory: str | Path | None, *, writing: bool = False) -> Path:
    """Directory of the data: by default that of the clone or, for reading only, of the current one or of a download.

    Args:
      directory: Directory; None for the default.
      writing: Whether data will be written into it, which only the clone from which jaxrl is imported allows.

    Raises:
      ResultError: The directory does not exist.
    """
    if directory is not None:
        if not Path(directory).is_dir():
            raise ResultError(f"directory takes a directory of benchmark data: {directory} does not exist")
        return Path(directory)
    if of_clone().is_dir():
        return of_clone()
    if writing:
        raise ResultError(f"new data of the benchmark belong in a clone of jaxrl, and {of_clone()} does not exist")
    current = Path("bench", "benchmark").absolute()
    if has_measured(current):
        return current
    target, source = cached(), address()
    if not target.is_dir():
        if source is None:
            raise ResultError(
                "the data of the benchmark come with a clone of jaxrl, in bench/benchmark: "
                f"{of_clone()} does not exist, the current directory is not a clone, and no release is published yet "
                "from which to download them; jaxrl.benchmark.load takes their directory"
            )
        print(f"jaxrl: downloading the benchmark from {source} to {target}", file=sys.stderr)
        download(source, target)
    return target


def require_writers() -> None:
    """Reject a machine without the packages that write the files of a cell.

    Raises:
      ImportError: An extra is not installed.
    """
    for package, extra in (("pyarrow", "parquet"), ("safetensors", "export")):
        if importlib.util.find_spec(package) is None:
            raise MissingPackageError(f"a cell of the benchmark needs the extra `{extra}`: {installing(extra)}")


def store(cell: Cell, result: Result, directory: Path, commit: str) -> None:
    """Write the files of a cell, each atomically, the description last.

    Args:
      cell: Cell.
      result: Result of its training.
      directory: Directory of the data.
      commit: Commit that trained it.
    """
    bad = result.failed_runs()[0]
    if bad.all():
        raise ResultError(f"all {len(bad)} runs of {cell.name} failed, of which the benchmark keeps nothing")
    parquet, policy, origin = (directory / f"{cell.stem}.{suffix}" for suffix in ("parquet", "safetensors", "json"))
    origin.unlink(missing_ok=True)  # a cell whose files are being replaced has no data
    with replacing(parquet, ResultError) as part:
        write_parquet(_curves(result), part, compression="zstd")
    export_policy(result, policy, seed=result.seeds[int(np.argmin(bad))], force=True)
    described = config_of(result.description())
    described[ORIGIN] = {"command": cell.command, "commit": commit, "processor": model()}
    described[CHECKSUMS] = {file.name: checksum_of_file(file) for file in (parquet, policy)}
    with replacing(origin, ResultError) as part:
        part.write_bytes(sealed_json(described))


def _curves(result: Result) -> pandas.DataFrame:
    """A row for each seed and evaluation, nan where any metric of the run is not finite."""
    import pandas

    seeds, steps = np.asarray(result.seeds), result.metrics["env_step"].values
    columns: dict[str, Any] = {"seed": np.repeat(seeds, len(steps)), "env_step": np.tile(steps, len(seeds))}
    failed = _failed(result)
    columns |= {
        name: np.where(failed, np.nan, result.values(name)[0]).reshape(-1).astype(np.float32) for name in METRICS
    }
    return pandas.DataFrame(columns)


def _failed(result: Result) -> np.ndarray:
    """Whether a metric of each run is not finite at each point, bool `[seeds, points]`, but for those of no run."""
    before = np.asarray(result.metrics["env_step"].values) == 0  # metrics of training
    failed = np.zeros((len(result.seeds), len(before)), bool)
    for name in result.metrics.data_vars:
        values = result.values(str(name))[0]
        bad = ~np.isfinite(values).all(axis=tuple(range(2, values.ndim)))
        failed |= bad & ~(before & bad.all(axis=0))
    return failed


def _read(cell: Cell, directory: Path, trust: bool, optimum: float | None) -> Result:
    import pandas

    parquet = directory / f"{cell.stem}.parquet"
    config = _description(cell, parquet, trust) | {OPTIMA: {"return": [optimum]}}
    try:
        table = pandas.read_parquet(parquet, engine="pyarrow")
        seeds, steps = table["seed"].unique(), table["env_step"].unique()
        values = {name: table[name].to_numpy().reshape(1, len(seeds), len(steps)) for name in METRICS}
        attrs: Mapping[str, Any] = config["attributes"]
        metrics = metrics_dataset(values, seeds=seeds.tolist(), env_steps=steps.tolist(), attrs=attrs)
    except ResultError:
        raise
    except ImportError:
        raise MissingPackageError(
            f"the curves of the benchmark need the extra `parquet`: {installing('parquet')}"
        ) from None
    except Exception as error:  # of any library underneath, which a damaged file may drive into any error
        raise ResultError(
            f"{parquet} is damaged, or not of the benchmark: {reason(error)}; {_anew(cell, parquet)}"
        ) from None
    metrics.attrs.setdefault(UNKNOWN, "only its curves are kept")
    return Result(metrics, {}, loaded=config, directory=None)


def _description(cell: Cell, file: Path, trust: bool) -> dict[str, Any]:
    """The description of a cell, after a check that a file matches the checksum in it."""
    origin, anew = file.with_suffix(".json"), _anew(cell, file)
    try:
        config = read_sealed(origin, trust=trust, remedy=f"{anew}; {TRUSTED}")
        expected = config.pop(CHECKSUMS)[file.name]
        if not trust and checksum_of_file(file) != expected:
            raise ResultError(
                f"{file} is damaged, or of another cell: it does not match the checksum in {origin.name}; {anew}; "
                f"{TRUSTED}"
            )
    except ResultError:
        raise
    except Exception as error:  # of files that anyone may have written
        raise ResultError(f"the data of {cell.name} in {origin} are damaged: {reason(error)}; {anew}") from None
    return config


def _anew(cell: Cell, file: Path) -> str:
    """Last words of a message on a damaged file of a cell."""
    return remedy(file, cell.command, "`COMMAND` trains the cell again")
