"""`jaxrl plot`: learning curves of one run directory, or of several in one figure."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from jaxrl.cli.named_runs import named_sources
from jaxrl.cli.parsing import CommandError, RunDirectory, Trust


@dataclass(frozen=True)
class Plot:
    """Draw the learning curves of a run directory, or of several in one figure with a legend."""

    run: RunDirectory
    others: Annotated[
        tuple[Path, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="[[NAME=]RUN ...]", help="Further run directories; names are those in the legend."),
    ] = ()
    metric: str | None = None
    """Metric to draw, such as return, return_sampled, length or a loss; if None, return (of a bandit, regret)."""
    hue: str | None = None
    """Swept name that colours distinguish; all swept names if None."""
    x: str | None = None
    """Swept name on the x axis, such as lr, to draw the metric at the end of training; environment steps if None."""
    out: Path | None = None
    """Picture to write: .png, .pdf or .svg; if None, METRIC.png in the run directory, or here for several of them."""
    trust: Trust = False

    def run_command(self) -> None:
        """Write the picture and print its path."""
        if self.others:
            self._plot_all()
            return
        from jaxrl.results.dataset import main_metric
        from jaxrl.results.loading import load_metrics

        result = load_metrics(self.run, trust=self.trust)
        metric = self.metric or main_metric(result.metrics)
        out = self.out or self.run / f"{metric}.png"
        result.plot(metric, x=self.x, hue=self.hue, path=out)
        print(f"Wrote {out}.")

    def _plot_all(self) -> None:
        from jaxrl.report.comparing import compare
        from jaxrl.results.plotting.style import new_figure, require_picture, write_picture

        sources = named_sources([str(self.run), *map(str, self.others)])
        comparison = compare(sources, metric=self.metric, trust=self.trust)
        out = self.out or Path(f"{comparison.metric}.png")
        if self.hue is None and self.x is None:
            comparison.plot(out)
        else:
            if len(comparison.tasks) > 1:
                raise CommandError(f"--{'x' if self.x else 'hue'} takes runs on one task, got {comparison.tasks}")
            require_picture(out)
            figure = new_figure(out, (6.4, 4.2))
            ax = figure.subplots()
            for run in comparison.runs:
                run.result.plot(comparison.metric, x=self.x, hue=self.hue, ax=ax, label=run.name)
            write_picture(figure, out)
        print(f"Wrote {out}.")
