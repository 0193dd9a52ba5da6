"""How long PPO takes to compile, beside rejax: from tracing to executables, in fresh processes, by turns.

    python bench/compile_time.py [--seeds 1 8 64] [--repeats 3] [--rejax PYTHON | --no-peers] [--json FILE]

The settings are those of bench/train.py, without a persistent cache. Ours are the programs of `train`, which start,
go on with and evaluate the runs: all that a first call of `train` takes but for the run itself. rejax's is one, which
trains and evaluates: tracing, lowering and compiling. On CPUs ours has LLVM optimise at its second level, by its own
choice, where JAX's default, with which rejax compiles, is the third. "Quick" is ours with XLA_FLAGS that emit each
kernel by XLA's older, quicker code, a user's choice. A ratio is of medians, with the least and the most of those within
a turn. The exit status is 1 where ours, without the flags, takes longer. There is no floor to compare with.
"""

import os
import statistics
import sys
from pathlib import Path

if __name__ == "__main__":  # as a script this file lies first on the path, where envs.py hides the package `envs`
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.report import Report, benchmark_parser, ratios, spread
from bench.sides import Side, add_peers, find_peer, require_same_device
from bench.train import ENV_STEPS, our_command, rejax_command

NO_CACHE = {"JAX_COMPILATION_CACHE_DIR": "", "JAX_ENABLE_COMPILATION_CACHE": "false"}
QUICK = "--xla_backend_extra_options=xla_cpu_disable_new_fusion_emitters"


def compiled(command: list[str], flags: str = "") -> Side:
    """A fresh process that has compiled and ended."""
    side = Side(command, {**os.environ, **NO_CACHE, "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip()})
    side.close()
    return side


def main() -> None:
    """Print the table."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--repeats", type=int, default=3)
    add_peers(parser, "rejax")
    parser.add_argument("--no-peers", action="store_true", help="ours alone")
    arguments = parser.parse_args()
    arguments.rejax = None if arguments.no_peers else find_peer(parser, "rejax", arguments.rejax)
    what = f"compiling PPO on CartPole at {' / '.join(map(str, arguments.seeds))} seeds, no cache"
    report = Report(parser, arguments, what if arguments.rejax is None else f"{what}; beside rejax 0.1.3")
    table = report.table(
        f"Fresh processes by turns, {arguments.repeats} each: median (least to most)",
        {
            "seeds": ",d",
            "ours, s": ".1f",
            "rejax, s": ".1f",
            "ours / rejax": ".2f",
            "quick, s": ".1f",
            "quick / rejax": ".2f",
        },
    )
    told = []
    for num_seeds in arguments.seeds:
        ours, quick, theirs = [], [], []
        for _ in range(arguments.repeats):
            mine = compiled(our_command(num_seeds, ENV_STEPS))
            ours.append(mine.compiled["compile_seconds"])
            quick.append(compiled(our_command(num_seeds, ENV_STEPS), QUICK).compiled["compile_seconds"])
            if arguments.rejax is not None:
                peer = compiled(rejax_command(arguments.rejax, num_seeds, ENV_STEPS))
                require_same_device(mine, peer)
                theirs.append(peer.compiled["compile_seconds"])
        if not theirs:
            table.add(num_seeds, ours, None, None, quick, None)
            told.append(f"{statistics.median(ours):.1f} s, quick {statistics.median(quick):.1f} s")
            continue
        longer, with_flags = ratios(ours, theirs), ratios(quick, theirs)
        table.add(num_seeds, ours, theirs, longer, quick, with_flags)
        median = statistics.median(longer)
        report.require(median <= 1, f"Compiling for {num_seeds:,} seeds takes {median:.2f} times as long as rejax's.")
        told.append(
            f"{statistics.median(ours):.1f} s, {spread(longer, '.2f')} of rejax's, quick {spread(with_flags, '.2f')}"
        )
    report.finish("; ".join(told))


if __name__ == "__main__":
    main()
