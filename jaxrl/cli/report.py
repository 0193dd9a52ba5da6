"""`jaxrl report`: comparison of results on one page."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from jaxrl.cli.named_runs import named_runs, named_sources
from jaxrl.cli.parsing import Trust
from jaxrl.report.page import write_report


@dataclass(frozen=True)
class Report:
    """Compare results on one page for a browser: curves, tables, differences, failures."""

    runs: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[NAME=]RUN [[NAME=]RUN ...]")]
    """Directories written by `jaxrl train --out`, `jaxrl search --out`, `jaxrl meta --out` or `jaxrl bandit --out`.
    Without a name, a run is named after its directory. With `--to`, runs on several environments may have one name; if
    none of them has a name, they are named after their algorithms."""
    out: Path = Path("report.html")
    """Page to write; an existing one is replaced."""
    metric: str | None = None
    """Metric shown first; if None, return, regret or reward."""
    baseline: str | None = None
    """Run, or label of a setting on the page, with which others are compared initially; the first one if None."""
    higher: tuple[str, ...] = ()
    """Metrics whose higher values are better, in addition to returns, rewards and optimal pulls."""
    lower: tuple[str, ...] = ()
    """Metrics whose lower values are better, in addition to regrets."""
    confidence: float = 0.95
    """Confidence level of all intervals."""
    title: str | None = None
    """Title of the page."""
    to: Literal["benchmark"] | None = None
    """Stored results to compare with: benchmark (all algorithms of the benchmark that have data on the environment of
    the runs, up to their last environment step; runs on several environments get a report on each, and one over
    those whose random returns and optima are stored); none if None."""
    trust: Trust = False

    def run_command(self) -> None:
        """Write the page and print its path."""
        runs = named_runs(self.runs) if self.to is None else named_sources(self.runs)
        file = write_report(**{**vars(self), "runs": runs})
        size = file.stat().st_size
        print(f"Wrote {file} ({size / 1000:,.0f} kB): it opens in any browser, without a network.")
