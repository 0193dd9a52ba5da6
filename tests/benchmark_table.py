"""The table of the benchmark's cells in docs/results/benchmark.md.

    python tests/benchmark_table.py        writes it

The page is written by hand, but for the part between `<!-- cells:begin -->` and `<!-- cells:end -->`.
"""

import contextlib
import re
from pathlib import Path

from envs.errors import UserValueError
from jaxrl.benchmark.cells import CELLS
from jaxrl.benchmark.data import Benchmark, load
from jaxrl.benchmark.measured import measured
from jaxrl.benchmark.references import OPTIMUM, reference

PAGE = Path(__file__).parent.parent / "docs" / "results" / "benchmark.md"
PART = re.compile(r"(<!-- cells:begin -->\n).*?(<!-- cells:end -->)", flags=re.DOTALL)


def generated(text: str) -> str:
    """A page with the table of the data that the clone has."""
    return PART.sub(lambda part: f"{part[1]}\n{table(load())}\n\n{part[2]}", text)


def table(benchmark: Benchmark) -> str:
    """The cells with data, task by task, the best first."""
    rows, known = benchmark.table().to_pandas(), measured(benchmark.directory)
    hours = rows["seconds"].sum() / 3600
    lines = [
        f"{len(benchmark.cells)} of {len(CELLS)} cells, trained in {hours:.1f} hours:",
        "",
        "| Task | Algorithm | Settings | Environment steps | Return | Normalised | Seeds |",
        "|---|---|---|---|---|---|---|",
    ]
    for task, group in rows.groupby("task", sort=False):
        random = known[str(task)].random
        scale = None
        with contextlib.suppress(UserValueError):  # where random actions are best, by whole returns
            scale = reference(benchmark, str(task))
        ends = number(random)
        if scale is not None:
            ends += f" to {number(scale.high)}" + (", the optimum" if scale.origin == OPTIMUM else "")
        for at, row in enumerate(group.sort_values("iqm", ascending=False, kind="stable").to_dict("records")):
            name = f"{task} ({ends})" if at == 0 else ""
            interval = f"{number(row['iqm'])} [{number(row['low'])}, {number(row['high'])}]"
            normalised = "" if scale is None else f"{(row['iqm'] - scale.low) / (scale.high - scale.low):.3f}"
            seeds = f"{row['seeds']}" + (f", {row['failed']} failed" if row["failed"] else "")
            parts = (name, row["algorithm"], row["settings"], f"{row['env_steps']:,}", interval, normalised, seeds)
            lines.append(f"| {' | '.join(parts)} |")
    return "\n".join(lines)


def number(value: float) -> str:
    """A number with four digits, and without trailing zeros behind the point."""
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 100 else 2 if abs(value) >= 10 else 3
    text = f"{value:,.{digits}f}"
    return text if float(text.replace(",", "")) else text.lstrip("-")


if __name__ == "__main__":
    PAGE.write_text(generated(PAGE.read_text()))
