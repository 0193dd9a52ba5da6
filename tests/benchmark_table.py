"""The table of the benchmark's cells in docs/results/benchmark.md.

    python tests/benchmark_table.py        writes it

The page is written by hand, but for the parts between `<!-- cells:begin -->` and `<!-- cells:end -->`, and between
`<!-- published:begin -->` and `<!-- published:end -->`.
"""

import contextlib
import re
from pathlib import Path

from envs.errors import UserValueError
from jaxrl.benchmark.cells import CELLS
from jaxrl.benchmark.data import Benchmark, load
from jaxrl.benchmark.measured import TASKS, measured
from jaxrl.benchmark.published import beside_published
from jaxrl.benchmark.references import OPTIMUM, reference

PAGE = Path(__file__).parent.parent / "docs" / "results" / "benchmark.md"


def generated(text: str) -> str:
    """A page with the tables of the data that the clone has."""
    benchmark = load()
    for name, content in (("cells", table(benchmark)), ("published", published(benchmark))):
        part = re.compile(rf"(<!-- {name}:begin -->\n).*?(<!-- {name}:end -->)", flags=re.DOTALL)
        text = part.sub(lambda match, content=content: f"{match[1]}\n{content}\n\n{match[2]}", text)
    return text


def table(benchmark: Benchmark) -> str:
    """The cells with data, task by task, the best first."""
    rows, known = benchmark.table().to_pandas(), measured(benchmark.directory)
    hours = rows["seconds"].sum() / 3600
    lines = [
        f"{len(benchmark.cells)} of {len(CELLS)} cells, trained in {hours:.1f} hours on two cores "
        f"({2 * hours:.1f} core-hours). {absent(benchmark)}",
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


def absent(benchmark: Benchmark) -> str:
    """A sentence that names the tasks without data."""
    tasks = [f"`{task}`" for task in TASKS if task not in benchmark.tasks]
    if not tasks:
        return "Every task has data."
    return f"No algorithm has data yet on {len(tasks)} of {len(TASKS)} tasks: {', '.join(tasks)}."


def published(benchmark: Benchmark) -> str:
    """Returns that others publish after as many environment steps as ours have."""
    lines = [
        "| Task | Algorithm | Source | Runs | Environment steps | Published | Ours | Worse |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in beside_published(benchmark).to_pandas().to_dict("records"):
        if row["worse"] != "shorter":
            ours = f"{number(row['iqm'])} [{number(row['low'])}, {number(row['high'])}]"
            parts = (row["task"], row["algorithm"], row["source"], str(row["runs"]), f"{row['env_steps']:,}")
            lines.append(f"| {' | '.join(parts)} | {number(row['published'])} | {ours} | {row['worse']} |")
    return "\n".join(lines)


def number(value: float) -> str:
    """A number with four digits, and without trailing zeros behind the point."""
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 100 else 2 if abs(value) >= 10 else 3
    text = f"{value:,.{digits}f}"
    return text if float(text.replace(",", "")) else text.lstrip("-")


if __name__ == "__main__":
    PAGE.write_text(generated(PAGE.read_text()))
