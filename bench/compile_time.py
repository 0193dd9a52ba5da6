"""Compile time of PPO compared with rejax: from tracing to executables, in fresh processes, alternately.

    python bench/compile_time.py [--seeds 1 8 64] [--repeats 3] [--rejax PYTHON | --no-peers] [--json FILE]

The settings are those of bench/train.py, without a persistent cache. For jaxrl the compile time is the time of a first
call of `train` without the run itself, in which the programs that start, advance and evaluate the runs are compiled.
For rejax it is the time to trace, lower and compile its one program, which trains and evaluates. On CPUs jaxrl sets
LLVM's optimisation level to 2; rejax compiles at JAX's default level of 3. "Quick" is jaxrl with XLA_FLAGS, optional
for users, that select XLA's older and faster kernel emitters. Each ratio is a ratio of medians, shown with the minimum
and maximum of the ratios within a turn. The exit status is 1 if jaxrl, without the flags, takes longer. There is no
floor to compare with.
"""

import os
import statistics
import sys
from pathlib import Path

if __name__ == "__main__":  # a script's folder is first on the path, where envs.py hides `envs`
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.report import Report, benchmark_parser, ratios, spread
from bench.sides import Side, add_peers, find_peer, require_same_device
from bench.train import ENV_STEPS, our_command, rejax_command

NO_CACHE = {"JAX_COMPILATION_CACHE_DIR": "", "JAX_ENABLE_COMPILATION_CACHE": "false"}
QUICK = "--xla_backend_extra_options=xla_cpu_disable_new_fusion_emitters"


def compiled(command: list[str], flags: str = "") -> Side:
    """A finished side: a fresh process that compiled and ended."""
    side = Side(command, {**os.environ, **NO_CACHE, "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip()})
    side.close()
    return side


def main() -> None:
    """Print the table."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--repeats", type=int, default=3)
    add_peers(parser, "rejax")
    parser.add_argument("--no-peers", action="store_true", help="measure ours alone")
    arguments = parser.parse_args()
    arguments.rejax = None if arguments.no_peers else find_peer(parser, "rejax", arguments.rejax)
    what = f"compiling PPO on CartPole at {' / '.join(map(str, arguments.seeds))} seeds, no cache"
    report = Report(parser, arguments, what if arguments.rejax is None else f"{what}; compared with rejax 0.1.3")
    table = report.table(
        f"Alternating fresh processes, {arguments.repeats} each: median (least to most)",
        {
            "seeds": ",d",
            "ours, s": ".1f",
            "rejax, s": ".1f",
            "ours / rejax": ".2f",
            "quick, s": ".1f",
            "quick / rejax": ".2f",
        },
    )
    sentences = []
    for num_seeds in arguments.seeds:
        ours, quick, theirs = [], [], []
        for _ in range(arguments.repeats):
            our_side = compiled(our_command(num_seeds, ENV_STEPS))
            ours.append(our_side.compiled["compile_seconds"])
            quick.append(compiled(our_command(num_seeds, ENV_STEPS), QUICK).compiled["compile_seconds"])
            if arguments.rejax is not None:
                peer = compiled(rejax_command(arguments.rejax, num_seeds, ENV_STEPS))
                require_same_device(our_side, peer)
                theirs.append(peer.compiled["compile_seconds"])
        if not theirs:
            table.add(num_seeds, ours, None, None, quick, None)
            sentences.append(f"{num_seeds:,}: {statistics.median(ours):.1f} s, quick {statistics.median(quick):.1f} s")
            continue
        longer, with_flags = ratios(ours, theirs), ratios(quick, theirs)
        table.add(num_seeds, ours, theirs, longer, quick, with_flags)
        median = statistics.median(longer)
        report.require(median <= 1, f"Compiling for {num_seeds:,} seeds takes {median:.2f} times as long as rejax's.")
        sentences.append(
            f"{num_seeds:,}: {statistics.median(ours):.1f} s, {spread(longer, '.2f')} of rejax's, "
            f"quick {spread(with_flags, '.2f')}"
        )
    report.finish("; ".join(sentences))


if __name__ == "__main__":
    main()
