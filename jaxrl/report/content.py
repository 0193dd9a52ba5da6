"""Contents of a report's page: data on each run and on all runs together, ready for JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from envs.errors import UserValueError
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
from jaxrl.report.runs import Run, differences, facts, notes, plain_config
from jaxrl.results.plotting.curves import UNITS
from jaxrl.results.plotting.regret import NAMES
from jaxrl.results.plotting.style import LINE_STYLES, MOST_LINES, style
from jaxrl.results.text_tables import spreadsheet_cell
from jaxrl.version import REPOSITORY, __version__

SHOWN = 12  # maximum number of lines shown initially; of more lines the best are shown
SHOWN_OF_MANY = 8
DASHES = dict(zip(LINE_STYLES, ("", "8 4", "8 3 2 3", "2 3"), strict=True))
DISCOUNTS_DIFFER = (
    "It is under different discounts, which have no common scale: evaluate_result(discount=) evaluates all under one."
)
MADE = (
    f"Made by jaxrl {__version__}. Intervals: bootstrap to Student's width (interquartile mean), Student t (mean), "
    "Clopper and Pearson (profile, paired P(better)) and Newcombe (unpaired P(better))."
)

__all__ = ["MADE", "citation", "line_width", "look", "report_on"]


def report_on(
    runs: list[Run],
    metric: str | None,
    baseline: str | None,
    higher: Sequence[str],
    lower: Sequence[str],
    confidence: float,
) -> dict[str, Any]:
    """The data of a page with a report on runs, ready for JSON; arguments as of `jaxrl.write_report`."""
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
        "lines": [_named(line) | look(at, line_width(runs[line.run], runs)) for at, line in enumerate(lines)],
        "left_out": len(every) - len(lines),
        "steps": [steps[points_of(len(steps))].tolist() for steps in every_step],
        "metrics": metrics,
        "swept": sum(any(entry["importance"][at] for entry in metrics.values()) for at in range(len(runs))),
        "notes": [*notes(runs), *more],
        "runs": [{"name": run.name, "facts": facts(run), "config": plain_config(run)} | _again(run) for run in runs],
        "differences": differences(runs),
        "failures": {"listed": listed, "total": total, "runs": sum(run.finite[..., 0].size for run in runs)},
        "cite": citation(),
        "made": MADE,
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


def look(index: int, width: float = 2.0) -> dict[str, Any]:
    """Colour, dashes and width, in pixels, of the line at a position on the page."""
    drawn = style(index)
    return {"colour": drawn["color"], "dash": DASHES[drawn["linestyle"]], "width": width}


def line_width(run: Run, runs: Iterable[Run]) -> float:
    """Width in pixels of the line of a run among others: among results of the benchmark, others are emphasised.

    Args:
      run: Run.
      runs: All runs, this one included.
    """
    among = any(each.is_of_benchmark for each in runs)
    return 4.0 if among and not run.is_of_benchmark else 2.0


def _axis(metric: str) -> str:
    """The label of a metric's axis, without the estimate."""
    text = UNITS.get(metric) or NAMES.get(metric, "").partition(" (mean")[0]
    return text or metric.replace("_", " ")


def _again(run: Run) -> dict[str, str]:
    """Instructions to repeat a run: the recorded files, and code for one setting of a known algorithm."""
    versions = run.config.get("versions", {})
    packages = " ".join(f"{name}=={versions[name]}" for name in ("jaxrl", "jax", "jaxlib") if name in versions)
    if run.is_of_benchmark:
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


def citation() -> str:
    """BibTeX entries of jaxrl and of the source of the estimates."""
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
