"""Sequential comparison: algorithms are trained in blocks of further seeds until every pair is decided."""

from __future__ import annotations

import contextlib
import itertools
import re
import signal
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tqdm.auto

from envs.errors import UserValueError
from envs.files import refuse_links, replacing
from envs.settings import own_settings
from envs.spelling import near
from jaxrl.checks import check_count
from jaxrl.report.contestants import Contestant, check_metric
from jaxrl.report.data import directions
from jaxrl.report.sequential_comparison import PairDecision, SequentialComparison
from jaxrl.results.checksums import read_sealed, sealed_json
from jaxrl.results.dataset import ResultError
from jaxrl.results.format import counted
from jaxrl.results.json_values import as_read
from jaxrl.results.result import Result
from jaxrl.results.sequential import LEAST_EQUAL, Design, Family, can_decide, most_equal_pairs
from jaxrl.results.storage import write_csv
from jaxrl.runtime.checkpoints.store import begun_in
from jaxrl.runtime.drive.progress import Progress, StopRequest, stop_on_signals
from jaxrl.runtime.execution import carry_out
from jaxrl.runtime.options import Options, RunOptions, checked
from jaxrl.runtime.programs import room_for
from jaxrl.runtime.training import points_of, train, training_call

MAX_SEEDS = 512
LEAST_SEEDS = 4  # two samples of 3 have 20 assignments, of which a level of 5 % rejects none, even of a single pair
EVAL_EPISODES = 64
SEEDS_APART = 1_000_000  # distance of the first seeds of two algorithms; searches tune on seeds below it
MOST_BYTES = 2 * 2**30  # of tests
DESCRIPTION, TABLE = "comparison.json", "decisions.csv"

__all__ = ["EVAL_EPISODES", "MAX_SEEDS", "decide"]

Pair = tuple[str, int, int]  # task, and the positions of two algorithms


@own_settings()
def decide(
    contestants: Sequence[Contestant],
    *,
    baseline: str | None,
    metric: str,
    better: str | None,
    max_seeds: int,
    eval_episodes: int,
    confidence: float,
    margin: float | Mapping[str, float] | None,
    options: Options,
) -> SequentialComparison:
    """Train algorithms in blocks of seeds until every pair on every task is decided, or has all its seeds.

    No two algorithms share a seed. Returns with equal seeds would depend on each other, by all random numbers in one
    program and by those of evaluations in different ones, and an exchange of the algorithms of single runs would not
    keep this dependence.

    Args:
      contestants: Algorithms.
      baseline: Name of the algorithm with which the others are compared; None compares all pairs.
      metric: Metric of the last evaluation.
      better: Whether higher or lower values are better; None for a metric of which that is known.
      max_seeds: Largest number of seeds of an algorithm on a task.
      eval_episodes: Number of episodes of the evaluation.
      confidence: Confidence level of all decisions that pairs differ, and again of all that pairs are equal, in (0, 1).
      margin: Smallest difference of means that matters, on all tasks or by task; None for none.
      options: Options of the execution.

    Raises:
      ValueError: An argument is out of range.
      ResultError: The directory holds another comparison.
    """
    check_count("max_seeds", max_seeds, LEAST_SEEDS, most=SEEDS_APART)
    check_count("eval_episodes", eval_episodes)
    if metric.removesuffix("_sampled") == "discounted_return":
        raise UserValueError(
            f"metric is {metric!r}, which every algorithm weights by its own discount: compare the 'return'"
        )
    check_metric(contestants, metric, eval_episodes)
    higher, lower = ([metric] if better == side else [] for side in ("higher", "lower"))
    direction = directions([metric], [], higher, lower)[metric]
    if not direction:
        raise UserValueError(
            f"better must be 'higher' or 'lower' for {metric!r}, whose direction is not known, got {better!r}"
        )
    names, tasks = [each.name for each in contestants], list(contestants[0].trainings)
    pairs = _pairs(names, tasks, baseline)
    margins = _margins(margin, tasks, max_seeds)
    design = Design.of(max_seeds, len(pairs), confidence)
    if (size := design.num_bytes(len(pairs))) > MOST_BYTES:
        raise UserValueError(
            f"the tests of {counted(len(pairs), 'pair')} need {size / 2**30:,.1f} GiB of memory, and may take "
            f"{MOST_BYTES / 2**30:g}: fewer algorithms, tasks or max_seeds, a baseline or a lower confidence take less"
        )

    if not can_decide(max_seeds, len(pairs), confidence):
        least = next(seeds for seeds in itertools.count(max_seeds + 1) if can_decide(seeds, len(pairs), confidence))
        raise UserValueError(
            f"max_seeds is {max_seeds}, with which no pair can be decided at a confidence of {confidence:g} over "
            f"{counted(len(pairs), 'pair')}; it takes at least {least}."
        )

    def most_equal(decided: Sequence[Pair]) -> int:
        if baseline is not None:
            return len(pairs) - len(decided)
        return sum(most_equal_pairs(len(names), sum(task == at for at, *_ in decided)) for task in tasks)

    of_pairs = {pair: margins[pair[0]] for pair in pairs if margins}
    family = Family(pairs, design, most_equal, confidence, of_pairs)
    described = {
        "metric": metric,
        "direction": direction,
        "baseline": baseline,
        "max_seeds": max_seeds,
        "eval_episodes": eval_episodes,
        "confidence": confidence,
        "margin": margins or None,  # None for a comparison of an earlier version, which has no such entry
        "tasks": tasks,
        "env_steps": {task: contestants[0].trainings[task].env_steps for task in tasks},
        "algorithms": names,
    }
    directory = None if options.out is None else _claimed(Path(options.out), described)
    total = max_seeds * len(names) * sum(each.env_steps for each in contestants[0].trainings.values())
    with (
        room_for(2 * len(names) * len(tasks)),
        stop_on_signals(options.progress) as stop,
        Progress(total, options.progress) as bar,
    ):
        runs = _Runs(contestants, metric, eval_episodes, directory, options, stop)
        bar.start()
        for first, last in itertools.pairwise((0, *design.looks)):
            drawn: dict[tuple[str, int], np.ndarray] = {}
            for task, at in _needed(family.open):
                if not stop:
                    drawn[task, at] = runs.train(task, at, first, last)
                    bar.advance((last - first) * contestants[at].trainings[task].env_steps)
            if stop:
                break
            for pair in family.open:
                task, one, other = pair
                family.tests[pair].add(drawn[task, one], drawn[task, other])
            family.decide()
            note = f"{last} seeds: {len(pairs) - len(family.open)} of {counted(len(pairs), 'pair')} decided"
            bar.report(note)
            if options.progress:
                tqdm.auto.tqdm.write(f"jaxrl: {note}", file=sys.stderr)
            if not family.open:
                break
    stopped = stop.signal or 0
    decisions = tuple(_decision(family, pair, names, direction) for pair in pairs)
    outcome = SequentialComparison(metric, direction, confidence, max_seeds, decisions, runs.results, stopped, margins)
    if directory is not None:
        table = outcome.table()
        write_csv(directory / TABLE, table.columns, [list(row) for row in table.rows])
    if stopped:
        further = "" if directory is None else "; the same call resumes it"
        name = signal.Signals(stopped).name
        warnings.warn(f"comparison stopped by {name}{further}", RuntimeWarning, stacklevel=3)
    return outcome


class _Runs:
    """Trained blocks of seeds.

    Args:
      contestants: Algorithms.
      metric: Metric of the last evaluation.
      eval_episodes: Number of episodes of the evaluation.
      directory: Directory in which every block has one of its own; None saves nothing.
      options: Options of the execution.
      stop: Stop request that a signal sets.
    """

    def __init__(
        self,
        contestants: Sequence[Contestant],
        metric: str,
        eval_episodes: int,
        directory: Path | None,
        options: Options,
        stop: StopRequest,
    ) -> None:
        self._contestants, self._metric, self._eval_episodes = contestants, metric, eval_episodes
        self._directory, self._options, self._stop = directory, options, stop
        self.results: dict[str, dict[str, list[Result]]] = {
            each.name: {task: [] for task in each.trainings} for each in contestants
        }

    def train(self, task: str, at: int, first: int, last: int) -> np.ndarray:
        """Values of the seeds of a block, nan for a run that failed; a finished block of an earlier call is loaded.

        Args:
          task: Name of the task.
          at: Position of the algorithm.
          first, last: Numbers of seeds before and after the block.

        Returns:
          Values `[last - first]`; none where a signal ended the block.
        """
        contestant, options = self._contestants[at], self._options
        algo, hparams, env_steps = contestant.trainings[task]
        own: RunOptions = {
            "block": options.block,
            "devices": options.devices,
            "memory": options.memory,
            "precision": options.precision,
            "progress": False,
        }
        begun = None
        if self._directory is not None:
            where = self._directory / _slug(at, contestant.name) / _slug([*contestant.trainings].index(task), task)
            out = where / f"{first:07d}-{last:07d}"
            own |= {"out": out, "resume": True}
            begun = begun_in(out)
        start = SEEDS_APART * (at + 1)
        call = training_call(
            algo,
            hparams,
            seeds=list(range(start + first, start + last)),
            points=points_of(algo, env_steps, 1, self._eval_episodes),
            eval_episodes=self._eval_episodes,
            begun=begun,
        )
        try:
            with warnings.catch_warnings():  # of a block that was stopped, of which the comparison warns as a whole
                warnings.filterwarnings("ignore", "interrupted: progress is kept|.* holds no checkpoint to resume from")
                result = carry_out(call, checked(train, RunOptions, own), begun=begun, stop=self._stop)
        except KeyboardInterrupt as interrupt:  # before there was anything to save
            self._stop.signal = self._stop.signal or (interrupt.args[0] if interrupt.args else signal.SIGINT)
            return np.empty(0)
        if result.metrics.attrs["interrupted"]:
            return np.empty(0)
        self.results[contestant.name][task].append(result)
        return np.where(result.failed_runs()[0], np.nan, result.values(self._metric)[0, :, -1].astype(np.float64))


def _pairs(names: Sequence[str], tasks: Sequence[str], baseline: str | None) -> list[Pair]:
    """Every pair of algorithms on every task, or those with the baseline."""
    if baseline is not None and baseline not in names:
        raise UserValueError(f"baseline is {baseline!r}{near(baseline, names) or '; it takes ' + ', '.join(names)}")
    pairs = itertools.combinations(range(len(names)), 2)
    kept = [pair for pair in pairs if baseline is None or baseline in (names[pair[0]], names[pair[1]])]
    return [(task, *pair) for task in tasks for pair in kept]


def _margins(margin: float | Mapping[str, float] | None, tasks: Sequence[str], max_seeds: int) -> dict[str, float]:
    """The margin of every task; none without any."""
    if margin is None:
        return {}
    if max_seeds < LEAST_EQUAL:
        raise UserValueError(
            f"margin takes max_seeds of at least {LEAST_EQUAL}, got {max_seeds}: no pair is equal with fewer seeds"
        )
    by_task = margin if isinstance(margin, Mapping) else dict.fromkeys(tasks, margin)
    if unknown := [task for task in by_task if task not in tasks]:
        hint = near(unknown[0], tasks) or "; it takes " + ", ".join(tasks)
        raise UserValueError(f"margin has the task {unknown[0]!r}{hint}")
    if missing := [task for task in tasks if task not in by_task]:
        raise UserValueError(f"margin must have a number for every task, and has none for {', '.join(missing)}")
    for task, value in by_task.items():
        if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0 < value < np.inf:
            of_task = f" for {task}" if by_task is margin else ", or one for each task"
            raise UserValueError(f"margin must be a positive number in units of the metric{of_task}, got {value!r}")
    return {task: float(by_task[task]) for task in tasks}


def _needed(pairs: Sequence[Pair]) -> list[tuple[str, int]]:
    """The tasks and positions of the algorithms of some pairs, each once."""
    return list(dict.fromkeys((task, at) for task, *both in pairs for at in both))


def _decision(family: Family, pair: Pair, names: Sequence[str], direction: int) -> PairDecision:
    task, one, other = pair
    test, interval = family.tests[pair], family.interval(pair)
    winner = None
    if pair in family.decisions:
        winner = names[one] if test.difference * direction > 0 else names[other]
    ends = float(interval.low), float(interval.high)
    return PairDecision(
        task,
        names[one],
        names[other],
        winner,
        test.difference,
        *ends,
        test.num_runs,
        test.failed,
        family.p_value(pair),
        pair in family.equal,
    )


def _claimed(directory: Path, described: Mapping[str, Any]) -> Path:
    """The directory of a comparison, which is new or holds the same one.

    Raises:
      ResultError: The directory holds something else, or cannot be written.
    """
    file, content = directory / DESCRIPTION, as_read(dict(described))
    refuse_links(directory, file, directory / TABLE)
    if file.is_file():
        saved = read_sealed(file)
        changed = [name for name in content if not isinstance(saved, dict) or saved.get(name) != content[name]]
        if changed:
            raise ResultError(
                f"{directory} holds another comparison, which differs in {', '.join(changed)}: choose another "
                "directory."
            )
        return directory
    if directory.is_dir() and any(directory.iterdir()):
        raise ResultError(f"{directory} is not empty and holds no comparison: choose another directory.")
    with contextlib.suppress(FileExistsError):
        directory.mkdir(parents=True)
    with replacing(file, ResultError) as part:
        part.write_bytes(sealed_json(content))
    return directory


def _slug(position: int, name: str) -> str:
    """The name of the directory of an algorithm or a task."""
    text = re.sub(r"[^\w.-]+", "-", name)
    return f"{position}-{text}"
