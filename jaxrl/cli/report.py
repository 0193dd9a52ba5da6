"""`jaxrl report`: results beside each other on one page."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from jaxrl.report.page import write_report

__all__ = ["Report"]


@dataclass(frozen=True)
class Report:
    """Compare results on one page for a browser: curves, tables, differences, failures."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN [RUN ...]")]
    """Directories that `jaxrl train --out`, `jaxrl sweep --out` or `jaxrl bandit --out` wrote, one or several."""
    out: Path = Path("report.html")
    """Page to write; one that is there is replaced."""
    metric: str | None = None
    """The metric to begin with; return, regret or reward where there is none."""
    baseline: str | None = None
    """The run, or the setting by its label on the page, that others are compared with at first; the first one."""
    higher: tuple[str, ...] = ()
    """Metrics of which higher values are better, beside returns, rewards and optimal pulls."""
    lower: tuple[str, ...] = ()
    """Metrics of which lower values are better, beside regrets."""
    confidence: float = 0.95
    """Of every interval."""
    title: str | None = None
    """Of the page."""
    trust: tyro.conf.FlagCreatePairsOff[bool] = False
    """Go on with files that do not have their checksums."""

    def run_command(self) -> None:
        """Write the page and say where."""
        file = write_report(
            self.runs,
            self.out,
            metric=self.metric,
            baseline=self.baseline,
            higher=self.higher,
            lower=self.lower,
            confidence=self.confidence,
            title=self.title,
            trust=self.trust,
        )
        size = file.stat().st_size
        print(f"Wrote {file} ({size / 1000:,.0f} kB): it opens in any browser, without a network.")
