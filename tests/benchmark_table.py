"""The table of the benchmark's cells in docs/results/benchmark.md.

    python tests/benchmark_table.py        writes it

The page is written by hand, but for the part between `<!-- cells:begin -->` and `<!-- cells:end -->`.
"""

import re
from pathlib import Path

from jaxrl.benchmark.cells import CELLS
from jaxrl.benchmark.data import Benchmark, load
from jaxrl.benchmark.references import OPTIMUM, reference

PAGE = Path(__file__).parent.parent / "docs" / "results" / "benchmark.md"
PART = re.compile(r"(<!-- cells:begin -->\n).*?(<!-- cells:end -->)", flags=re.DOTALL)


def generated(text: str) -> str:
    """A page with the table of the data that the clone has."""
    return PART.sub(lambda part: f"{part[1]}\n{table(load())}\n\n{part[2]}", text)


def table(benchmark: Benchmark) -> str:
    """The cells with data, task by task, the best first."""
    rows = benchmark.table().to_pandas()
    hours = rows["seconds"].sum() / 3600
    lines = [
        f"{len(benchmark.cells)} of {len(CELLS)} cells, trained in {hours:.1f} hours:",
        "",
        "| Task | Algorithm | Settings | Environment steps | Return | Normalised | Seeds |",
        "|---|---|---|---|---|---|---|",
    ]
    for task, group in rows.groupby("task", sort=False):
        low, high, origin = reference(benchmark, str(task))
        ends = f"{number(low)} to {number(high)}" + (", the optimum" if origin == OPTIMUM else "")
        for at, row in enumerate(group.sort_values("iqm", ascending=False, kind="stable").to_dict("records")):
            name = f"{task} ({ends})" if at == 0 else ""
            interval = f"{number(row['iqm'])} [{number(row['low'])}, {number(row['high'])}]"
            normalised = f"{(row['iqm'] - low) / (high - low):.3f}"
            seeds = f"{row['seeds']}" + (f", {row['failed']} failed" if row["failed"] else "")
            parts = (name, row["algorithm"], row["settings"], f"{row['env_steps']:,}", interval, normalised, seeds)
            lines.append(f"| {' | '.join(parts)} |")
    return "\n".join(lines)


def number(value: float) -> str:
    """A number with four digits, and without trailing zeros behind the point."""
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 100 else 2 if abs(value) >= 10 else 3
    return f"{value:,.{digits}f}"


if __name__ == "__main__":
    PAGE.write_text(generated(PAGE.read_text()))
