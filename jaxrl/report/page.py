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
from typing import Any, Literal

from envs.arguments import check_choice, check_flag
from envs.errors import UserValueError
from envs.files import replacing
from envs.spelling import near
from jaxrl.report.data import (
    DISCOUNTED,
    Line,
    chosen_lines,
    common_metrics,
    directions,
    estimates,
    failures,
    first_metric,
    lines_of,
    points_of,
)
from jaxrl.report.runs import Run, differences, facts, notes, plain_config, runs_of
from jaxrl.results.dataset import NO_RANGE, range_of
from jaxrl.results.format import counted
from jaxrl.results.plotting.curves import UNITS
from jaxrl.results.plotting.regret import NAMES
from jaxrl.results.plotting.style import LINE_STYLES, MOST_LINES, style
from jaxrl.results.result import Result
from jaxrl.results.text_tables import spreadsheet_cell
from jaxrl.version import REPOSITORY, __version__

PAGE, SCRIPTS = "page.html", ("chart.js", "page.js")
SHOWN = 12  # maximum number of lines shown initially; of more lines the best are shown
SHOWN_OF_MANY = 8
DASHES = dict(zip(LINE_STYLES, ("", "8 4", "8 3 2 3", "2 3"), strict=True))
DISCOUNTS_DIFFER = "Each setting's own discount weights it: settings with different discounts have no common scale."

__all__ = ["write_report", "write_reports"]


def write_report(
    runs: Sequence[str | Path | Result] | Mapping[str, str | Path | Result],
    out: str | Path,
    *,
    metric: str | None = None,
    baseline: str | None = None,
    higher: Sequence[str] = (),
    lower: Sequence[str] = (),
    confidence: float = 0.95,
    title: str | None = None,
    trust: bool = False,
    to: Literal["benchmark"] | None = None,
) -> Path:
    """Write a self-contained page that compares runs; it opens in any browser, without a network.

    It contains estimates, and single runs only if they failed, so its size does not grow with the number of seeds.

    Args:
      runs: Run directories, directories of searches, or results; the keys of a mapping are their names, which are
        otherwise those of the directories. A search is shown by the default setting and the incumbent on its test
        seeds, the states of its trials, and the importance of its hyper-parameters.
      out: File to write, `.html`; an existing file is replaced.
      metric: Metric shown first; None for `return`, `regret` or `reward`. Every metric that all runs have can be
        selected on the page.
      baseline: Setting with which others are compared initially, by its label on the page or by the name of its run;
        None for the first one.
      higher: Further metrics for which higher values are better; returns, rewards and optimal pulls are known.
      lower: Further metrics for which lower values are better; regrets are known. Metrics without a direction get no
        probability of improvement.
      confidence: Confidence level of every interval, in (0, 1).
      title: Title of the page.
      trust: Whether to read files that do not match their checksums.
      to: "benchmark" for further lines, of all algorithms of `jaxrl.benchmark` that have data on the environment of
        the runs, which is the same for all, up to the last environment step of the runs.

    Returns:
      The file.

    Raises:
      ResultError: A directory holds no result, or the runs have no metric in common.
      ValueError: The suffix is not `.html`, there is no run, a run is listed twice, a name is unknown, or the file
        cannot be written.
    """
    check_flag("trust", trust)
    if to is not None:
        check_choice("to", to, ("benchmark",))
    file = _checked(out, confidence)
    chosen = runs_of(runs, trust=trust)
    chosen += _of_benchmark(chosen, trust) if to else []
    names = [run.name for run in chosen]
    shown = ", ".join(names) if len(names) <= 4 else f"{', '.join(names[:3])} and {len(names) - 3} more"
    heading = title or (f"Comparison of {shown}" if len(names) > 1 else f"Report on {shown}")
    with _replaced(file) as part:
        content = _report(chosen, metric, baseline, higher, lower, confidence)
        part.write_text(_page(heading, _description(chosen, content["lines"]), content), encoding="utf-8")
    return file


def write_reports(
    tasks: Mapping[str, Mapping[str, str | Path | Result]],
    out: str | Path,
    *,
    title: str,
    description: str,
    confidence: float = 0.95,
) -> Path:
    """Write one page with a report for each task, of which a reader selects one; arguments as of `write_report`.

    Args:
      tasks: Runs by name, by task.
      out: File to write, `.html`; an existing file is replaced.
      title: Title of the page.
      description: Sentence below it.
      confidence: Confidence level of every interval, in (0, 1).
    """
    file = _checked(out, confidence)
    with _replaced(file) as part:
        reports = {task: _report(runs_of(runs), None, None, (), (), confidence) for task, runs in tasks.items()}
        part.write_text(_page(title, description, {"tasks": reports}), encoding="utf-8")
    return file


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


def _of_benchmark(runs: Sequence[Run], trust: bool) -> list[Run]:
    """Runs of the benchmark on the environment of other runs, up to their last environment step."""
    from jaxrl.benchmark.data import load, up_to

    benchmark, tasks = load(), list(dict.fromkeys(run.environment for run in runs))
    if len(tasks) > 1:
        raise UserValueError(f"to takes runs on one environment, got {', '.join(tasks)}; write a report for each")
    (task,) = tasks
    last = max(run.last_step for run in runs)
    results = {f"benchmark {name}": parts[0] for name, parts in benchmark.results(task, trust=trust).items()}
    added = runs_of({name: up_to(result, last) for name, result in results.items()})
    for run in runs:
        ranges = [range_of(each.attributes, "return") for each in (run, added[0])]
        if NO_RANGE not in ranges and ranges[0] != ranges[1]:
            raise UserValueError(
                f"to is 'benchmark', whose returns on {task} lie in {[*ranges[1]]}, and those of {run.name} in "
                f"{[*ranges[0]]}"
            )
    return added


def _template(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _report(
    runs: list[Run],
    metric: str | None,
    baseline: str | None,
    higher: Sequence[str],
    lower: Sequence[str],
    confidence: float,
) -> dict[str, Any]:
    """The data of the page, ready for JSON."""
    names, left_out = common_metrics(runs)
    better = directions(names, runs, higher, lower)
    first = first_metric(metric, names, better)
    every = lines_of(runs)
    base = _baseline(baseline, every, runs)
    lines = chosen_lines(every, runs, first, better[first], base)
    place = lines.index(base)
    metrics = {}
    for name in names:
        entry = estimates(runs, lines, name, better[name], place, confidence)
        undecided = name.removesuffix("_sampled") == DISCOUNTED and not better[name]
        entry |= {"direction": better[name], "note": DISCOUNTS_DIFFER if undecided else "", "text": _axis(name)}
        metrics[name] = entry
    listed, total = failures(runs, lines)
    more = [f"Metrics that only some of the runs have are omitted: {', '.join(left_out)}."] if left_out else []
    bandits = all("pulls" in run.result.metrics for run in runs)
    every_step = [run.result.metrics["env_step"].values for run in runs]
    return {
        "percent": f"{100 * confidence:g} %",
        "unit": "pulls" if bandits else "environment steps",
        "first": first,
        "estimate": "mean" if bandits else "iqm",  # regret is reported as a mean
        "baseline": place,
        "shown": _shown(lines, metrics[first], better[first]),
        "looks": MOST_LINES,
        "lines": [_named(line) | _look(at) for at, line in enumerate(lines)],
        "left_out": len(every) - len(lines),
        "steps": [steps[points_of(len(steps))].tolist() for steps in every_step],
        "metrics": metrics,
        "swept": sum(any(entry["importance"][at] for entry in metrics.values()) for at in range(len(runs))),
        "notes": [*notes(runs), *more],
        "runs": [{"name": run.name, "facts": facts(run), "config": plain_config(run)} | _again(run) for run in runs],
        "differences": differences(runs),
        "failures": {"listed": listed, "total": total, "runs": sum(run.finite[..., 0].size for run in runs)},
        "cite": _citation(),
        "made": f"Made by jaxrl {__version__}. Intervals: bootstrap to Student's width (interquartile mean), "
        "percentile bootstrap (profile, probability of improvement) and Student t (mean).",
    }


def _baseline(baseline: str | None, lines: list[Line], runs: list[Run]) -> Line:
    """The line with a label, or the first line of the run with that name."""
    if baseline is None:
        return lines[0]
    by_name = {runs[line.run].name: line for line in reversed(lines)} | {line.label: line for line in lines}
    if baseline not in by_name:
        hint = near(baseline, by_name) or f"; it takes a setting's label, such as {lines[0].label!r}."
        raise UserValueError(f"baseline is {baseline!r}{hint}")
    return by_name[baseline]


def _shown(lines: list[Line], entry: Mapping[str, Any], direction: int) -> list[int]:
    """Positions of the lines that are drawn initially."""
    if len(lines) <= SHOWN:
        return list(range(len(lines)))
    ends = [row[0] for row in entry["numbers"]]
    worth = [float("-inf") if end is None else end * (direction or 1) for end in ends]
    return sorted(sorted(range(len(lines)), key=lambda at: -worth[at])[:SHOWN_OF_MANY])


def _named(line: Line) -> dict[str, Any]:
    """The label of a line on the page, and in the table that a reader downloads as CSV."""
    return {"label": line.label, "cell": spreadsheet_cell(line.label), "run": line.run}


def _look(index: int) -> dict[str, str]:
    look = style(index)
    return {"colour": look["color"], "dash": DASHES[look["linestyle"]]}


def _axis(metric: str) -> str:
    """The label of a metric's axis, without the estimate."""
    text = UNITS.get(metric) or NAMES.get(metric, "").partition(" (mean")[0]
    return text or metric.replace("_", " ")


def _description(runs: list[Run], lines: list[dict[str, Any]]) -> str:
    count = sum(run.finite[..., 0].size for run in runs)
    whats = dict.fromkeys(f"{run.algorithm} on {run.environment}" for run in runs)
    what = ", ".join(whats) if len(whats) <= 4 else f"{len(whats)} pairs of algorithm and environment"
    results = f"{counted(len(runs), 'result')}, {counted(len(lines), 'setting')}"
    return f"{what}: {results}, {counted(count, 'run')} in all."


def _again(run: Run) -> dict[str, str]:
    """Instructions to repeat a run: the recorded files, and code for one setting of a known algorithm."""
    versions = run.config.get("versions", {})
    packages = " ".join(f"{name}=={versions[name]}" for name in ("jaxrl", "jax", "jaxlib") if name in versions)
    if "benchmark" in run.config and run.path is None:
        origin = run.config["benchmark"]
        return {"again": f"{origin['command']} trains it, at commit {origin['commit']} ({packages}).", "code": ""}
    if run.search is not None and not run.search.tests:
        return {"again": "search.json records the call of the search and its trials.", "code": ""}
    text = (
        "Its configuration is in config.json: algorithm, environment, hyper-parameters, seeds and versions "
        f"({packages}). Equal seeds give equal numbers, bit for bit at one block width on one kind of device."
    )
    return {"again": text, "code": _code(run)}


def _code(run: Run) -> str:
    if run.path is None or len(run.result.settings) > 1 or run.config.get("algorithm") is None:
        return ""
    attributes, steps = run.attributes, [int(step) for step in run.result.metrics["env_step"].values]
    options = [f"env_steps={run.last_step}", f"evals={len(steps)}"]
    options += [
        f"{name}={attributes[name]!r}" for name in ("eval_episodes", "block", "precision") if name in attributes
    ]
    return (
        "import jax, jaxrl\n\n"
        f"result = jaxrl.load_result({run.path!r})  # the configuration, seeds and policies\n"
        "params = jax.tree.map(lambda leaf: leaf[0], result.env_params)\n"
        f"again = jaxrl.train(result.algo, seeds=result.seeds, env_params=params, {', '.join(options)})\n"
    )


def _citation() -> str:
    where = REPOSITORY.partition("//")[2] or "name the commit of your clone"
    return (
        "@software{jaxrl, title = {jaxrl: reinforcement learning in JAX under any discount},\n"
        f"  version = {{{__version__}}}, note = {{{where}}}}}\n"
        "@inproceedings{agarwal2021deep,\n"
        "  title = {Deep Reinforcement Learning at the Edge of the Statistical Precipice},\n"
        "  author = {Agarwal, Rishabh and Schwarzer, Max and Castro, Pablo Samuel and Courville, Aaron\n"
        "            and Bellemare, Marc G.},\n"
        "  booktitle = {Advances in Neural Information Processing Systems}, year = {2021}}"
    )
