"""Runs beside each other on one page that needs nothing else: curves, estimates, differences, failures."""

from __future__ import annotations

import errno
import html
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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
from jaxrl.results.plotting.curves import UNITS
from jaxrl.results.plotting.regret import NAMES
from jaxrl.results.plotting.style import LINE_STYLES, MOST_LINES, style
from jaxrl.results.result import Result
from jaxrl.results.words import counted
from jaxrl.version import REPOSITORY, __version__

PAGE, SCRIPTS = "page.html", ("chart.js", "page.js")
SHOWN = 12  # lines that are all shown at first; of more, the best
SHOWN_OF_MANY = 8
DASHES = dict(zip(LINE_STYLES, ("", "8 4", "8 3 2 3", "2 3"), strict=True))
DISCOUNTS_DIFFER = "Each setting's own discount weighs it: settings of different discounts have no common scale here."

__all__ = ["write_report"]


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
) -> Path:
    """Writes a page that compares runs: it opens in any browser, without a network, and refers to nothing outside.

    It holds estimates and no single runs but those that failed, so that a thousand seeds take no more room than ten.

    Args:
      runs: run directories, directories of searches, or results; a mapping gives them names, which are otherwise
        those of the directories. Of a search come the default setting and the incumbent on its test seeds, how its
        trials ended, and which hyper-parameter mattered in them.
      out: file to write, `.html`; one that is there is replaced.
      metric: the page begins with it; `return`, `regret` or `reward` if None. Every metric that all runs have can be
        chosen there.
      baseline: the setting that others are compared with at first, by the label that the page gives it or by its
        run's name; the first one if None.
      higher, lower: metrics of which higher, or lower, values are better, beside those known: of returns, rewards and
        optimal pulls higher ones are, of regrets lower ones. Others get no probability of improvement.
      confidence: of every interval.
      title: of the page.
      trust: whether to read files that do not have their checksums.

    Returns:
      The file.

    Raises:
      ResultError: a directory holds no result, or the runs have no metric in common.
      ValueError: another suffix, no run, a run twice, an unknown name, or a file that cannot be written.
    """
    file = Path(out)
    if file.suffix.lower() != ".html":
        raise UserValueError(f"out is {str(file)!r}; a report's name ends in .html.")
    if not 0.0 < confidence < 1.0:
        raise UserValueError(f"confidence is {confidence!r}; it takes a number between 0 and 1, such as 0.95.")
    given = runs_of(runs, trust=trust)
    names = [run.name for run in given]
    shown = ", ".join(names) if len(names) <= 4 else f"{', '.join(names[:3])} and {len(names) - 3} more"
    heading = title or (f"Comparison of {shown}" if len(names) > 1 else f"Report on {shown}")
    with replacing(file) as part:
        if file.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        part.touch()  # whoever cannot be written is told so before the work
        told = _report(given, metric, baseline, higher, lower, confidence)
        parts = {
            "TITLE": html.escape(heading),
            "DESCRIPTION": html.escape(_description(given, told["lines"])),
            # Nothing in the data may end the script that it is in.
            "DATA": json.dumps(told, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
            "SCRIPT": "\n".join(_template(name) for name in SCRIPTS),
        }
        page = re.sub("__(TITLE|DESCRIPTION|DATA|SCRIPT)__", lambda match: parts[match[1]], _template(PAGE))
        part.write_text(page, encoding="utf-8")
    return file


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
    """What the page knows, ready for JSON."""
    names, left_out = common_metrics(runs)
    better = directions(names, runs, higher, lower)
    first = first_metric(metric, names, better)
    every = lines_of(runs)
    base = _baseline(baseline, every, runs)
    lines = chosen_lines(every, runs, first, better[first], base)
    place = lines.index(base)
    metrics = {}
    for name in names:
        told = estimates(runs, lines, name, better[name], place, confidence)
        undecided = name.removesuffix("_sampled") == DISCOUNTED and not better[name]
        told |= {"direction": better[name], "note": DISCOUNTS_DIFFER if undecided else "", "text": _axis(name)}
        metrics[name] = told
    listed, total = failures(runs, lines)
    more = [f"Metrics that only some of the runs have are left out: {', '.join(left_out)}."] if left_out else []
    bandits = all("pulls" in run.result.metrics for run in runs)
    return {
        "percent": f"{100 * confidence:g} %",
        "unit": "pulls" if bandits else "environment steps",
        "first": first,
        "estimate": "mean" if bandits else "iqm",  # a regret is a mean
        "baseline": place,
        "shown": _shown(lines, metrics[first], better[first]),
        "looks": MOST_LINES,
        "lines": [{"label": line.label, "run": line.run} | _look(at) for at, line in enumerate(lines)],
        "left_out": len(every) - len(lines),
        "steps": [[int(step) for step in _steps(run)] for run in runs],
        "metrics": metrics,
        "swept": sum(any(told["importance"][at] for told in metrics.values()) for at in range(len(runs))),
        "notes": [*notes(runs), *more],
        "runs": [{"name": run.name, "facts": facts(run), "config": plain_config(run)} | _again(run) for run in runs],
        "differences": differences(runs),
        "failures": {"listed": listed, "total": total, "runs": sum(run.finite[..., 0].size for run in runs)},
        "cite": _citation(),
        "made": f"Made by jaxrl {__version__}. Intervals: bootstrap to Student's width (interquartile mean), "
        "percentile bootstrap (profile, probability of improvement) and Student t (mean).",
    }


def _baseline(baseline: str | None, lines: list[Line], runs: list[Run]) -> Line:
    """The line of a label, or the first one of a run's name."""
    if baseline is None:
        return lines[0]
    by_name = {runs[line.run].name: line for line in reversed(lines)} | {line.label: line for line in lines}
    if baseline not in by_name:
        hint = near(baseline, by_name) or f"; it takes a setting's label, such as {lines[0].label!r}."
        raise UserValueError(f"baseline is {baseline!r}{hint}")
    return by_name[baseline]


def _shown(lines: list[Line], told: Mapping[str, Any], direction: int) -> list[int]:
    """Which lines are drawn at first."""
    if len(lines) <= SHOWN:
        return list(range(len(lines)))
    ends = [row[0] for row in told["numbers"]]
    worth = [float("-inf") if end is None else end * (direction or 1) for end in ends]
    return sorted(sorted(range(len(lines)), key=lambda at: -worth[at])[:SHOWN_OF_MANY])


def _look(index: int) -> dict[str, str]:
    look = style(index)
    return {"colour": look["color"], "dash": DASHES[look["linestyle"]]}


def _steps(run: Run) -> Any:
    steps = run.result.metrics["env_step"].values
    return steps[points_of(len(steps))]


def _axis(metric: str) -> str:
    """What an axis says of a metric; estimates are named elsewhere."""
    text = UNITS.get(metric) or NAMES.get(metric, "").partition(" (mean")[0]
    return text or metric.replace("_", " ")


def _description(runs: list[Run], lines: list[dict[str, Any]]) -> str:
    count = sum(run.finite[..., 0].size for run in runs)
    whats = dict.fromkeys(f"{run.algorithm} on {run.environment}" for run in runs)
    what = ", ".join(whats) if len(whats) <= 4 else f"{len(whats)} pairs of algorithm and environment"
    results = f"{counted(len(runs), 'result')}, {counted(len(lines), 'setting')}"
    return f"{what}: {results}, {counted(count, 'run')} in all."


def _again(run: Run) -> dict[str, str]:
    """How to have a run again: what was recorded, and code where one setting of a known algorithm ran."""
    versions = run.config.get("versions", {})
    wanted = " ".join(f"{name}=={versions[name]}" for name in ("jaxrl", "jax", "jaxlib") if name in versions)
    if run.search is not None and not run.search.tests:
        return {"again": "The call of the search and its trials are told by search.json.", "code": ""}
    text = (
        "Its configuration is config.json: algorithm, environment, hyper-parameters, seeds and versions "
        f"({wanted}). Equal seeds give equal numbers, bit for bit at one block width on one kind of device."
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
    where = REPOSITORY.partition("//")[2]
    return (
        "@software{jaxrl, title = {jaxrl: reinforcement learning in JAX under any discount},\n"
        f"  version = {{{__version__}}}, note = {{{where}}}}}\n"
        "@inproceedings{agarwal2021deep,\n"
        "  title = {Deep Reinforcement Learning at the Edge of the Statistical Precipice},\n"
        "  author = {Agarwal, Rishabh and Schwarzer, Max and Castro, Pablo Samuel and Courville, Aaron\n"
        "            and Bellemare, Marc G.},\n"
        "  booktitle = {Advances in Neural Information Processing Systems}, year = {2021}}"
    )
