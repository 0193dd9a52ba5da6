"""Memory that the programs of earlier calls keep, and what letting go of them gives back.

    python bench/kept_programs.py [--networks 7] [--json FILE]

One process for each way of the table trains PPO on `probe/action-dependent` once with each of several tiny networks of
different widths, and reads its anonymous resident memory (`RssAnon`) after the first call and after the last. There is
no floor to compare with. Takes Linux.
"""

import subprocess
import sys
from pathlib import Path

if __name__ == "__main__":  # a script's folder is first on the path, where envs.py hides `envs`
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.report import Report, benchmark_parser

ROOT = Path(__file__).resolve().parents[1]
WAYS = {
    "nothing": "pass",
    "`jax.clear_caches()`": "jax.clear_caches()",
    "`jaxrl.clear_programs()`": "jaxrl.clear_programs()",
}
PROGRAM = """
import re, sys
from pathlib import Path
import jax, envs, jaxrl

def kept():
    return int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 2**10

levels = []
for i in range(int(sys.argv[1])):
    config = jaxrl.PPOConfig(num_envs=2, num_steps=4, reset_pool=4, hidden=(4 + i,))
    jaxrl.train(jaxrl.ppo(envs.make("probe/action-dependent"), config), env_steps=64, seeds=1, evals=1, progress=False)
    {after}
    levels.append(kept())
print(levels[0], levels[-1])
"""


def measured(after: str, networks: int) -> tuple[float, float]:
    """Memory in MiB after the first and after the last call."""
    command = [sys.executable, "-c", PROGRAM.replace("{after}", after), str(networks)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=ROOT, text=True)
    first, last = map(float, done.stdout.split())
    return first, last


def main() -> None:
    """Print the table."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--networks", type=int, default=7, help="number of networks, one call each")
    arguments = parser.parse_args()
    if arguments.networks < 2:
        parser.error(f"argument --networks must be at least 2, got {arguments.networks}")
    report = Report(parser, arguments, "memory that the programs of earlier calls keep")
    table = report.table(
        f"One call for each of {arguments.networks} networks, in fresh processes",
        {"after each call": "", "first, MiB": ".0f", "last, MiB": ".0f", "MiB a network": ".1f"},
    )
    growth = {}
    for way, after in WAYS.items():
        first, last = measured(after, arguments.networks)
        growth[way] = (last - first) / (arguments.networks - 1)
        table.add(way, first, last, growth[way])
    report.finish(", ".join(f"{way} {grown:.1f} MiB a network" for way, grown in growth.items()))


if __name__ == "__main__":
    main()
