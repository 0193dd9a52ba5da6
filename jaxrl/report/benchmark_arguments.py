"""Arguments that are the word "benchmark" or its data: whether they are right, and values on its tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from envs.arguments import check_choice
from envs.errors import UserTypeError, UserValueError
from jaxrl.report.runs import Run, described, runs_of
from jaxrl.report.text import cell
from jaxrl.results.dataset import NO_RANGE, ResultError, range_of

if TYPE_CHECKING:
    from jaxrl.benchmark.data import Benchmark

BENCHMARK = "benchmark"  # argument that adds its lines, and first word of their names

__all__ = [
    "BENCHMARK",
    "benchmark_of",
    "check_benchmark",
    "check_metric",
    "check_normalise",
    "check_task_of_benchmark",
    "references_of_benchmark",
]


def check_benchmark(name: str, value: Any) -> None:
    """Reject an argument that is neither the word "benchmark" nor its data, none of which are loaded.

    Args:
      name: Name of the argument.
      value: Word, or data of the benchmark.

    Raises:
      ValueError: The value is another word.
      TypeError: The value is of another kind.
    """
    from jaxrl.benchmark.data import Benchmark

    if isinstance(value, Benchmark):
        return
    if not isinstance(value, str):
        raise UserTypeError(f"{name} takes {BENCHMARK!r}, or its data from jaxrl.benchmark.load, got {value!r}")
    check_choice(name, value, (BENCHMARK,))


def check_normalise(normalise: Any) -> None:
    """Reject an argument of another kind than `compare` takes as `normalise`.

    Args:
      normalise: Values by task, the word "benchmark", its data, or None.

    Raises:
      TypeError: It is of another kind.
    """
    from jaxrl.benchmark.data import Benchmark

    if normalise is not None and normalise != BENCHMARK and not isinstance(normalise, Mapping | Benchmark):
        raise UserTypeError(
            f"normalise is {normalise!r}; it takes two numbers for each task, such as {{'cartpole': (9.5, 500.0)}}, "
            f"{BENCHMARK!r}, or its data."
        )


def benchmark_of(value: Literal["benchmark"] | Benchmark) -> Benchmark:
    """The benchmark that an argument is, or that it names by the word "benchmark".

    Args:
      value: Word, or data of the benchmark.

    Raises:
      ResultError: There are no data.
    """
    from jaxrl.benchmark.data import load

    return load() if isinstance(value, str) else value


def check_metric(normalise: Any, metric: str) -> None:
    """Reject values of the benchmark for another metric than the return."""
    if normalise is not None and not isinstance(normalise, Mapping) and metric != "return":
        raise UserValueError(f"normalise takes values of the benchmark for the return alone, not for {metric}")


def references_of_benchmark(
    benchmark: Benchmark, runs: Mapping[str, Sequence[Run]], trust: bool
) -> tuple[dict[str, tuple[float, float]], str]:
    """The values that count as 0 and as 1 on each task, and a phrase that describes them."""
    from jaxrl.benchmark.references import OPTIMUM, reference

    values, origins = {}, []
    for task, each in runs.items():
        try:
            low, high, origin = reference(benchmark, task, trust=trust)
        except ResultError:
            raise
        except UserValueError as error:
            raise UserValueError(f"normalise takes values of the benchmark: {error}") from None
        remedy = f", or two numbers for each task, such as {{{task!r}: (0.0, 100.0)}}"
        check_task_of_benchmark(benchmark, task, each, trust, argument="normalise", remedy=remedy)
        values[task] = (low, high)
        origins.append(f"the optimum of {task}" if origin == OPTIMUM else f"{origin} of the benchmark on {task}")
    return values, f"0 at random actions, and 1 at {', '.join(origins)}"


def check_task_of_benchmark(
    benchmark: Benchmark, task: str, runs: Sequence[Run], trust: bool, *, argument: str, remedy: str = ""
) -> None:
    """Reject runs on another environment than the task of the benchmark with their name, or on other parameters.

    Parameters are compared with those of a stored cell, so that only the name counts where no cell has data.

    Args:
      benchmark: Data of the benchmark.
      task: Name of the task.
      runs: Runs.
      trust: Whether to read files that do not match their checksums.
      argument: Name of the argument, for errors.
      remedy: End of the error's sentence.

    Raises:
      ValueError: The environment of a run is another one.
    """
    stored = next((each for each in benchmark.cells if each.environment == task), None)
    theirs = None if stored is None else runs_of([benchmark.result(stored.algorithm, task, trust=trust)])[0]
    for run in runs:
        reason = run.environment if run.environment != task else ""
        if theirs is not None and not reason:
            reason = _other_environment(run, theirs)
        if reason:
            raise UserValueError(
                f"{argument} takes values of the benchmark, whose {task} is not the environment of {run.name} "
                f"({reason}){remedy}."
            )


def _other_environment(run: Run, stored: Run) -> str:
    """A phrase on the range or the parameters in which the environment of a run differs from that of a stored one."""
    ranges = [range_of(each.attributes, "return") for each in (run, stored)]
    if NO_RANGE not in ranges and ranges[0] != ranges[1]:
        return f"returns in {[*ranges[0]]}, there {[*ranges[1]]}"
    ours, theirs = described(run), described(stored)
    if "env_params" in ours:  # a sentence in place of parameters that are of another kind
        return f"its parameters are {ours['env_params']}"
    both = [path for path in ours if path.startswith(("environment.", "env_params.")) and path in theirs]
    texts = {path: (cell(ours[path]), cell(theirs[path])) for path in both}
    return ", ".join(f"{path} {own}, there {other}" for path, (own, other) in texts.items() if own != other)
