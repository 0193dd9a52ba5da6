"""Lines of a comparison: every setting of the results under a name, on the tasks of these results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from envs.errors import UserTypeError, UserValueError
from jaxrl.report.alignment import values_at
from jaxrl.report.pairs import Scores
from jaxrl.report.runs import Run, differences, runs_of_each
from jaxrl.results.dataset import range_of
from jaxrl.results.optima import known_values
from jaxrl.results.result import Result

Source = str | Path | Result
Sources = Sequence[Source] | Mapping[str, Source | Sequence[Source] | Mapping[str, Source]]

SETTINGS = ("algorithm", "config", "hparams", "environment", "env_params")  # first parts of the paths of settings

__all__ = ["Entry", "Source", "Sources", "entries_of", "runs_on", "runs_with_names"]


class Part(NamedTuple):
    """One setting of one run."""

    run: Run
    index: int  # pyright: ignore[reportIncompatibleMethodOverride]


@dataclass(frozen=True)
class Entry:
    """A line of a comparison.

    Attributes:
      label: Label, unique in the comparison.
      name: Name of its results.
      parts: Settings of runs on each task, whose seeds differ, `{task: parts}`.
    """

    label: str
    name: str
    parts: Mapping[str, tuple[Part, ...]]

    def scores(self, task: str, metric: str, step: int) -> Scores:
        """The values of the runs on a task at an environment step, of those that had not failed there."""
        each = []
        for run, index in self.parts[task]:
            values, good = values_at(run.result.values(metric)[index], run.finite[index], run.steps, step)
            each.append((values[good], np.asarray(run.result.seeds)[good]))
        values, seeds = (np.concatenate(column) for column in zip(*each, strict=True))
        trained = frozenset(seed for run, _ in self.parts[task] for seed in run.result.seeds)
        return Scores(values, seeds, trained, self.parts[task][0].run if len(each) == 1 else None)

    @property
    def is_of_benchmark(self) -> bool:
        """Whether its results are those of the benchmark."""
        return all(run.is_of_benchmark for parts in self.parts.values() for run, _ in parts)

    def attainable(self, task: str, metric: str, kind: str) -> float:
        """The optimum or the bound of a metric on a task, see `known_values`; nan where it is not known."""
        run, index = self.parts[task][0]
        values = known_values(run.result, metric, kind)
        return float("nan") if values is None else float(values[index])

    def limits(self, task: str, metric: str) -> tuple[float, float]:
        """The smallest and the largest possible value of a metric on a task."""
        lows, highs = zip(*(range_of(run.result.metrics.attrs, metric) for run, _ in self.parts[task]), strict=True)
        return min(lows), max(highs)

    def last_step(self, task: str) -> int:
        """Number of environment steps of the runs on a task, of the longest part."""
        return max(run.last_step for run, _ in self.parts[task])


def entries_of(sources: Source | Sources, *, trust: bool = False) -> list[Entry]:
    """The lines of a comparison, in their order.

    Args:
      sources: Results, see `jaxrl.compare`.
      trust: Whether to read files that do not match their checksums.

    Raises:
      ValueError: There are no sources, a seed is listed twice, or results to be joined have different settings.
      ResultError: A directory holds no result.
    """
    named = runs_with_names(sources, trust)
    grouped: dict[tuple[str, str], dict[str, list[Part]]] = {}
    for name, task, run in named:
        for index, text in enumerate(run.setting_texts):
            label = ": ".join(filter(None, [name, text]))
            grouped.setdefault((name, label), {}).setdefault(task or run.environment, []).append(Part(run, index))
    entries = []
    for (name, label), by_task in grouped.items():
        for task, parts in by_task.items():
            _check_joined(name, task, [part.run for part in parts])
        entries.append(Entry(label, name, {task: tuple(parts) for task, parts in by_task.items()}))
    return entries


def runs_on(entries: Sequence[Entry], task: str) -> list[Run]:
    """The runs of all lines on a task, each once."""
    runs = [part.run for entry in entries for part in entry.parts.get(task, ())]
    return list({id(run): run for run in runs}.values())


def runs_with_names(
    sources: Source | Sources, trust: bool, *, argument: str = "results"
) -> list[tuple[str, str | None, Run]]:
    """The runs with the names of their lines, and of their tasks if those are named.

    Args:
      sources: Results, see `jaxrl.compare`.
      trust: Whether to read files that do not match their checksums.
      argument: Name of the argument, for errors.

    Raises:
      TypeError, ValueError: A name is no string or has no runs, or a source is of another type or listed twice.
      ResultError: A directory holds no result.
    """
    if isinstance(sources, str | Path | Result):
        sources = [sources]
    if not isinstance(sources, Mapping):
        each = runs_of_each(list(sources), None, trust=trust, argument=argument)
        if len({run.environment for runs in each for run in runs}) <= 1:
            return [(run.name, None, run) for runs in each for run in runs]
        # Of a search, "default" or "incumbent" remains.
        kinds = [[f"/{run.name.rpartition('/')[2]}" if len(runs) > 1 else "" for run in runs] for runs in each]
        return [
            (f"{run.algorithm}{kind}", None, run)
            for runs, own in zip(each, kinds, strict=True)
            for run, kind in zip(runs, own, strict=True)
        ]
    flat: list[tuple[str, str | None, Any]] = []
    for name, source in sources.items():
        if not isinstance(name, str):
            raise UserTypeError(f"the name of a result must be a string, got {name!r}")
        if isinstance(source, Mapping):
            flat += [(name, str(task), each) for task, each in source.items()]
        elif isinstance(source, Sequence) and not isinstance(source, str):
            if not source:
                raise UserValueError(f"{argument} takes at least one run for each name, got none for {name!r}")
            flat += [(name, None, each) for each in source]
        else:
            flat.append((name, None, source))
    items, names = [source for *_, source in flat], [name for name, *_ in flat]
    each = runs_of_each(items, names, trust=trust, argument=argument)
    return [(run.name, task, run) for (_, task, _), runs in zip(flat, each, strict=True) for run in runs]


def _check_joined(name: str, task: str, runs: Sequence[Run]) -> None:
    """Reject several results of one name on one task, unless they are further seeds of the same settings."""
    if len(runs) == 1:
        return
    remedy = f"give them different names, or tasks of their own, such as {{{name!r}: {{'first': ..., 'second': ...}}}}"
    seeds = [seed for run in runs for seed in run.result.seeds]
    twice = sorted({seed for seed in seeds if seeds.count(seed) > 1})
    if twice:
        raise UserValueError(f"{len(runs)} results of {name!r} on {task} have seed {twice[0]}; {remedy}.")
    rows = [path for path in differences(runs) if path.partition(".")[0] in SETTINGS]
    if rows:
        raise UserValueError(f"{len(runs)} results of {name!r} on {task} differ in {', '.join(rows[:5])}; {remedy}.")
