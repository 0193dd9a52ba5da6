"""Time to import jaxrl and envs, compared with JAX, and to run `jaxrl --help`.

    python bench/import_time.py [--repeats 7] [--json FILE]

Alternating fresh interpreters are timed from outside; the start of the interpreter alone is a row of the table. The
first turn, which reads the files from the disk and may compile them, is excluded. There is no floor to compare with.
"""

import statistics
import subprocess
import sys
import time
from pathlib import Path

if __name__ == "__main__":  # a script's folder is first on the path, where envs.py hides `envs`
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.report import Report, benchmark_parser

ROOT = Path(__file__).resolve().parents[1]
WAYS = {
    "nothing": ["-c", ""],
    "`import jax`": ["-c", "import jax"],
    "`import envs`": ["-c", "import envs"],
    "`import jaxrl`": ["-c", "import jaxrl"],
    "`jaxrl --help`": ["-m", "jaxrl.cli.main", "--help"],
}


def seconds(arguments: list[str]) -> float:
    """Seconds of an interpreter from its start to its end."""
    started = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True, cwd=ROOT)
    return time.perf_counter() - started


def main() -> None:
    """Print the table."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    report = Report(parser, arguments, "a fresh interpreter from its start to its end")
    times: dict[str, list[float]] = {name: [] for name in WAYS}
    for turn in range(arguments.repeats + 1):
        for name, way in WAYS.items():
            taken = seconds(way)
            if turn:
                times[name].append(taken)
    table = report.table(
        f"Alternating fresh interpreters, {arguments.repeats} each: median (least to most)",
        {"way": "", "s": ".2f", "s more than `import jax`": "+.2f"},
    )
    for name, taken in times.items():
        table.add(name, taken, [one - other for one, other in zip(taken, times["`import jax`"], strict=True)])
    report.finish("; ".join(f"{name} {statistics.median(taken):.2f} s" for name, taken in times.items()))


if __name__ == "__main__":
    main()
