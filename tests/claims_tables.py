"""The tables of docs/results/benchmark-claims.md, from a run of the study.

    python -m bench.studies benchmark-claims --out DIRECTORY
    python tests/claims_tables.py DIRECTORY

The page is written by hand, but for the tables between `<!-- NAME:begin -->` and `<!-- NAME:end -->`.
"""

import re
import sys
from pathlib import Path

import pandas

PAGE = Path(__file__).parent.parent / "docs" / "results" / "benchmark-claims.md"
HEADS = {
    "best": ("Task", "After", "Best", "Normalised", "Again the best", "Not told apart from it"),
    "seeds": ("Task", "Fewest seeds", "Median", "Most seeds"),
    "tuning": ("Task", "Candidates", "Optimism", "95 % of searches", "Regret", "Best chosen"),
    "ranks": ("Task", "Rank correlation", "p", "Best by return", "Best by hyperbolic return"),
}


def tables(directory: Path) -> dict[str, str]:
    """The tables of the page by name; of the shares of environment steps, the smallest and the largest.

    Args:
      directory: Directory of the study.
    """
    frames = {name: pandas.read_csv(directory / f"{name}.csv", keep_default_na=False, dtype=str) for name in HEADS}
    rows: dict[str, list[tuple[str, ...]]] = {name: [] for name in HEADS}
    for task, group in frames["best"].groupby("task", sort=False):
        records = group.to_dict("records")
        for name, row in zip((str(task), ""), (records[0], records[-1]), strict=True):
            best = row["best"] + (", defaults" if row["settings"] == "defaults" else "")
            others = row["not told apart"] or "none"
            rows["best"].append((name, f"{int(row['env_steps']):,}", best, row["iqm"], row["again the best"], others))
    for row in frames["seeds"].to_dict("records"):
        ends = [f"{row[end]} ({row[f'{end} of']})" for end in ("fewest", "most")]
        rows["seeds"].append((row["task"], ends[0], row["median"], ends[1]))
    for row in frames["tuning"].to_dict("records"):
        columns = ("task", "candidates", "optimism", "95 % of searches", "regret", "best chosen")
        rows["tuning"].append(tuple(row[column] for column in columns))
    for row in frames["ranks"].to_dict("records"):
        p_value = f"{float(row['p']):.2g}" if row["p"] else "\N{EN DASH}"
        best = (row["best by return"], row["best by hyperbolic return"])
        rows["ranks"].append((row["task"], row["tau"], p_value, *best))
    return {name: _markdown(HEADS[name], each) for name, each in rows.items()}


def _markdown(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in (head, *rows)]
    text = "\n".join((lines[0], "|---" * len(head) + "|", *lines[1:]))
    return re.sub(r"(?<=\d)%", " %", text).replace("-0.000", "0.000")


def written(text: str, directory: Path) -> str:
    """A page with the tables of a run."""
    for name, table in tables(directory).items():
        part = re.compile(rf"(<!-- {name}:begin -->\n).*?(<!-- {name}:end -->)", flags=re.DOTALL)
        text = part.sub(lambda match, table=table: f"{match[1]}\n{table}\n\n{match[2]}", text)
    return text


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(), Path(sys.argv[1])))
