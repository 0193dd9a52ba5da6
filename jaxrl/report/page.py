"""Comparison of runs on one self-contained page: curves, estimates, differences, failures."""

from __future__ import annotations

import contextlib
import errno
import html
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from envs.arguments import check_flag
from envs.errors import UserTypeError, UserValueError
from envs.files import replacing
from jaxrl.report.benchmark_arguments import benchmark_of, check_benchmark
from jaxrl.report.beside_benchmark import check_baseline, of_benchmark, over_benchmark, runs_by_task
from jaxrl.report.content import report_on
from jaxrl.report.runs import Run, runs_of
from jaxrl.results.format import counted
from jaxrl.results.result import Result

if TYPE_CHECKING:
    from jaxrl.benchmark.data import Benchmark

PAGE, SCRIPTS = "page.html", ("chart.js", "page.js")
OVERVIEW = "all tasks"  # name of the report over several

__all__ = ["write_report", "write_reports"]


def write_report(
    runs: Sequence[str | Path | Result] | Mapping[str, str | Path | Result | Sequence[str | Path | Result]],
    out: str | Path,
    *,
    metric: str | None = None,
    baseline: str | None = None,
    higher: Sequence[str] = (),
    lower: Sequence[str] = (),
    confidence: float = 0.95,
    title: str | None = None,
    trust: bool = False,
    to: Literal["benchmark"] | Benchmark | None = None,
) -> Path:
    """Write a self-contained page that compares runs; it opens in any browser, without a network.

    It contains estimates, and single runs only if they failed, so its size does not grow with the number of seeds.

    Args:
      runs: Run directories, directories of searches, or results; the keys of a mapping are their names, which are
        otherwise those of the directories. A search is shown by the default setting and the incumbent on its test
        seeds, the states of its trials, and the importance of its hyper-parameters. With `to`, a name may have a list
        of runs on different environments.
      out: File to write, `.html`; an existing file is replaced.
      metric: Metric shown first; None for `return`, `regret` or `reward`. Every metric that all runs have can be
        selected on the page.
      baseline: Setting with which others are compared initially, by its label on the page or by the name of its run;
        None for the first one. Of several reports, one without a run of this name uses its first one, too.
      higher: Further metrics for which higher values are better; returns, rewards and optimal pulls are known.
      lower: Further metrics for which lower values are better; regrets are known. Metrics without a direction get no
        probability of improvement.
      confidence: Confidence level of every interval, in (0, 1).
      title: Title of the page.
      trust: Whether to read files that do not match their checksums.
      to: "benchmark", or data of the benchmark from `jaxrl.benchmark.load`, for further lines, of all algorithms of
        `jaxrl.benchmark` that have data on the environment of the runs, up to the last environment step of the runs.
        For several environments, the page has a report on each and before these an overview, and each run must have one
        setting; runs without names have those of their algorithms. The overview covers the environments whose
        references are stored, the returns of random actions and of the optimum or the best algorithm, which count as 0
        and 1.

    Returns:
      The file.

    Raises:
      ResultError: A directory holds no result, or the runs have no metric in common.
      ValueError: The suffix is not `.html`, there is no run, a run is listed twice, a name is unknown, or the file
        cannot be written. With `to`, also: the benchmark has no data on an environment, or its returns there have
        another range; on several environments, two runs of one have one name, or a run has several settings or
        other parameters than the benchmark.
      TypeError: A name has a list of runs without `to`, or something else than runs.
    """
    check_flag("trust", trust)
    if to is not None:
        check_benchmark("to", to)
    file = _checked(out, confidence)
    by_task: dict[str, list[Run]] = {}
    benchmark = None
    if to is None:
        _check_single(runs)
        chosen = runs_of(runs, trust=trust)
    else:
        by_task = runs_by_task(runs, trust=trust)
        benchmark = benchmark_of(to)
        for task, own in by_task.items():
            own += of_benchmark(benchmark, task, own, trust)
        chosen = [run for own in by_task.values() for run in own]
        if len(by_task) > 1:
            check_baseline(baseline, by_task)
    heading = title or _heading(list(dict.fromkeys(run.name for run in chosen)))
    with _replaced(file) as part:
        content: dict[str, Any]
        if benchmark is not None and len(by_task) > 1:
            overview = over_benchmark(benchmark, by_task, baseline, confidence, trust)
            reports = {}
            for task, own in by_task.items():
                base = baseline if baseline in [run.name for run in own] else None
                reports[task] = report_on(own, metric, base, higher, lower, confidence)
            content = _of_tasks(reports, overview)
            settings = sum(len(report["lines"]) for report in reports.values())
        else:
            content = report_on(chosen, metric, baseline, higher, lower, confidence)
            settings = len(content["lines"])
        part.write_text(_page(heading, _description(chosen, settings), content), encoding="utf-8")
    return file


def write_reports(
    tasks: Mapping[str, Mapping[str, str | Path | Result]],
    out: str | Path,
    *,
    title: str,
    description: str,
    overview: Mapping[str, Any] | None = None,
    confidence: float = 0.95,
) -> Path:
    """Write one page with a report for each task, of which a reader selects one; arguments as of `write_report`.

    Args:
      tasks: Runs by name, by task.
      out: File to write, `.html`; an existing file is replaced.
      title: Title of the page.
      description: Sentence below it.
      overview: Report over all tasks, as of `report_over_tasks`, that is shown first; None for none.
      confidence: Confidence level of every interval, in (0, 1).
    """
    if overview is not None:
        _check_names(tasks)
    file = _checked(out, confidence)
    with _replaced(file) as part:
        reports = {task: report_on(runs_of(runs), None, None, (), (), confidence) for task, runs in tasks.items()}
        part.write_text(_page(title, description, _of_tasks(reports, overview)), encoding="utf-8")
    return file


def _of_tasks(reports: Mapping[str, Any], overview: Mapping[str, Any] | None) -> dict[str, Any]:
    """The data of a page with a report for each task, of which the overview is shown first."""
    if overview is not None:
        _check_names(reports)
    return {"tasks": ({} if overview is None else {OVERVIEW: overview}) | {**reports}}


def _check_names(tasks: Mapping[str, Any]) -> None:
    if OVERVIEW in tasks:
        raise UserValueError(f"tasks has the name {OVERVIEW!r}, which is that of the overview")


def _check_single(runs: Any) -> None:
    """Reject several runs of one name, which only `to` takes."""
    if isinstance(runs, Mapping):
        for name, source in runs.items():
            if isinstance(source, Sequence) and not isinstance(source, str):
                raise UserTypeError(
                    f"runs takes one run for each name, got a list for {name!r}; with to='benchmark' it takes a list"
                )


def _checked(out: str | Path, confidence: float) -> Path:
    file = Path(out)
    if file.suffix.lower() != ".html":
        raise UserValueError(f"out is {str(file)!r}; a report's name ends in .html.")
    if not 0.0 < confidence < 1.0:
        raise UserValueError(f"confidence is {confidence!r}; it takes a number between 0 and 1, such as 0.95.")
    return file


@contextlib.contextmanager
def _replaced(file: Path) -> Iterator[Path]:
    """A file that replaces another one at the end, which fails early if it is not writable."""
    with replacing(file) as part:
        if file.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        part.touch()
        yield part


def _page(title: str, description: str, content: Mapping[str, Any]) -> str:
    """The text of a page with its data and scripts."""
    parts = {
        "TITLE": html.escape(title),
        "DESCRIPTION": html.escape(description),
        # The data must not contain the end tag of its script.
        "DATA": json.dumps(content, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
        "SCRIPT": "\n".join(_template(name) for name in SCRIPTS),
    }
    return re.sub("__(TITLE|DESCRIPTION|DATA|SCRIPT)__", lambda match: parts[match[1]], _template(PAGE))


def _heading(names: Sequence[str]) -> str:
    """The title of a page on lines with these names."""
    shown = ", ".join(names) if len(names) <= 4 else f"{', '.join(names[:3])} and {len(names) - 3} more"
    return f"Comparison of {shown}" if len(names) > 1 else f"Report on {shown}"


def _template(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _description(runs: Sequence[Run], settings: int) -> str:
    count = sum(run.finite[..., 0].size for run in runs)
    whats = dict.fromkeys(f"{run.algorithm} on {run.environment}" for run in runs)
    what = ", ".join(whats) if len(whats) <= 4 else f"{len(whats)} pairs of algorithm and environment"
    results = f"{counted(len(runs), 'result')}, {counted(settings, 'setting')}"
    return f"{what}: {results}, {counted(count, 'run')} in all."
