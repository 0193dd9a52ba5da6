"""`jaxrl compare`: results side by side, as text and as figures."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from jaxrl.cli.parsing import CommandError, Trust
from jaxrl.report.comparing import compare
from jaxrl.report.saving import check_place


@dataclass(frozen=True)
class Compare:
    """Compare results: final values, P(better), and the settings that differ."""

    runs: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[NAME=]RUN [[NAME=]RUN ...]")]
    """Run directories, also on several tasks; those of one name are results of one algorithm. Without names,
    directories are named after themselves, and on several tasks after their algorithms."""
    out: Path | None = None
    """Directory for figures (.png, .pdf, .svg) and tables (.csv), or one figure to write: .png, .pdf or .svg."""
    metric: str | None = None
    """Metric to compare, such as return_sampled or length; if None, return (of a bandit, regret)."""
    baseline: str | None = None
    """Name with which the others are compared; the first if None."""
    env_steps: int | None = None
    """Environment step at which values are compared; if None, the last that all results on a task reach."""
    better: Literal["higher", "lower"] | None = None
    """Direction in which values improve, for a metric other than returns, rewards, optimal pulls and regrets."""
    normalise: Annotated[tuple[str, ...], tyro.conf.arg(metavar="[TASK=LOW:HIGH ...]")] = ()
    """Values that count as 0 and as 1 on each task, such as cartpole=9.5:500; without any, those of the lowest and the
    highest run if there are several tasks."""
    confidence: float = 0.95
    """Confidence level of all intervals."""
    trust: Trust = False

    def run_command(self) -> None:
        """Print the comparison, and write the files."""
        if self.out is not None:
            check_place(self.out)
        comparison = compare(
            named_sources(self.runs),
            baseline=self.baseline,
            metric=self.metric,
            env_steps=self.env_steps,
            better=self.better,
            normalise=references(self.normalise) or None,
            confidence=self.confidence,
            trust=self.trust,
        )
        print(comparison)
        if self.out is not None:
            print(f"\nWrote {comparison.save(self.out)}.")


def named_sources(words: Sequence[str]) -> list[str] | dict[str, list[str]]:
    """Run directories, by name if some have one; an existing directory with `=` in its name is one without."""
    pairs = [("", word) if "=" not in word or Path(word).is_dir() else word.partition("=")[::2] for word in words]
    if not any(name for name, _ in pairs):
        return list(words)
    named: dict[str, list[str]] = {}
    for name, run in pairs:
        named.setdefault(name or Path(run).resolve().name, []).append(run)
    return named


def references(words: Sequence[str]) -> dict[str, tuple[float, float]]:
    """The values that count as 0 and as 1, by task."""
    values = {}
    for word in words:
        task, _, ends = word.rpartition("=")
        try:
            low, high = map(float, ends.split(":"))
        except ValueError:
            raise CommandError(f"--normalise takes TASK=LOW:HIGH, such as cartpole=9.5:500, got {word}") from None
        values[task] = (low, high)
    return values
