"""How long PPO takes to compile, beside rejax: from tracing to executables, in fresh processes, by turns.

    python bench/compile_time.py [--seeds 1 8 64] [--repeats 3] [--rejax PYTHON | --no-peers] [--json FILE]

The settings are those of bench/train.py, without a persistent cache. Ours are the programs of `train`, which start,
go on with and evaluate the runs; rejax's is one, which trains and evaluates. The exit status is 1 where the median of
ours is longer. There is no floor to compare with.
"""

import os
import statistics
import sys
from pathlib import Path

if __name__ == "__main__":  # as a script this file lies first on the path, where envs.py hides the package `envs`
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.report import Report, benchmark_parser, ratios, spread
from bench.sides import Side
from bench.train import ENV_STEPS, ROOT, our_command, rejax_command, require_interpreter

NO_CACHE = {"JAX_COMPILATION_CACHE_DIR": "", "JAX_ENABLE_COMPILATION_CACHE": "false"}


def seconds(command: list[str]) -> float:
    """What a fresh process tells of its compilation."""
    side = Side(command, {**os.environ, **NO_CACHE})
    side.close()
    return side.compiled["compile_seconds"]


def main() -> None:
    """Print the table."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rejax", default=str(ROOT / ".venv-rejax/bin/python"), help="interpreter with rejax 0.1.3")
    parser.add_argument("--no-peers", action="store_true", help="ours alone")
    arguments = parser.parse_args()
    if not arguments.no_peers:
        require_interpreter(parser, "--rejax", arguments.rejax, "rejax 0.1.3")
    what = f"compiling PPO on CartPole at {' / '.join(map(str, arguments.seeds))} seeds, no cache"
    report = Report(parser, arguments, what if arguments.no_peers else f"{what}; beside rejax 0.1.3")
    table = report.table(
        f"Fresh processes by turns, {arguments.repeats} each: median (least to most)",
        {"seeds": ",d", "ours, s": ".1f", "rejax, s": ".1f", "ours / rejax": ".2f"},
    )
    told = []
    for num_seeds in arguments.seeds:
        ours, theirs = [], []
        for _ in range(arguments.repeats):
            ours.append(seconds(our_command(num_seeds, ENV_STEPS)))
            if not arguments.no_peers:
                theirs.append(seconds(rejax_command(arguments.rejax, num_seeds, ENV_STEPS)))
        if not theirs:
            table.add(num_seeds, ours, None, None)
            told.append(f"{statistics.median(ours):.1f} s")
            continue
        longer = ratios(ours, theirs)
        table.add(num_seeds, ours, theirs, longer)
        median = statistics.median(longer)
        report.require(median <= 1, f"Compiling for {num_seeds:,} seeds takes {median:.2f} times as long as rejax's.")
        told.append(f"{statistics.median(ours):.1f} s, {spread(longer, '.2f')} of rejax's")
    report.finish("; ".join(told))


if __name__ == "__main__":
    main()
