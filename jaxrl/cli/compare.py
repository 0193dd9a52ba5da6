"""`jaxrl compare`: results side by side, as text and as figures; or algorithms, trained until pairs are decided."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from jaxrl.algorithms.registry import builder_of
from jaxrl.cli.dataclass_options import WholeNumber
from jaxrl.cli.named_runs import named_sources
from jaxrl.cli.parsing import CommandError, Trust
from jaxrl.report.comparing import compare
from jaxrl.report.saving import check_place, is_picture, steps_to_each


@dataclass(frozen=True)
class Compare:
    """Compare results: final values, P(better), and the settings that differ; or train algorithms until decided."""

    runs: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[NAME=]RUN [[NAME=]RUN ...]")]
    """Run directories, on one or several tasks; directories of one name are results of one algorithm. Without a name, a
    result is named after its directory or, with several tasks, after its algorithm. With --until, names of algorithms
    to train, which start from their presets."""
    until: Literal["decided"] | None = None
    """Condition that ends training with further seeds: decided (every pair differs significantly, corrected over all
    pairs and tasks, is equal within --margin, or has --max-seeds seeds). If None, nothing is trained, and existing
    results are compared."""
    to: Literal["benchmark"] | None = None
    """Stored results to compare with: benchmark (all algorithms of the benchmark that have data on the tasks of the
    runs; a single run is then sufficient); none if None."""
    tasks: tuple[str, ...] = ()
    """Names of environments on which algorithms are trained, with --until."""
    max_seeds: WholeNumber | None = None
    """Largest number of seeds of an algorithm on a task, with --until; 512 if None."""
    eval_episodes: WholeNumber | None = None
    """Number of whole episodes of the evaluation at the end of a run, with --until; 64 if None."""
    margin: Annotated[tuple[str, ...], tyro.conf.arg(metavar="[MARGIN|TASK=MARGIN ...]")] = ()
    """Smallest difference of means that matters, with --until, such as 25, or for each of several tasks, such as
    cartpole=25: a pair with at least 32 seeds whose interval lies between -MARGIN and MARGIN is equal, and gets no
    further seeds. --max-seeds must then be at least 32."""
    out: Path | None = None
    """Directory for figures (.png, .pdf, .svg) and tables (.csv), or one figure to write: .png, .pdf or .svg; with
    --until, directory for the runs and the table of decisions, from which the same command resumes."""
    metric: str | None = None
    """Metric to compare, such as return_sampled or length; if None, return (of a bandit, regret)."""
    baseline: str | None = None
    """Name with which all others are compared; if None, the first name, or with --until all pairs are compared."""
    env_steps: int | None = None
    """Environment step at which values are compared, by default the last that all results on a task reach. With
    --until, number of environment steps of every run, by default the smallest number of the presets on a task."""
    better: Literal["higher", "lower"] | None = None
    """Direction in which values improve, for a metric other than returns, rewards, optimal pulls and regrets."""
    normalise: Annotated[tuple[str, ...], tyro.conf.arg(metavar="[TASK=LOW:HIGH ...|benchmark]")] = ()
    """Values that count as 0 and as 1 on each task, such as cartpole=9.5:500; or benchmark, where 0 is the return of
    random actions, and 1 the optimum if it is known, otherwise the best of the benchmark; by default, with several
    tasks, the values of the lowest and the highest run."""
    level: Annotated[tuple[str, ...], tyro.conf.arg(metavar="[LEVEL|TASK=LEVEL ...]")] = ()
    """Value of the metric, such as 475, or for each of several tasks, such as cartpole=475: a table of the environment
    steps after which half of the runs have reached it is added, and with --out the file steps.csv."""
    confidence: float = 0.95
    """Confidence level of all intervals. With --until, the probability of any wrong decision that a pair differs is at
    most 1 minus this level, and so is, separately, that of any wrong decision that a pair is equal."""
    trust: Trust = False
    block: WholeNumber | None = None
    """Number of runs that one device computes together, with --until; chosen automatically if None."""
    devices: tuple[str, ...] = ()
    """Devices to use with --until, such as gpu:0 gpu:1; all if none are named."""
    memory: str | None = None
    """Memory limit of the process, or of each GPU, with --until, such as 8GiB; 80 % of the free memory if None."""
    no_progress: tyro.conf.FlagCreatePairsOff[bool] = False
    """Flag to hide the progress of --until."""

    def run_command(self) -> int:
        """Print the comparison, and write the files.

        Returns:
          Exit status: 0, or 128 plus the number of the signal that stopped training.
        """
        training: dict[str, Any] = {
            "tasks": list(self.tasks) or None,
            "max_seeds": self.max_seeds,
            "eval_episodes": self.eval_episodes,
            "margin": by_task("margin", "25", self.margin),
            "block": self.block,
            "devices": list(self.devices) or None,
            "memory": self.memory,
            "progress": False if self.no_progress else None,
        }
        training = {name: value for name, value in training.items() if value is not None}
        if self.until is not None:
            return self._decide(training)
        for name in training:
            flag = "no-progress" if name == "progress" else name.replace("_", "-")
            raise CommandError(f"--{flag} has an effect only with --until decided; leave it out")
        if self.out is not None:
            check_place(self.out)
        comparison = compare(
            named_sources(self.runs),
            *(() if self.to is None else (self.to,)),
            baseline=self.baseline,
            metric=self.metric,
            env_steps=self.env_steps,
            better=self.better,
            normalise="benchmark" if self.normalise == ("benchmark",) else references(self.normalise) or None,
            confidence=self.confidence,
            trust=self.trust,
        )
        level = by_task("level", "475", self.level)
        steps = {} if level is None else steps_to_each(comparison, level)
        print(comparison, *steps.values(), sep="\n\n")
        if self.out is not None:
            print(f"\nWrote {comparison.save(self.out, level=None if is_picture(self.out) else level)}.")
        return 0

    def _decide(self, training: dict[str, Any]) -> int:
        """Train algorithms until pairs are decided, and print the decisions."""
        if self.normalise or self.trust or self.to or self.level:
            flag = "normalise" if self.normalise else "trust" if self.trust else "to" if self.to else "level"
            raise CommandError(f"--{flag} has no effect with --until decided; leave it out")
        if not self.tasks:
            raise CommandError("--until decided takes --tasks with the environments to train on, such as cartpole")
        for word in self.runs:
            builder_of(word)
        decided = compare(
            *self.runs,
            until="decided",
            baseline=self.baseline,
            metric=self.metric,
            env_steps=self.env_steps,
            better=self.better,
            confidence=self.confidence,
            out=self.out,
            **training,
        )
        print(decided)
        if self.out is not None:
            print(f"\nWrote {self.out}.")
        return 128 + decided.stopped_by_signal if decided.stopped_by_signal else 0


def by_task(option: str, example: str, words: Sequence[str]) -> float | dict[str, float] | None:
    """One number, or numbers by task; None without any."""
    values = {}
    for word in words:
        task, _, number = word.rpartition("=")
        try:
            values[task] = float(number)
        except ValueError:
            raise CommandError(
                f"--{option} takes a number, such as {example}, or TASK={option.upper()}, got {word}"
            ) from None
    if len(values) < len(words) or ("" in values and len(words) > 1):
        raise CommandError(
            f"--{option} takes one number, or TASK={option.upper()} for each task, got {' '.join(words)}"
        )
    return values.get("", values or None)


def references(words: Sequence[str]) -> dict[str, tuple[float, float]]:
    """The values that count as 0 and as 1, by task."""
    values = {}
    for word in words:
        task, _, ends = word.rpartition("=")
        try:
            low, high = map(float, ends.split(":"))
        except ValueError:
            raise CommandError(
                f"--normalise takes TASK=LOW:HIGH, such as cartpole=9.5:500, or benchmark, got {word}"
            ) from None
        values[task] = (low, high)
    return values
