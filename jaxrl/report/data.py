"""Data of a report's page: estimates, which are computed here, and single runs only if they failed."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from envs.errors import UserValueError
from envs.spelling import near
from jaxrl.report.importance import importance
from jaxrl.report.pairs import Scores, chance_of, chance_rows
from jaxrl.report.runs import Run
from jaxrl.results.dataset import EVAL_DISCOUNT, MAIN_METRICS, ResultError, range_of
from jaxrl.results.mean_curves import mean_interval
from jaxrl.results.statistics import Interval, bootstrap_interval, iqm, performance_profile
from jaxrl.results.storage import metrics_of_runs
from jaxrl.results.tables import Table
from jaxrl.results.text_tables import decimals_of

HIGHER = ("return", "discounted_return", "reward", "optimal")
LOWER = ("regret", "realised_regret", "simple_regret", "fixed_regret")
DISCOUNTED = "discounted_return"
ATTAINABLE = ("optimum", "gap", "gap_percent", "bound")  # columns of a table
MOST_LINES = 200  # lines of a report
PAIRED_LINES = 12  # number of lines up to which every line is compared with every other
MOST_POINTS = 200  # points of a curve
THRESHOLDS = (21, 101)  # minimum and maximum number of thresholds of a profile
CURVE_RESAMPLES = 500
MOST_FAILURES = 1000  # listed by seed

__all__ = ["Line", "chosen_lines", "common_metrics", "directions", "estimates", "failures", "first_metric", "lines_of"]


@dataclass(frozen=True)
class Line:
    """One setting of one run.

    Attributes:
      label: Label, unique in the report.
      run: Position of the run.
      index: Position of the setting in the run.
    """

    label: str
    run: int
    index: int


def lines_of(runs: Sequence[Run]) -> list[Line]:
    """Every setting of every run, with a unique label."""
    rows = []
    for position, run in enumerate(runs):
        for index, text in enumerate(run.setting_texts):
            name = run.name if len(runs) > 1 or not text else None
            rows.append((": ".join(filter(None, [name, text])), position, index))
    counts: dict[str, int] = {}
    lines = []
    for label, position, index in rows:
        counts[label] = counts.get(label, 0) + 1
        lines.append(Line(label if counts[label] == 1 else f"{label} ({counts[label]})", position, index))
    return lines


def common_metrics(runs: Sequence[Run]) -> tuple[list[str], list[str]]:
    """The metrics with a single number per run that all runs have, and those that only some have.

    Raises:
      ResultError: The runs have no metric in common.
    """
    each = [metrics_of_runs(run.result) for run in runs]
    common = [name for name in each[0] if all(name in names for names in each)]
    if not common:
        listing = "; ".join(f"{run.name} has {', '.join(names)}" for run, names in zip(runs, each, strict=True))
        raise ResultError(f"The runs have no metric in common: {listing}.")
    return common, [name for name in dict.fromkeys(itertools.chain(*each)) if name not in common]


def directions(
    metrics: Sequence[str], runs: Sequence[Run], higher: Collection[str], lower: Collection[str]
) -> dict[str, int]:
    """1 if higher is better, -1 if lower is better, 0 if that is unknown or the numbers are on different scales.

    Raises:
      ValueError: A name is not a metric, or is in both lists.
    """
    for option, names in (("higher", higher), ("lower", lower)):
        for name in names:
            _require(option, name, metrics)
    for name in lower:
        if name in higher:
            raise UserValueError(f"lower names {name!r}, and so does higher; a metric can be in one of them.")
    known = {}
    for name in metrics:
        plain = name.removesuffix("_sampled")
        known[name] = 1 if plain in HIGHER else -1 if plain in LOWER else 0
        if plain == DISCOUNTED and _discounts_differ(runs):
            known[name] = 0
        known[name] = 1 if name in higher else -1 if name in lower else known[name]
    return known


def first_metric(metric: str | None, metrics: Sequence[str], known: dict[str, int]) -> str:
    """The metric shown first: the requested one, or by default the return, the regret or the reward.

    Raises:
      ValueError: There is no such metric in all runs.
    """
    if metric is not None:
        _require("metric", metric, metrics)
        return metric
    usual = [name for name in MAIN_METRICS if name in metrics]
    return next(iter([*usual, *(name for name in metrics if known[name]), *metrics]))


def chosen_lines(lines: list[Line], runs: Sequence[Run], metric: str, direction: int, keep: Line) -> list[Line]:
    """At most `MOST_LINES` lines, in their order: those with the best final values of the metric, and `keep`."""
    if len(lines) <= MOST_LINES:
        return lines
    ends = {}
    for line in lines:
        scores = _good(runs[line.run], metric, line.index).values
        end = float(iqm(scores)) if scores.size else np.nan
        ends[line] = np.inf if np.isnan(end) else -end if direction >= 0 else end
    best = set(sorted((line for line in lines if line != keep), key=ends.__getitem__)[: MOST_LINES - 1]) | {keep}
    return [line for line in lines if line in best]


def estimates(
    runs: Sequence[Run], lines: Sequence[Line], metric: str, direction: int, baseline: int, confidence: float
) -> dict[str, Any]:
    """The data of a metric on the page, ready for JSON, with None for nan.

    Args:
      runs: Runs of the report.
      lines: Lines of the report.
      metric: Name of the metric.
      direction: Direction of the metric, as in `directions`.
      baseline: Position of the line with which others are compared if there are more than `PAIRED_LINES` lines.
      confidence: Confidence level of every interval, in (0, 1).

    Returns:
      `curves`: `{"iqm" or "mean": [value, low, high] of each line}`; `numbers` and `cells` of the table; `optima` with
      the optimum, the gap of the IQM to it, that gap in per cent and the bound for each line, None if no line has any;
      `better`: `{position of a baseline: [probability, low, high] of each line}`; `paired`: for each baseline, whether
      runs of equal seeds were compared; `profile`; `importance`.
    """
    tables = [run.result.table(metric, confidence=confidence) for run in runs]
    curves = {"iqm": [], "mean": []}
    numbers: list[list[Any]] = []
    optima: list[list[float | None]] = []
    scores: list[Scores] = []
    for line in lines:
        run = runs[line.run]
        values = run.result.values(metric)[line.index].astype(np.float64)
        finite = run.finite[line.index] & np.isfinite(values)  # a loss has no value before training
        kept, limits = points_of(values.shape[1]), range_of(run.result.metrics.attrs, metric)
        mean, middle = (
            _over_points(values[:, kept], finite[:, kept], estimate).within(*limits)
            for estimate in (lambda good: mean_interval(good.T, confidence), lambda good: _iqm(good, confidence))
        )
        row = dict(zip(tables[line.run].columns, tables[line.run].rows[line.index], strict=True))
        for part, name in zip(middle, ("iqm", "low", "high"), strict=True):
            part[-1] = row[name]  # with more resamples than the curve
        ends = (row["iqm"], row["low"], row["high"], row["mean"], float(mean.low[-1]), float(mean.high[-1]))
        numbers.append([*ends, row["seeds"], row.get("failed", 0)])
        optima.append([row.get(name) for name in ATTAINABLE])
        for name, band in (("iqm", middle), ("mean", mean)):
            curves[name].append([rounded(part) for part in band])
        scores.append(_good(run, metric, line.index))
    good = [each.values for each in scores]
    return {
        "curves": curves,
        "numbers": [[plain(number) for number in row] for row in numbers],
        "cells": _cells(tables, lines, numbers),
        "optima": optima if any(value is not None for row in optima for value in row) else None,
        **_better(scores, direction, baseline, confidence, len(lines) > 1),
        "profile": _profile(good, direction, confidence),
        "importance": [_importance(run, metric) for run in runs],
    }


def failures(runs: Sequence[Run], lines: Sequence[Line]) -> tuple[list[dict[str, Any]], int]:
    """The runs with a metric that was not finite, up to the limit of the list, and their total number."""
    failed, total = [], 0
    labels = {(line.run, line.index): line.label for line in lines}
    for position, run in enumerate(runs):
        steps, seeds, finite = run.result.metrics["env_step"].values, run.result.seeds, run.finite
        for setting, seed in np.argwhere(~finite.all(axis=-1)):
            total += 1
            if len(failed) == MOST_FAILURES:
                continue
            bad = ~finite[setting, seed]
            failed.append(
                {
                    "line": labels.get((position, int(setting))) or f"{run.name}: {run.result.settings[setting]}",
                    "seed": seeds[seed],
                    "metrics": _bad_metrics(run, int(setting), int(seed)),
                    "since": int(steps[np.argmax(bad)]),
                    "at_the_end": bool(bad[-1]),
                }
            )
    return failed, total


def points_of(count: int) -> np.ndarray:
    """Positions of the points of a curve that are drawn."""
    return np.unique(np.round(np.linspace(0, count - 1, min(count, MOST_POINTS))).astype(int))


def rounded(values: Any) -> list[float | None]:
    """Numbers to six digits."""
    return [None if not np.isfinite(value) else float(f"{value:.6g}") for value in np.asarray(values, np.float64)]


def plain(number: float) -> float | None:
    """A number for JSON, with None for one that is not finite."""
    return number if np.isfinite(number) else None


def _require(argument: str, name: str, metrics: Sequence[str]) -> None:
    if name not in metrics:
        hint = near(name, metrics) or f"; the runs have {', '.join(metrics)}."
        raise UserValueError(f"{argument} is {name!r}, which is not a metric of all the runs{hint}")


def _discounts_differ(runs: Sequence[Run]) -> bool:
    """Whether `discounted_return` of the settings is under different or unknown discounts."""
    discounts = [_discount(run) for run in runs]
    trained = [run for run in runs if EVAL_DISCOUNT not in run.attributes]
    swept = any(path.partition(".")[0] == "discount" for run in trained for path in run.result.settings[0])
    return swept or len({str(value) for value in discounts}) > 1 or any(isinstance(value, list) for value in discounts)


def _discount(run: Run) -> Any:
    """The discount of an evaluation again, or that of the training; None if it is unknown."""
    if EVAL_DISCOUNT in run.attributes:
        return run.attributes[EVAL_DISCOUNT]
    hparams = run.config.get("hparams")
    return hparams.get("discount") if isinstance(hparams, dict) else None


def _bad_metrics(run: Run, setting: int, seed: int) -> list[str]:
    return [str(name) for name in run.result.metrics.data_vars if not run.finite_of(str(name))[setting, seed].all()]


def _good(run: Run, metric: str, setting: int) -> Scores:
    finite, seeds = run.finite[setting, :, -1], np.asarray(run.result.seeds)
    values = run.result.values(metric)[setting, finite, -1].astype(np.float64)
    return Scores(values, seeds[finite], frozenset(run.result.seeds), run)


def _over_points(values: np.ndarray, finite: np.ndarray, estimate: Any) -> Interval:
    """An estimate at every point, over the runs that are finite there, by `estimate([points, runs])`."""
    if finite.all():
        return estimate(values.T)
    points = [estimate(values[finite[:, point], point][None]) for point in range(values.shape[1])]
    return Interval(*(np.concatenate(part) for part in zip(*points, strict=True)))


def _iqm(good: np.ndarray, confidence: float) -> Interval:
    nothing = np.full(good.shape[0], np.nan)
    if good.shape[1] == 0:
        return Interval(nothing, nothing.copy(), nothing.copy())
    if good.shape[1] == 1:
        return Interval(good[:, 0].copy(), nothing, nothing.copy())
    return bootstrap_interval(iqm, good, confidence=confidence, num_resamples=CURVE_RESAMPLES)


def _cells(tables: Sequence[Table], lines: Sequence[Line], numbers: Sequence[Sequence[float]]) -> list[list[str]]:
    """The texts of a table's estimates, with the decimals of `Result.table`."""
    decimals = [
        {name: decimals_of(table.to_pandas()[name].tolist()) for name in ("iqm", "high", "mean")} for table in tables
    ]
    texts = []
    for line, (middle, low, high, mean, mean_low, mean_high, *_) in zip(lines, numbers, strict=True):
        of = decimals[line.run]
        cells = [_fixed(middle, of["iqm"]), _interval(low, high, of["high"])]
        texts.append([*cells, _fixed(mean, of["mean"]), _interval(mean_low, mean_high, of["mean"])])
    return texts


def _fixed(value: float, decimals: int) -> str:
    return f"{value:.{decimals}f}"


def _interval(low: float, high: float, decimals: int) -> str:
    if not np.isfinite([low, high]).all():
        return "\N{EN DASH}"
    return f"[{_fixed(low, decimals)}, {_fixed(high, decimals)}]"


def _better(
    scores: Sequence[Scores], direction: int, baseline: int, confidence: float, several: bool
) -> dict[str, dict[str, Any]]:
    """For every baseline, the probability that a run of each line is better than a run of the baseline."""
    count = len(scores) if direction and several else 0
    bases = range(count) if count <= PAIRED_LINES else [baseline]
    return chance_rows(
        count, bases, lambda line, base: chance_of([scores[line]], [scores[base]], direction, confidence)
    )


def _profile(scores: Sequence[np.ndarray], direction: int, confidence: float) -> dict[str, Any]:
    """The share of runs above each threshold, or at or below it if lower is better."""
    every = np.concatenate(scores)
    if not every.size:
        return {"tau": [], "lines": [None] * len(scores)}
    low, high = float(every.min()), float(every.max())
    margin = 0.02 * (high - low) or max(abs(high) * 0.02, 0.5)
    count = int(np.clip(2000 // len(scores), *THRESHOLDS))
    tau = np.linspace(low - margin, high + margin, count)
    lines = []
    for runs in scores:
        if not runs.size:
            lines.append(None)
            continue
        share = performance_profile(runs, tau, confidence=confidence)
        value, lowest, highest = share if direction >= 0 else (1 - share.value, 1 - share.high, 1 - share.low)
        if runs.size == 1:
            lowest = highest = np.full(count, np.nan)
        lines.append([[plain(round(float(number), 4)) for number in part] for part in (value, lowest, highest)])
    return {"tau": rounded(tau), "lines": lines}


def _importance(run: Run, metric: str) -> dict[str, Any] | None:
    result = run.result if run.search is None else run.search.trials  # trials hold the return alone
    measured = importance(result, metric) if metric in result.metrics else None
    if measured is None:
        return None
    return {
        "run": run.name if run.search is None else f"{run.search_name}, complete trials",
        "method": measured.method,
        "shares": [[path, plain(round(share, 4))] for path, share in measured.shares.items()],
        "pairs": [[" and ".join(pair), round(share, 4)] for pair, share in measured.pairs.items()],
        "noise": plain(round(measured.noise, 4)) if np.isfinite(measured.noise) else None,
        "settings": measured.settings,
        "left_out": measured.left_out,
    }
